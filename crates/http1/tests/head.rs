//! Where a head ends, what it costs to find out, and what bounds it.

use std::time::{Duration, Instant};

use headrace_http1::{FieldSlots, Limits, head_may_be_complete, parse_request};
use proptest::prelude::*;
use support::{Event, Policy, Reader};

mod support;

#[test]
fn an_empty_line_may_end_a_head() {
    for (bytes, expected) in [
        (&b""[..], false),
        (b"\n", false),
        (b"\r\n", false),
        (b"\r\n\r", false),
        (b"\r\n\r\n", true),
        (b"\n\n", true),
        (b"\n\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", false),
    ] {
        assert_eq!(head_may_be_complete(bytes, 0), expected, "{}", bytes.escape_ascii());
    }
    assert!(!head_may_be_complete(b"\n\nbehind", 5), "the end was seen before");
    assert!(!head_may_be_complete(b"ab", 9), "more seen than there is");
}

proptest! {
    #[test]
    fn the_end_is_not_missed(bytes in "[a\r\n]{0,12}", seen in 0usize..12) {
        let bytes = bytes.as_bytes();
        let seen = seen.min(bytes.len());
        let ends = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == b"\n\n")
            || bytes.windows(3).any(|three| three == b"\n\r\n");
        prop_assume!(!ends(&bytes[..seen]));
        prop_assert_eq!(head_may_be_complete(bytes, seen), ends(bytes));
    }
}

/// A head of `length` bytes that comes byte by byte, with many line ends in it.
fn drip(length: usize) -> (usize, Duration) {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(length / 6));
    let limits = Limits { fields: 0, ..Limits::default() };
    let mut reader = Reader::new(Policy::WhenItMayBeComplete, limits);
    let start = Instant::now();
    head.as_bytes().chunks(1).for_each(|byte| reader.feed(byte));
    let time = start.elapsed();
    let parses = reader.parses;
    assert!(matches!(reader.finish()[..], [Event::Reject { status: 431, .. }]));
    (parses, time)
}

#[test]
fn a_dripping_head_costs_linear_time() {
    let fastest = |length| (0..7).map(|_| drip(length).1).min().expect("seven runs");
    assert_eq!(drip(60_000).0, 1, "parsed once, at its end");
    let (short, long) = (fastest(6_000), fastest(60_000));
    // Ten times the bytes: ten times the time if linear, a hundred times if quadratic.
    assert!(long < short * 40, "{short:?} for 6 KB, {long:?} for 60 KB");
}

#[test]
fn a_head_without_end_is_refused_at_the_limit() {
    let mut reader = Reader::new(Policy::WhenItMayBeComplete, Limits::default());
    reader.feed(b"GET / HTTP/1.1\r\nX: ");
    for _ in 0..70_000 {
        reader.feed(b"y");
    }
    assert_eq!(reader.parses, 1);
    assert!(matches!(reader.finish()[..], [Event::Reject { status: 431, .. }]));
}

#[test]
fn limits_are_inclusive() {
    let bytes = b"GET /12 HTTP/1.1\r\nHost: a\r\n\r\n";
    let exact = Limits { head: bytes.len(), target: 3, fields: 1 };
    let status = |limits: &Limits| {
        parse_request(bytes, &mut FieldSlots::new(), limits).map(|head| head.is_some()).map_err(|r| r.status)
    };
    assert_eq!(status(&exact), Ok(true));
    assert_eq!(status(&Limits { head: bytes.len() - 1, ..exact }), Err(431));
    assert_eq!(status(&Limits { target: 2, ..exact }), Err(414));
    assert_eq!(status(&Limits { fields: 0, ..exact }), Err(431));
    assert_eq!(status(&Limits { fields: usize::MAX, ..exact }), Ok(true), "capped by the slots");
}

#[test]
fn there_are_as_many_slots_as_said() {
    let limits = Limits { fields: usize::MAX, ..Limits::default() };
    let request =
        |fields: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(fields - 1));
    let mut slots = FieldSlots::default();
    let head = parse_request(request(FieldSlots::MAX).as_bytes(), &mut slots, &limits)
        .map(|head| head.map(|head| head.fields.len()));
    assert_eq!(head, Ok(Some(FieldSlots::MAX)));
    let more = request(FieldSlots::MAX + 1);
    assert!(parse_request(more.as_bytes(), &mut FieldSlots::new(), &limits).is_err_and(|r| r.status == 431));
}
