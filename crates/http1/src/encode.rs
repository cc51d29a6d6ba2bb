//! Writing of heads and chunks; the framing of an answer is decided here and nowhere else.

use alloc::vec::Vec;

use crate::error::EncodeError;
use crate::field::{decimal, is_field_value, is_token, members};
use crate::head::Version;

/// How an answer's body goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// None may: the answer to HEAD, 204, 205, 304, 1xx. What the application sends is dropped.
    None,
    /// Exactly so many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the connection closes (HTTP/1.0).
    UntilClose,
}

/// What decides framing and persistence beside the application's own fields.
#[derive(Clone, Copy, Debug)]
pub struct ResponseOptions<'a> {
    /// The request's version.
    pub version: Version,
    /// Whether the request's method was HEAD.
    pub head_request: bool,
    /// Whether the connection may stay open.
    pub keep_alive: bool,
    /// The body's length, when all of it is known now.
    pub known_length: Option<u64>,
    /// A whole "date: …\r\n" line, written unless the application gave a date.
    pub date_line: &'a [u8],
    /// A whole "server: …\r\n" line, written unless the application named a server; may be empty.
    pub server_line: &'a [u8],
}

/// One answer's head while it is written, field by field, to a buffer of the caller's.
///
/// The buffer is handed in with each call, so that a head can be held back until the body's first bytes tell
/// how it is framed.
#[derive(Clone, Copy, Debug)]
pub struct ResponseEncoder {
    status: u16,
    content_length: Option<u64>,
    close: bool,
    date: bool,
    server: bool,
}

impl ResponseEncoder {
    /// Begin a head at the end of `out`. `reason` may be empty: then the status's usual phrase stands.
    ///
    /// # Errors
    /// [`EncodeError::Status`], [`EncodeError::FieldValue`] for a bad reason phrase; `out` is as before.
    pub fn begin(out: &mut Vec<u8>, status: u16, reason: &[u8]) -> Result<Self, EncodeError> {
        if !(100..=999).contains(&status) {
            return Err(EncodeError::Status);
        }
        if !is_field_value(reason) {
            return Err(EncodeError::FieldValue);
        }
        if status == 200 && reason.is_empty() {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            out.extend_from_slice(b"HTTP/1.1 ");
            push_decimal(out, u64::from(status));
            out.push(b' ');
            out.extend_from_slice(if reason.is_empty() { phrase(status) } else { reason });
            out.extend_from_slice(b"\r\n");
        }
        Ok(Self { status, content_length: None, close: false, date: false, server: false })
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Add a field of the application's. Transfer-Encoding is dropped, and of Connection only "close" is
    /// heard: both are the server's to say. So is Content-Length where the status leaves no choice: RFC 9110
    /// section 8.6 forbids it in 1xx and 204, section 15.3.6 makes it zero in 205.
    ///
    /// # Errors
    /// The field must not go out as it is; what is in `out` of this head is to be thrown away.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
        if !is_token(name) {
            return Err(EncodeError::FieldName);
        }
        if !is_field_value(value) {
            return Err(EncodeError::FieldValue);
        }
        match name.len() {
            4 => self.date |= name.eq_ignore_ascii_case(b"date"),
            6 => self.server |= name.eq_ignore_ascii_case(b"server"),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= members(value).any(|member| member.eq_ignore_ascii_case(b"close"));
                return Ok(());
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or(EncodeError::ContentLength)?;
                if self.content_length.replace(length).is_some() {
                    return Err(EncodeError::ContentLength);
                }
                if matches!(self.status, 100..=199 | 204 | 205) {
                    return Ok(());
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => return Ok(()),
            _ => {}
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// The length that the application has given its answer, if it has.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// End the head: add what the application left out, and decide how the body goes.
    ///
    /// Returns the framing, and whether the connection stays open after this answer. An interim answer (1xx)
    /// says nothing of the connection and gets no date; 101 names the upgrade in its Connection field.
    #[must_use]
    pub fn finish(self, out: &mut Vec<u8>, options: &ResponseOptions<'_>) -> (Framing, bool) {
        if self.status < 200 {
            out.extend_from_slice(if self.status == 101 { b"connection: upgrade\r\n\r\n" } else { b"\r\n" });
            return (Framing::None, options.keep_alive);
        }
        let mut keep_alive = options.keep_alive && !self.close;
        let framing = if matches!(self.status, 204 | 304) {
            Framing::None
        } else if self.status == 205 {
            out.extend_from_slice(b"content-length: 0\r\n");
            Framing::None
        } else if let Some(length) = self.content_length {
            Framing::Length(length)
        } else if options.head_request {
            // What GET would have answered is not known, and nothing need be said of it (RFC 9110 section 9.3.2).
            Framing::None
        } else if let Some(length) = options.known_length {
            out.extend_from_slice(b"content-length: ");
            push_decimal(out, length);
            out.extend_from_slice(b"\r\n");
            Framing::Length(length)
        } else if options.version == Version::Http11 {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunked
        } else {
            keep_alive = false;
            Framing::UntilClose
        };
        if !self.date {
            out.extend_from_slice(options.date_line);
        }
        if !self.server {
            out.extend_from_slice(options.server_line);
        }
        match (options.version, keep_alive) {
            (Version::Http11, true) => out.extend_from_slice(b"\r\n"),
            (Version::Http10, true) => out.extend_from_slice(b"connection: keep-alive\r\n\r\n"),
            (_, false) => out.extend_from_slice(b"connection: close\r\n\r\n"),
        }
        (if options.head_request { Framing::None } else { framing }, keep_alive)
    }
}

/// Write the line that opens a chunk of `length` bytes, more than zero; "\r\n" must follow the data, and
/// "0\r\n\r\n" the last chunk.
pub fn chunk_head(out: &mut Vec<u8>, length: usize) {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[length >> (place * 4) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Fields that a trailer section must not have (RFC 9110 section 6.5.1): those of framing, routing, request
/// modifiers, authentication, response control, and how to read the content. Sorted.
const NOT_TRAILERS: &[&str] = &[
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "expect",
    "expires",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "warning",
    "www-authenticate",
];

/// Write one field of a trailer section, which stands between the last chunk's "0\r\n" and an empty line.
///
/// # Errors
/// The field must not go out as it is; `out` is as before.
pub fn trailer_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
    if !is_token(name) {
        return Err(EncodeError::FieldName);
    }
    if !is_field_value(value) {
        return Err(EncodeError::FieldValue);
    }
    let lower = name.to_ascii_lowercase();
    if NOT_TRAILERS.binary_search_by(|known| known.as_bytes().cmp(&lower)).is_ok() {
        return Err(EncodeError::Trailer);
    }
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// The interim answer to `Expect: 100-continue`.
#[must_use]
pub const fn continue_response() -> &'static [u8] {
    b"HTTP/1.1 100 Continue\r\n\r\n"
}

/// A whole answer of the server's own, in plain text, after which the connection closes.
pub fn simple_response(out: &mut Vec<u8>, status: u16, text: &str, extra_lines: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(phrase(status));
    out.extend_from_slice(b"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ");
    push_decimal(out, text.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(extra_lines);
    out.extend_from_slice(b"connection: close\r\n\r\n");
    out.extend_from_slice(text.as_bytes());
}

fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Reason phrases of the IANA HTTP Status Code Registry; empty for a status that is not in it.
const fn phrase(status: u16) -> &'static [u8] {
    match status {
        100 => b"Continue",
        101 => b"Switching Protocols",
        102 => b"Processing",
        103 => b"Early Hints",
        200 => b"OK",
        201 => b"Created",
        202 => b"Accepted",
        203 => b"Non-Authoritative Information",
        204 => b"No Content",
        205 => b"Reset Content",
        206 => b"Partial Content",
        207 => b"Multi-Status",
        208 => b"Already Reported",
        226 => b"IM Used",
        300 => b"Multiple Choices",
        301 => b"Moved Permanently",
        302 => b"Found",
        303 => b"See Other",
        304 => b"Not Modified",
        305 => b"Use Proxy",
        307 => b"Temporary Redirect",
        308 => b"Permanent Redirect",
        400 => b"Bad Request",
        401 => b"Unauthorized",
        402 => b"Payment Required",
        403 => b"Forbidden",
        404 => b"Not Found",
        405 => b"Method Not Allowed",
        406 => b"Not Acceptable",
        407 => b"Proxy Authentication Required",
        408 => b"Request Timeout",
        409 => b"Conflict",
        410 => b"Gone",
        411 => b"Length Required",
        412 => b"Precondition Failed",
        413 => b"Content Too Large",
        414 => b"URI Too Long",
        415 => b"Unsupported Media Type",
        416 => b"Range Not Satisfiable",
        417 => b"Expectation Failed",
        418 => b"I'm a Teapot",
        421 => b"Misdirected Request",
        422 => b"Unprocessable Content",
        423 => b"Locked",
        424 => b"Failed Dependency",
        425 => b"Too Early",
        426 => b"Upgrade Required",
        428 => b"Precondition Required",
        429 => b"Too Many Requests",
        431 => b"Request Header Fields Too Large",
        451 => b"Unavailable For Legal Reasons",
        500 => b"Internal Server Error",
        501 => b"Not Implemented",
        502 => b"Bad Gateway",
        503 => b"Service Unavailable",
        504 => b"Gateway Timeout",
        505 => b"HTTP Version Not Supported",
        506 => b"Variant Also Negotiates",
        507 => b"Insufficient Storage",
        508 => b"Loop Detected",
        511 => b"Network Authentication Required",
        _ => b"",
    }
}
