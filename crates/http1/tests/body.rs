//! Bodies cut out of streams. What is malformed is in the vectors of `conformance/`.

use headrace_http1::{BodyDecoder, BodyLength, Piece, Reject, chunk_head};
use proptest::prelude::*;

#[test]
fn an_empty_body_takes_nothing() {
    for length in [BodyLength::Empty, BodyLength::Known(0)] {
        let mut decoder = BodyDecoder::new(length);
        assert!(decoder.is_done());
        assert_eq!(decoder.decode(b"next"), Ok(Piece { consumed: 0, data: 0..0, end: true }));
    }
}

#[test]
fn a_known_body_takes_what_is_its_own() {
    let mut decoder = BodyDecoder::new(BodyLength::Known(5));
    assert_eq!(decoder.missing(), 5);
    assert_eq!(decoder.decode(b""), Ok(Piece { consumed: 0, data: 0..0, end: false }));
    assert_eq!(decoder.decode(b"hel"), Ok(Piece { consumed: 3, data: 0..3, end: false }));
    assert_eq!((decoder.missing(), decoder.is_done()), (2, false));
    assert_eq!(decoder.decode(b"lonext"), Ok(Piece { consumed: 2, data: 0..2, end: true }));
    assert_eq!((decoder.missing(), decoder.is_done()), (0, true));
    assert_eq!(decoder.decode(b"next"), Ok(Piece { consumed: 0, data: 0..0, end: true }));
}

#[test]
fn a_body_until_close_takes_everything() {
    let mut decoder = BodyDecoder::new(BodyLength::UntilClose);
    assert_eq!(decoder.decode(b"hello"), Ok(Piece { consumed: 5, data: 0..5, end: false }));
    assert!(!decoder.is_done());
}

#[test]
fn chunks_come_one_by_one() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let bytes = b"2\r\nhi\r\n3;x\r\nyou\r\n0\r\nA: b\r\n\r\nnext";
    assert_eq!(decoder.decode(bytes), Ok(Piece { consumed: 5, data: 3..5, end: false }));
    assert_eq!(decoder.decode(&bytes[5..]), Ok(Piece { consumed: 10, data: 7..10, end: false }));
    assert_eq!(decoder.decode(&bytes[15..]), Ok(Piece { consumed: 13, data: 13..13, end: true }));
    assert!(decoder.is_done());
}

#[test]
fn a_chunk_of_the_largest_size() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    assert_eq!(
        decoder.decode(b"ffffffffffffffff\r\nx"),
        Ok(Piece { consumed: 19, data: 18..19, end: false })
    );
    assert_eq!(decoder.missing(), u64::MAX - 1);
}

#[test]
fn many_tiny_chunks_cost_linear_time() {
    // CVE-2025-69229 (aiohttp): here the work is bounded by the bytes, one piece for each chunk.
    let bytes = [&b"1\r\nx\r\n".repeat(50_000)[..], b"0\r\n\r\n"].concat();
    let (content, used, pieces) = read(&bytes).expect("well-formed");
    assert_eq!((content.len(), used, pieces), (50_000, bytes.len(), 50_001));
}

/// Content, bytes used, and number of pieces, of a chunked body that is all there.
fn read(mut input: &[u8]) -> Result<(Vec<u8>, usize, usize), Reject> {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let (mut content, mut used, mut pieces) = (Vec::new(), 0, 0);
    loop {
        let piece = decoder.decode(input)?;
        content.extend_from_slice(&input[piece.data.clone()]);
        input = &input[piece.consumed..];
        used += piece.consumed;
        pieces += 1;
        if piece.end || piece.data.is_empty() {
            return Ok((content, used, pieces));
        }
    }
}

proptest! {
    #[test]
    fn what_we_chunk_reads_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5000), 0..8)) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            chunk_head(&mut bytes, chunk.len());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        let length = bytes.len();
        bytes.extend_from_slice(b"next");
        let (content, used, _) = read(&bytes).expect("well-formed");
        prop_assert_eq!((content, used), (chunks.concat(), length));
    }

    /// Random bytes never panic, and a refusal or an end comes at the same byte however they are cut.
    #[test]
    fn cuts_do_not_matter(bytes in "([0-9a-f]{1,2}|;|x|\r\n|\n|:| |0\r\n){0,30}", cut in 1usize..9) {
        let read = |step: usize| {
            let mut decoder = BodyDecoder::new(BodyLength::Chunked);
            let mut content = Vec::new();
            for mut input in bytes.as_bytes().chunks(step) {
                while !decoder.is_done() {
                    let piece = decoder.decode(input).map_err(|reject| (reject, content.clone()))?;
                    content.extend_from_slice(&input[piece.data.clone()]);
                    input = &input[piece.consumed..];
                    if piece.data.is_empty() {
                        break;
                    }
                }
            }
            Ok::<_, (Reject, Vec<u8>)>((content, decoder))
        };
        prop_assert_eq!(read(cut), read(usize::MAX));
    }
}
