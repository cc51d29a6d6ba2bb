//! Where a body ends: by length, by chunks, or with the connection (RFC 9112 sections 6 and 7).

use core::ops::Range;

use crate::error::Reject;

/// How a message's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    Empty,
    /// After so many bytes, more than zero.
    Known(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection; only an answer's can.
    UntilClose,
}

/// What [`BodyDecoder::decode`] found at the beginning of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// So many bytes of the input are done with.
    pub consumed: usize,
    /// These of them are the body's; the others are framing. Empty when more input is needed.
    pub data: Range<usize>,
    /// The body is over: what follows belongs to the next message.
    pub end: bool,
}

/// Bytes of chunk extensions in a whole body, as in hyper. They are checked and dropped; without a bound on all of
/// them together a body of tiny chunks would be nearly all framing, which no limit on bodies sees.
const MAX_EXTENSIONS: u16 = 16 * 1024;

/// Bytes of the trailer section. The fields are checked and dropped, never merged into the head's.
const MAX_TRAILERS: u16 = 8 * 1024;

/// Cuts a body out of a stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of chunk extensions so far, at most [`MAX_EXTENSIONS`].
    extensions: u16,
}

/// A body's states. Chunked ones go Size → (ExtensionSpace →) (Extension →) SizeLf → Data → DataCr → DataLf → Size …, and after
/// the chunk of size zero TrailerStart → (Trailer → TrailerLf → TrailerStart)* → EndLf → End.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Known { left: u64 },
    UntilClose,
    Size { size: u64, digits: u8 },
    ExtensionSpace { size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart { length: u16 },
    TrailerName { length: u16 },
    TrailerValue { length: u16 },
    TrailerLf { length: u16 },
    EndLf,
    End,
}

impl BodyDecoder {
    /// A decoder for a body that ends as `length` says.
    #[must_use]
    pub fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::Empty | BodyLength::Known(0) => State::End,
            BodyLength::Known(left) => State::Known { left },
            BodyLength::Chunked => State::Size { size: 0, digits: 0 },
            BodyLength::UntilClose => State::UntilClose,
        };
        Self { state, extensions: 0 }
    }

    /// Whether the body is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::End
    }

    /// How many bytes of the body are certain to be still missing: all of them where the length is known.
    #[must_use]
    pub fn missing(&self) -> u64 {
        match self.state {
            State::Known { left } | State::Data { left } => left,
            _ => 0,
        }
    }

    /// Take the next piece from the beginning of `input`; call again with what is left of it. A piece without data
    /// that is not the end has consumed all the input there was.
    ///
    /// # Errors
    /// [`Reject`] when the chunked coding is malformed; there is nothing more to be read then.
    pub fn decode(&mut self, input: &[u8]) -> Result<Piece, Reject> {
        let mut at = 0;
        loop {
            match self.state {
                State::End => return Ok(Piece { consumed: at, data: at..at, end: true }),
                State::Known { left } => {
                    let (taken, left) = take(input.len(), at, left);
                    self.state = if left == 0 { State::End } else { State::Known { left } };
                    return Ok(Piece { consumed: at + taken, data: at..at + taken, end: left == 0 });
                }
                State::UntilClose => {
                    return Ok(Piece { consumed: input.len(), data: at..input.len(), end: false });
                }
                State::Data { left } => {
                    let (taken, left) = take(input.len(), at, left);
                    self.state = if left == 0 { State::DataCr } else { State::Data { left } };
                    return Ok(Piece { consumed: at + taken, data: at..at + taken, end: false });
                }
                _ => {}
            }
            let Some(byte) = input.get(at) else {
                return Ok(Piece { consumed: at, data: at..at, end: false });
            };
            at += 1;
            self.state = self.framing(*byte)?;
        }
    }

    /// One byte of the chunked coding's framing.
    fn framing(&mut self, byte: u8) -> Result<State, Reject> {
        const BAD_CHUNK: Reject = Reject::bad("malformed chunk");
        const BAD_TRAILER: Reject = Reject::bad("malformed trailer");
        Ok(match self.state {
            State::Size { size, digits } => match (byte, hex(byte)) {
                // Sixteen digits fill a u64; leading zeros beyond that have no honest use.
                (_, Some(digit)) if digits < 16 => {
                    State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                (b'\r', _) if digits > 0 => State::SizeLf { size },
                (b';', _) if digits > 0 => State::Extension { size },
                (b' ' | b'\t', _) if digits > 0 => State::ExtensionSpace { size },
                _ => return Err(Reject::bad("malformed chunk size")),
            },
            // RFC 9112 section 7.1.1: white space before an extension, not before the line's end.
            State::ExtensionSpace { size } => match byte {
                b';' => State::Extension { size },
                b' ' | b'\t' if self.extensions < MAX_EXTENSIONS => {
                    self.extensions += 1;
                    State::ExtensionSpace { size }
                }
                _ => return Err(Reject::bad("malformed chunk extension")),
            },
            State::Extension { size } => match byte {
                b'\r' => State::SizeLf { size },
                b'\t' | b' '..=b'~' | 0x80.. if self.extensions < MAX_EXTENSIONS => {
                    self.extensions += 1;
                    State::Extension { size }
                }
                _ => return Err(Reject::bad("malformed chunk extension")),
            },
            State::SizeLf { size } => match (byte, size) {
                (b'\n', 0) => State::TrailerStart { length: 0 },
                (b'\n', _) => State::Data { left: size },
                _ => return Err(BAD_CHUNK),
            },
            State::DataCr if byte == b'\r' => State::DataLf,
            State::DataLf if byte == b'\n' => State::Size { size: 0, digits: 0 },
            State::TrailerStart { length } => match byte {
                b'\r' => State::EndLf,
                _ if crate::is_token(&[byte]) => State::TrailerName { length: longer(length)? },
                _ => return Err(BAD_TRAILER),
            },
            State::TrailerName { length } => {
                let length = longer(length)?;
                match byte {
                    b':' => State::TrailerValue { length },
                    _ if crate::is_token(&[byte]) => State::TrailerName { length },
                    _ => return Err(BAD_TRAILER),
                }
            }
            State::TrailerValue { length } => match byte {
                b'\r' => State::TrailerLf { length },
                b'\t' | b' '..=b'~' | 0x80.. => State::TrailerValue { length: longer(length)? },
                _ => return Err(BAD_TRAILER),
            },
            State::TrailerLf { length } if byte == b'\n' => State::TrailerStart { length },
            State::EndLf if byte == b'\n' => State::End,
            _ => return Err(BAD_CHUNK),
        })
    }
}

/// A trailer section of one byte more.
fn longer(length: u16) -> Result<u16, Reject> {
    if length < MAX_TRAILERS { Ok(length + 1) } else { Err(Reject::with(431, "trailers too large")) }
}

/// How much of `left` the input has from `at` on, and what is left then.
fn take(available: usize, at: usize, left: u64) -> (usize, u64) {
    let available = available - at;
    let taken = usize::try_from(left).map_or(available, |left| left.min(available));
    (taken, left - taken as u64)
}

fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
