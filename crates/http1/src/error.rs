//! Who is to blame, and what to answer on the wire.

use core::fmt;

/// A message of the peer's that has no single valid reading: answer with this status and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 400, 413, 414, 417, 431, 501 or 505; 502 for an answer that a client cannot read.
    pub status: u16,
    /// What is wrong, in a few words that can be logged and shown to the peer.
    pub reason: &'static str,
}

impl Reject {
    /// 400 Bad Request.
    #[must_use]
    pub const fn bad(reason: &'static str) -> Self {
        Self { status: 400, reason }
    }

    /// Any other status.
    #[must_use]
    pub const fn with(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl core::error::Error for Reject {}

/// A message of our own side's application that must not go out as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The status is not in 100..=999.
    Status,
    /// A field's name is not a token (RFC 9110 section 5.6.2).
    FieldName,
    /// A field's value has CR, LF or NUL in it: it would split the message (RFC 9110 section 5.5).
    FieldValue,
    /// Content-Length is not a number, or is there twice.
    ContentLength,
    /// A field that must not stand behind the body (RFC 9110 section 6.5.1).
    Trailer,
}

impl EncodeError {
    /// What is wrong, in a few words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Status => "the status is not a number from 100 to 999",
            Self::FieldName => "a header's name has a character that is not allowed in names",
            Self::FieldValue => "a header's value has a line break or NUL in it",
            Self::ContentLength => "content-length is not a number, or is given twice",
            Self::Trailer => "a trailer has a name that is not allowed behind the body",
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for EncodeError {}
