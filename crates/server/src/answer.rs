//! The answer's way out: head, pieces of body, and what its end means for the connection.

use headrace_http1::{Framing, ResponseEncoder, ResponseOptions, Version, chunk_head};

use crate::connection::{Connection, Phase};
use crate::core::{Core, HIGH_WATER};
use crate::exchange::{ExchangeId, Response, SendError, WriteState};
use crate::file::FileSpan;
use crate::output::{Payload, Piece};
use crate::server::Server;

/// Bodies up to this size are copied behind their head; larger ones are sent from where they are.
const COPY_UP_TO: usize = 8 * 1024;

impl Server {
    /// Start the answer: `head` is what `encoder` wrote. It goes out with the body's first bytes.
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::AlreadyStarted`].
    pub fn start_response(
        &self,
        id: ExchangeId,
        encoder: ResponseEncoder,
        head: &[u8],
    ) -> Result<(), SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let connection = core.in_exchange_or_gone(id)?;
        if !matches!(connection.exchange.response, Response::None) {
            return Err(SendError::AlreadyStarted);
        }
        connection.exchange.response = Response::Head(encoder);
        let slot = id.slot();
        let connection = &mut core.connections[slot];
        if let Some(entry) = &mut connection.entry {
            entry.status = encoder.status();
        }
        connection.output.lend(&mut core.spare);
        connection.output.hold(head);
        Ok(())
    }

    /// Send a piece of the answer's body; the last one when `more` is false.
    ///
    /// What goes out at once is sent from where it is; `keep` is called only when some of a large piece must
    /// wait for the client. Small pieces may wait for others: see [`crate::Config::gather_pieces`].
    ///
    /// # Errors
    /// [`SendError`]; after [`SendError::TooShort`] the connection is broken off.
    pub fn send_body(
        &self,
        id: ExchangeId,
        body: &[u8],
        more: bool,
        keep: impl FnOnce() -> Box<dyn Payload>,
    ) -> Result<WriteState, SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let framing = core.begin_piece(id, body.len() as u64, more)?;
        // What the framing has no place for is dropped: the body of an answer to HEAD.
        let body = if framing == Framing::None { &[] } else { body };
        core.put_body(id.slot(), framing, body, more, keep);
        Ok(core.end_piece(id, more))
    }

    /// Send a part of a file as a piece of the answer's body; the last one when `more` is false.
    ///
    /// It goes as the same bytes in [`Server::send_body`] would, but from the file to the socket without a copy
    /// through this process. A file that becomes shorter while it is sent breaks the connection off, as its
    /// length is promised by then; one that has grown ends where Content-Length says, if the span was to go to
    /// the file's end.
    ///
    /// # Errors
    /// As [`Server::send_body`].
    pub fn send_file(&self, id: ExchangeId, mut file: FileSpan, more: bool) -> Result<WriteState, SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let promised = match core.in_exchange_or_gone(id)?.exchange.response {
            Response::Body { framing: Framing::Length(_), left } => Some(left),
            Response::Head(encoder) => encoder.content_length(),
            _ => None,
        };
        if let Some(promised) = promised {
            file.fit(promised);
        }
        let framing = core.begin_piece(id, file.length(), more)?;
        core.put_file(id.slot(), framing, file, more);
        Ok(core.end_piece(id, more))
    }

    /// Send an interim answer (1xx, RFC 9110 section 15.2), a whole head, ahead of the real one.
    ///
    /// HTTP/1.0 clients do not know such, and behind the beginning of the real answer it is too late: then
    /// nothing is sent.
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::AlreadyComplete`].
    pub fn send_interim(&self, id: ExchangeId, head: &[u8]) -> Result<WriteState, SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let connection = core.in_exchange_or_gone(id)?;
        if connection.exchange.version == Version::Http10 || !connection.exchange.is_replaceable() {
            return Ok(WriteState::Ready);
        }
        let output = &mut core.connections[id.slot()].output;
        output.lend(&mut core.spare);
        output.insert_before_held(head);
        core.flush(id.slot());
        Ok(core.room(id))
    }

    /// Whether trailers can reach the client: it said that it heeds them, and speaks HTTP/1.1.
    #[must_use]
    pub fn accepts_trailers(&self, id: ExchangeId) -> bool {
        let mut core = self.core.borrow_mut();
        core.in_exchange(id)
            .is_some_and(|c| c.exchange.accepts_trailers && c.exchange.version == Version::Http11)
    }

    /// End the answer with `fields` behind its body: what [`headrace_http1::trailer_field`] wrote.
    ///
    /// They are dropped where the body does not go in chunks (it has a Content-Length, or none was asked for).
    ///
    /// # Errors
    /// As [`Server::send_body`] of an empty last piece.
    pub fn send_trailers(&self, id: ExchangeId, fields: &[u8]) -> Result<WriteState, SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let framing = core.begin_piece(id, 0, false)?;
        if framing == Framing::Chunked {
            let output = &mut core.connections[id.slot()].output;
            output.lend(&mut core.spare);
            output.append(b"0\r\n");
            output.append(fields);
            output.append(b"\r\n");
        }
        Ok(core.end_piece(id, false))
    }
}

impl Core {
    pub(crate) fn in_exchange_or_gone(&mut self, id: ExchangeId) -> Result<&mut Connection, SendError> {
        let connection = self.in_exchange(id).ok_or(SendError::Gone)?;
        if connection.exchange.is_complete() { Err(SendError::AlreadyComplete) } else { Ok(connection) }
    }

    /// Account for a piece of `length` bytes, and complete the head if it is the first.
    fn begin_piece(&mut self, id: ExchangeId, length: u64, more: bool) -> Result<Framing, SendError> {
        self.in_exchange_or_gone(id)?;
        let slot = id.slot();
        let draining = self.draining;
        let connection = &mut self.connections[slot];
        let exchange = &mut connection.exchange;
        let (framing, mut left) = match exchange.response {
            Response::None => return Err(SendError::NotStarted),
            Response::Complete => return Err(SendError::AlreadyComplete),
            Response::Body { framing, left } => (framing, left),
            Response::Head(encoder) => {
                self.date.refresh(self.now);
                let options = ResponseOptions {
                    version: exchange.version,
                    head_request: exchange.head_request,
                    keep_alive: exchange.keep_alive && !draining && (more || exchange.decoder.is_done()),
                    known_length: (!more).then_some(length),
                    date_line: self.date.line(),
                    server_line: &self.config.server_line,
                };
                let (framing, keep_alive) = connection.output.release(|out| encoder.finish(out, &options));
                exchange.keep_alive = keep_alive;
                (framing, if let Framing::Length(length) = framing { length } else { 0 })
            }
        };
        if let Framing::Length(_) = framing {
            if length > left || !more && length < left {
                let error = if length > left { SendError::TooLong } else { SendError::TooShort };
                self.break_off(slot);
                return Err(error);
            }
            left -= length;
        }
        if let Some(entry) = &mut connection.entry
            && framing != Framing::None
        {
            entry.bytes += length;
        }
        exchange.response = if more { Response::Body { framing, left } } else { Response::Complete };
        Ok(framing)
    }

    /// After a piece was put: whether another one may follow at once.
    fn end_piece(&mut self, id: ExchangeId, more: bool) -> WriteState {
        let slot = id.slot();
        if !more && self.in_exchange(id).is_some() {
            self.end_exchange(slot);
        }
        if more { self.room(id) } else { WriteState::Ready }
    }

    /// Whether the client takes fast enough for more.
    fn room(&mut self, id: ExchangeId) -> WriteState {
        if let Some(connection) = self.in_exchange(id)
            && connection.output.pending() > HIGH_WATER
        {
            connection.exchange.wants_writable = true;
            return WriteState::Full;
        }
        WriteState::Ready
    }

    /// Frame a piece of body, and send it unless it had better wait for others.
    fn put_body(
        &mut self,
        slot: usize,
        framing: Framing,
        body: &[u8],
        more: bool,
        keep: impl FnOnce() -> Box<dyn Payload>,
    ) {
        let connection = &mut self.connections[slot];
        let output = &mut connection.output;
        output.lend(&mut self.spare);
        let chunked = framing == Framing::Chunked;
        if chunked && !body.is_empty() {
            output.append_with(|out| chunk_head(out, body.len()));
        }
        let tail = tail(chunked, body.is_empty(), more);
        if body.len() <= COPY_UP_TO {
            output.append(body);
            output.append(tail);
            if more {
                self.flush_piece(slot);
            }
            return;
        }
        if output.has_payloads() {
            output.push(Piece::Bytes(keep()));
            output.append(tail);
        } else {
            let Ok(sent) = output.send_with(&connection.fd, body) else { return self.close(slot) };
            connection.progress = self.now;
            if sent < body.len() {
                output.push_from(keep(), sent);
            }
            output.append(tail);
        }
        if more {
            self.flush(slot);
        }
    }

    /// Send a small piece of an answer whose end the application has not told yet.
    fn flush_piece(&mut self, slot: usize) {
        let whole = matches!(
            self.connections[slot].exchange.response,
            Response::Body { framing: Framing::Length(_), left: 0 }
        );
        if whole || self.config.gather_pieces {
            self.flush_soon(slot);
        } else {
            self.flush(slot);
        }
    }

    /// Frame a part of a file, as one chunk where the body goes in chunks.
    fn put_file(&mut self, slot: usize, framing: Framing, file: FileSpan, more: bool) {
        let output = &mut self.connections[slot].output;
        output.lend(&mut self.spare);
        let length = usize::try_from(file.length()).unwrap_or(usize::MAX);
        let chunked = framing == Framing::Chunked;
        if length > 0 && framing != Framing::None {
            if chunked {
                output.append_with(|out| chunk_head(out, length));
            }
            output.push(Piece::File(file));
        }
        let tail = tail(chunked, length == 0, more);
        if !tail.is_empty() {
            output.append(tail);
        }
        if more {
            self.flush(slot);
        }
    }

    /// The answer is complete: go on to the next request, or end the connection.
    fn end_exchange(&mut self, slot: usize) {
        self.end_entry(slot);
        self.leave_exchange(slot);
        let draining = self.draining;
        let connection = &mut self.connections[slot];
        let exchange = &mut connection.exchange;
        connection.progress = self.now;
        let unread = !exchange.decoder.is_done();
        if exchange.keep_alive && !unread && !exchange.disconnected && !draining {
            exchange.inbound = Vec::new();
            connection.phase = Phase::Head;
            // Requests behind this one, in the same read, are answered in the same breath.
            if connection.dispatching && connection.more_requests && connection.output.pending() <= HIGH_WATER
            {
                return;
            }
            self.flush_soon(slot);
        } else {
            connection.phase = Phase::Closing;
            connection.lingers = !exchange.disconnected
                && (unread
                    || !connection.input.is_empty()
                    || connection.more_requests
                    || !exchange.client_closes);
            self.flush(slot);
        }
    }
}

/// What ends a piece of body, and the body if it is the last.
fn tail(chunked: bool, empty: bool, more: bool) -> &'static [u8] {
    match (chunked, empty, more) {
        (false, ..) | (true, true, true) => b"",
        (true, false, true) => b"\r\n",
        (true, false, false) => b"\r\n0\r\n\r\n",
        (true, true, false) => b"0\r\n\r\n",
    }
}
