//! One client's connection.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use headrace_engine::Interest;

use crate::access::Entry;
use crate::exchange::Exchange;
use crate::output::Output;

/// What a connection is about. Head → Exchange → Head …, until one that is the last: → Closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Between requests, or in the middle of a head.
    Head,
    /// A request was handed to the application, and its answer is not complete.
    Exchange,
    /// The connection has left HTTP: its bytes are the application's.
    Upgraded,
    /// No further request is read. The answer goes out; then the client is given time to read it, as closing
    /// with unread input would reset the connection and lose it (RFC 9112 section 9.6).
    Closing,
}

/// Names a connection for as long as it is open: a slot is used again, a serial is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionKey {
    pub(crate) slot: usize,
    pub(crate) serial: u32,
}

/// Deadlines of which a connection has an entry in the server's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A head must be complete.
    Head = 0,
    /// A connection must be used.
    Idle = 1,
    /// Something of a body must arrive.
    Body = 2,
    /// Something of an answer must be taken.
    Write = 3,
    /// A client must close.
    Linger = 4,
}

impl Timer {
    pub(crate) const ALL: [Self; 5] = [Self::Head, Self::Idle, Self::Body, Self::Write, Self::Linger];
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) fd: OwnedFd,
    pub(crate) serial: u32,
    pub(crate) listener: u16,
    /// Bit per [`Timer`]: it has an entry in its queue.
    pub(crate) armed: u8,
    pub(crate) phase: Phase,
    pub(crate) interest: Interest,
    /// Requests of this connection are being handed out further up the stack: its events must wait.
    pub(crate) dispatching: bool,
    /// While dispatching: there are more requests in the same read, so answers can go out together.
    pub(crate) more_requests: bool,
    /// While closing: the client may have sent what we did not read.
    pub(crate) lingers: bool,
    /// Our half is shut down.
    pub(crate) shut_down: bool,
    pub(crate) peer: Option<SocketAddr>,
    /// Requests that were handed to the application.
    pub(crate) requests: u32,
    /// Bytes read and not yet used: part of a head, or requests behind the one being answered.
    pub(crate) input: Vec<u8>,
    /// So many bytes of `input` were looked at, and have no complete head.
    pub(crate) seen: usize,
    pub(crate) output: Output,
    /// Its output waits for that of others: see [`crate::core::Core::flush_soon`].
    pub(crate) held: bool,
    pub(crate) exchange: Exchange,
    /// What the access log will say of the exchange.
    pub(crate) entry: Option<Box<Entry>>,
    /// When the connection last came a step further in what its phase waits for.
    pub(crate) progress: Instant,
}

impl Connection {
    pub(crate) fn new(
        fd: OwnedFd,
        serial: u32,
        listener: u16,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> Self {
        Self {
            fd,
            serial,
            listener,
            armed: 0,
            phase: Phase::Head,
            interest: Interest::READ,
            dispatching: false,
            more_requests: false,
            lingers: false,
            shut_down: false,
            peer,
            requests: 0,
            input: Vec::new(),
            seen: 0,
            output: Output::default(),
            held: false,
            exchange: Exchange::none(),
            entry: None,
            progress: now,
        }
    }

    /// Whether the input may have a request that waits for its turn.
    pub(crate) fn has_unseen_input(&self) -> bool {
        self.input.len() > self.seen
    }

    /// What must happen before its deadline, if anything must.
    pub(crate) fn waits_for(&self) -> Option<Timer> {
        if self.output.pending() > 0 {
            return Some(Timer::Write);
        }
        match self.phase {
            Phase::Closing => Some(Timer::Linger),
            Phase::Head if self.input.is_empty() => Some(Timer::Idle),
            Phase::Head => Some(Timer::Head),
            Phase::Exchange if self.exchange.wants_body => Some(Timer::Body),
            Phase::Exchange | Phase::Upgraded => None,
        }
    }
}
