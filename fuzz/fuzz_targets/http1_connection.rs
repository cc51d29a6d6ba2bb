//! Requests behind one another: good ones are read back as they were written, whatever stands between them is read
//! the same in any pieces, and nothing is read behind a refusal.
#![no_main]

use arbitrary::Arbitrary;
use headrace_http1::{Limits, chunk_head};
use libfuzzer_sys::fuzz_target;
use support::{Event, Policy, Reader};

#[path = "../../crates/http1/tests/support/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests, which use more of it")]
mod support;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// A request without a body.
    Get { close: bool },
    /// One with a body of known length.
    Sized { body: &'a [u8] },
    /// One in chunks, with extensions and trailers.
    Chunked { chunks: Vec<&'a [u8]>, extension: bool, trailer: bool },
    /// Another field in the next request's head.
    Field { which: u8 },
    /// Anything.
    Raw(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    steps: Vec<Step<'a>>,
    cuts: Vec<u8>,
    small: bool,
}

const FIELDS: [&str; 16] = [
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Host: other\r\n",
    "Connection: close\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "Expect: nothing\r\n",
    " folded\r\n",
    "X: y\n",
    "X : y\r\n",
    "X: y\r\n",
    "Cookie: a=b; c=d\r\n",
    "\r\n",
];

/// The bytes, and the bodies of the requests where all of them are good.
fn write(steps: &[Step<'_>]) -> (Vec<u8>, Option<Vec<Vec<u8>>>) {
    let mut bytes = Vec::new();
    let mut bodies = Some(Vec::new());
    let mut fields = String::new();
    let mut open = true;
    for step in steps {
        let mut head = |first: &str, last: &str| {
            bytes.extend_from_slice(format!("{first} HTTP/1.1\r\nHost: a\r\n{fields}{last}\r\n").as_bytes());
            fields.clear();
        };
        let body = match step {
            Step::Get { close } => {
                head("GET /", if *close { "Connection: close\r\n" } else { "" });
                Vec::new()
            }
            Step::Sized { body } => {
                head("POST /", &format!("Content-Length: {}\r\n", body.len()));
                bytes.extend_from_slice(body);
                body.to_vec()
            }
            Step::Chunked { chunks, extension, trailer } => {
                head("POST /", "Transfer-Encoding: chunked\r\n");
                for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
                    chunk_head(&mut bytes, chunk.len());
                    if *extension {
                        bytes.truncate(bytes.len() - 2);
                        bytes.extend_from_slice(b" ;x=\"y\"\r\n");
                    }
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n");
                bytes.extend_from_slice(if *trailer { b"Content-Length: 9\r\n\r\n" } else { b"\r\n" });
                chunks.concat()
            }
            Step::Field { which } => {
                fields.push_str(FIELDS[usize::from(*which) % FIELDS.len()]);
                bodies = None;
                continue;
            }
            Step::Raw(raw) => {
                bytes.extend_from_slice(raw);
                bodies = None;
                continue;
            }
        };
        if let (Some(bodies), true) = (&mut bodies, open) {
            bodies.push(body);
        }
        open &= !matches!(step, Step::Get { close: true });
    }
    (bytes, bodies)
}

fn read<'a>(policy: Policy, limits: Limits, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut reader = Reader::new(policy, limits);
    pieces.for_each(|piece| reader.feed(piece));
    reader.finish()
}

fn cut<'a>(mut bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut distances = cuts.iter().cycle();
    while !bytes.is_empty() {
        let distance = distances.next().map_or(1, |cut| usize::from(*cut) + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(distance);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fuzz_target!(|input: Input<'_>| {
    let limits = if input.small { Limits { head: 100, target: 9, fields: 4 } } else { Limits::default() };
    let (bytes, bodies) = write(&input.steps);
    let whole = read(Policy::Always, limits, [&bytes[..]].into_iter());
    let pieces = cut(&bytes, &input.cuts);
    assert_eq!(read(Policy::Always, limits, pieces.iter().copied()), whole);

    // A server that waits for the head's end reads the same, but for a fault in a head that never ends.
    let waited = read(Policy::WhenItMayBeComplete, limits, pieces.into_iter());
    match (waited.split_last(), whole.split_last()) {
        (Some((Event::Incomplete, before)), Some((Event::Reject { .. }, expected))) => {
            assert_eq!(before, expected);
        }
        _ => assert_eq!(waited, whole),
    }
    let last = whole.len().saturating_sub(1);
    assert!(
        whole.iter().take(last).all(|event| matches!(event, Event::Request(request) if request.keep_alive))
    );

    if let (Some(bodies), false) = (bodies, input.small) {
        let body = |event: &Event| match event {
            Event::Request(request) => request.body.clone(),
            other => panic!("a good request is read as {other:?}"),
        };
        assert_eq!(whole.iter().map(body).collect::<Vec<_>>(), bodies);
    }
});
