//! The vectors of `conformance/`, read whole, byte by byte, and with another request behind.

use std::fs;
use std::path::Path;

use headrace_http1::Limits;
use support::{Event, Policy, Reader, Request};

mod support;

const BEHIND: &[u8] = b"GET /behind HTTP/1.1\r\nHost: behind\r\n\r\n";

#[test]
fn vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the vectors are in the repository") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "http") {
            continue;
        }
        for vector in parse_file(&fs::read_to_string(&path).expect("the files are ASCII")) {
            count += 1;
            if let Err(failure) = vector.check() {
                failures.push(format!("{}: {}: {failure}", path.display(), vector.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 350, "only {count} vectors were found");
}

#[derive(Debug, Default)]
struct Vector {
    name: String,
    bytes: Vec<u8>,
    expected: Vec<Expected>,
}

#[derive(Debug)]
enum Expected {
    /// The fields are compared where the vector names any, the host where it names one.
    Request {
        request: Request,
        fields: bool,
        host: bool,
    },
    Reject(u16),
    Incomplete,
}

impl Expected {
    fn fits(&self, event: &Event) -> bool {
        match (self, event) {
            (Self::Request { request, fields, host }, Event::Request(actual)) => {
                let mut actual = (**actual).clone();
                if !fields {
                    actual.fields.clear();
                }
                if !host {
                    actual.host.clear();
                }
                *request == actual
            }
            (Self::Reject(status), Event::Reject { status: actual, .. }) => status == actual,
            (Self::Incomplete, Event::Incomplete) => true,
            _ => false,
        }
    }
}

impl Vector {
    fn check(&self) -> Result<(), String> {
        let whole = read(Policy::Always, [&self.bytes[..]]);
        if whole.len() != self.expected.len()
            || !self.expected.iter().zip(&whole).all(|(expected, event)| expected.fits(event))
        {
            return Err(format!("expected {:?}, got {whole:?}", self.expected));
        }
        // A long one is cut coarser where it is parsed each time: that is quadratic.
        let step = if self.bytes.len() > 4096 { 509 } else { 1 };
        if read(Policy::Always, self.bytes.chunks(step)) != whole {
            return Err("reads differently byte by byte".to_owned());
        }
        if read(Policy::WhenItMayBeComplete, self.bytes.chunks(1)) != whole {
            return Err("reads differently byte by byte with head_may_be_complete".to_owned());
        }
        let behind = match whole.last() {
            Some(Event::Incomplete) | None => return Ok(()),
            Some(Event::Request(request)) if request.keep_alive => 1,
            _ => 0,
        };
        let longer = read(Policy::WhenItMayBeComplete, [&self.bytes[..], BEHIND].concat().chunks(usize::MAX));
        let (same, other) = longer.split_at(whole.len().min(longer.len()));
        if *same != whole || other.len() != behind {
            return Err(format!("with another behind: {longer:?}"));
        }
        match other.first() {
            Some(Event::Request(request)) if request.line != b"GET /behind HTTP/1.1" => {
                Err(format!("the one behind is read as {request:?}"))
            }
            _ => Ok(()),
        }
    }
}

fn read<'a>(policy: Policy, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut reader = Reader::new(policy, Limits::default());
    pieces.into_iter().for_each(|piece| reader.feed(piece));
    reader.finish()
}

/// The format is described in `conformance/README.md`.
fn parse_file(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            vectors.push(Vector { name: name.to_owned(), ..Vector::default() });
        } else if let Some(bytes) = line.strip_prefix("< ") {
            vectors.last_mut().expect("a name comes first").bytes.extend(unescape(bytes));
        } else if let Some(rest) = line.strip_prefix(">   ") {
            detail(vectors.last_mut().and_then(|vector| vector.expected.last_mut()), rest);
        } else if let Some(rest) = line.strip_prefix("> ") {
            vectors.last_mut().expect("a name comes first").expected.push(expectation(rest));
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "not a line of a vector: {line}");
        }
    }
    vectors
}

fn expectation(text: &str) -> Expected {
    match text.split_once(' ') {
        Some(("request", line)) => {
            let request = Request { line: unescape(line), keep_alive: true, ..Request::default() };
            Expected::Request { request, fields: false, host: false }
        }
        Some(("reject", status)) => Expected::Reject(status.parse().expect("a status")),
        None if text == "incomplete" => Expected::Incomplete,
        _ => panic!("not an expectation: {text}"),
    }
}

fn detail(expected: Option<&mut Expected>, text: &str) {
    let Some(Expected::Request { request, fields, host }) = expected else {
        panic!("a detail of no request: {text}");
    };
    match text.split_once(' ').unwrap_or((text, "")) {
        ("body", body) => request.body = unescape(body),
        ("close", "") => request.keep_alive = false,
        ("continue", "") => request.expect_continue = true,
        ("upgrade", protocols) => request.upgrade = Some(unescape(protocols)),
        ("host", value) => (request.host, *host) = (unescape(value), true),
        ("field", field) => {
            let (name, value) = field.split_once(':').expect("a field has a colon");
            let value = value.strip_prefix(' ').unwrap_or(value);
            request.fields.push((unescape(name), unescape(value)));
            *fields = true;
        }
        _ => panic!("not a detail: {text}"),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let bytes = unescape_until(&mut rest, None);
    assert!(rest.is_empty(), "unbalanced: {text}");
    bytes
}

fn unescape_until(rest: &mut &[u8], end: Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let [byte, behind @ ..] = *rest {
        *rest = behind;
        if Some(*byte) == end {
            return bytes;
        }
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let [escape, behind @ ..] = *rest else { panic!("an escape without its letter") };
        *rest = behind;
        match escape {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let (digits, behind) = rest.split_at(2);
                let digits = std::str::from_utf8(digits).expect("ASCII");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                *rest = behind;
            }
            b'{' => {
                let count = unescape_until(rest, Some(b'*'));
                let count: usize =
                    String::from_utf8(count).ok().and_then(|text| text.parse().ok()).expect("N*");
                let text = unescape_until(rest, Some(b'}'));
                bytes.extend(text.repeat(count));
            }
            _ => panic!("not an escape: \\{}", *escape as char),
        }
    }
    assert!(end.is_none(), "a repetition without its end");
    bytes
}
