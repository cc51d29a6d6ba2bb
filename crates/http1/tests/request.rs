//! What the vectors of `conformance/` do not show: targets taken apart, reasons, and requests at random.

use headrace_http1::{BodyLength, FieldSlots, Limits, Reject, Target, Version, parse_request};
use proptest::prelude::*;
use support::{Event, Policy, Reader};

#[path = "support/oracle.rs"]
mod oracle;
mod support;

/// Path, query and authority.
fn target(line: &str) -> Result<(String, String, Option<String>), Reject> {
    let bytes = format!("{line} HTTP/1.1\r\nHost: a:80\r\n\r\n");
    let mut slots = FieldSlots::new();
    let head = parse_request(bytes.as_bytes(), &mut slots, &Limits::default())?.expect("a whole head");
    let Target { path, query, authority } = head.target;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
    Ok((text(path), text(query), authority.map(text)))
}

#[test]
fn targets_are_taken_apart() {
    for (line, path, query, authority) in [
        ("GET /", "/", "", None),
        ("GET /a?b", "/a", "b", None),
        ("GET /a?b?c=/d", "/a", "b?c=/d", None),
        ("GET http://a:80/b?c", "/b", "c", Some("a:80")),
        ("GET HTTPS://A:80", "/", "", Some("A:80")),
        ("GET http://a:80?b", "/", "b", Some("a:80")),
        ("GET http://a:80//b", "//b", "", Some("a:80")),
        ("OPTIONS *", "*", "", None),
        ("OPTIONS http://a:80", "*", "", Some("a:80")),
        ("OPTIONS http://a:80?b", "/", "b", Some("a:80")),
    ] {
        let expected = (path.into(), query.into(), authority.map(Into::into));
        assert_eq!(target(line), Ok(expected), "{line}");
    }
}

#[test]
fn the_reason_can_be_told() {
    for (head, reason) in [
        ("GET / HTTP/1.1\r\n\r\n", "400: missing host"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400: more than one host"),
        ("GET / HTTP/3.0\r\n\r\n", "505: HTTP version not supported"),
        ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", "400: invalid character in request target"),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "400: bare line feed"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400: both content-length and transfer-encoding",
        ),
    ] {
        let reject = parse_request(head.as_bytes(), &mut FieldSlots::new(), &Limits::default())
            .expect_err("a fault in each");
        assert_eq!(reject.to_string(), reason);
    }
}

#[test]
fn nothing_is_asked_of_the_bytes_behind() {
    let bytes = b"POST / HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc\0\0\0";
    let mut slots = FieldSlots::new();
    let head = parse_request(bytes, &mut slots, &Limits::default()).expect("good").expect("whole");
    assert_eq!((head.length, head.body), (bytes.len() - 6, BodyLength::Known(3)));
    assert_eq!((head.version, head.keep_alive, head.host), (Version::Http10, true, &b""[..]));
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let value = "([!-~\u{e4}]([ \t!-~]{0,20}[!-~])?)?";
    prop::collection::vec(("x-[!#$%&'*+.^_`|~0-9a-zA-Z-]{1,20}", value), 0..20)
}

proptest! {
    /// What is written is read, in whatever pieces it comes.
    #[test]
    fn good_requests_are_read_back(
        method in "[A-Z]{1,10}",
        path in "/[a-z/%;=.]{0,40}",
        fields in fields(),
        body in prop::collection::vec(any::<u8>(), 1..100),
        cuts in prop::collection::vec(1usize..40, 1..20),
    ) {
        prop_assume!(method != "CONNECT");
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let line = format!("{method} {path} HTTP/1.1");
        let head = format!("{line}\r\nHost: a\r\nContent-Length: {length}\r\n{lines}\r\n");
        let bytes = [head.as_bytes(), &body].concat();

        let mut reader = Reader::new(Policy::WhenItMayBeComplete, Limits::default());
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at(rest.len().min(*cut));
            reader.feed(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        let events = reader.finish();
        let [Event::Request(request)] = &events[..] else { panic!("read as {events:?}") };
        prop_assert_eq!(&request.line, line.as_bytes());
        prop_assert_eq!(&request.body, &body);
        let read: Vec<(Vec<u8>, Vec<u8>)> = request.fields[2..].to_vec();
        let written: Vec<(Vec<u8>, Vec<u8>)> =
            fields.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect();
        prop_assert_eq!(read, written);
    }

    /// A slip in any place of a good head is seen, and seen alike by a second, plain reading of the grammar.
    #[test]
    fn slips_are_seen_alike(
        which in 0usize..GOOD.len(),
        slips in prop::collection::vec((any::<prop::sample::Index>(), slip(), any::<bool>()), 0..4),
    ) {
        let mut bytes = GOOD[which].as_bytes().to_vec();
        for (at, byte, replace) in slips {
            let at = at.index(bytes.len());
            bytes.splice(at..at + usize::from(replace), [byte]);
        }
        oracle::compare(&bytes, &Limits::default());
    }
}

const GOOD: [&str; 4] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /a?b=c HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 10\r\nX:\r\n\r\n",
    "\r\nOPTIONS http://a:80 HTTP/1.1\r\nhost: A:80\r\nconnection: close\r\n\r\n",
    "PUT /long/enough/for/a/word HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
];

/// A byte that means something somewhere, or any.
fn slip() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(&b"\r\n\t\0 :,;?#*/@[]%+-_0159aH\x0b\x7f\x80\x85\xff"[..]), any::<u8>()]
}
