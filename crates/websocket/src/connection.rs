//! One WebSocket connection after its opening handshake.
//!
//! ```text
//! state       on receiving Close           on sending Close    on a peer's fault
//! Open        answers it; → Closed         → Closing           writes Close; → Closed
//! Closing     → Closed                     refused             → Closed
//! Closed      (input is ignored)           refused             (input is ignored)
//! ```

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::{fmt, mem, str};

use crate::close::{Close, CloseCode, ClosePayload, Fault};
use crate::compression::{Codec, Compression};
use crate::frame::{self, Context, FrameHead, MAX_CONTROL_PAYLOAD, MAX_HEAD, Opcode};
use crate::mask;
use crate::message::{Message, NOT_UTF8};
use crate::role::{Client, Role, Server};

/// The largest message taken by default, in bytes: 16 MiB, as uvicorn and gunicorn have it.
const DEFAULT_MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// What a peer may send; more ends the connection with 1009.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message, all its fragments together, inflated. Default 16 MiB.
    pub max_message: usize,
    /// Bytes of one frame's payload, as they are sent. Default 16 MiB.
    pub max_frame: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_message: DEFAULT_MAX_MESSAGE, max_frame: DEFAULT_MAX_MESSAGE }
    }
}

/// What came from the peer. What it holds is lent from the input where it lay there whole, else owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole text message.
    Text(Cow<'a, str>),
    /// A whole binary message.
    Binary(Cow<'a, [u8]>),
    /// A ping, at most 125 bytes. The pong that answers it has been written.
    Ping(Cow<'a, [u8]>),
    /// A pong, at most 125 bytes; asked for or not.
    Pong(Cow<'a, [u8]>),
    /// The peer's close frame; nothing comes after it. The close frame that answers it has been written, unless this
    /// side sent one before. A server shuts the socket down now; a client waits for the server to do so.
    Close(Close<'a>),
    /// The peer broke a rule; nothing comes after it. The close frame that says so has been written, unless this side
    /// sent one before. Both roles shut the socket down now.
    Failed(Fault),
}

/// A data frame or a close frame cannot be sent after a close frame (RFC 6455 section 5.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendError;

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the WebSocket connection is closing or closed")
    }
}

impl core::error::Error for SendError {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// This side has sent a close frame, and waits for the peer's.
    Closing,
    Closed,
}

/// The bytes of a head that lies in more than one input.
#[derive(Debug, Default)]
struct CutHead {
    bytes: [u8; MAX_HEAD],
    length: u8,
}

/// One end of an open WebSocket connection.
///
/// [`receive`](Self::receive) takes what came from the socket; what has to go to it is appended to the `out` that each
/// method is given.
#[derive(Debug)]
pub struct Connection<R> {
    role: R,
    state: State,
    limits: Limits,
    cut_head: CutHead,
    /// The frame whose payload is not all here: `length` is what is missing, `mask` starts at the next byte.
    frame: Option<FrameHead>,
    /// The message whose end is not here: fragmented, or in a frame that is.
    message: Option<Message>,
    /// What is here of the payload of a control frame that lies in more than one input.
    control: Vec<u8>,
    codec: Option<Box<Codec>>,
    /// What the peer did wrong, while its end is put off.
    held: Option<Fault>,
}

impl Connection<Server> {
    /// The server's end. `compression` is what [`ServerAnswer::compression`](crate::ServerAnswer::compression) says.
    #[must_use]
    pub fn server(limits: Limits, compression: Option<Compression>) -> Self {
        Self::new(Server, limits, compression)
    }
}

impl<F: FnMut() -> u32> Connection<Client<F>> {
    /// The client's end. `masks` is called once for each frame sent, and its values must not be predictable
    /// ([`Client`]). `compression` is what [`ClientAnswer::compression`](crate::ClientAnswer::compression) says.
    #[must_use]
    pub fn client(masks: F, limits: Limits, compression: Option<Compression>) -> Self {
        Self::new(Client(masks), limits, compression)
    }
}

impl<R: Role> Connection<R> {
    fn new(role: R, limits: Limits, compression: Option<Compression>) -> Self {
        Self {
            role,
            state: State::Open,
            limits,
            cut_head: CutHead::default(),
            frame: None,
            message: None,
            control: Vec::new(),
            codec: compression.map(|compression| Box::new(Codec::new(compression))),
            held: None,
        }
    }

    /// Whether messages can still be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the closing handshake is complete, or failed: nothing more will come or go.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Takes bytes off the front of `input`, which it unmasks in place, until there is an event, and appends to `out`
    /// what the protocol has to answer (pongs and close frames). `None` when all of `input` is taken. Call it again
    /// until then, or keep what is left of `input` for later: that is how a reader holds its peer back.
    ///
    /// An uncompressed message in one frame that lies whole in `input` is lent from there, with no allocation.
    pub fn receive<'a>(&mut self, input: &mut &'a mut [u8], out: &mut Vec<u8>) -> Option<Event<'a>> {
        let event = self.receive_holding(input, out);
        if matches!(event, Some(Event::Failed(_))) {
            self.fail(out);
        }
        event
    }

    /// As [`receive`](Self::receive), but for [`Event::Failed`]: the close frame is not written yet, so that messages
    /// which came before the fault can still be answered. Nothing more is received; [`fail`](Self::fail) ends it.
    pub fn receive_holding<'a>(&mut self, input: &mut &'a mut [u8], out: &mut Vec<u8>) -> Option<Event<'a>> {
        while self.state != State::Closed && self.held.is_none() {
            let step = self.next_frame(input).and_then(|frame| match frame {
                Some(frame) => self.take_payload(frame, input, out),
                None => Ok(Step::NeedMore),
            });
            match step {
                Ok(Step::NextFrame) => {}
                Ok(Step::NeedMore) => return None,
                Ok(Step::Event(event)) => return Some(event),
                Err(fault) => {
                    self.held = Some(fault);
                    return Some(Event::Failed(fault));
                }
            }
        }
        *input = &mut [];
        None
    }

    /// Ends the connection for the fault that [`receive_holding`](Self::receive_holding) has found; without one, does
    /// nothing.
    pub fn fail(&mut self, out: &mut Vec<u8>) {
        if let Some(fault) = self.held.take() {
            self.close(fault.code(), fault.reason(), out);
        }
    }

    /// Appends a text message to `out`, compressed if that was negotiated and it is not below the threshold.
    ///
    /// # Errors
    /// After a close frame was sent or received.
    pub fn send_text(&mut self, text: &str, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_message(Opcode::Text, text.as_bytes(), out)
    }

    /// Appends a binary message to `out`, compressed if that was negotiated and it is not below the threshold.
    ///
    /// # Errors
    /// After a close frame was sent or received.
    pub fn send_binary(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_message(Opcode::Binary, bytes, out)
    }

    /// Appends a ping to `out`. Of `payload`, the first 125 bytes are sent.
    ///
    /// # Errors
    /// After a close frame was sent or received.
    pub fn send_ping(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_control(Opcode::Ping, payload, out)
    }

    /// Appends a pong that no ping asked for, a one-way heartbeat, to `out`. Of `payload`, the first 125 bytes are sent.
    ///
    /// # Errors
    /// After a close frame was sent or received.
    pub fn send_pong(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_control(Opcode::Pong, payload, out)
    }

    /// Begins the closing handshake: appends a close frame to `out`. With [`CloseCode::NO_STATUS`] or
    /// [`CloseCode::ABNORMAL`] it is empty; `reason` is cut after 123 bytes. Messages still come in until the peer's
    /// close frame does; the caller sets a time after which it waits no longer.
    ///
    /// # Errors
    /// After a close frame was sent or received.
    pub fn send_close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_open()?;
        self.write_close(code, reason, out);
        self.state = State::Closing;
        Ok(())
    }

    fn check_open(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError) }
    }

    fn send_control(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_open()?;
        let payload = &payload[..payload.len().min(MAX_CONTROL_PAYLOAD)];
        frame::write_frame(opcode, payload, self.role.mask(), out);
        Ok(())
    }

    #[inline]
    fn send_message(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_open()?;
        match &mut self.codec {
            Some(codec) if codec.compresses(payload.len()) => {
                let start = out.len();
                out.resize(start + MAX_HEAD, 0);
                codec.deflate(payload, out);
                frame::finish_compressed_frame(opcode, start, self.role.mask(), out);
            }
            _ => frame::write_frame(opcode, payload, self.role.mask(), out),
        }
        Ok(())
    }

    fn write_close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        let payload = ClosePayload::new(code, reason);
        frame::write_frame(Opcode::Close, payload.as_bytes(), self.role.mask(), out);
    }

    /// Ends the connection, with a close frame if none was sent, and frees what it held.
    fn close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        if self.state == State::Open {
            self.write_close(code, reason, out);
        }
        self.state = State::Closed;
        self.frame = None;
        self.message = None;
        self.control = Vec::new();
        self.codec = None;
    }

    /// The frame whose payload comes next in `input`.
    #[inline]
    fn next_frame(&mut self, input: &mut &mut [u8]) -> Result<Option<FrameHead>, Fault> {
        if let Some(frame) = self.frame.take() {
            return Ok(Some(frame));
        }
        let context = Context {
            peer_masks: R::PEER_MASKS,
            compression: self.codec.is_some(),
            in_message: self.message.is_some(),
        };
        let head = if self.cut_head.length == 0 {
            FrameHead::parse(input, context)?
        } else {
            return self.next_cut_frame(input, context);
        };
        match head {
            Some((head, length)) => {
                advance(input, length);
                self.check_limits(&head)?;
                Ok(Some(head))
            }
            None => {
                self.cut_head.bytes[..input.len()].copy_from_slice(input);
                self.cut_head.length = input.len() as u8;
                *input = &mut [];
                Ok(None)
            }
        }
    }

    /// As [`Self::next_frame`], where the first bytes of its head were in an earlier input.
    #[cold]
    fn next_cut_frame(
        &mut self,
        input: &mut &mut [u8],
        context: Context,
    ) -> Result<Option<FrameHead>, Fault> {
        while let Some(&byte) = input.first() {
            advance(input, 1);
            let cut = &mut self.cut_head;
            // A head is complete, or refused, at its fourteenth byte at the latest.
            cut.bytes[usize::from(cut.length)] = byte;
            cut.length += 1;
            if let Some((head, _)) = FrameHead::parse(&cut.bytes[..usize::from(cut.length)], context)? {
                cut.length = 0;
                self.check_limits(&head)?;
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    fn check_limits(&self, head: &FrameHead) -> Result<(), Fault> {
        if head.opcode.is_control() {
            return Ok(());
        }
        // How long a compressed message is shows only as it is inflated.
        let (compressed, before) = match &self.message {
            Some(message) => (message.compressed, message.len()),
            None => (head.compressed, 0),
        };
        let room = if compressed { usize::MAX } else { self.limits.max_message - before };
        if head.length > self.limits.max_frame.min(room) as u64 {
            return Err(Fault::TooBig);
        }
        Ok(())
    }

    /// Takes what is there of `frame`'s payload.
    #[inline]
    fn take_payload<'a>(
        &mut self,
        mut frame: FrameHead,
        input: &mut &'a mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Fault> {
        let length = usize::try_from(frame.length).unwrap_or(usize::MAX).min(input.len());
        let (payload, rest) = mem::take(input).split_at_mut(length);
        *input = rest;
        if R::PEER_MASKS {
            frame.mask = mask::apply(payload, frame.mask);
        }
        frame.length -= length as u64;
        let step = if frame.opcode.is_control() {
            self.take_control(frame, payload, out)
        } else {
            self.take_data(frame, payload)
        };
        if frame.length > 0 {
            self.frame = Some(frame);
        }
        step
    }

    #[inline]
    fn take_data<'a>(&mut self, frame: FrameHead, payload: &'a [u8]) -> Result<Step<'a>, Fault> {
        let last = frame.fin && frame.length == 0;
        let message = match &mut self.message {
            Some(message) => message,
            None if last && !frame.compressed => {
                return Ok(Step::Event(match frame.opcode {
                    Opcode::Text => Event::Text(str::from_utf8(payload).map_err(|_| NOT_UTF8)?.into()),
                    _ => Event::Binary(payload.into()),
                }));
            }
            None => {
                let promised = payload.len() as u64 + frame.length;
                self.message.insert(Message::new(frame.opcode, frame.compressed, promised))
            }
        };
        let limit = self.limits.max_message;
        match &mut self.codec {
            Some(codec) if message.compressed => codec.inflate(payload, last, message, limit)?,
            _ => message.push(payload, limit)?,
        }
        match self.message.take_if(|_| last) {
            Some(message) => message.finish().map(Step::Event),
            None => Ok(if frame.length == 0 { Step::NextFrame } else { Step::NeedMore }),
        }
    }

    fn take_control<'a>(
        &mut self,
        frame: FrameHead,
        payload: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Fault> {
        if frame.length > 0 || !self.control.is_empty() {
            self.control.extend_from_slice(payload);
        }
        if frame.length > 0 {
            return Ok(Step::NeedMore);
        }
        let payload: Cow<'a, [u8]> =
            if self.control.is_empty() { payload.into() } else { mem::take(&mut self.control).into() };
        Ok(Step::Event(match frame.opcode {
            Opcode::Ping => {
                // Owed until the peer's close frame comes, even after one was sent (RFC 6455 section 5.5.2).
                frame::write_frame(Opcode::Pong, &payload, self.role.mask(), out);
                Event::Ping(payload)
            }
            Opcode::Pong => Event::Pong(payload),
            _ => {
                let close = Close::parse(payload)?;
                self.close(close.code, "", out);
                Event::Close(close)
            }
        }))
    }
}

enum Step<'a> {
    Event(Event<'a>),
    NextFrame,
    NeedMore,
}

/// Drops the first `count` bytes.
fn advance(input: &mut &mut [u8], count: usize) {
    *input = &mut mem::take(input)[count..];
}

#[cfg(test)]
mod tests;
