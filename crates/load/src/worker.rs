//! One thread's load: its connections, opened, kept busy and measured over one poller.
//!
//! Four rules hold here:
//! 1. One `recv` and one `send` an exchange, and no allocation: what is rare (parts, losses) is kept apart.
//! 2. A latency runs from just before the `send` (open loop: from the intended start) to just after the
//!    `recv` that completed the answer. One reading of the clock ends it and starts the next.
//! 3. What happens outside the window is done in the same way and not counted.
//! 4. A connection that is lost is counted and opened again: there are always as many as were asked for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use headrace_engine::socket::{self, Io};
use headrace_engine::{Events, Interest, Poller, Readiness, Token};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockAddr;

use crate::clock::nanos;
use crate::connection::{Connection, State};
use crate::plan::Plan;
use crate::protocol::{Answer, Protocol, Step};
use crate::schedule::Arrivals;
use crate::shared::{Shared, Window};
use crate::stats::{Fault, Stats, histogram, record};
use crate::timer::Timer;

/// Connections of a thread that are being opened at the same time. Listeners queue 100 (gunicorn's threads)
/// to 2048; a queue that overflows costs a whole second, until the kernel sends the SYN again.
const MAX_OPENING: usize = 64;
/// Before a connection that could not be opened, or gave no answer at all, is tried again.
const RETRY: u64 = 100_000_000;
/// Before a Unix socket whose queue is full (EAGAIN) is tried again.
const RETRY_FULL: u64 = 1_000_000;
/// How often timeouts are looked for, and a wish to stop.
const SWEEP: u64 = 50_000_000;
/// Bytes of one `recv`: a 100 KB answer comes in one piece, and the buffer stays in the second-level cache.
const BUFFER: usize = 256 * 1024;
/// Events of one wait.
const EVENTS: usize = 512;
/// Nanoseconds of a second of the log.
const SECOND: u64 = 1_000_000_000;
/// The timer's token: no connection has this place.
const TIMER: Token = Token(u64::MAX);

/// What a thread has to tell at the end.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    /// CPU time of this thread in the window.
    pub(crate) cpu: u64,
    /// Requests meant to start in the window (open loop).
    pub(crate) offered: u64,
    /// Of those, never sent, for want of a free connection.
    pub(crate) unsent: u64,
    /// Requests without an answer when the window closed.
    pub(crate) awaited: u64,
    /// Connections open at the end.
    pub(crate) open: usize,
    /// The first thing that went wrong, in words.
    pub(crate) first_error: Option<(Fault, String)>,
}

pub(crate) struct Worker<'a, P: Protocol> {
    shared: &'a Shared,
    plan: &'a Plan,
    address: &'a SockAddr,
    thread: usize,
    timeout: u64,
    protocol: P,
    poller: Poller,
    timer: Timer,
    /// The intended start that the timer is set for.
    armed: u64,
    connections: Vec<Connection<P>>,
    /// Closed connections, by when they are to be opened.
    closed: BinaryHeap<Reverse<(u64, usize)>>,
    opening: usize,
    unsettled: usize,
    open: usize,
    /// Open connections that wait for an arrival (open loop), longest first.
    idle: VecDeque<usize>,
    arrivals: Option<Arrivals>,
    /// Set once requests are sent.
    window: Option<Window>,
    buffer: Vec<u8>,
    stats: Stats,
    seconds: Seconds,
    offered: u64,
    first_error: Option<(Fault, String)>,
}

/// The second that is being recorded, where a log is kept.
#[derive(Debug)]
struct Seconds {
    current: Option<Histogram<u64>>,
    number: usize,
}

impl Seconds {
    /// Deliver the seconds that are over at `now`.
    fn turn(&mut self, shared: &Shared, window: Option<Window>, now: u64) {
        let (Some(current), Some(window)) = (&mut self.current, window) else { return };
        while now >= window.end.min(window.start + (self.number as u64 + 1) * SECOND)
            && window.start + (self.number as u64) * SECOND < window.end
        {
            shared.intervals.deliver(self.number, current);
            current.reset();
            self.number += 1;
        }
    }
}

/// CPU time of this thread at the ends of the window.
#[derive(Debug, Default)]
struct Cpu {
    start: Option<u64>,
    end: Option<u64>,
}

impl Cpu {
    fn look(&mut self, window: &Window, now: u64) {
        if now >= window.start {
            self.start.get_or_insert_with(thread_cpu);
        }
        if now >= window.end {
            self.end.get_or_insert_with(thread_cpu);
        }
    }

    fn used(&self) -> u64 {
        self.start.map_or(0, |start| self.end.unwrap_or_else(thread_cpu) - start)
    }
}

fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl<'a, P: Protocol> Worker<'a, P> {
    /// A thread's part of the run: `connections` of them, to `address`.
    ///
    /// # Errors
    /// The system's: out of file descriptors or memory.
    pub(crate) fn new(
        shared: &'a Shared,
        plan: &'a Plan,
        address: &'a SockAddr,
        thread: usize,
        connections: usize,
        protocol: P,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let timer = Timer::new()?;
        poller.register(&timer, TIMER, Interest::READ)?;
        Ok(Self {
            shared,
            plan,
            address,
            thread,
            timeout: nanos(plan.timeout),
            poller,
            timer,
            armed: 0,
            connections: (0..connections).map(|_| Connection::new(&protocol, plan.pipeline)).collect(),
            closed: (0..connections).map(|index| Reverse((0, index))).collect(),
            opening: 0,
            unsettled: connections,
            open: 0,
            idle: VecDeque::with_capacity(connections),
            arrivals: None,
            window: None,
            buffer: Vec::with_capacity(BUFFER),
            stats: Stats::new(plan.kinds().len()),
            seconds: Seconds { current: plan.log.then(histogram), number: 0 },
            offered: 0,
            first_error: None,
            protocol,
        })
    }

    /// Open the connections, wait for the others, send until the window closes.
    pub(crate) fn run(mut self) -> Outcome {
        let mut events = Events::with_capacity(EVENTS);
        let mut said_ready = false;
        let mut cpu = Cpu::default();
        let mut sweep_at = 0;
        loop {
            let now = self.shared.clock.now();
            if self.window.is_none() {
                if let Some(window) = self.shared.window.get().filter(|window| window.begin <= now) {
                    self.begin(*window);
                } else if self.unsettled == 0 && !said_ready {
                    said_ready = true;
                    self.shared.ready.fetch_add(1, Ordering::Relaxed);
                }
            }
            if let Some(window) = self.window {
                cpu.look(&window, now);
                if now >= window.end && (self.arrivals.is_none() || self.drained()) {
                    break;
                }
            }
            self.seconds.turn(self.shared, self.window, now);
            if self.shared.stopped() {
                break;
            }
            if now >= sweep_at {
                sweep_at = now + SWEEP;
                self.sweep(now);
            }
            self.open_due(now);
            self.send_due();
            let wake = sweep_at.min(self.wake_at());
            let timeout = Duration::from_nanos(wake.saturating_sub(self.shared.clock.now()));
            match self.poller.wait(&mut events, Some(timeout)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => unreachable!("waiting on our own poller failed: {error}"),
            }
            for index in 0..events.len() {
                if let Some(event) = events.get(index) {
                    self.ready(event.token, event.readiness);
                }
            }
            let progress = &self.shared.progress[self.thread];
            progress.open.store(self.open, Ordering::Relaxed);
            progress.good.store(self.stats.good, Ordering::Relaxed);
            progress.errors.store(self.stats.errors.total(), Ordering::Relaxed);
        }
        self.finish(cpu)
    }

    /// Whether no answer is awaited any more. In an open loop a request counts by its intended start, so those
    /// that are under way when the window closes are waited for: they are the slow ones.
    fn drained(&self) -> bool {
        self.connections.iter().all(|connection| connection.awaited.is_empty())
    }

    fn finish(self, cpu: Cpu) -> Outcome {
        if let Some(rest) = self.seconds.current.filter(|rest| !rest.is_empty()) {
            // Answers that came after the window, and of a second that was cut short.
            self.shared.intervals.deliver(self.seconds.number, &rest);
        }
        let mut unsent = 0;
        if let (Some(arrivals), Some(window)) = (self.arrivals, self.window) {
            let end = window.end.min(self.shared.clock.now());
            unsent = arrivals.clone().count_until(end) - arrivals.count_until(window.start.min(end));
        }
        Outcome {
            cpu: cpu.used(),
            offered: self.offered + unsent,
            unsent,
            awaited: self.connections.iter().map(|c| c.awaited.len() as u64).sum(),
            open: self.open,
            first_error: self.first_error,
            stats: self.stats,
        }
    }

    /// When something is to be done that no descriptor tells of.
    fn wake_at(&self) -> u64 {
        let window = match self.window {
            // The window is opened for all threads at once, with a millisecond's notice.
            None => self.shared.window.get().map_or(self.shared.clock.now() + 1_000_000, |w| w.begin),
            Some(window) if self.arrivals.is_none() => window.end,
            // The timer tells of arrivals, and after the end there are only answers to wait for.
            Some(_) => u64::MAX,
        };
        let closed = match self.closed.peek() {
            Some(Reverse((due, _))) if self.opening < MAX_OPENING => *due,
            _ => u64::MAX,
        };
        window.min(closed)
    }

    /// Send the first requests.
    fn begin(&mut self, window: Window) {
        self.window = Some(window);
        self.arrivals =
            Arrivals::new(self.plan.schedule, &window, self.thread, self.plan.threads, self.plan.seed);
        for index in 0..self.connections.len() {
            if self.connections[index].state == State::Open {
                self.free(index, self.shared.clock.now());
            }
        }
    }

    fn ready(&mut self, token: Token, readiness: Readiness) {
        if token == TIMER {
            if !self.send_due() {
                self.timer.clear();
                self.armed = 0;
            }
            return;
        }
        let index = token.0 as u32 as usize;
        let connection = &self.connections[index];
        if connection.token(index) != token {
            return;
        }
        match connection.state {
            State::Closed => {}
            State::Opening(_) => self.opened(index),
            State::Open => {
                if readiness.writable && !connection.unsent.is_empty() {
                    self.send_rest(index);
                }
                if readiness.readable && self.connections[index].token(index) == token {
                    self.receive(index);
                }
            }
        }
    }

    /// Open the connections whose turn it is.
    fn open_due(&mut self, now: u64) {
        while self.opening < MAX_OPENING
            && let Some(Reverse((due, index))) = self.closed.peek().copied()
            && due <= now
        {
            self.closed.pop();
            let opened = socket::connect(self.address).and_then(|socket| {
                self.poller.register(&socket, self.connections[index].token(index), Interest::WRITE)?;
                Ok(socket)
            });
            let connection = &mut self.connections[index];
            match opened {
                Ok(socket) => {
                    connection.socket = Some(socket);
                    connection.state = State::Opening(now);
                    self.opening += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.closed.push(Reverse((now + RETRY_FULL, index)));
                }
                Err(error) => self.lose(index, Fault::Connect, now, || error.to_string()),
            }
        }
    }

    /// A connection attempt is over.
    fn opened(&mut self, index: usize) {
        let now = self.shared.clock.now();
        let token = self.connections[index].token(index);
        let Some(socket) = &self.connections[index].socket else { return };
        let failed = match socket.take_error() {
            Ok(None) => self.poller.modify(socket, token, Interest::READ).err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = failed {
            return self.lose(index, Fault::Connect, now, || error.to_string());
        }
        socket::set_nodelay(socket);
        self.opening -= 1;
        self.open += 1;
        self.connections[index].state = State::Open;
        self.settle(index);
        if self.window.is_some() {
            self.free(index, now);
        }
    }

    fn settle(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.settled {
            if self.window.is_some_and(|window| window.counts(self.shared.clock.now())) {
                self.stats.reconnects += 1;
            }
        } else {
            connection.settled = true;
            self.unsettled -= 1;
        }
    }

    /// An open connection awaits nothing: give it requests, or let it wait for an arrival.
    fn free(&mut self, index: usize, now: u64) {
        if self.arrivals.is_none() {
            return self.send(index, self.plan.pipeline, now, now);
        }
        if !self.connections[index].idle {
            self.connections[index].idle = true;
            self.idle.push_back(index);
        }
        self.send_due();
    }

    /// Send what is due by the schedule, as far as there are free connections. Says whether the timer was set
    /// anew for what is not due yet.
    fn send_due(&mut self) -> bool {
        let Some(window) = self.window else { return false };
        while let Some(arrivals) = &mut self.arrivals
            && !self.idle.is_empty()
        {
            let (intended, now) = (arrivals.next(), self.shared.clock.now());
            if intended > now {
                let anew = self.armed != intended;
                if anew {
                    self.timer.set(intended - now);
                    self.armed = intended;
                }
                return anew;
            }
            if now >= window.end {
                return false;
            }
            let Some(index) = self.idle.pop_front() else { return false };
            let connection = &mut self.connections[index];
            connection.idle = false;
            if connection.state != State::Open || !connection.awaited.is_empty() {
                continue;
            }
            arrivals.advance();
            if window.counts(intended) {
                self.offered += 1;
                record(&mut self.stats.lag, now - intended);
            }
            self.send(index, 1, intended, now);
        }
        false
    }

    /// Send `count` requests that start at `start` on a connection that awaits nothing.
    fn send(&mut self, index: usize, count: usize, start: u64, now: u64) {
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else { return };
        let bytes = self.protocol.requests(&mut connection.protocol, count);
        connection.awaited.extend(std::iter::repeat_n(start, count));
        connection.sent = now;
        let sent = match socket::send(socket, bytes) {
            Ok(Io::Done(sent)) => sent,
            Ok(Io::WouldBlock) => 0,
            Err(error) => return self.lose(index, Fault::Write, now, || error.to_string()),
        };
        if self.window.is_some_and(|window| window.counts(now)) {
            self.stats.bytes_out += sent as u64;
        }
        if sent < bytes.len() {
            connection.unsent.extend_from_slice(&bytes[sent..]);
            self.watch(index, Interest::READ_WRITE);
        }
    }

    /// The kernel takes more of what is to be sent.
    fn send_rest(&mut self, index: usize) {
        let now = self.shared.clock.now();
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else { return };
        match socket::send(socket, &connection.unsent[connection.written..]) {
            Ok(Io::WouldBlock) => {}
            Ok(Io::Done(sent)) => {
                connection.written += sent;
                if self.window.is_some_and(|window| window.counts(now)) {
                    self.stats.bytes_out += sent as u64;
                }
                if connection.written == connection.unsent.len() {
                    connection.unsent.clear();
                    connection.written = 0;
                    self.watch(index, Interest::READ);
                }
            }
            Err(error) => self.lose(index, Fault::Write, now, || error.to_string()),
        }
    }

    fn watch(&mut self, index: usize, interest: Interest) {
        let connection = &self.connections[index];
        let Some(socket) = &connection.socket else { return };
        if let Err(error) = self.poller.modify(socket, connection.token(index), interest) {
            let now = self.shared.clock.now();
            self.lose(index, Fault::Write, now, || error.to_string());
        }
    }

    /// Take what the server sent.
    fn receive(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else { return };
        self.buffer.clear();
        let received = socket::receive(socket, &mut self.buffer);
        let now = self.shared.clock.now();
        match received {
            Ok(Io::WouldBlock) => return,
            Ok(Io::Done(0)) => return self.ended(index, now),
            Ok(Io::Done(_)) => {}
            Err(error) => return self.lose(index, Fault::Read, now, || error.to_string()),
        }
        if self.window.is_some_and(|window| window.counts(now)) {
            self.stats.bytes_in += self.buffer.len() as u64;
        }
        let mut at = 0;
        while at < self.buffer.len() {
            let connection = &mut self.connections[index];
            let Some(start) = connection.awaited.front().copied() else {
                return self.lose(index, Fault::Protocol, now, || "bytes that nobody asked for".to_owned());
            };
            let (used, step) = self.protocol.receive(&mut connection.protocol, &self.buffer[at..]);
            at += used;
            match step {
                Step::More => return,
                Step::Fault(fault) => {
                    return self.lose(index, fault, now, || "the bytes received are no answer".to_owned());
                }
                Step::Answer(answer) => {
                    connection.awaited.pop_front();
                    connection.answered = true;
                    self.count(answer, start, now);
                    if answer.close {
                        return self.reopen(index, now);
                    }
                }
            }
        }
        if self.connections[index].awaited.is_empty() {
            self.free(index, now);
        }
    }

    /// The server has ended the stream.
    fn ended(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let Some(start) = connection.awaited.front().copied() else {
            return self.reopen(index, now);
        };
        match self.protocol.end(&mut connection.protocol) {
            Step::Answer(answer) => {
                connection.awaited.pop_front();
                connection.answered = true;
                self.count(answer, start, now);
                self.reopen(index, now);
            }
            Step::More | Step::Fault(_) => self.lose(index, Fault::Read, now, || {
                "the server closed the connection before its answer was complete".to_owned()
            }),
        }
    }

    /// Whether an exchange counts: in a closed loop when it ends in the window, in an open loop when it was
    /// meant to start in it.
    #[inline]
    fn counts(&self, start: u64, now: u64) -> bool {
        self.window.is_some_and(|window| window.counts(if self.arrivals.is_some() { start } else { now }))
    }

    /// Count an answer.
    #[inline]
    fn count(&mut self, answer: Answer, start: u64, now: u64) {
        if !self.counts(start, now) {
            return;
        }
        if let Some(count) = self.stats.status.get_mut(usize::from(answer.status)) {
            *count += 1;
        }
        match answer.fault {
            None => {
                self.stats.good(answer.kind, now - start);
                if let Some(second) = &mut self.seconds.current {
                    record(second, now - start);
                }
            }
            Some(fault) => {
                self.stats.bad(answer.kind, fault);
                self.first_error.get_or_insert_with(|| (fault, self.protocol.blame(&answer)));
            }
        }
    }

    /// The server closes after a complete answer, as it may: requests still awaited are lost.
    fn reopen(&mut self, index: usize, now: u64) {
        if !self.connections[index].awaited.is_empty() {
            return self.lose(index, Fault::Read, now, || {
                "the server closed the connection with requests unanswered".to_owned()
            });
        }
        self.drop_connection(index, now);
    }

    /// A connection is lost, and with it all that was awaited on it.
    fn lose(&mut self, index: usize, fault: Fault, now: u64, why: impl FnOnce() -> String) {
        let awaited = &self.connections[index].awaited;
        let start = awaited.front().copied().unwrap_or(now);
        if self.counts(start, now) {
            (0..awaited.len().max(1)).for_each(|_| self.stats.errors.count(fault));
        }
        self.first_error.get_or_insert_with(|| (fault, why()));
        self.drop_connection(index, now);
    }

    fn drop_connection(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let delay = if connection.answered { 0 } else { RETRY };
        match connection.state {
            State::Opening(_) => self.opening -= 1,
            State::Open => self.open -= 1,
            State::Closed => {}
        }
        connection.close(&self.protocol);
        self.closed.push(Reverse((now + delay, index)));
        if !self.connections[index].settled {
            self.settle(index);
        }
    }

    /// Find what has taken too long.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let (since, fault) = match connection.state {
                State::Opening(since) => (since, Fault::Connect),
                State::Open if !connection.awaited.is_empty() => (connection.sent, Fault::Timeout),
                _ => continue,
            };
            if now.saturating_sub(since) >= self.timeout {
                let seconds = self.plan.timeout.as_secs_f64();
                self.lose(index, fault, now, || format!("nothing came within {seconds} s"));
            }
        }
    }
}
