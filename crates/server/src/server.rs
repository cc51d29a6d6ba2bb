//! The server's face: events and time come in from the reactor, answers from the application.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use headrace_engine::socket::{self, Io};
use headrace_engine::{Poller, Readiness, Token};
use headrace_http1::{
    BodyLength, FieldSlots, Reject, RequestHead, continue_response, head_may_be_complete, parse_request,
};

use crate::access::{AccessFormat, AccessLog};
use crate::app::{App, ConnectionInfo};
use crate::config::Config;
use crate::connection::{ConnectionKey, Phase};
use crate::core::{BODY_HIGH_WATER, Core, HIGH_WATER, Todo};
use crate::detach::NO_LIMIT;
use crate::exchange::{BodyRead, Exchange, ExchangeId, Response};

/// Room made for more of a head that came in parts.
const PARTIAL_HEAD_STEP: usize = 4 * 1024;

/// An HTTP server on a poller that it shares with others.
#[derive(Debug)]
pub struct Server {
    pub(crate) core: RefCell<Core>,
}

/// Counts since the server was made, and what is open now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections open.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests handed to the application.
    pub requests: u64,
    /// Requests handed to the application and not answered in full.
    pub in_flight: usize,
    /// Lines of the access log that its sink did not take.
    pub unlogged: u64,
}

impl Server {
    /// A server that registers with `poller` under tokens of 56 bits, or-ed with `token_base`.
    #[must_use]
    pub fn new(config: Config, poller: Arc<Poller>, token_base: u64, now: Instant) -> Self {
        Self { core: RefCell::new(Core::new(config, poller, token_base, now)) }
    }

    /// Accept connections from a listening, non-blocking socket. Returns its number.
    ///
    /// # Errors
    /// The poller's.
    pub fn listen(&self, listener: OwnedFd) -> io::Result<usize> {
        self.core.borrow_mut().listen(listener)
    }

    /// Write a line for each request to `sink` from now on, in place of the sink before; None for no log.
    ///
    /// # Errors
    /// The system's, when it cannot say what `sink` is.
    pub fn log_to(&self, sink: Option<(OwnedFd, AccessFormat)>) -> io::Result<()> {
        let next = sink.map(|(sink, format)| AccessLog::new(sink, format)).transpose()?;
        self.write_log();
        self.core.borrow_mut().access = next;
        Ok(())
    }

    /// Write what the access log holds back.
    pub fn write_log(&self) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        if let Some(log) = &mut core.access {
            log.write(now);
        }
    }

    /// Stop accepting; close connections that are idle, and the others after the answer they are at.
    pub fn drain(&self) {
        let mut core = self.core.borrow_mut();
        core.draining = true;
        core.flush_held();
        core.close_listeners();
        let idle: Vec<usize> = core
            .connections
            .iter()
            .filter(|(_, c)| {
                c.phase == Phase::Head && c.input.is_empty() && c.output.is_empty() && !c.dispatching
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in idle {
            core.close(slot);
        }
    }

    /// Close every connection at once.
    pub fn abort(&self) {
        let mut core = self.core.borrow_mut();
        core.flush_held();
        core.close_listeners();
        let all: Vec<usize> = core.connections.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            core.close(slot);
        }
    }

    /// What is open, and what has been.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let core = self.core.borrow();
        debug_assert_eq!(
            core.in_flight,
            core.connections.iter().filter(|(_, c)| c.phase == Phase::Exchange).count(),
            "what is counted is what there is"
        );
        Statistics {
            connections: core.connections.len(),
            accepted: core.accepted,
            requests: core.requests,
            unlogged: core.access.as_ref().map_or(0, AccessLog::dropped),
            in_flight: core
                .connections
                .iter()
                .filter(|(_, c)| matches!(c.phase, Phase::Exchange | Phase::Upgraded))
                .count(),
        }
    }

    /// When [`Server::expire`] must be called next; at once when there is work left over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.core.borrow().next_deadline()
    }

    /// Time has passed.
    pub fn expire<A: App>(&self, app: &A, now: Instant) {
        {
            let mut core = self.core.borrow_mut();
            core.now = now;
            core.expire();
        }
        self.deliver(app);
    }

    /// A descriptor of the server's is ready. `token` without the bits of `token_base`.
    pub fn ready<A: App>(&self, app: &A, token: Token, readiness: Readiness, now: Instant) {
        let mut core = self.core.borrow_mut();
        core.now = now;
        if let Some(listener) = core.listener_of(token) {
            core.accept(listener);
            return;
        }
        let key = core.key_of(token);
        let Some(connection) = core.connection(key) else { return };
        if connection.dispatching {
            return;
        }
        if readiness.writable && connection.output.pending() > 0 {
            core.flush(key.slot);
        } else if readiness.hangup && matches!(connection.phase, Phase::Exchange | Phase::Upgraded) {
            // Both halves are over: there is nobody to answer.
            core.close(key.slot);
        }
        if readiness.readable
            && let Some(connection) = core.connection(key)
        {
            match connection.phase {
                Phase::Head if !connection.output.is_empty() => {}
                Phase::Head => {
                    drop(core);
                    self.read_head(app, key);
                    core = self.core.borrow_mut();
                }
                Phase::Exchange => core.read_in_exchange(key),
                Phase::Upgraded => core.read_upgraded(key),
                Phase::Closing => core.discard(key.slot),
            }
        }
        let idle = core.todo.is_empty();
        drop(core);
        if !idle {
            self.deliver(app);
        }
    }

    /// Do what was put off until nothing is borrowed.
    fn deliver<A: App>(&self, app: &A) {
        loop {
            let Some(todo) = self.core.borrow_mut().todo.pop_front() else { return };
            match todo {
                Todo::Process(key) => self.process_input(app, key),
                Todo::BodyReady(id) => app.body_ready(self, id),
                Todo::Writable(id) => app.writable(self, id),
                Todo::Disconnected(id) => app.disconnected(self, id),
            }
        }
    }

    /// Read what may be a request's head, or more of one.
    fn read_head<A: App>(&self, app: &A, key: ConnectionKey) {
        let mut core = self.core.borrow_mut();
        let lent = core.take_read_buffer();
        let now = core.now;
        let limits = core.config.head;
        let Some(connection) = core.connection(key).filter(|c| !c.has_unseen_input()) else {
            return core.put_read_buffer(lent);
        };
        // A partial head is read on where it lies; a fresh one in the buffer that all share.
        let partial = !connection.input.is_empty();
        let (mut bytes, lent) =
            if partial { (std::mem::take(&mut connection.input), Some(lent)) } else { (lent, None) };
        let seen = bytes.len();
        if partial {
            bytes.reserve(PARTIAL_HEAD_STEP);
        }
        let outcome = socket::receive(&connection.fd, &mut bytes);
        if let Some(lent) = lent {
            core.put_read_buffer(lent);
        }
        let Some(connection) = core.connection(key) else { return };
        match outcome {
            Ok(Io::Done(0)) | Err(_) => core.close(key.slot),
            Ok(Io::WouldBlock) if partial => connection.input = bytes,
            Ok(Io::WouldBlock) => core.put_read_buffer(bytes),
            Ok(Io::Done(_)) => {
                let crosses = |limit| seen < limit && bytes.len() >= limit;
                if partial
                    && !head_may_be_complete(&bytes, seen)
                    && !crosses(limits.head)
                    && !crosses(limits.target)
                {
                    connection.seen = bytes.len();
                    connection.input = bytes;
                    return;
                }
                if !partial {
                    connection.progress = now;
                }
                connection.seen = 0;
                drop(core);
                self.process(app, key, &bytes);
                if !partial {
                    self.core.borrow_mut().put_read_buffer(bytes);
                }
            }
        }
    }

    /// Hand out the requests that wait in a connection's input.
    fn process_input<A: App>(&self, app: &A, key: ConnectionKey) {
        let bytes = {
            let mut core = self.core.borrow_mut();
            let Some(connection) = core.connection(key) else { return };
            if connection.phase != Phase::Head || connection.dispatching || !connection.output.is_empty() {
                return;
            }
            connection.seen = 0;
            std::mem::take(&mut connection.input)
        };
        self.process(app, key, &bytes);
    }

    /// Hand out the requests in `bytes`, one after the other, each once the answer before it is complete; keep
    /// what is left over.
    fn process<A: App>(&self, app: &A, key: ConnectionKey, bytes: &[u8]) {
        let limits = self.core.borrow().config.head;
        let mut at = 0;
        // Whether all requests so far are answered, so that what is left over is only part of a head.
        let mut complete = true;
        while at < bytes.len() {
            let mut slots = FieldSlots::new();
            let head = match parse_request(&bytes[at..], &mut slots, &limits) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(reject) => {
                    let mut core = self.core.borrow_mut();
                    if core.connection(key).is_some() {
                        core.begin_entry(key.slot, &bytes[at..], &[]);
                        core.refuse(key.slot, reject);
                    }
                    return;
                }
            };
            let Some((id, info, consumed)) = self.begin(key, &head, &bytes[at..]) else { return };
            at += consumed;
            app.request(self, id, &head, &info);
            let mut core = self.core.borrow_mut();
            let Some(connection) = core.connection(key) else { return };
            connection.dispatching = false;
            complete = connection.phase == Phase::Head
                && !connection.output.has_payloads()
                && connection.output.pending() <= HIGH_WATER;
            if !complete {
                break;
            }
        }
        let mut core = self.core.borrow_mut();
        let Some(connection) = core.connection(key) else { return };
        let rest = &bytes[at..];
        if rest.is_empty() && connection.held {
            // Its output goes out with that of others, and the rest then.
            return;
        }
        if rest.is_empty() && connection.phase == Phase::Head && connection.output.is_empty() {
            // The usual end of a request: all is sent, nothing is waiting, the interest is as it was.
            return core.arm(key);
        }
        if connection.phase == Phase::Upgraded && !rest.is_empty() {
            connection.input.extend_from_slice(rest);
            let id = ExchangeId { slot: key.slot as u32, serial: connection.exchange.serial };
            core.todo.push_back(Todo::BodyReady(id));
        } else if connection.phase != Phase::Closing {
            connection.input.extend_from_slice(rest);
            connection.seen = if complete { connection.input.len() } else { 0 };
        }
        core.flush(key.slot);
    }

    /// Enter the exchange of a request, with what `bytes` has of it. `None` when the request was refused.
    fn begin(
        &self,
        key: ConnectionKey,
        head: &RequestHead<'_, '_>,
        bytes: &[u8],
    ) -> Option<(ExchangeId, ConnectionInfo, usize)> {
        let mut core = self.core.borrow_mut();
        let serial = core.serial();
        let at_once = !core.config.body_limit_is_late;
        let allowance = if at_once { core.config.body } else { NO_LIMIT };
        let draining = core.draining;
        core.connection(key)?;
        core.begin_entry(key.slot, bytes, head.fields);
        if core.in_flight >= core.config.in_flight {
            core.refuse(key.slot, Reject::with(503, "too many requests at a time"));
            return None;
        }
        if matches!(head.body, BodyLength::Known(length) if length > allowance) {
            core.refuse(key.slot, Reject::with(413, "request body too large"));
            return None;
        }
        let mut exchange = Exchange::begin(serial, head, allowance);
        exchange.keep_alive &= !draining;
        let mut consumed = head.length;
        match exchange.take_body(&bytes[head.length..]) {
            Ok(taken) => consumed += taken,
            Err(reject) => {
                core.refuse(key.slot, reject);
                return None;
            }
        }
        if !exchange.inbound.is_empty() || exchange.decoder.is_done() {
            // The client did not wait, so there is nobody to tell (RFC 9110 section 10.1.1).
            exchange.owes_continue = false;
        }
        core.requests += 1;
        core.in_flight += 1;
        let now = core.now;
        let most = core.config.requests_per_connection;
        let connection = core.connection(key)?;
        connection.requests += 1;
        exchange.keep_alive &= connection.requests < most;
        connection.exchange = exchange;
        connection.phase = Phase::Exchange;
        connection.dispatching = true;
        connection.more_requests = consumed < bytes.len();
        connection.progress = now;
        let info = ConnectionInfo {
            slot: key.slot,
            serial: key.serial,
            listener: usize::from(connection.listener),
            peer: connection.peer,
        };
        Some((ExchangeId { slot: key.slot as u32, serial }, info, consumed))
    }

    // What the application calls

    /// Read what has arrived of the request's body: `read` gets the bytes, none of them if there was no body.
    pub fn read_body<T>(&self, id: ExchangeId, read: impl FnOnce(&[u8]) -> T) -> BodyRead<T> {
        let mut core = self.core.borrow_mut();
        let Some(connection) = core.in_exchange(id) else { return BodyRead::Disconnected };
        if connection.exchange.body_finished {
            return BodyRead::Finished;
        }
        if connection.exchange.inbound.is_empty() && !connection.exchange.decoder.is_done() {
            if connection.exchange.is_complete() {
                // What was not read before the answer's end never will be: a fault in it would be answered too.
                return BodyRead::Disconnected;
            }
            core.ask_for_body(id);
        }
        let Some(connection) = core.in_exchange(id) else { return BodyRead::Disconnected };
        let exchange = &mut connection.exchange;
        let done = exchange.decoder.is_done();
        if exchange.inbound.is_empty() && !done {
            if exchange.disconnected {
                return BodyRead::Disconnected;
            }
            exchange.wants_body = true;
            core.watch(id.slot());
            let key = core.key(id.slot());
            core.arm(key);
            return BodyRead::Pending;
        }
        exchange.body_finished = done;
        let inbound = std::mem::take(&mut exchange.inbound);
        let was_full = inbound.len() >= BODY_HIGH_WATER;
        if was_full {
            core.watch(id.slot());
        }
        drop(core);
        BodyRead::Data { data: read(&inbound), more: !done }
    }

    /// Answer in the application's place, when it has failed: with a whole answer if nothing has gone out yet,
    /// else by breaking off, so that the client does not take half an answer for a whole one.
    ///
    /// Returns whether there was still something to answer.
    pub fn fail(&self, id: ExchangeId, status: u16, text: &'static str) -> bool {
        let mut core = self.core.borrow_mut();
        let Some(connection) = core.in_exchange(id) else { return false };
        if connection.exchange.is_complete() {
            return false;
        }
        core.refuse(id.slot(), Reject::with(status, text));
        true
    }

    /// Whether more of the answer waits for the client than should.
    #[must_use]
    pub fn is_full(&self, id: ExchangeId) -> bool {
        let mut core = self.core.borrow_mut();
        core.in_exchange(id).is_some_and(|connection| {
            connection.exchange.wants_writable |= connection.output.pending() > HIGH_WATER / 2;
            connection.exchange.wants_writable
        })
    }

    /// Whether answers may wait for others from now on, because [`Server::expire`] is called soon. They may at first;
    /// the first that may not takes with it what waits.
    pub fn hold_answers(&self, hold: bool) {
        self.core.borrow_mut().may_hold = hold;
    }

    /// Whether something but answers was put off that [`Server::expire`] is to do.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.core.borrow().todo.is_empty()
    }

    /// Whether something was put off that [`Server::expire`] is to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.core.borrow().has_work()
    }

    /// Whether the exchange goes on: its client is there, and its answer not complete.
    #[must_use]
    pub fn is_open(&self, id: ExchangeId) -> bool {
        let mut core = self.core.borrow_mut();
        core.in_exchange(id).is_some_and(|c| !c.exchange.is_complete() && !c.exchange.disconnected)
    }
}

impl Core {
    /// More of the body is wanted than has arrived: tell the client if it waits for that, and look at once.
    fn ask_for_body(&mut self, id: ExchangeId) {
        let slot = id.slot();
        let now = self.now;
        let connection = &mut self.connections[slot];
        connection.progress = now;
        if connection.exchange.owes_continue {
            connection.exchange.owes_continue = false;
            if matches!(connection.exchange.response, Response::None) {
                connection.output.append(continue_response());
                self.flush(slot);
            }
            return;
        }
        if !connection.exchange.disconnected && !connection.dispatching {
            self.read_in_exchange(self.key(slot));
        }
    }

    /// Read on a connection whose request is with the application: its body, or what is behind it.
    fn read_in_exchange(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key.slot).filter(|c| c.serial == key.serial) else {
            return;
        };
        let plain = connection.exchange.receive_plain(&connection.fd, BODY_HIGH_WATER, &mut connection.input);
        let outcome = plain.unwrap_or_else(|| {
            let mut buffer = self.take_read_buffer();
            let connection = &mut self.connections[key.slot];
            let outcome = socket::receive(&connection.fd, &mut buffer).map(|io| {
                match connection.exchange.take_body(&buffer) {
                    Ok(used) => {
                        connection.input.extend_from_slice(&buffer[used..]);
                        (io, None)
                    }
                    Err(reject) => (io, Some(reject)),
                }
            });
            self.put_read_buffer(buffer);
            outcome
        });
        let connection = &mut self.connections[key.slot];
        match outcome {
            Ok((Io::WouldBlock, _)) => {}
            Ok((Io::Done(0), _)) => {
                self.note_disconnect(key.slot);
                self.watch(key.slot);
            }
            Err(_) => self.close(key.slot),
            Ok((Io::Done(_), Some(reject))) => self.refuse(key.slot, reject),
            Ok((Io::Done(_), None)) => {
                connection.progress = self.now;
                if connection.exchange.wants_body
                    && (!connection.exchange.inbound.is_empty() || connection.exchange.decoder.is_done())
                {
                    connection.exchange.wants_body = false;
                    let id = ExchangeId { slot: key.slot as u32, serial: connection.exchange.serial };
                    self.todo.push_back(Todo::BodyReady(id));
                }
                self.watch(key.slot);
            }
        }
    }
}
