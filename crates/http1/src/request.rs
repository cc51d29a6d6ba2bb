//! Request heads: grammar by `httparse`, meaning and strictness here.
//!
//! The verdict on a head is the same however its bytes are cut on their way: an error found in a beginning
//! of it is the error of the whole. The fuzzer `request` and the vectors hold this.

use crate::Field;
use crate::body::BodyLength;
use crate::error::Reject;
use crate::field::{TOKEN, decimal, is_token, members};
use crate::head::{FieldSlots, Limits, Version};
use crate::target::{Target, is_host, parse_target};

/// A request's head that has one reading.
#[derive(Debug)]
pub struct RequestHead<'h, 'b> {
    /// Method, case-sensitive.
    pub method: &'b str,
    /// Target, taken apart.
    pub target: Target<'b>,
    /// Version.
    pub version: Version,
    /// All fields, in order, names as sent.
    pub fields: &'h [Field<'b>],
    /// Host and port that the request is for; empty for an HTTP/1.0 request that does not say.
    pub host: &'b [u8],
    /// How the body ends.
    pub body: BodyLength,
    /// Whether the connection may serve another request after this one.
    pub keep_alive: bool,
    /// Whether the client waits for "100 Continue" before it sends the body; never so without a body.
    pub expect_continue: bool,
    /// The protocols of the Upgrade field, where Connection names it too (RFC 9110 section 7.8).
    pub upgrade: Option<&'b [u8]>,
    /// Whether the client makes something of fields behind the body (`TE: trailers`, RFC 9110 section 10.1.4).
    pub accepts_trailers: bool,
    /// Bytes of the head, the empty line and any empty lines before the request included.
    pub length: usize,
}

impl<'b> RequestHead<'_, 'b> {
    /// What the Host field would say, where it is absent and the target says it: a request of HTTP/1.0 in absolute
    /// form (RFC 9112 section 3.2.2).
    #[must_use]
    pub fn implied_host(&self) -> Option<&'b [u8]> {
        self.target
            .authority
            .filter(|_| !self.fields.iter().any(|field| field.name.eq_ignore_ascii_case("host")))
    }
}

/// Bytes of a method. The longest in IANA's registry has 17; RFC 9112 section 3 answers a longer one by 501.
const MAX_METHOD: usize = 32;

/// Empty lines before a request line. RFC 9112 section 2.2 asks for at least one, for the sake of old clients
/// that put one behind a body; more would be work for nothing.
const MAX_EMPTY_LINES: usize = 2;

const METHOD_TOO_LONG: Reject = Reject::with(501, "method not implemented");
const TARGET_TOO_LONG: Reject = Reject::with(414, "request target too long");
const MALFORMED_LINE: Reject = Reject::bad("malformed request line");

/// Parse a request's head at the beginning of `bytes`.
///
/// Returns `None` when there are not enough bytes yet.
///
/// # Errors
/// [`Reject`] when the message is malformed, ambiguous, over the limits or asks for what is not spoken here.
pub fn parse_request<'h, 'b>(
    bytes: &'b [u8],
    slots: &'h mut FieldSlots<'b>,
    limits: &Limits,
) -> Result<Option<RequestHead<'h, 'b>>, Reject> {
    let window = limits.window(bytes);
    let skipped = match window.first() {
        Some(b'\r' | b'\n') => empty_lines(window)?,
        _ => 0,
    };
    let head = &window[skipped..];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(head, slots.room(limits));
    let Ok(httparse::Status::Complete(length)) = status else {
        return unfinished(head, limits, status.err(), window.len() == limits.head).map(|()| None);
    };
    let (Some(method), Some(path), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(MALFORMED_LINE);
    };
    if method.len() > MAX_METHOD {
        return Err(METHOD_TOO_LONG);
    }
    if path.len() > limits.target {
        return Err(TARGET_TOO_LONG);
    }
    let fields: &'h [Field<'b>] = parsed.headers;
    only_crlf(&head[..length], fields)?;
    let target = parse_target(method, path)?;
    let version = Version::from_minor(version);
    let meaning = Meaning::of(fields, version)?;
    let body = meaning.body_length()?;
    let host = match (target.authority, meaning.host) {
        // RFC 9112 section 3.2.2 lets the target win over Host; a difference is refused: a proxy may differ.
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(Reject::bad("host differs from request target"));
        }
        (_, Some(host)) => host,
        (authority, None) if version == Version::Http10 => authority.unwrap_or_default(),
        _ => return Err(Reject::bad("missing host")),
    };
    let http11 = version == Version::Http11;
    Ok(Some(RequestHead {
        method,
        target,
        version,
        fields,
        host,
        body,
        keep_alive: (http11 || meaning.keep_alive) && !meaning.close,
        // RFC 9110 section 10.1.1: to be ignored in HTTP/1.0, and pointless without content.
        expect_continue: meaning.expect_continue && http11 && body != BodyLength::Empty,
        upgrade: meaning.upgrade.filter(|_| meaning.connection_upgrade && http11),
        accepts_trailers: meaning.accepts_trailers,
        length: skipped + length,
    }))
}

/// Bytes of the empty lines before a request line; of a CR that may begin another, nothing.
#[cold]
fn empty_lines(window: &[u8]) -> Result<usize, Reject> {
    let mut at = 0;
    for _ in 0..MAX_EMPTY_LINES {
        match window[at..] {
            [b'\r', b'\n', ..] => at += 2,
            [b'\r'] => return Ok(at),
            [b'\r' | b'\n', ..] => return Err(Reject::bad("malformed line end")),
            _ => return Ok(at),
        }
    }
    match window[at..] {
        [b'\r' | b'\n', ..] => Err(Reject::bad("too many empty lines before the request")),
        _ => Ok(at),
    }
}

/// The verdict on a head that is not complete, or that `httparse` refuses: `Ok` when more bytes may make it good.
///
/// What is over a limit is told first: the error may stand behind the limit, where a head that comes in small
/// pieces would never get to.
#[cold]
fn unfinished(
    head: &[u8],
    limits: &Limits,
    error: Option<httparse::Error>,
    full: bool,
) -> Result<(), Reject> {
    let method = head.iter().take_while(|byte| TOKEN[**byte as usize]).count();
    if method > MAX_METHOD {
        return Err(METHOD_TOO_LONG);
    }
    let behind_method = match head.get(method..) {
        Some([b' ', rest @ ..]) if method > 0 => rest,
        _ => &[],
    };
    let target = behind_method.iter().take_while(|byte| **byte > b' ' && **byte != 0x7f).count();
    if target > limits.target {
        return Err(TARGET_TOO_LONG);
    }
    match error {
        None => {}
        Some(httparse::Error::Version) => version(&behind_method[(target + 1).min(behind_method.len())..])?,
        Some(httparse::Error::TooManyHeaders) => return Err(Reject::with(431, "too many header fields")),
        Some(httparse::Error::HeaderName) => return Err(Reject::bad("malformed header name")),
        Some(httparse::Error::HeaderValue) => return Err(Reject::bad("malformed header value")),
        Some(httparse::Error::NewLine) => return Err(Reject::bad("malformed line end")),
        Some(_) => return Err(MALFORMED_LINE),
    }
    if full { Err(Reject::with(431, "request head too large")) } else { Ok(()) }
}

/// A version that is well-formed but not ours is 505 (1.2 and above too: there are none); anything else is 400.
fn version(bytes: &[u8]) -> Result<(), Reject> {
    for (at, expected) in b"HTTP/0.0".iter().enumerate() {
        match bytes.get(at) {
            None => return Ok(()),
            Some(byte) if byte == expected => {}
            Some(byte) if *expected == b'0' && byte.is_ascii_digit() => {}
            Some(_) => return Err(Reject::bad("malformed HTTP version")),
        }
    }
    Err(Reject::with(505, "HTTP version not supported"))
}

/// `httparse` takes a bare LF for a line end (RFC 9112 section 2.2 allows that); we do not.
///
/// Each line but the first begins behind an LF with a field's name or is the empty one at the end, so it is enough
/// to look at the byte before that: no second pass over the head.
fn only_crlf(head: &[u8], fields: &[Field<'_>]) -> Result<(), Reject> {
    let start = head.as_ptr().addr();
    let well = fields.iter().all(|field| {
        let line = field.name.as_ptr().addr().wrapping_sub(start);
        head.get(line.wrapping_sub(2)) == Some(&b'\r')
    });
    if well && head.ends_with(b"\r\n\r\n") { Ok(()) } else { Err(Reject::bad("bare line feed")) }
}

/// What the fields that concern the connection say.
#[derive(Default)]
struct Meaning<'b> {
    host: Option<&'b [u8]>,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    connection_upgrade: bool,
    expect_continue: bool,
    accepts_trailers: bool,
    upgrade: Option<&'b [u8]>,
}

impl<'b> Meaning<'b> {
    fn of(fields: &[Field<'b>], version: Version) -> Result<Self, Reject> {
        let mut meaning = Self::default();
        for field in fields {
            // The length tells most fields apart from those that matter here without looking at a letter.
            match field.name.len() {
                2 if field.name.eq_ignore_ascii_case("te") => {
                    meaning.accepts_trailers |=
                        members(field.value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
                }
                4 if field.name.eq_ignore_ascii_case("host") => meaning.host(field.value)?,
                6 if field.name.eq_ignore_ascii_case("expect") => meaning.expect(field.value)?,
                7 if field.name.eq_ignore_ascii_case("upgrade") => meaning.upgrade(field.value)?,
                10 if field.name.eq_ignore_ascii_case("connection") => meaning.connection(field.value),
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    meaning.content_length(field.value)?;
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    meaning.transfer_encoding(field.value, version)?;
                }
                _ => {}
            }
        }
        Ok(meaning)
    }

    fn host(&mut self, value: &'b [u8]) -> Result<(), Reject> {
        if self.host.replace(value).is_some() {
            return Err(Reject::bad("more than one host"));
        }
        if is_host(value) { Ok(()) } else { Err(Reject::bad("malformed host")) }
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Reject> {
        if !members(value).all(|member| member.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Reject::with(417, "unknown expectation"));
        }
        self.expect_continue = true;
        Ok(())
    }

    /// RFC 9110 section 5.3 would join several fields; their order of preference would be anybody's guess.
    fn upgrade(&mut self, value: &'b [u8]) -> Result<(), Reject> {
        if self.upgrade.replace(value).is_some() {
            return Err(Reject::bad("more than one upgrade"));
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for member in members(value) {
            self.close |= member.eq_ignore_ascii_case(b"close");
            self.keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
            self.connection_upgrade |= member.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// One number, once. RFC 9110 section 8.6 lets a recipient merge repeated equal ones; refused, see rule 2.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let length = decimal(value).ok_or_else(|| match value {
            [] => Reject::bad("malformed content-length"),
            _ if value.iter().all(u8::is_ascii_digit) => Reject::with(413, "content-length too large"),
            _ => Reject::bad("malformed content-length"),
        })?;
        if self.content_length.replace(length).is_some() {
            return Err(Reject::bad("more than one content-length"));
        }
        Ok(())
    }

    /// "chunked", once, and nothing else. RFC 9112 section 6.1 answers a coding that is not understood by 501,
    /// section 6.3 one that leaves the end open by 400.
    fn transfer_encoding(&mut self, value: &[u8], version: Version) -> Result<(), Reject> {
        if version == Version::Http10 {
            return Err(Reject::bad("transfer-encoding in HTTP/1.0"));
        }
        if self.chunked {
            return Err(Reject::bad("more than one transfer-encoding"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        // Whether other codings come before "chunked" or stand alone, they are not spoken here.
        let is_chunked = |member: &[u8]| member.eq_ignore_ascii_case(b"chunked");
        let unknown = members(value).take_while(|member| is_token(member) && !is_chunked(member)).count();
        let mut rest = members(value).skip(unknown);
        let chunked_last = match rest.next() {
            None => true,
            Some(member) => is_chunked(member) && rest.next().is_none(),
        };
        Err(if chunked_last {
            Reject::with(501, "transfer coding not supported")
        } else {
            Reject::bad("malformed transfer-encoding")
        })
    }

    fn body_length(&self) -> Result<BodyLength, Reject> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(Reject::bad("both content-length and transfer-encoding")),
            (true, None) => Ok(BodyLength::Chunked),
            (false, Some(0) | None) => Ok(BodyLength::Empty),
            (false, Some(length)) => Ok(BodyLength::Known(length)),
        }
    }
}
