//! A body reads the same however it is cut, and what we chunk ourselves reads back.
#![no_main]

use arbitrary::Arbitrary;
use headrace_http1::{BodyDecoder, BodyLength, Reject, chunk_head};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// None for chunked.
    length: Option<u16>,
    cuts: Vec<u8>,
    bytes: &'a [u8],
}

/// Content, bytes used, and whether it ended.
fn read<'a>(
    length: BodyLength,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, usize, Result<bool, Reject>) {
    let mut decoder = BodyDecoder::new(length);
    let (mut content, mut used) = (Vec::new(), 0);
    for mut input in pieces {
        loop {
            let missing = decoder.missing();
            let piece = match decoder.decode(input) {
                Ok(piece) => piece,
                Err(reject) => return (content, 0, Err(reject)),
            };
            assert!(piece.data.start <= piece.data.end && piece.data.end <= piece.consumed);
            assert!(piece.consumed <= input.len());
            assert!(missing == 0 || piece.data.len() as u64 <= missing);
            assert_eq!(piece.end, decoder.is_done());
            content.extend_from_slice(&input[piece.data.clone()]);
            used += piece.consumed;
            input = &input[piece.consumed..];
            if piece.end {
                return (content, used, Ok(true));
            }
            if piece.data.is_empty() {
                assert!(input.is_empty(), "bytes left without a reason");
                break;
            }
        }
    }
    (content, used, Ok(decoder.is_done()))
}

/// Cut `bytes` at distances that `cuts` gives, over and over.
fn cut<'a>(mut bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut distances = cuts.iter().cycle();
    while !bytes.is_empty() {
        let distance = distances.next().map_or(1, |cut| usize::from(*cut % 16) + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(distance);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fuzz_target!(|input: Input<'_>| {
    let length = match input.length {
        Some(0) => BodyLength::Empty,
        Some(length) => BodyLength::Known(u64::from(length)),
        None => BodyLength::Chunked,
    };
    let whole = read(length, [input.bytes].into_iter());
    assert_eq!(read(length, cut(input.bytes, &input.cuts).into_iter()), whole);
    assert_eq!(read(length, input.bytes.chunks(1)), whole);

    let mut chunked = Vec::new();
    for chunk in cut(input.bytes, &input.cuts) {
        chunk_head(&mut chunked, chunk.len());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let expected = (input.bytes.to_vec(), chunked.len(), Ok(true));
    assert_eq!(read(BodyLength::Chunked, [&chunked[..]].into_iter()), expected);
    chunked.extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert_eq!(read(BodyLength::Chunked, [&chunked[..]].into_iter()), expected);
});
