//! What reading and writing of heads costs: `cargo run --release -p headrace-http1 --example bench [ROUNDS]`.
//!
//! The median of many rounds, in nanoseconds for one operation, and the spread between the quartiles.

use std::hint::black_box;
use std::time::Instant;

use headrace_http1::{
    BodyDecoder, BodyLength, FieldSlots, Limits, RequestContext, ResponseEncoder, ResponseOptions, Version,
    head_may_be_complete, parse_request, parse_response,
};

const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2026/search?q=%E4%BD%A0%E5%A5%BD&lang=zh HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: zh-CN,en-US;q=0.7,en;q=0.3\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    DNT: 1\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N; theme=dark\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: none\r\n\
    Priority: u=0, i\r\n\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n\
    date: Sat, 21 Nov 2026 05:00:00 GMT\r\nserver: headrace\r\n\r\n";

const PER_ROUND: u32 = 20_000;

/// Time `operation` and print a line about it.
#[allow(clippy::print_stdout, reason = "the figures are what this is for")]
fn measure(name: &str, rounds: usize, mut operation: impl FnMut()) {
    let mut nanoseconds: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..PER_ROUND).for_each(|_| operation());
            start.elapsed().as_nanos() as f64 / f64::from(PER_ROUND)
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    let at = |share: usize| nanoseconds[nanoseconds.len() * share / 4];
    println!("{name:<34}{:>8.1} ns  ({:.1} to {:.1})", at(2), at(1), at(3));
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let limits = Limits::default();

    for (name, bytes) in [("parse_request, as of wrk", WRK), ("parse_request, as of Firefox", BROWSER)] {
        measure(name, rounds, || {
            let mut slots = FieldSlots::new();
            let head = parse_request(black_box(bytes), &mut slots, &limits);
            assert!(black_box(head).is_ok_and(|head| head.is_some()));
        });
    }
    measure("parse_response, hello", rounds, || {
        let mut slots = FieldSlots::new();
        let head = parse_response(black_box(ANSWER), &mut slots, &limits, &RequestContext::default());
        assert!(black_box(head).is_ok_and(|head| head.is_some()));
    });
    let unfinished = &BROWSER[..BROWSER.len() - 3];
    measure("head_may_be_complete, one byte", rounds, || {
        assert!(!head_may_be_complete(black_box(unfinished), black_box(unfinished.len() - 1)));
    });

    let mut out = Vec::with_capacity(1024);
    measure("ResponseEncoder, hello", rounds, || {
        out.clear();
        let options = ResponseOptions {
            version: Version::Http11,
            head_request: false,
            keep_alive: true,
            known_length: Some(black_box(13)),
            date_line: b"date: Sat, 21 Nov 2026 05:00:00 GMT\r\n",
            server_line: b"server: headrace\r\n",
        };
        let mut encoder = ResponseEncoder::begin(&mut out, black_box(200), b"").expect("a good status");
        encoder.field(&mut out, black_box(b"content-type"), black_box(b"text/plain")).expect("a good field");
        black_box(encoder.finish(&mut out, &options));
        black_box(&out);
    });

    let mut chunks = Vec::new();
    for _ in 0..16 {
        chunks.extend_from_slice(b"400\r\n");
        chunks.extend_from_slice(&[b'x'; 1024]);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    measure("BodyDecoder, 16 chunks of 1 KB", rounds, || {
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        let mut rest = black_box(&chunks[..]);
        loop {
            let piece = decoder.decode(rest).expect("well-formed");
            black_box(&rest[piece.data.clone()]);
            rest = &rest[piece.consumed..];
            if piece.end {
                break;
            }
        }
    });
}
