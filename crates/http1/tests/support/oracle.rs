//! A second reading of request heads, as slow and plain as the grammar: what the fast one has to agree with.

use headrace_http1::{BodyLength, FieldSlots, Limits, Version, parse_request};

/// What a head means, if it is good.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    line: String,
    fields: Vec<(String, String)>,
    host: String,
    /// `None` for chunked.
    length: Option<u64>,
    keep_alive: bool,
    bytes: usize,
}

/// Hold the two readings of the head that `bytes` begin with against each other.
pub(crate) fn compare(bytes: &[u8], limits: &Limits) {
    let text = |bytes: &[u8]| -> String { bytes.iter().map(|byte| char::from(*byte)).collect() };
    let mut slots = FieldSlots::new();
    let fast = parse_request(bytes, &mut slots, limits).ok().flatten().map(|head| {
        let query = if head.target.query.is_empty() { "" } else { "?" };
        let version = if head.version == Version::Http11 { "HTTP/1.1" } else { "HTTP/1.0" };
        let target = text(head.target.path) + query + &text(head.target.query);
        Reading {
            line: format!("{} {target} {version}", head.method),
            fields: head.fields.iter().map(|f| (f.name.to_owned(), text(f.value))).collect(),
            host: text(head.host),
            length: match head.body {
                BodyLength::Empty => Some(0),
                BodyLength::Known(length) => Some(length),
                BodyLength::Chunked => None,
                BodyLength::UntilClose => panic!("a request's body never ends with the connection"),
            },
            keep_alive: head.keep_alive,
            bytes: head.length,
        }
    });
    assert_eq!(fast, read(bytes, limits), "{}", bytes.escape_ascii());
}

/// Read a head that ends with the first empty line; `None` when it is not good, or has no end.
fn read(bytes: &[u8], limits: &Limits) -> Option<Reading> {
    // Latin-1: a character for each byte.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut start = text.as_str();
    for _ in 0..2 {
        start = start.strip_prefix("\r\n").unwrap_or(start);
    }
    let (head, _) = start.split_once("\r\n\r\n")?;
    let used = (text.chars().count() - start.chars().count()) + head.chars().count() + 4;
    let mut lines = head.split("\r\n");
    let line = lines.next()?;
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let http11 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return None,
    };
    let fields: Vec<(&str, &str)> = lines.map(field).collect::<Option<_>>()?;
    let all = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value).collect()
    };
    let lists = |wanted: &str, member: &str| {
        all(wanted).iter().any(|list| list.split(',').any(|m| trim(m).eq_ignore_ascii_case(member)))
    };

    let short = method.len() <= 32 && target.len() <= limits.target && fields.len() <= limits.fields;
    if !short || used > limits.head || !is_token(method) || method == "CONNECT" {
        return None;
    }
    let visible = target.chars().all(|c| ('!'..='~').contains(&c) && c != '#');
    if !visible || target.is_empty() {
        return None;
    }
    let (path, authority) = match target.split_once("://") {
        _ if target.starts_with('/') => (target.to_owned(), None),
        _ if target == "*" && method == "OPTIONS" => (target.to_owned(), None),
        Some((scheme, rest)) if ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let path = match &rest[end..] {
                "" if method == "OPTIONS" => "*".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                query => format!("/{query}"),
            };
            (path, Some(&rest[..end]))
        }
        _ => return None,
    };
    let host = match (all("host")[..].as_ref(), authority) {
        ([host], None) => host,
        ([host], Some(authority)) if host.eq_ignore_ascii_case(authority) => host,
        ([], authority) if !http11 => authority.unwrap_or_default(),
        _ => return None,
    };
    if !(is_host(host) || host.is_empty() && !http11 && all("host").is_empty()) || all("upgrade").len() > 1 {
        return None;
    }
    if authority.is_some_and(|authority| !is_host(authority)) {
        return None;
    }
    let expectations = all("expect");
    if !expectations.iter().flat_map(|e| e.split(',')).all(|e| trim(e).eq_ignore_ascii_case("100-continue")) {
        return None;
    }
    let length = match (all("content-length")[..].as_ref(), all("transfer-encoding")[..].as_ref()) {
        ([], []) => Some(0),
        ([digits], []) if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) => {
            Some(digits.parse().ok()?)
        }
        ([], [coding]) if http11 && coding.eq_ignore_ascii_case("chunked") => None,
        _ => return None,
    };
    let path = path.strip_suffix('?').filter(|path| !path.contains('?')).unwrap_or(&path);
    Some(Reading {
        line: format!("{method} {path} {version}"),
        fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        host: (*host).to_owned(),
        length,
        keep_alive: !lists("connection", "close") && (http11 || lists("connection", "keep-alive")),
        bytes: used,
    })
}

fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let good = value.chars().all(|c| c == '\t' || (c >= ' ' && c != '\x7f'));
    (is_token(name) && good).then_some((name, trim(value)))
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.rfind(':').filter(|at| !text[*at..].contains(']')) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let good = match address {
        Some(address) => {
            !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
        }
        None => {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=%".contains(c))
        }
    };
    good && port.len() <= 5 && port.chars().all(|c| c.is_ascii_digit())
}
