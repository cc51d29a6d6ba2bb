//! Heads of answers, for the client's role: as lenient as RFC 9112 lets a user agent be.
//!
//! A client that misreads an answer harms itself alone, and has to get on with the servers there are. So what
//! section 2.2, 4, 5.1 and 6.3 of RFC 9112 allow to be repaired is repaired: bare LF, spaces before a colon, a
//! missing reason phrase, repeated equal lengths. What leaves the body's end in doubt is still refused.

use crate::Field;
use crate::body::BodyLength;
use crate::error::Reject;
use crate::field::{decimal, members};
use crate::head::{FieldSlots, Limits, Version};

/// What an answer cannot be understood without: the request that it answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// Whether the request's method was HEAD: then the answer has no body, whatever its fields say.
    pub head_request: bool,
}

/// An answer's head.
#[derive(Debug)]
pub struct ResponseHead<'h, 'b> {
    /// Status, 100 to 999.
    pub status: u16,
    /// Reason phrase; empty when there is none, or when it is not ASCII.
    pub reason: &'b str,
    /// Version.
    pub version: Version,
    /// All fields, in order, names as sent.
    pub fields: &'h [Field<'b>],
    /// How the body ends.
    pub body: BodyLength,
    /// Whether the connection may carry another request once the body is read.
    pub keep_alive: bool,
    /// Bytes of the head, the empty line included.
    pub length: usize,
}

impl ResponseHead<'_, '_> {
    /// Whether this is an interim answer (1xx), behind which the final one to the same request comes. 101 is
    /// final: another protocol begins behind it.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }
}

/// Parse an answer's head at the beginning of `bytes`.
///
/// Returns `None` when there are not enough bytes yet.
///
/// # Errors
/// [`Reject`] with status 502, which is what a gateway would answer: the head is malformed, over the limits, or
/// does not tell where the body ends.
pub fn parse_response<'h, 'b>(
    bytes: &'b [u8],
    slots: &'h mut FieldSlots<'b>,
    limits: &Limits,
    request: &RequestContext,
) -> Result<Option<ResponseHead<'h, 'b>>, Reject> {
    let window = limits.window(bytes);
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config
        .allow_spaces_after_header_name_in_responses(true)
        .allow_multiple_spaces_in_response_status_delimiters(true);
    let status = config
        .parse_response_with_uninit_headers(&mut parsed, window, slots.room(limits))
        .map_err(|error| bad(reason_of(error)))?;
    let httparse::Status::Complete(length) = status else {
        return if window.len() == limits.head { Err(bad("response head too large")) } else { Ok(None) };
    };
    let (Some(version), Some(status)) = (parsed.version, parsed.code) else {
        return Err(bad("malformed status line"));
    };
    if status < 100 {
        return Err(bad("malformed status line"));
    }
    let version = Version::from_minor(version);
    let fields: &'h [Field<'b>] = parsed.headers;
    let meaning = Meaning::of(fields)?;
    let bodiless = request.head_request || matches!(status, 100..=199 | 204 | 304);
    let body = if bodiless { BodyLength::Empty } else { meaning.body_length() };
    let keep_alive = match version {
        Version::Http11 => !meaning.close,
        // Section 6.1: a coding in HTTP/1.0 is a fault, behind which the connection is not to be trusted.
        Version::Http10 => meaning.keep_alive && !meaning.close && meaning.coding.is_none(),
    };
    let doubtful = meaning.coding.is_some() && meaning.content_length.is_some();
    Ok(Some(ResponseHead {
        status,
        reason: parsed.reason.unwrap_or_default(),
        version,
        fields,
        body,
        keep_alive: keep_alive && !doubtful && body != BodyLength::UntilClose,
        length,
    }))
}

const fn bad(reason: &'static str) -> Reject {
    Reject::with(502, reason)
}

fn reason_of(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::TooManyHeaders => "too many header fields",
        httparse::Error::Version => "not an HTTP/1 response",
        httparse::Error::HeaderName => "malformed header name",
        httparse::Error::HeaderValue => "malformed header value",
        httparse::Error::NewLine => "malformed line end",
        _ => "malformed status line",
    }
}

/// What the fields that concern the connection say.
#[derive(Default)]
struct Meaning {
    content_length: Option<u64>,
    /// Whether there is a transfer coding, and whether the last one is "chunked".
    coding: Option<bool>,
    close: bool,
    keep_alive: bool,
}

impl Meaning {
    fn of(fields: &[Field<'_>]) -> Result<Self, Reject> {
        let mut meaning = Self::default();
        for field in fields {
            match field.name.len() {
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    for member in members(field.value) {
                        meaning.close |= member.eq_ignore_ascii_case(b"close");
                        meaning.keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    meaning.content_length(field.value)?;
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = members(field.value).filter(|member| !member.is_empty()).last();
                    meaning.coding = last
                        .map(|member| member.eq_ignore_ascii_case(b"chunked"))
                        .or(meaning.coding)
                        .or(Some(false));
                }
                _ => {}
            }
        }
        Ok(meaning)
    }

    /// RFC 9110 section 8.6 allows a list of equal numbers, in one line or several, to be read as one.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        for member in members(value) {
            let length = decimal(member).ok_or(bad("malformed content-length"))?;
            if self.content_length.replace(length).is_some_and(|before| before != length) {
                return Err(bad("differing content-lengths"));
            }
        }
        Ok(())
    }

    /// RFC 9112 section 6.3, items 4 to 8.
    fn body_length(&self) -> BodyLength {
        match (self.coding, self.content_length) {
            (Some(true), _) => BodyLength::Chunked,
            (Some(false), _) | (None, None) => BodyLength::UntilClose,
            (None, Some(0)) => BodyLength::Empty,
            (None, Some(length)) => BodyLength::Known(length),
        }
    }
}
