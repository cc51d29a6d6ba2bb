//! Heads as they go out, byte for byte.

use headrace_http1::{
    EncodeError, Framing, ResponseEncoder, ResponseOptions, Version, chunk_head, continue_response,
    simple_response,
};

const OPTIONS: ResponseOptions<'_> = ResponseOptions {
    version: Version::Http11,
    head_request: false,
    keep_alive: true,
    known_length: None,
    date_line: b"date: D\r\n",
    server_line: b"server: S\r\n",
};

fn encode(status: u16, fields: &[(&str, &str)], options: &ResponseOptions<'_>) -> (String, Framing, bool) {
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::begin(&mut out, status, b"").expect("a good status");
    for (name, value) in fields {
        encoder.field(&mut out, name.as_bytes(), value.as_bytes()).expect("a good field");
    }
    let (framing, keep_alive) = encoder.finish(&mut out, options);
    (String::from_utf8(out).expect("ASCII"), framing, keep_alive)
}

#[test]
fn an_answer_of_known_length() {
    let options = ResponseOptions { known_length: Some(13), ..OPTIONS };
    let (head, framing, keep_alive) = encode(200, &[("Content-Type", "text/plain")], &options);
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length: 13\r\ndate: D\r\nserver: S\r\n\r\n"
    );
    assert_eq!((framing, keep_alive), (Framing::Length(13), true));
}

#[test]
fn the_applications_own_fields_win() {
    let options = ResponseOptions { known_length: Some(13), ..OPTIONS };
    let fields = [("Content-Length", "13"), ("Date", "then"), ("SERVER", "other"), ("X", "")];
    let (head, framing, _) = encode(404, &fields, &options);
    assert_eq!(
        head,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\nDate: then\r\nSERVER: other\r\nX: \r\n\r\n"
    );
    assert_eq!(framing, Framing::Length(13));
}

#[test]
fn names_are_more_than_their_length() {
    // Each has as many letters as a name that the encoder listens to.
    let names = ["etag", "x-name", "x-trace-id", "x-request-time", "x-forwarded-proto"];
    let options = ResponseOptions { known_length: Some(0), ..OPTIONS };
    let (head, framing, keep_alive) = encode(200, &names.map(|name| (name, "close")), &options);
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\netag: close\r\nx-name: close\r\nx-trace-id: close\r\nx-request-time: close\r\n\
         x-forwarded-proto: close\r\ncontent-length: 0\r\ndate: D\r\nserver: S\r\n\r\n"
    );
    assert_eq!((framing, keep_alive), (Framing::Length(0), true));
}

#[test]
fn an_answer_of_unknown_length() {
    let (head, framing, keep_alive) = encode(200, &[], &OPTIONS);
    assert_eq!(head, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ndate: D\r\nserver: S\r\n\r\n");
    assert_eq!((framing, keep_alive), (Framing::Chunked, true));

    let to_1_0 = ResponseOptions { version: Version::Http10, ..OPTIONS };
    let (head, framing, keep_alive) = encode(200, &[], &to_1_0);
    assert_eq!(head, "HTTP/1.1 200 OK\r\ndate: D\r\nserver: S\r\nconnection: close\r\n\r\n");
    assert_eq!((framing, keep_alive), (Framing::UntilClose, false));
}

#[test]
fn http_1_0_is_told_that_the_connection_stays() {
    let options = ResponseOptions { version: Version::Http10, known_length: Some(0), ..OPTIONS };
    let (head, framing, keep_alive) = encode(200, &[], &options);
    assert!(head.ends_with("content-length: 0\r\ndate: D\r\nserver: S\r\nconnection: keep-alive\r\n\r\n"));
    assert_eq!((framing, keep_alive), (Framing::Length(0), true));
}

#[test]
fn the_application_can_only_close() {
    let fields =
        [("Connection", "X-Other, Close"), ("Transfer-Encoding", "gzip"), ("connection", "keep-alive")];
    let options = ResponseOptions { known_length: Some(1), ..OPTIONS };
    let (head, _, keep_alive) = encode(200, &fields, &options);
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ndate: D\r\nserver: S\r\nconnection: close\r\n\r\n"
    );
    assert!(!keep_alive);

    let closing = ResponseOptions { keep_alive: false, ..options };
    let (head, _, keep_alive) = encode(200, &[("connection", "keep-alive")], &closing);
    assert!(head.ends_with("\r\nconnection: close\r\n\r\n") && !keep_alive);
}

#[test]
fn answers_without_a_body() {
    let options = ResponseOptions { known_length: Some(5), ..OPTIONS };
    // RFC 9110 section 8.6: no length in 204; section 15.3.6: zero in 205; section 15.4.5: that of 200 in 304.
    for (status, fields, expected) in [
        (204, &[][..], "HTTP/1.1 204 No Content\r\ndate: D\r\nserver: S\r\n\r\n"),
        (204, &[("content-length", "0")], "HTTP/1.1 204 No Content\r\ndate: D\r\nserver: S\r\n\r\n"),
        (205, &[], "HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\ndate: D\r\nserver: S\r\n\r\n"),
        (
            205,
            &[("content-length", "9")],
            "HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\ndate: D\r\nserver: S\r\n\r\n",
        ),
        (304, &[], "HTTP/1.1 304 Not Modified\r\ndate: D\r\nserver: S\r\n\r\n"),
    ] {
        let (head, framing, keep_alive) = encode(status, fields, &options);
        assert_eq!((head.as_str(), framing, keep_alive), (expected, Framing::None, true));
    }
    let (head, ..) = encode(304, &[("content-length", "9")], &options);
    assert!(head.contains("content-length: 9\r\n"));
}

#[test]
fn interim_answers() {
    let closing = ResponseOptions { keep_alive: false, ..OPTIONS };
    let (head, framing, _) = encode(103, &[("link", "</a.css>"), ("content-length", "9")], &closing);
    assert_eq!(head, "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n");
    assert_eq!(framing, Framing::None);
    let (head, ..) = encode(101, &[("upgrade", "websocket"), ("connection", "upgrade")], &OPTIONS);
    assert_eq!(head, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
}

#[test]
fn answers_to_head() {
    let to_head = ResponseOptions { head_request: true, known_length: Some(0), ..OPTIONS };
    let (head, framing, keep_alive) = encode(200, &[("content-length", "9")], &to_head);
    assert!(head.contains("content-length: 9\r\n"));
    assert_eq!((framing, keep_alive), (Framing::None, true));
    // What GET would have answered is not known.
    let (head, framing, keep_alive) = encode(200, &[], &to_head);
    assert_eq!(head, "HTTP/1.1 200 OK\r\ndate: D\r\nserver: S\r\n\r\n");
    assert_eq!((framing, keep_alive), (Framing::None, true));
}

#[test]
fn statuses_and_reasons() {
    let mut out = b"before".to_vec();
    for status in [0, 1, 99, 1000, u16::MAX] {
        assert_eq!(ResponseEncoder::begin(&mut out, status, b"").err(), Some(EncodeError::Status));
    }
    assert_eq!(ResponseEncoder::begin(&mut out, 200, b"OK\r\nX: y").err(), Some(EncodeError::FieldValue));
    assert_eq!(out, b"before");
    assert!(ResponseEncoder::begin(&mut out, 299, b"").is_ok());
    assert!(ResponseEncoder::begin(&mut out, 200, b"Fine").is_ok());
    assert_eq!(out, b"beforeHTTP/1.1 299 \r\nHTTP/1.1 200 Fine\r\n");
}

#[test]
fn every_registered_status_has_a_phrase() {
    // IANA's registry; what it calls unused or temporary has none, 418 apart.
    let registered = |status: u16| {
        matches!(status, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426)
            || matches!(status, 428 | 429 | 431 | 451 | 500..=508 | 511)
    };
    let mut phrases = std::collections::BTreeSet::new();
    for status in 100..=999 {
        let mut out = Vec::new();
        ResponseEncoder::begin(&mut out, status, b"").expect("a good status");
        let phrase =
            out.strip_prefix(format!("HTTP/1.1 {status} ").as_bytes()).expect("the status comes first");
        assert_eq!(phrase != b"\r\n", registered(status), "{status}");
        assert!(phrase == b"\r\n" || phrases.insert(phrase.to_vec()), "{status} has the phrase of another");
    }
}

#[test]
fn nothing_splits_an_answer() {
    for (name, value, error) in [
        ("x", "a\r\nSet-Cookie: b", EncodeError::FieldValue),
        ("x", "a\nb", EncodeError::FieldValue),
        ("x", "a\rb", EncodeError::FieldValue),
        ("x", "a\0b", EncodeError::FieldValue),
        ("x", "a\x0bb", EncodeError::FieldValue),
        ("x", "a\x7fb", EncodeError::FieldValue),
        ("x\r\ny", "a", EncodeError::FieldName),
        ("x:", "a", EncodeError::FieldName),
        ("x ", "a", EncodeError::FieldName),
        ("", "a", EncodeError::FieldName),
        ("x\u{e4}", "a", EncodeError::FieldName),
        ("content-length", "+5", EncodeError::ContentLength),
        ("content-length", "5, 5", EncodeError::ContentLength),
        ("content-length", "", EncodeError::ContentLength),
        ("content-length", "18446744073709551616", EncodeError::ContentLength),
    ] {
        let mut out = Vec::new();
        let mut encoder = ResponseEncoder::begin(&mut out, 200, b"").expect("a good status");
        assert_eq!(encoder.field(&mut out, name.as_bytes(), value.as_bytes()), Err(error), "{name}: {value}");
        assert_eq!(out, b"HTTP/1.1 200 OK\r\n", "nothing of it was written");
        assert_eq!(error.to_string(), error.reason());
    }
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::begin(&mut out, 200, b"").expect("a good status");
    assert_eq!(encoder.field(&mut out, b"Content-Length", b"5"), Ok(()));
    assert_eq!(encoder.field(&mut out, b"content-length", b"5"), Err(EncodeError::ContentLength), "twice");
}

#[test]
fn bytes_beyond_ascii_pass_in_values() {
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::begin(&mut out, 200, b"").expect("a good status");
    assert_eq!(encoder.field(&mut out, b"x", b"\xe4\t\xff"), Ok(()));
    assert!(out.ends_with(b"x: \xe4\t\xff\r\n"));
}

#[test]
fn heads_of_chunks() {
    for length in [1, 9, 10, 15, 16, 255, 256, 4095, 65536, usize::MAX] {
        let mut out = Vec::new();
        chunk_head(&mut out, length);
        assert_eq!(out, format!("{length:x}\r\n").into_bytes());
    }
}

#[test]
fn answers_of_the_servers_own() {
    assert_eq!(continue_response(), b"HTTP/1.1 100 Continue\r\n\r\n");
    let mut out = Vec::new();
    simple_response(&mut out, 503, "busy\n", b"retry-after: 1\r\n");
    assert_eq!(
        String::from_utf8(out).expect("ASCII"),
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 5\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\nbusy\n"
    );
}
