//! Connections come and go: opened a few at a time, greeted, lost, opened again.

use std::cmp::Reverse;
use std::io;

use headrace_engine::socket;

use super::Worker;
use crate::connection::State;
use crate::protocol::Protocol;
use crate::stats::Fault;
use crate::wire::Wire;

/// Connections of a thread that are being opened at the same time. Listeners queue 100 (gunicorn's threads)
/// to 2048; a queue that overflows costs a whole second, until the kernel sends the SYN again.
const MAX_OPENING: usize = 64;
/// Before a connection that could not be opened, or gave no answer at all, is tried again.
const RETRY: u64 = 100_000_000;
/// Before a Unix socket whose queue is full (EAGAIN) is tried again.
const RETRY_FULL: u64 = 1_000_000;

impl<P: Protocol> Worker<'_, P> {
    /// When the next connection is to be opened.
    pub(super) fn next_opening(&self) -> u64 {
        match self.closed.peek() {
            Some(Reverse((due, _))) if self.opening < MAX_OPENING => *due,
            _ => u64::MAX,
        }
    }

    /// Open the connections whose turn it is.
    pub(super) fn open_due(&mut self, now: u64) {
        while self.opening < MAX_OPENING
            && let Some(Reverse((due, index))) = self.closed.peek().copied()
            && due <= now
        {
            self.closed.pop();
            let opened = self.connect(index);
            let connection = &mut self.connections[index];
            match opened {
                Ok(wire) => {
                    connection.wire = Some(wire);
                    connection.state = State::Connecting(now);
                    self.opening += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.closed.push(Reverse((now + RETRY_FULL, index)));
                }
                Err(error) => self.lose(index, Fault::Connect, now, || error.to_string()),
            }
        }
    }

    fn connect(&self, index: usize) -> io::Result<Wire> {
        let socket = socket::connect(self.part.address)?;
        self.poller.register(&socket, self.connections[index].token(index), Wire::CONNECTING)?;
        let tls = self.part.tls.map(|plan| plan.connect()).transpose()?;
        Ok(Wire::new(socket, tls))
    }

    /// A socket has connected, or has failed to.
    pub(super) fn connected(&mut self, index: usize) {
        let now = self.now();
        let connection = &mut self.connections[index];
        let (Some(wire), State::Connecting(since)) = (&mut connection.wire, connection.state) else { return };
        let greeted = match wire.socket.take_error() {
            Ok(None) => wire.greet(),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match greeted {
            Ok(sent) => {
                socket::set_nodelay(&wire.socket);
                connection.state = State::Greeting(since);
                self.sent(now, sent);
                self.greet(index, now);
            }
            Err(error) => self.lose(index, Fault::Connect, now, || error.to_string()),
        }
    }

    /// Go on with what comes before requests: TLS, then the protocol's greeting.
    pub(super) fn greet(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let Some(wire) = &mut connection.wire else { return };
        if !wire.is_ready() || connection.greeted {
            return self.watch(index);
        }
        connection.greeted = true;
        match self.protocol.greeting(&mut connection.protocol).map(|bytes| wire.push(bytes)) {
            None => {
                self.watch(index);
                self.opened(index, now);
            }
            Some(Ok(sent)) => {
                self.sent(now, sent);
                self.watch(index);
            }
            Some(Err(error)) => self.lose(index, Fault::Write, now, || error.to_string()),
        }
    }

    /// A connection is ready for requests.
    pub(super) fn opened(&mut self, index: usize, now: u64) {
        if !matches!(self.connections[index].state, State::Greeting(_)) {
            return;
        }
        self.opening -= 1;
        self.open += 1;
        self.opened_at = now;
        self.connections[index].state = State::Open;
        self.settle(index, now);
        if self.window.is_some() {
            self.free(index, now);
        }
    }

    fn settle(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if !connection.settled {
            connection.settled = true;
            self.unsettled -= 1;
        } else if self.window.is_some_and(|window| window.counts(now)) {
            self.stats.reconnects += 1;
        }
    }

    /// The server closes after a complete answer, as it may: requests still awaited are lost.
    pub(super) fn reopen(&mut self, index: usize, now: u64) {
        if !self.connections[index].awaited.is_empty() {
            return self.lose(index, Fault::Read, now, || {
                "the server closed the connection with requests unanswered".to_owned()
            });
        }
        self.drop_connection(index, now);
    }

    /// A connection is lost, and with it all that was awaited on it.
    pub(super) fn lose(&mut self, index: usize, fault: Fault, now: u64, why: impl FnOnce() -> String) {
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
            State::Connecting(_) | State::Greeting(_) => self.opening -= 1,
            State::Open => self.open -= 1,
            State::Closed => {}
        }
        connection.close(&self.protocol);
        self.closed.push(Reverse((now + delay, index)));
        if !self.connections[index].settled {
            self.settle(index, now);
        }
    }
}
