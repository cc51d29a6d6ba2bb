//! One request and its answer, as the application sees them.

use std::io;
use std::os::fd::OwnedFd;

use headrace_engine::socket::{self, Io};
use headrace_http1::{
    BodyDecoder, BodyLength, EncodeError, Framing, Reject, RequestHead, ResponseEncoder, Version,
};

/// Names one request and its answer. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}

impl ExchangeId {
    /// The connection's slot, as in [`crate::ConnectionInfo::slot`].
    #[must_use]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// What reading a body gave.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyRead<T> {
    /// Bytes, and whether they were the last.
    Data {
        /// What was made of the bytes.
        data: T,
        /// Whether more can follow.
        more: bool,
    },
    /// Nothing yet: [`crate::App::body_ready`] tells when to try again.
    Pending,
    /// The body was read to its end before.
    Finished,
    /// The client has gone, or broke the body's framing: nothing more will come.
    Disconnected,
}

/// Whether more can be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteState {
    /// Go on.
    Ready,
    /// The client is slow: [`crate::App::writable`] tells when to go on.
    Full,
}

/// Why something cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The client has gone, or the exchange is over.
    Gone,
    /// The answer's head was already sent.
    AlreadyStarted,
    /// There is no head yet.
    NotStarted,
    /// The answer was already complete.
    AlreadyComplete,
    /// More was sent than Content-Length said.
    TooLong,
    /// Less was sent than Content-Length said; the connection breaks, so that the client notices.
    TooShort,
    /// The head must not go out as it is.
    Encode(EncodeError),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gone => "the client has gone",
            Self::AlreadyStarted => "the response was already started",
            Self::NotStarted => "the response was not started",
            Self::AlreadyComplete => "the response was already completed",
            Self::TooLong => "the response body is longer than its content-length",
            Self::TooShort => "the response body is shorter than its content-length",
            Self::Encode(error) => error.reason(),
        })
    }
}

impl std::error::Error for SendError {}

impl From<EncodeError> for SendError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// How far the answer is.
#[derive(Debug)]
pub(crate) enum Response {
    /// Nothing yet.
    None,
    /// The head is written and held back.
    Head(ResponseEncoder),
    /// The head is out; of a body of known length so many bytes are missing.
    Body { framing: Framing, left: u64 },
    /// All of it is sent or queued.
    Complete,
}

/// State of the exchange that a connection is in.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) serial: u32,
    pub(crate) version: Version,
    pub(crate) head_request: bool,
    /// Whether the connection may go on after this exchange.
    pub(crate) keep_alive: bool,
    /// The client said that it will not go on.
    pub(crate) client_closes: bool,
    /// The client makes something of fields behind the body.
    pub(crate) accepts_trailers: bool,
    /// "100 Continue" is still to be sent, when the application first asks for the body.
    pub(crate) owes_continue: bool,
    pub(crate) decoder: BodyDecoder,
    pub(crate) response: Response,
    /// Decoded body that the application has not read.
    pub(crate) inbound: Vec<u8>,
    /// Bytes of body that may still come before it is too large.
    pub(crate) allowance: u64,
    /// What the allowance was at the body's start.
    pub(crate) body_limit: u64,
    /// More had come when a limit was set.
    pub(crate) body_over: bool,
    /// The application has read the body's end.
    pub(crate) body_finished: bool,
    pub(crate) wants_body: bool,
    pub(crate) wants_writable: bool,
    pub(crate) disconnected: bool,
    /// The body is of known length: its bytes are all that comes, and need no decoding.
    plain: bool,
}

impl Exchange {
    /// The state of a connection that has had no request yet.
    pub(crate) fn none() -> Self {
        Self {
            serial: 0,
            version: Version::Http11,
            head_request: false,
            keep_alive: true,
            client_closes: false,
            accepts_trailers: false,
            owes_continue: false,
            decoder: BodyDecoder::new(BodyLength::Empty),
            response: Response::Complete,
            inbound: Vec::new(),
            allowance: 0,
            body_limit: 0,
            body_over: false,
            body_finished: true,
            wants_body: false,
            wants_writable: false,
            disconnected: false,
            plain: false,
        }
    }

    pub(crate) fn begin(serial: u32, head: &RequestHead<'_, '_>, allowance: u64) -> Self {
        Self {
            serial,
            version: head.version,
            head_request: head.method == "HEAD",
            keep_alive: head.keep_alive,
            client_closes: !head.keep_alive,
            accepts_trailers: head.accepts_trailers,
            owes_continue: head.expect_continue && head.body != BodyLength::Empty,
            decoder: BodyDecoder::new(head.body),
            response: Response::None,
            inbound: Vec::new(),
            allowance,
            body_limit: allowance,
            body_over: false,
            body_finished: false,
            wants_body: false,
            wants_writable: false,
            disconnected: false,
            plain: matches!(head.body, BodyLength::Known(_)),
        }
    }

    /// Take what `input` has of the body. Returns how many bytes of it are done with: all, unless the body ends.
    pub(crate) fn take_body(&mut self, input: &[u8]) -> Result<usize, Reject> {
        let mut at = 0;
        while !self.decoder.is_done() {
            let piece = self.decoder.decode(&input[at..])?;
            let data = &input[at..][piece.data];
            self.allow(data.len())?;
            self.inbound.extend_from_slice(data);
            at += piece.consumed;
            if piece.consumed == 0 {
                break;
            }
        }
        Ok(at)
    }

    fn allow(&mut self, length: usize) -> Result<(), Reject> {
        self.allowance =
            self.allowance.checked_sub(length as u64).ok_or(Reject::with(413, "request body too large"))?;
        Ok(())
    }

    /// Read more of a plain body to where it stays, without a stop in a buffer. What is behind it goes to `input`.
    ///
    /// Returns `None` when the body is of another kind.
    pub(crate) fn receive_plain(
        &mut self,
        fd: &OwnedFd,
        most: usize,
        input: &mut Vec<u8>,
    ) -> Option<io::Result<(Io, Option<Reject>)>> {
        let missing = self.decoder.missing();
        if !self.plain || missing == 0 {
            return None;
        }
        let room = usize::try_from(missing).unwrap_or(most).min(most);
        let before = self.inbound.len();
        self.inbound.reserve_exact(room);
        Some(socket::receive(fd, &mut self.inbound).and_then(|io| {
            let piece = self.decoder.decode(&self.inbound[before..]).map_err(io::Error::other)?;
            input.extend_from_slice(&self.inbound[before + piece.consumed..]);
            self.inbound.truncate(before + piece.consumed);
            Ok((io, self.allow(piece.consumed).err()))
        }))
    }

    /// Whether the body's length was said beforehand.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.response, Response::Complete)
    }

    /// Whether nothing of the answer has gone out yet, so that another may take its place.
    pub(crate) fn is_replaceable(&self) -> bool {
        matches!(self.response, Response::None | Response::Head(_))
    }
}
