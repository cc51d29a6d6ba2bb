//! Request heads: grammar by `httparse`, meaning and strictness here.

use core::mem::MaybeUninit;

use crate::Field;
use crate::body::BodyLength;
use crate::error::Reject;
use crate::field::{decimal, is_token, members};

/// Bounds on a request's head.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the whole head. Node and gunicorn stop at 16 KB and 8 KB a field; browsers send up to 64 KB of cookies.
    pub head: usize,
    /// Bytes of the request target; gunicorn 4 KB, nginx 8 KB a line.
    pub target: usize,
    /// Number of fields, at most [`FieldSlots::MAX`]; gunicorn and Apache allow 100.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head: 64 * 1024, target: 16 * 1024, fields: 100 }
    }
}

/// Room for a head's fields, on the stack of whoever parses.
#[derive(Debug)]
pub struct FieldSlots<'b>([MaybeUninit<Field<'b>>; MAX_FIELDS]);

const MAX_FIELDS: usize = 256;

impl FieldSlots<'_> {
    /// The most fields a head can have, whatever the limits say.
    pub const MAX: usize = MAX_FIELDS;

    /// Empty room; costs nothing, as it is not cleared.
    #[must_use]
    pub const fn new() -> Self {
        Self([MaybeUninit::uninit(); MAX_FIELDS])
    }
}

impl Default for FieldSlots<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Protocol version: the two that there are in HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// The request target (RFC 9112 section 3.2), taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'b> {
    /// The path as sent, percent-escapes and all; "*" for `OPTIONS *`.
    pub path: &'b [u8],
    /// What follows the first question mark; empty when there is none.
    pub query: &'b [u8],
    /// Host and port of an absolute-form target: it stands in the place of the Host field.
    pub authority: Option<&'b [u8]>,
}

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
    /// Whether the client waits for "100 Continue" before it sends the body.
    pub expect_continue: bool,
    /// The protocols of the Upgrade field, where Connection names it too (RFC 9110 section 7.8).
    pub upgrade: Option<&'b [u8]>,
    /// Bytes of the head, the empty line included.
    pub length: usize,
}

/// Whether the bytes that came after the first `seen` could complete a head of which the first `seen` did not.
/// Spares a head that arrives byte by byte from being parsed anew at each of them.
#[must_use]
pub fn head_may_be_complete(bytes: &[u8], seen: usize) -> bool {
    // The end is an empty line: LF, perhaps CR, LF. It may have begun up to two bytes before the new ones.
    let from = seen.saturating_sub(2);
    memchr::memchr_iter(b'\n', &bytes[from..]).any(|at| {
        let rest = &bytes[from + at + 1..];
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

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
    let slots = &mut slots.0[..limits.fields.min(FieldSlots::MAX)];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(bytes, slots).map_err(|error| match error {
        httparse::Error::TooManyHeaders => Reject::with(431, "too many header fields"),
        httparse::Error::Version => version_reject(bytes),
        httparse::Error::HeaderName => Reject::bad("malformed header name"),
        httparse::Error::HeaderValue => Reject::bad("malformed header value"),
        httparse::Error::NewLine => Reject::bad("malformed line end"),
        _ => Reject::bad("malformed request line"),
    })?;
    let httparse::Status::Complete(length) = status else {
        return within_limits(bytes, limits).map(|()| None);
    };
    if length > limits.head {
        return Err(Reject::with(431, "request head too large"));
    }
    only_crlf(&bytes[..length])?;
    let (Some(method), Some(path), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Reject::bad("malformed request line"));
    };
    if path.len() > limits.target {
        return Err(Reject::with(414, "request target too long"));
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let target = parse_target(method, path.as_bytes())?;
    let fields: &'h [Field<'b>] = parsed.headers;
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
    let keep_alive = match version {
        Version::Http11 => !meaning.close,
        Version::Http10 => meaning.keep_alive && !meaning.close,
    };
    Ok(Some(RequestHead {
        method,
        target,
        version,
        fields,
        host,
        body,
        keep_alive,
        expect_continue: meaning.expect_continue && version == Version::Http11,
        upgrade: meaning.upgrade.filter(|_| meaning.connection_upgrade && version == Version::Http11),
        length,
    }))
}

/// A head that is still incomplete may already be too long.
fn within_limits(bytes: &[u8], limits: &Limits) -> Result<(), Reject> {
    if bytes.len() >= limits.target && memchr::memchr(b'\n', &bytes[..limits.target]).is_none() {
        return Err(Reject::with(414, "request target too long"));
    }
    if bytes.len() >= limits.head {
        return Err(Reject::with(431, "request head too large"));
    }
    Ok(())
}

/// A version that is well-formed but not ours is 505; anything else in its place is 400.
fn version_reject(bytes: &[u8]) -> Reject {
    let line = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').find(|line| !line.is_empty());
    let version = line.and_then(|line| line.rsplit(|byte| *byte == b' ').next()).unwrap_or_default();
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Reject::with(505, "HTTP version not supported")
        }
        _ => Reject::bad("malformed HTTP version"),
    }
}

/// `httparse` takes a bare LF for a line end (RFC 9112 section 2.2 allows that); we do not.
fn only_crlf(head: &[u8]) -> Result<(), Reject> {
    let well = memchr::memchr_iter(b'\n', head).all(|at| at > 0 && head[at - 1] == b'\r');
    if well { Ok(()) } else { Err(Reject::bad("bare line feed")) }
}

fn parse_target<'b>(method: &str, target: &'b [u8]) -> Result<Target<'b>, Reject> {
    // Visible ASCII only, and no fragment: RFC 9112 section 3.2 has neither.
    if !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(Reject::bad("invalid character in request target"));
    }
    if method == "CONNECT" {
        return Err(Reject::with(501, "CONNECT is not supported"));
    }
    match target {
        [b'/', ..] => Ok(split_query(target, None)),
        b"*" if method == "OPTIONS" => Ok(Target { path: target, query: b"", authority: None }),
        _ => parse_absolute(target),
    }
}

fn parse_absolute(target: &[u8]) -> Result<Target<'_>, Reject> {
    const BAD: Reject = Reject::bad("malformed request target");
    let scheme_end = memchr::memmem::find(target, b"://").ok_or(BAD)?;
    let scheme = &target[..scheme_end];
    if !(scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")) {
        return Err(BAD);
    }
    let rest = &target[scheme_end + 3..];
    let authority_end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    if authority.is_empty() || !is_host(authority) {
        return Err(BAD);
    }
    Ok(match path {
        [b'/', ..] => split_query(path, Some(authority)),
        // An empty path means the root (RFC 9110 section 4.2.3).
        _ => Target { path: b"/", query: path.get(1..).unwrap_or_default(), authority: Some(authority) },
    })
}

fn split_query<'b>(target: &'b [u8], authority: Option<&'b [u8]>) -> Target<'b> {
    match memchr::memchr(b'?', target) {
        Some(at) => Target { path: &target[..at], query: &target[at + 1..], authority },
        None => Target { path: target, query: b"", authority },
    }
}

/// Characters of uri-host and port; user information ("@") is not among them (RFC 9110 section 4.2.4).
fn is_host(host: &[u8]) -> bool {
    host.iter().all(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'%'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
                    | b':'
                    | b'['
                    | b']'
            )
    })
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
    upgrade: Option<&'b [u8]>,
}

impl<'b> Meaning<'b> {
    fn of(fields: &[Field<'b>], version: Version) -> Result<Self, Reject> {
        let mut meaning = Self::default();
        for field in fields {
            // The length tells most fields apart from those that matter here without looking at a letter.
            match field.name.len() {
                4 if field.name.eq_ignore_ascii_case("host") => meaning.host(field.value)?,
                6 if field.name.eq_ignore_ascii_case("expect") => meaning.expect(field.value)?,
                7 if field.name.eq_ignore_ascii_case("upgrade") => meaning.upgrade = Some(field.value),
                10 if field.name.eq_ignore_ascii_case("connection") => meaning.connection(field.value),
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    meaning.content_length(field.value)?
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
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Reject::with(417, "unknown expectation"));
        }
        self.expect_continue = true;
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
        let length = decimal(value).ok_or(Reject::bad("malformed content-length"))?;
        if self.content_length.replace(length).is_some() {
            return Err(Reject::bad("more than one content-length"));
        }
        Ok(())
    }

    /// "chunked", once. RFC 9112 section 6.1: a coding that is not understood is 501.
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
        if members(value).all(|member| is_token(member) && !member.eq_ignore_ascii_case(b"chunked")) {
            return Err(Reject::with(501, "transfer coding not supported"));
        }
        Err(Reject::bad("malformed transfer-encoding"))
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
