//! One thread's load: its connections, opened, kept busy and measured over one poller.
//!
//! Four rules hold here:
//! 1. One `recv` and one `send` an exchange, and no allocation: what is rare (parts, losses) is kept apart.
//! 2. A latency runs from just before the `send` (open loop: from the intended start) to just after the
//!    `recv` that completed the answer. One reading of the clock ends it and starts the next.
//! 3. What happens outside the window is done in the same way and not counted.
//! 4. A connection that is lost is counted and opened again: there are always as many as were asked for.

mod exchange;
mod meters;
mod opening;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headrace_engine::{Events, Interest, Poller, Readiness, Token};
use socket2::SockAddr;

use crate::clock::nanos;
use crate::connection::{Connection, State};
use crate::plan::Plan;
use crate::protocol::Protocol;
use crate::schedule::Arrivals;
use crate::shared::{Shared, Window};
use crate::stats::{Fault, Stats};
use crate::timer::Timer;
use crate::tls::TlsPlan;
use meters::{Cpu, Seconds};

/// How often timeouts are looked for, and a wish to stop.
const SWEEP: u64 = 50_000_000;
/// Bytes of one `recv`: a 100 KB answer comes in one piece, and the buffer stays in the second-level cache.
const BUFFER: usize = 256 * 1024;
/// Events of one wait.
const EVENTS: usize = 512;
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

/// What a thread is given: its part of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) plan: &'a Plan,
    pub(crate) address: &'a SockAddr,
    pub(crate) tls: Option<&'a TlsPlan>,
    /// Its number among the plan's threads.
    pub(crate) thread: usize,
    /// How many connections it has.
    pub(crate) connections: usize,
}

pub(crate) struct Worker<'a, P: Protocol> {
    part: Part<'a>,
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
    /// When the last connection was opened; the start of the thread before that.
    opened_at: u64,
    open: usize,
    /// Open connections that wait for an arrival (open loop), longest first.
    idle: VecDeque<usize>,
    arrivals: Option<Arrivals>,
    /// Set once requests are sent.
    window: Option<Window>,
    buffer: Vec<u8>,
    /// As received, where TLS is spoken.
    records: Vec<u8>,
    stats: Stats,
    seconds: Seconds,
    cpu: Cpu,
    offered: u64,
    first_error: Option<(Fault, String)>,
}

impl<'a, P: Protocol> Worker<'a, P> {
    /// A thread that speaks `protocol`.
    ///
    /// # Errors
    /// The system's: out of file descriptors or memory.
    pub(crate) fn new(part: Part<'a>, protocol: P) -> io::Result<Self> {
        let poller = Poller::new()?;
        let timer = Timer::new()?;
        poller.register(&timer, TIMER, Interest::READ)?;
        Ok(Self {
            part,
            timeout: nanos(part.plan.timeout),
            poller,
            timer,
            armed: 0,
            connections: (0..part.connections)
                .map(|_| Connection::new(&protocol, part.plan.pipeline))
                .collect(),
            closed: (0..part.connections).map(|index| Reverse((0, index))).collect(),
            opening: 0,
            unsettled: part.connections,
            opened_at: 0,
            open: 0,
            idle: VecDeque::with_capacity(part.connections),
            arrivals: None,
            window: None,
            buffer: Vec::with_capacity(BUFFER),
            records: Vec::with_capacity(if part.tls.is_some() { BUFFER } else { 0 }),
            stats: Stats::new(part.plan.kinds().len()),
            seconds: Seconds::new(part.plan.log),
            cpu: Cpu::default(),
            offered: 0,
            first_error: None,
            protocol,
        })
    }

    /// Whether a server that is overloaded has taken no connection for so long that the load begins with those
    /// there are: the others go on being tried, and count as errors.
    fn gave_up_opening(&self, now: u64) -> bool {
        now.saturating_sub(self.opened_at) >= self.timeout
    }

    /// Open the connections, wait for the others, send until the window closes.
    pub(crate) fn run(mut self) -> Outcome {
        let mut events = Events::with_capacity(EVENTS);
        let mut said_ready = false;
        let mut sweep_at = 0;
        self.opened_at = self.now();
        while !self.part.shared.stopped() {
            let now = self.now();
            if self.window.is_none() {
                if let Some(window) = self.part.shared.window.get().filter(|window| window.begin <= now) {
                    self.begin(*window);
                } else if !said_ready && (self.unsettled == 0 || self.gave_up_opening(now)) {
                    said_ready = true;
                    self.part.shared.ready.fetch_add(1, Ordering::Relaxed);
                }
            }
            if self.is_over(now) {
                break;
            }
            if now >= sweep_at {
                sweep_at = now + SWEEP;
                self.sweep(now);
            }
            self.open_due(now);
            self.send_due();
            let wake = sweep_at.min(self.wake_at());
            let timeout = Duration::from_nanos(wake.saturating_sub(self.now()));
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
            let progress = &self.part.shared.progress[self.part.thread];
            progress.open.store(self.open, Ordering::Relaxed);
            progress.good.store(self.stats.good, Ordering::Relaxed);
            progress.errors.store(self.stats.errors.total(), Ordering::Relaxed);
        }
        self.finish()
    }

    fn now(&self) -> u64 {
        self.part.shared.clock.now()
    }

    /// Read the meters that are due, and say whether the run is over.
    fn is_over(&mut self, now: u64) -> bool {
        let Some(window) = self.window else { return false };
        self.cpu.look(&window, now);
        self.seconds.turn(self.part.shared, &window, now);
        // In an open loop a request counts by its intended start, so those that are under way when the window
        // closes are waited for: they are the slow ones.
        let drained = || self.connections.iter().all(|connection| connection.awaited.is_empty());
        now >= window.end && (self.arrivals.is_none() || drained())
    }

    fn finish(self) -> Outcome {
        self.seconds.finish(self.part.shared);
        let mut unsent = 0;
        if let (Some(arrivals), Some(window)) = (self.arrivals, self.window) {
            let end = window.end.min(self.part.shared.clock.now());
            unsent = arrivals.clone().count_until(end) - arrivals.count_until(window.start.min(end));
        }
        Outcome {
            cpu: self.cpu.used(),
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
            // The window is opened for all threads at once, with a little notice.
            None => self.part.shared.window.get().map_or(self.now() + 1_000_000, |window| window.begin),
            Some(window) if self.arrivals.is_none() => window.end,
            // The timer tells of arrivals, and after the end there are only answers to wait for.
            Some(_) => u64::MAX,
        };
        window.min(self.next_opening())
    }

    /// Send the first requests.
    fn begin(&mut self, window: Window) {
        let (plan, thread) = (self.part.plan, self.part.thread);
        self.window = Some(window);
        self.arrivals = Arrivals::new(plan.schedule, &window, thread, plan.threads, plan.seed);
        for index in 0..self.connections.len() {
            if self.connections[index].state == State::Open {
                self.free(index, self.now());
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
        if self.connections[index].token(index) != token {
            return;
        }
        match self.connections[index].state {
            State::Closed => {}
            State::Connecting(_) => self.connected(index),
            State::Greeting(_) | State::Open => {
                if readiness.writable {
                    self.send_rest(index);
                }
                if readiness.readable && self.connections[index].token(index) == token {
                    self.receive(index);
                }
            }
        }
    }

    /// Find what has taken too long.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let (since, fault) = match connection.state {
                State::Connecting(since) | State::Greeting(since) => (since, Fault::Connect),
                State::Open if !connection.awaited.is_empty() => (connection.sent, Fault::Timeout),
                _ => continue,
            };
            if now.saturating_sub(since) >= self.timeout {
                let seconds = self.part.plan.timeout.as_secs_f64();
                self.lose(index, fault, now, || format!("nothing came within {seconds} s"));
            }
        }
    }
}
