//! Whatever an application passes, either it is refused or exactly one head comes out, which our own client reads back
//! with the same fields and the same framing.
#![no_main]

use arbitrary::Arbitrary;
use headrace_http1::{
    BodyLength, FieldSlots, Framing, Limits, RequestContext, ResponseEncoder, ResponseOptions, Version,
    is_field_value, is_token, parse_response,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Name<'a> {
    Any(&'a [u8]),
    Known(u8),
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    status: u16,
    reason: &'a [u8],
    fields: Vec<(Name<'a>, &'a [u8])>,
    http10: bool,
    head_request: bool,
    keep_alive: bool,
    known_length: Option<u64>,
}

const NAMES: [&[u8]; 8] = [
    b"content-length",
    b"Transfer-Encoding",
    b"CONNECTION",
    b"Date",
    b"server",
    b"Set-Cookie",
    b"content-type",
    b"Upgrade",
];

fn trim(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |at| at + 1);
    &value[start..end]
}

fuzz_target!(|input: Input<'_>| {
    let before = b"what was there before".to_vec();
    let mut out = before.clone();
    let Ok(mut encoder) = ResponseEncoder::begin(&mut out, input.status, input.reason) else {
        assert!(!(100..=999).contains(&input.status) || !is_field_value(input.reason));
        assert_eq!(out, before);
        return;
    };
    let no_length = matches!(input.status, 100..=199 | 204 | 205);
    let mut expected: Vec<(&[u8], &[u8])> = Vec::new();
    let (mut lengths, mut close) = (0, false);
    for (name, value) in input.fields.iter().take(200) {
        let name = match name {
            Name::Any(name) => name,
            Name::Known(which) => NAMES[usize::from(*which) % NAMES.len()],
        };
        let is_length = name.eq_ignore_ascii_case(b"content-length");
        let is_connection = name.eq_ignore_ascii_case(b"connection");
        lengths += usize::from(is_length);
        let good = is_token(name) && is_field_value(value);
        if encoder.field(&mut out, name, value).is_err() {
            let number =
                std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let bad_length =
                is_length && (lengths > 1 || number.is_none_or(|text| text.parse::<u64>().is_err()));
            assert!(!good || bad_length);
            return;
        }
        assert!(good);
        if is_connection {
            close |= value.split(|b| *b == b',').any(|member| trim(member).eq_ignore_ascii_case(b"close"));
        } else if !name.eq_ignore_ascii_case(b"transfer-encoding") && !(is_length && no_length) {
            expected.push((name, trim(value)));
        }
    }
    let options = ResponseOptions {
        version: if input.http10 { Version::Http10 } else { Version::Http11 },
        head_request: input.head_request,
        keep_alive: input.keep_alive,
        known_length: input.known_length,
        date_line: b"date: Sat, 21 Nov 2026 05:00:00 GMT\r\n",
        server_line: b"server: headrace\r\n",
    };
    let (framing, keep_alive) = encoder.finish(&mut out, &options);
    assert!(out.starts_with(&before));

    let head = &out[before.len()..];
    let limits = Limits { head: usize::MAX, target: 0, fields: FieldSlots::MAX };
    let mut slots = FieldSlots::new();
    let request = RequestContext { head_request: input.head_request };
    let read =
        parse_response(head, &mut slots, &limits, &request).expect("our own head").expect("a whole head");
    assert_eq!((read.length, read.status), (head.len(), input.status));
    let fields: Vec<(&[u8], &[u8])> = read.fields.iter().map(|f| (f.name.as_bytes(), f.value)).collect();
    assert_eq!(fields[..expected.len()], expected);
    let count = |name: &str| read.fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name)).count();
    assert!(count("content-length") + count("transfer-encoding") <= 1, "one framing");
    assert!(count("connection") <= 1);
    if input.status >= 200 {
        assert!(count("date") >= 1 && count("server") >= 1);
        assert_eq!(read.keep_alive, keep_alive);
        assert!(!keep_alive || (input.keep_alive && !close));
    }
    assert_eq!(
        read.body,
        match framing {
            Framing::None | Framing::Length(0) => BodyLength::Empty,
            Framing::Length(length) => BodyLength::Known(length),
            Framing::Chunked => BodyLength::Chunked,
            Framing::UntilClose => BodyLength::UntilClose,
        }
    );
});
