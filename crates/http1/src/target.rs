//! Request targets (RFC 9112 section 3.2) and hosts (RFC 3986 section 3.2.2).

use crate::error::Reject;

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

const MALFORMED: Reject = Reject::bad("malformed request target");
const BAD_CHARACTER: Reject = Reject::bad("invalid character in request target");

/// Take a target apart. `httparse` has refused control characters and spaces; what is not ASCII and what has a
/// fragment is refused here, as section 3.2 has neither.
///
/// Characters that RFC 3986 wants escaped but browsers send as they are (`"<>[]\^{|}` and the backtick) are let
/// through: they neither end a target nor change who it is for.
pub(crate) fn parse_target<'b>(method: &str, target: &'b str) -> Result<Target<'b>, Reject> {
    if !target.is_ascii() {
        return Err(BAD_CHARACTER);
    }
    let target = target.as_bytes();
    if target.first() == Some(&b'/') && method != "CONNECT" {
        return split_query(target, None);
    }
    match (method, target) {
        ("CONNECT", _) => Err(Reject::with(501, "CONNECT is not supported")),
        ("OPTIONS", b"*") => Ok(Target { path: target, query: b"", authority: None }),
        _ => parse_absolute(method, target),
    }
}

fn parse_absolute<'b>(method: &str, target: &'b [u8]) -> Result<Target<'b>, Reject> {
    let scheme_end = memchr::memmem::find(target, b"://").ok_or(MALFORMED)?;
    let scheme = &target[..scheme_end];
    // "https" comes from a proxy that has taken TLS off; whether to believe it is for the server to say.
    if !(scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")) {
        return Err(MALFORMED);
    }
    let rest = &target[scheme_end + 3..];
    let authority_end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    if !is_host(authority) {
        return Err(MALFORMED);
    }
    match path {
        [b'/', ..] => split_query(path, Some(authority)),
        // RFC 9110 section 4.2.3: an empty path means the root, but to OPTIONS the server itself.
        [] if method == "OPTIONS" => Ok(Target { path: b"*", query: b"", authority: Some(authority) }),
        _ => {
            let Target { query, .. } = split_query(path, None)?;
            Ok(Target { path: b"/", query, authority: Some(authority) })
        }
    }
}

fn split_query<'b>(target: &'b [u8], authority: Option<&'b [u8]>) -> Result<Target<'b>, Reject> {
    match memchr::memchr2(b'?', b'#', target) {
        None => Ok(Target { path: target, query: b"", authority }),
        Some(at) if target[at] == b'?' && memchr::memchr(b'#', &target[at..]).is_none() => {
            Ok(Target { path: &target[..at], query: &target[at + 1..], authority })
        }
        _ => Err(BAD_CHARACTER),
    }
}

/// Whether `value` is a host with perhaps a port (RFC 9110 section 7.2): `uri-host [ ":" port ]`.
///
/// An empty host is refused, as RFC 9110 section 4.2.1 has it for the http scheme; so is user information, by
/// its "@" (section 4.2.4).
pub(crate) fn is_host(value: &[u8]) -> bool {
    if let [b'[', rest @ ..] = value {
        let Some(end) = memchr::memchr(b']', rest) else { return false };
        return is_ipv6(&rest[..end]) && is_port(&rest[end + 1..]);
    }
    let name_end = value.iter().position(|byte| !REG_NAME[*byte as usize]).unwrap_or(value.len());
    name_end > 0 && is_port(&value[name_end..])
}

/// Nothing, or a colon and up to five digits; none at all is allowed by RFC 3986 section 3.2.3.
fn is_port(rest: &[u8]) -> bool {
    match rest {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The characters of an IPv6 address, not its grammar; a zone has no place on the wire, and IPvFuture none yet.
fn is_ipv6(address: &[u8]) -> bool {
    !address.is_empty() && address.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
}

/// reg-name: unreserved, sub-delims, and the "%" of escapes.
const REG_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=%";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};
