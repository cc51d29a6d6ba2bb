//! The server's state, and the steps that need no application.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_engine::socket::{self, Io};
use headrace_engine::{DeadlineQueue, Interest, Poller, Token};
use headrace_http1::{Field, Reject, simple_response};
use slab::Slab;

use crate::access::AccessLog;
use crate::config::Config;
use crate::connection::{Connection, ConnectionKey, Phase, Timer};
use crate::date::DateLine;
use crate::exchange::{Exchange, ExchangeId};
use crate::held::HeldOutput;

/// Tokens of listeners have this bit; the others are a connection's slot, and its serial above.
const LISTENER: u64 = 1 << 55;
const SLOT_BITS: u32 = 24;
const SERIAL_MASK: u32 = (1 << 31) - 1;

/// Connections taken from a listener's queue at one readiness: enough to empty it under load, few enough
/// not to starve those that are open.
const ACCEPT_BATCH: usize = 64;

/// How long a listener rests when the system has no descriptors or memory left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// With 503 (RFC 9110 section 10.2.3): a worker that is busy now may be free in a second.
const RETRY_AFTER: &[u8] = b"retry-after: 1\r\n";

/// Above so many unread or unsent bytes the faster side waits.
pub(crate) const HIGH_WATER: usize = 64 * 1024;
/// Unread bytes of a body, above which no more is taken from the client. A recv of a big buffer is one call.
pub(crate) const BODY_HIGH_WATER: usize = 256 * 1024;
/// Output is held back for that of others no longer than this, unless the application works longer at a stretch.
const HOLD_AT_MOST: Duration = Duration::from_micros(500);
/// Where the application kept the thread for twice as long while output waited, nothing is held back for so many
/// times what that took: output waits in vain for a twentieth of the time at most.
const HOLD_NOT_FOR: u32 = 19;

/// Room for one `recv`. One a server, not one a connection: an idle connection has none.
pub(crate) const READ_BUFFER: usize = 256 * 1024;

/// Bytes read and thrown away from a connection that lingers, at the most.
const LINGER_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
struct Listener {
    fd: OwnedFd,
    /// Not watched until then: the system was out of descriptors, or the server of connections.
    resting: bool,
}

/// What is still to be done when nothing is borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Todo {
    /// Requests are waiting in the connection's input.
    Process(ConnectionKey),
    BodyReady(ExchangeId),
    Writable(ExchangeId),
    Disconnected(ExchangeId),
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    poller: Arc<Poller>,
    token_base: u64,
    listeners: Vec<Listener>,
    pub(crate) connections: Slab<Connection>,
    next_serial: u32,
    pub(crate) now: Instant,
    pub(crate) date: DateLine,
    timers: [DeadlineQueue<ConnectionKey>; Timer::ALL.len()],
    rest_until: Option<Instant>,
    pub(crate) todo: VecDeque<Todo>,
    /// Connections whose output waits for that of others, and since when the first of them does.
    held: Vec<ConnectionKey>,
    pub(crate) held_output: Arc<HeldOutput>,
    held_since: Instant,
    /// Nothing is held back before then ...
    hold_from: Instant,
    /// ... nor unless somebody comes soon to send it.
    pub(crate) may_hold: bool,
    pub(crate) spare: Vec<Vec<u8>>,
    read_buffer: Vec<u8>,
    pub(crate) draining: bool,
    pub(crate) accepted: u64,
    /// Connections that are in [`Phase::Exchange`].
    pub(crate) in_flight: usize,
    pub(crate) requests: u64,
    pub(crate) access: Option<AccessLog>,
}

impl Core {
    pub(crate) fn new(config: Config, poller: Arc<Poller>, token_base: u64, now: Instant) -> Self {
        let timers = Timer::ALL.map(|timer| {
            DeadlineQueue::new(match timer {
                Timer::Head => config.head_timeout,
                Timer::Idle => config.keep_alive,
                Timer::Body => config.body_timeout,
                Timer::Write => config.write_timeout,
                Timer::Linger => config.linger,
            })
        });
        Self {
            config,
            poller,
            token_base,
            listeners: Vec::new(),
            connections: Slab::new(),
            next_serial: 1,
            now,
            date: DateLine::new(now),
            timers,
            rest_until: None,
            todo: VecDeque::new(),
            held: Vec::new(),
            held_output: Arc::default(),
            held_since: now,
            hold_from: now,
            may_hold: true,
            spare: Vec::new(),
            read_buffer: Vec::new(),
            draining: false,
            accepted: 0,
            in_flight: 0,
            requests: 0,
            access: None,
        }
    }

    /// A number for a connection or an exchange; zero is nobody's.
    pub(crate) fn serial(&mut self) -> u32 {
        let serial = self.next_serial;
        self.next_serial = ((serial + 1) & SERIAL_MASK).max(1);
        serial
    }

    // Listeners

    pub(crate) fn listen(&mut self, fd: OwnedFd) -> io::Result<usize> {
        // Accepted sockets inherit it: one call here spares one for each connection.
        socket::set_nodelay(&fd);
        let index = self.listeners.len();
        self.poller.register(&fd, self.listener_token(index), Interest::READ)?;
        self.listeners.push(Listener { fd, resting: false });
        Ok(index)
    }

    fn listener_token(&self, index: usize) -> Token {
        Token(self.token_base | LISTENER | index as u64)
    }

    pub(crate) fn listener_of(&self, token: Token) -> Option<usize> {
        (token.0 & LISTENER != 0).then_some((token.0 & !LISTENER) as usize)
    }

    pub(crate) fn close_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            // The socket may be shared with other processes, so closing it here does not stop the poller's watch.
            let _ = self.poller.deregister(&listener.fd);
        }
        self.rest_until = None;
    }

    pub(crate) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPT_BATCH {
            let Some(listener) = self.listeners.get(index) else { return };
            if self.connections.len() >= self.config.connections {
                return self.rest();
            }
            match socket::accept(&listener.fd) {
                Ok(Some((fd, address))) => {
                    let peer = address.and_then(|address| address.try_into().ok());
                    self.open(fd, index, peer);
                }
                Ok(None) => return,
                Err(_) => return self.rest(),
            }
        }
    }

    fn open(&mut self, fd: OwnedFd, listener: usize, peer: Option<std::net::SocketAddr>) {
        let serial = self.serial();
        let entry = self.connections.vacant_entry();
        let key = ConnectionKey { slot: entry.key(), serial };
        let token = Token(self.token_base | u64::from(serial) << SLOT_BITS | key.slot as u64);
        // Out of memory for the watch: the client sees its connection closed, as it would by any overload.
        if key.slot < 1 << SLOT_BITS && self.poller.register(&fd, token, Interest::READ).is_ok() {
            entry.insert(Connection::new(fd, serial, listener as u16, peer, self.now));
            self.accepted += 1;
            self.arm(key);
        }
    }

    /// Stop accepting for a while; what is in the queue stays there.
    fn rest(&mut self) {
        for index in 0..self.listeners.len() {
            if !self.listeners[index].resting {
                let token = self.listener_token(index);
                let _ = self.poller.modify(&self.listeners[index].fd, token, Interest::NONE);
                self.listeners[index].resting = true;
            }
        }
        self.rest_until = Some(self.now + ACCEPT_REST);
    }

    fn wake_listeners(&mut self) {
        if self.rest_until.is_some_and(|until| until <= self.now) {
            self.rest_until = None;
            for index in 0..self.listeners.len() {
                let token = self.listener_token(index);
                let _ = self.poller.modify(&self.listeners[index].fd, token, Interest::READ);
                self.listeners[index].resting = false;
            }
        }
    }

    // Connections

    pub(crate) fn key_of(&self, token: Token) -> ConnectionKey {
        ConnectionKey {
            slot: (token.0 & ((1 << SLOT_BITS) - 1)) as usize,
            serial: (token.0 >> SLOT_BITS) as u32 & SERIAL_MASK,
        }
    }

    pub(crate) fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.get_mut(key.slot).filter(|connection| connection.serial == key.serial)
    }

    /// The connection that is in this very exchange.
    pub(crate) fn in_exchange(&mut self, id: ExchangeId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot()).filter(|connection| connection.exchange.serial == id.serial)
    }

    pub(crate) fn key(&self, slot: usize) -> ConnectionKey {
        ConnectionKey { slot, serial: self.connections.get(slot).map_or(0, |connection| connection.serial) }
    }

    /// A connection is about to leave [`Phase::Exchange`], if it is there.
    pub(crate) fn leave_exchange(&mut self, slot: usize) {
        if self.connections.get(slot).is_some_and(|connection| connection.phase == Phase::Exchange) {
            self.in_flight -= 1;
        }
    }

    /// Close at once. The application is told if it is in the middle of an exchange.
    pub(crate) fn close(&mut self, slot: usize) {
        self.note_disconnect(slot);
        self.end_entry(slot);
        self.leave_exchange(slot);
        if let Some(mut connection) = self.connections.try_remove(slot) {
            let _ = self.poller.deregister(&connection.fd);
            if connection.exchange.wants_writable {
                // It may have heard of the disconnect before, when the client shut down its half: nothing else
                // ends its wait.
                let id = ExchangeId { slot: slot as u32, serial: connection.exchange.serial };
                self.todo.push_back(Todo::Writable(id));
            }
            connection.output.reclaim(&mut self.spare);
        }
    }

    /// Note a request in the access log, if there is one.
    pub(crate) fn begin_entry(&mut self, slot: usize, bytes: &[u8], fields: &[Field<'_>]) {
        let now = self.now;
        if let Some(log) = &mut self.access {
            self.connections[slot].entry = Some(log.begin(bytes, fields, now));
        }
    }

    /// Have the access log say what is known of a request that is over.
    pub(crate) fn end_entry(&mut self, slot: usize) {
        let Some(log) = &mut self.access else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(entry) = connection.entry.take() {
            self.date.refresh(self.now);
            log.end(entry, connection.peer, self.date.line());
        }
    }

    /// Take a connection out, alive: its descriptor and what was read ahead.
    pub(crate) fn release(&mut self, slot: usize) -> Option<(OwnedFd, Vec<u8>)> {
        self.end_entry(slot);
        self.leave_exchange(slot);
        let mut connection = self.connections.try_remove(slot)?;
        let _ = self.poller.deregister(&connection.fd);
        connection.output.reclaim(&mut self.spare);
        let mut unread = connection.exchange.inbound;
        unread.append(&mut connection.input);
        Some((connection.fd, unread))
    }

    /// The client will send nothing more; the application hears of it once.
    pub(crate) fn note_disconnect(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if matches!(connection.phase, Phase::Exchange | Phase::Upgraded) && !connection.exchange.disconnected
        {
            connection.exchange.disconnected = true;
            let id = ExchangeId { slot: slot as u32, serial: connection.exchange.serial };
            self.todo.push_back(Todo::Disconnected(id));
        }
    }

    /// Watch for what the connection's state needs; a system call only where that has changed.
    pub(crate) fn watch(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let reads = match connection.phase {
            // The next request waits for the answer before it to be out: theirs must not mix.
            Phase::Head => connection.output.is_empty() && !connection.has_unseen_input(),
            Phase::Closing => true,
            Phase::Exchange | Phase::Upgraded if connection.exchange.disconnected => false,
            Phase::Upgraded => connection.input.len() < HIGH_WATER,
            Phase::Exchange if connection.exchange.decoder.is_done() => connection.input.len() < HIGH_WATER,
            Phase::Exchange => connection.exchange.inbound.len() < BODY_HIGH_WATER,
        };
        let mut interest = if reads { Interest::READ } else { Interest::NONE };
        // Between requests nobody asks whether the client has ended its half: it may, and still take the answer.
        let answers = connection.phase == Phase::Head && !connection.output.is_empty();
        if !reads && !answers && !connection.exchange.disconnected {
            interest = interest.with(Interest::READ_CLOSED);
        }
        if connection.output.pending() > 0 {
            interest = interest.with(Interest::WRITE);
        }
        if interest != connection.interest {
            connection.interest = interest;
            let token = Token(self.token_base | u64::from(connection.serial) << SLOT_BITS | slot as u64);
            if self.poller.modify(&connection.fd, token, interest).is_err() {
                self.close(slot);
            }
        }
    }

    /// Send what is pending. The connection may be closed by it: because it failed, or because it was the last.
    pub(crate) fn flush(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.held = false;
        let before = connection.output.pending();
        if before > 0 {
            let Ok(drained) = connection.output.flush(connection.fd.as_fd()) else {
                return self.close(slot);
            };
            if connection.output.pending() < before {
                connection.progress = self.now;
            }
            if connection.exchange.wants_writable && connection.output.pending() <= HIGH_WATER / 2 {
                connection.exchange.wants_writable = false;
                let id = ExchangeId { slot: slot as u32, serial: connection.exchange.serial };
                self.todo.push_back(Todo::Writable(id));
            }
            if drained {
                connection.output.reclaim(&mut self.spare);
            }
        }
        match connection.phase {
            Phase::Closing if connection.output.is_empty() => self.shut_down(slot),
            Phase::Head
                if connection.output.is_empty()
                    && connection.has_unseen_input()
                    && !connection.dispatching =>
            {
                let key = self.key(slot);
                self.todo.push_back(Todo::Process(key));
            }
            _ => {}
        }
        self.watch(slot);
        self.arm(self.key(slot));
    }

    /// Send what is pending together with the output of other connections, when the loop's turn ends.
    ///
    /// The send that wakes a client which sleeps costs more than all others: those that follow at once find it
    /// awake. And what one connection gathers until then is one system call.
    pub(crate) fn flush_soon(&mut self, slot: usize) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.output.is_empty() || connection.output.pending() > HIGH_WATER || now < self.hold_from {
            return self.flush(slot);
        }
        if !connection.held {
            connection.held = true;
            if self.held.is_empty() {
                self.held_output.change();
                self.held_since = now;
            }
            let key = self.key(slot);
            self.held.push(key);
        }
        if !self.may_hold || now.saturating_duration_since(self.held_since) > HOLD_AT_MOST {
            self.flush_held();
        }
    }

    /// Send what was held back.
    pub(crate) fn flush_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let time = self.now.saturating_duration_since(self.held_since);
        if time > 2 * HOLD_AT_MOST {
            self.hold_from = self.now + HOLD_NOT_FOR * time;
        }
        let mut held = std::mem::take(&mut self.held);
        for key in held.drain(..) {
            if self.connection(key).is_some_and(|connection| connection.held) {
                self.flush(key.slot);
            }
        }
        self.held = held;
        self.held_output.change();
    }

    /// Whether something was put off that [`Core::expire`] is to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.todo.is_empty() || !self.held.is_empty()
    }

    /// End a connection in the middle of an answer: what there is of it goes out, as far as the client takes it.
    pub(crate) fn break_off(&mut self, slot: usize) {
        if self.connections.get(slot).is_some_and(|connection| connection.held) {
            self.flush(slot);
        }
        self.close(slot);
    }

    /// All is sent and nothing more will be: end our half, and wait for the client to end its own.
    fn shut_down(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.lingers {
            return self.close(slot);
        }
        if !connection.shut_down {
            connection.shut_down = true;
            connection.input = Vec::new();
            connection.progress = self.now;
            if socket::shut_down_write(&connection.fd).is_err() {
                self.close(slot);
            }
        }
    }

    /// Throw away what a connection that lingers still sends; close it when it ends.
    pub(crate) fn discard(&mut self, slot: usize) {
        let mut buffer = self.take_read_buffer();
        for _ in 0..LINGER_BYTES / READ_BUFFER {
            buffer.clear();
            match socket::receive(&self.connections[slot].fd, &mut buffer) {
                Ok(Io::Done(0)) | Err(_) => {
                    self.close(slot);
                    break;
                }
                Ok(Io::Done(n)) if n == buffer.capacity() => {}
                Ok(_) => break,
            }
        }
        self.put_read_buffer(buffer);
    }

    /// Answer a request that has no valid reading, or came too late, and end the connection.
    pub(crate) fn refuse(&mut self, slot: usize, reject: Reject) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.phase == Phase::Upgraded
            || connection.phase == Phase::Exchange && !connection.exchange.is_replaceable()
        {
            // The answer is half out: nothing can be said any more but by breaking off.
            return self.break_off(slot);
        }
        connection.output.lend(&mut self.spare);
        connection.output.withdraw();
        self.date.refresh(self.now);
        let mut lines = self.date.line().to_vec();
        if reject.status == 503 {
            lines.extend_from_slice(RETRY_AFTER);
        }
        connection.output.append_with(|out| simple_response(out, reject.status, reject.reason, &lines));
        if let Some(entry) = &mut connection.entry {
            (entry.status, entry.bytes) = (reject.status, reject.reason.len() as u64);
        }
        self.end_entry(slot);
        self.note_disconnect(slot);
        self.leave_exchange(slot);
        let connection = &mut self.connections[slot];
        connection.exchange = Exchange::none();
        connection.phase = Phase::Closing;
        connection.lingers = true;
        connection.progress = self.now;
        self.flush(slot);
    }

    pub(crate) fn take_read_buffer(&mut self) -> Vec<u8> {
        // Empty when it is lent already: a loop that runs inside a callback gets a buffer of its own.
        let mut buffer = std::mem::take(&mut self.read_buffer);
        buffer.reserve(READ_BUFFER);
        buffer
    }

    pub(crate) fn put_read_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.read_buffer = buffer;
    }

    // Deadlines

    /// See that the deadline of what the connection waits for is in its queue.
    pub(crate) fn arm(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connection(key) else { return };
        let Some(timer) = connection.waits_for() else { return };
        let bit = 1 << timer as u8;
        if connection.armed & bit == 0 {
            connection.armed |= bit;
            let from = connection.progress;
            self.timers[timer as usize].arm(from, key);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.has_work() {
            return Some(self.now);
        }
        let log = self.access.as_ref().and_then(AccessLog::due);
        self.timers.iter().filter_map(DeadlineQueue::next).chain(self.rest_until).chain(log).min()
    }

    pub(crate) fn expire(&mut self) {
        self.flush_held();
        self.wake_listeners();
        let now = self.now;
        if let Some(log) = &mut self.access
            && log.due().is_some_and(|due| due <= now)
        {
            log.write(now);
        }
        for timer in Timer::ALL {
            while let Some(key) = self.timers[timer as usize].pop_due(self.now) {
                let span = self.timers[timer as usize].span();
                let now = self.now;
                let Some(connection) = self.connection(key) else { continue };
                connection.armed &= !(1 << timer as u8);
                if connection.waits_for() != Some(timer) {
                    continue;
                }
                if connection.progress + span > now {
                    self.arm(key);
                } else {
                    self.time_out(key.slot, timer);
                }
            }
        }
    }

    fn time_out(&mut self, slot: usize, timer: Timer) {
        match timer {
            Timer::Head => {
                let input = std::mem::take(&mut self.connections[slot].input);
                self.begin_entry(slot, &input, &[]);
                self.refuse(slot, Reject::with(408, "request head took too long"));
            }
            Timer::Body => self.refuse(slot, Reject::with(408, "request body took too long")),
            Timer::Idle | Timer::Write | Timer::Linger => self.close(slot),
        }
    }
}
