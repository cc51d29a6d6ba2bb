//! The client's reading of answers.

use headrace_http1::{BodyLength, FieldSlots, Limits, Reject, RequestContext, Version, parse_response};

/// What a test looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    status: u16,
    reason: String,
    version: Version,
    fields: Vec<(String, Vec<u8>)>,
    body: BodyLength,
    keep_alive: bool,
    interim: bool,
    length: usize,
}

fn parse(bytes: &[u8], limits: &Limits, head_request: bool) -> Result<Option<Reading>, Reject> {
    let mut slots = FieldSlots::new();
    let head = parse_response(bytes, &mut slots, limits, &RequestContext { head_request })?;
    Ok(head.map(|head| Reading {
        status: head.status,
        reason: head.reason.to_owned(),
        version: head.version,
        fields: head.fields.iter().map(|field| (field.name.to_owned(), field.value.to_owned())).collect(),
        body: head.body,
        keep_alive: head.keep_alive,
        interim: head.is_interim(),
        length: head.length,
    }))
}

/// Parse whole, byte by byte and with another answer behind it; the reading has to be the same.
fn read_with(bytes: &[u8], limits: &Limits, head_request: bool) -> Result<Option<Reading>, Reject> {
    let whole = parse(bytes, limits, head_request);
    let first = (0..=bytes.len())
        .map(|end| parse(&bytes[..end], limits, head_request))
        .find(|reading| *reading != Ok(None))
        .unwrap_or(Ok(None));
    assert_eq!(first, whole, "byte by byte");
    if whole != Ok(None) {
        let mut more = bytes.to_vec();
        more.extend_from_slice(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(parse(&more, limits, head_request), whole, "with another behind");
    }
    whole
}

fn read(bytes: &[u8]) -> Reading {
    read_with(bytes, &Limits::default(), false).expect("well-formed").expect("complete")
}

fn refusal(bytes: &[u8]) -> Reject {
    read_with(bytes, &Limits::default(), false).expect_err("malformed")
}

#[test]
fn a_plain_answer() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: nginx\r\n\r\n";
    let reading = read(bytes);
    assert_eq!((reading.status, reading.reason.as_str(), reading.version), (200, "OK", Version::Http11));
    assert_eq!(reading.fields[1], ("Server".to_owned(), b"nginx".to_vec()));
    assert_eq!((reading.body, reading.keep_alive, reading.interim), (BodyLength::Known(5), true, false));
    assert_eq!(reading.length, bytes.len());
}

#[test]
fn where_the_body_ends() {
    for (fields, body, keep_alive) in [
        ("Content-Length: 0", BodyLength::Empty, true),
        ("Content-Length: 7", BodyLength::Known(7), true),
        ("content-length: 7\r\nCONTENT-LENGTH: 7", BodyLength::Known(7), true),
        ("Content-Length: 7, 7", BodyLength::Known(7), true),
        ("Transfer-Encoding: chunked", BodyLength::Chunked, true),
        ("Transfer-Encoding: Chunked", BodyLength::Chunked, true),
        ("Transfer-Encoding: gzip, chunked", BodyLength::Chunked, true),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", BodyLength::Chunked, true),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding:", BodyLength::Chunked, true),
        ("Transfer-Encoding: gzip", BodyLength::UntilClose, false),
        ("Transfer-Encoding:", BodyLength::UntilClose, false),
        ("Transfer-Encoding: chunked, gzip", BodyLength::UntilClose, false),
        ("Transfer-Encoding: chunked\r\nContent-Length: 7", BodyLength::Chunked, false),
        ("X: y", BodyLength::UntilClose, false),
        ("Connection: close\r\nContent-Length: 7", BodyLength::Known(7), false),
        ("Connection: Keep-Alive, Close\r\nContent-Length: 7", BodyLength::Known(7), false),
    ] {
        let reading = read(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes());
        assert_eq!((reading.body, reading.keep_alive), (body, keep_alive), "{fields}");
    }
}

#[test]
fn http_1_0() {
    for (fields, body, keep_alive) in [
        ("Content-Length: 7", BodyLength::Known(7), false),
        ("Content-Length: 7\r\nConnection: keep-alive", BodyLength::Known(7), true),
        ("Connection: keep-alive", BodyLength::UntilClose, false),
        ("Connection: keep-alive\r\nTransfer-Encoding: chunked", BodyLength::Chunked, false),
    ] {
        let reading = read(format!("HTTP/1.0 200 OK\r\n{fields}\r\n\r\n").as_bytes());
        assert_eq!(reading.version, Version::Http10);
        assert_eq!((reading.body, reading.keep_alive), (body, keep_alive), "{fields}");
    }
}

#[test]
fn answers_without_a_body() {
    for status in ["100", "103", "101", "204", "304"] {
        let reading = read(format!("HTTP/1.1 {status} x\r\nContent-Length: 9\r\n\r\n").as_bytes());
        assert_eq!((reading.body, reading.keep_alive), (BodyLength::Empty, true), "{status}");
        assert_eq!(reading.interim, status == "100" || status == "103", "{status}");
    }
    let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let reading = read_with(bytes, &Limits::default(), true).expect("well-formed").expect("complete");
    assert_eq!((reading.body, reading.keep_alive), (BodyLength::Empty, true), "to HEAD");
}

#[test]
fn what_real_servers_send() {
    assert_eq!(read(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n").reason, "");
    assert_eq!(read(b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n").reason, "");
    assert_eq!(read(b"HTTP/1.1 404 Not  Found\r\n\r\n").reason, "Not  Found");
    assert_eq!(read(b"HTTP/1.1 200 \xc3\x84h\r\n\r\n").reason, "", "not ASCII");
    assert_eq!(read(b"HTTP/1.1  200 OK\nContent-Length : 3\n\n").body, BodyLength::Known(3), "bare LF");
    assert_eq!(read(b"\r\nHTTP/1.1 200 OK\r\n\r\n").status, 200, "an empty line before");
}

#[test]
fn refusals() {
    for bytes in [
        &b"HTTP/2 200\r\n\r\n"[..],
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    ] {
        assert_eq!(refusal(bytes).status, 502, "{}", bytes.escape_ascii());
    }
}

#[test]
fn the_reason_can_be_told() {
    for (bytes, reason) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP/1 response"),
        ("HTTP/1.1 OK\r\n\r\n", "malformed status line"),
        ("HTTP/1.1 099 OK\r\n\r\n", "malformed status line"),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed header name"),
        ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", "malformed header value"),
        ("HTTP/1.1 200 OK\r\n\rA: b\r\n\r\n", "malformed line end"),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed content-length"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", "differing content-lengths"),
    ] {
        assert_eq!(refusal(bytes.as_bytes()).reason, reason);
    }
}

#[test]
fn names_are_more_than_their_length() {
    // Each has as many letters as a name that is listened to.
    let reading =
        read(b"HTTP/1.1 200 OK\r\nX-Trace-Id: close\r\nX-Request-Time: 5\r\nX-Forwarded-Proto: x\r\n\r\n");
    assert_eq!((reading.body, reading.fields.len()), (BodyLength::UntilClose, 3));
    let reading = read(b"HTTP/1.1 200 OK\r\nX-Trace-Id: close\r\nContent-Length: 5\r\n\r\n");
    assert!(reading.keep_alive);
}

#[test]
fn limits() {
    let limits = Limits { head: 60, target: 0, fields: 2 };
    let sized =
        |length: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(length - 24)).into_bytes();
    assert_eq!(sized(60).len(), 60);
    assert!(read_with(&sized(60), &limits, false).is_ok_and(|reading| reading.is_some()));
    let longer = read_with(&sized(61), &limits, false);
    assert_eq!(longer.map_err(|reject| reject.reason), Err("response head too large"));
    let endless = [b'\r', b'\n'].repeat(40);
    assert!(read_with(&endless, &limits, false).is_err(), "endless empty lines");
    let fields = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n";
    assert_eq!(
        read_with(fields, &limits, false).map_err(|reject| reject.reason),
        Err("too many header fields")
    );
}
