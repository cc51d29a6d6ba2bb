//! Close codes, the payload of a close frame, and the faults that end a connection (RFC 6455 sections 5.5.1 and 7.4).

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use crate::frame::MAX_CONTROL_PAYLOAD;

/// Why a connection ends, as a number (RFC 6455 section 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// A server goes down, or a browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// A breach of the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A type of data that this end does not take.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// Reported, never sent: the peer's close frame had no code.
    pub const NO_STATUS: Self = Self(1005);
    /// Reported, never sent: the connection ended without a close frame.
    pub const ABNORMAL: Self = Self(1006);
    /// Text that is no UTF-8, or data that does not inflate.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message that breaks a rule of the application's.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message beyond a limit.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// A client misses an extension that it needs.
    pub const MANDATORY_EXTENSION: Self = Self(1010);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);

    /// The code, if one may stand in a close frame: 1000 to 1003, 1007 to 1014, or 3000 to 4999 (RFC 6455
    /// section 7.4.2 and the IANA registry, which gave out 1012 to 1014 later).
    #[must_use]
    pub fn new(code: u16) -> Option<Self> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

/// What a peer's close frame said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close<'a> {
    /// [`CloseCode::NO_STATUS`] where the frame was empty.
    pub code: CloseCode,
    /// For people who read logs; at most 123 bytes.
    pub reason: Cow<'a, str>,
}

impl<'a> Close<'a> {
    pub(crate) fn parse(payload: Cow<'a, [u8]>) -> Result<Self, Fault> {
        const BAD_REASON: Fault = Fault::InvalidPayload("close reason is no UTF-8");
        let code = match payload[..] {
            [] => return Ok(Self { code: CloseCode::NO_STATUS, reason: Cow::Borrowed("") }),
            [_] => return Err(Fault::Protocol("close frame of one byte")),
            [high, low, ..] => CloseCode::new(u16::from_be_bytes([high, low])),
        };
        let code = code.ok_or(Fault::Protocol("close code that must not be sent"))?;
        let reason = match payload {
            Cow::Borrowed(bytes) => core::str::from_utf8(&bytes[2..]).map_err(|_| BAD_REASON)?.into(),
            Cow::Owned(mut bytes) => String::from_utf8(bytes.split_off(2)).map_err(|_| BAD_REASON)?.into(),
        };
        Ok(Self { code, reason })
    }
}

/// The payload of a close frame, no longer than a control frame may be.
pub(crate) struct ClosePayload {
    bytes: [u8; MAX_CONTROL_PAYLOAD],
    length: usize,
}

impl ClosePayload {
    /// `reason` is cut at a character's end where it is longer than 123 bytes. A code that must not be sent gives an
    /// empty payload, which is how "no status" is said.
    pub(crate) fn new(code: CloseCode, reason: &str) -> Self {
        let mut bytes = [0; MAX_CONTROL_PAYLOAD];
        if CloseCode::new(code.get()).is_none() {
            return Self { bytes, length: 0 };
        }
        let mut end = reason.len().min(MAX_CONTROL_PAYLOAD - 2);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        bytes[..2].copy_from_slice(&code.get().to_be_bytes());
        bytes[2..2 + end].copy_from_slice(&reason.as_bytes()[..end]);
        Self { bytes, length: 2 + end }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What the peer did wrong. The close frame that says so has been written when this is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A breach of the protocol: 1002.
    Protocol(&'static str),
    /// Text that is no UTF-8, or data that does not inflate: 1007.
    InvalidPayload(&'static str),
    /// A frame or message beyond [`Limits`](crate::Limits): 1009.
    TooBig,
}

impl Fault {
    /// The close code that answers it.
    #[must_use]
    pub fn code(self) -> CloseCode {
        match self {
            Self::Protocol(_) => CloseCode::PROTOCOL_ERROR,
            Self::InvalidPayload(_) => CloseCode::INVALID_PAYLOAD,
            Self::TooBig => CloseCode::MESSAGE_TOO_BIG,
        }
    }

    /// The reason that stands in the close frame.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Protocol(reason) | Self::InvalidPayload(reason) => reason,
            Self::TooBig => "message too big",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason())
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests;
