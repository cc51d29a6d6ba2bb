use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::connection::Event;
use crate::frame::Opcode;

fn compression() -> Compression {
    Compression {
        level: 6,
        threshold: 10,
        own_window_bits: 12,
        peer_window_bits: 12,
        own_no_context_takeover: false,
        peer_no_context_takeover: false,
    }
}

fn deflate(codec: &mut Codec, payload: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    codec.deflate(payload, &mut out);
    assert_eq!(out.drain(..6).as_slice(), b"before");
    out
}

fn inflate<'p>(
    codec: &mut Codec,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    limit: usize,
) -> Result<Vec<u8>, Fault> {
    let mut message = Message::new(Opcode::Binary, true, 0);
    let mut pieces = pieces.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        codec.inflate(piece, pieces.peek().is_none(), &mut message, limit)?;
    }
    match message.finish()? {
        Event::Binary(bytes) => Ok(bytes.into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_threshold_and_the_window_decide() {
    let codec = Codec::new(compression());
    assert!(!codec.compresses(9) && codec.compresses(10));
    assert!(!Codec::new(Compression { own_window_bits: 8, ..compression() }).compresses(10));
}

#[test]
fn the_window_is_kept_or_not() {
    let text = b"a message that is not like itself in any part";
    let mut kept = Codec::new(compression());
    let (first, second) = (deflate(&mut kept, text), deflate(&mut kept, text));
    assert!(second.len() < first.len() / 2, "{} {}", second.len(), first.len());
    assert!(kept.deflate.is_some());

    let mut fresh = Codec::new(Compression {
        own_no_context_takeover: true,
        peer_no_context_takeover: true,
        ..compression()
    });
    assert_eq!(deflate(&mut fresh, text), first);
    assert_eq!(deflate(&mut fresh, text), first);
    assert_eq!(inflate(&mut fresh, [&first[..]], 100).as_deref(), Ok(&text[..]));
    assert!(fresh.deflate.is_none() && fresh.inflate.is_none());
    // The second of the first codec refers to what this one does not keep.
    assert_eq!(inflate(&mut fresh, [&second[..]], 100), Err(BAD_DEFLATE));
}

#[test]
fn empty_messages() {
    let mut codec = Codec::new(compression());
    for payload in [&b""[..], b"", b"x", b""] {
        let bytes = deflate(&mut codec, payload);
        assert_eq!(inflate(&mut codec, [&bytes[..]], 1).as_deref(), Ok(payload));
    }
}

#[test]
fn the_limit_is_exact() {
    let mut codec = Codec::new(Compression { peer_no_context_takeover: true, ..compression() });
    let bytes = deflate(&mut codec, &vec![7; 100_000]);
    assert_eq!(inflate(&mut codec, [&bytes[..]], 100_000), Ok(vec![7; 100_000]));
    let mut codec = Codec::new(compression());
    assert_eq!(inflate(&mut codec, [&bytes[..]], 99_999), Err(Fault::TooBig));
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn the_window_is_as_large_as_agreed() {
    for (level, window_bits) in (1..=9).flat_map(|level| [9, 12, 15].map(|bits| (level, bits))) {
        let bits = Compression {
            level,
            own_window_bits: window_bits,
            peer_window_bits: window_bits,
            ..compression()
        };
        let window = 1 << window_bits;
        // zlib's matches reach back to 262 bytes less than the window.
        for (distance, seen) in
            [(window - 262, true), (window + 1, false), (window + 200, false), (2 * window, false)]
        {
            // Noise compresses only as far as its copies are seen.
            let payload = noise(distance).repeat(3);
            let bytes = deflate(&mut Codec::new(bits), &payload);
            let compressed = bytes.len() < payload.len() * 3 / 4;
            assert_eq!(compressed, seen, "level {level}, {window_bits} bits, {distance}: {}", bytes.len());
            assert_eq!(inflate(&mut Codec::new(bits), [&bytes[..]], payload.len()), Ok(payload));
        }
    }
}

proptest! {
    // Each case makes up to five streams with their tables, without optimisation.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_deflated_inflates(
        payloads in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..2000),
            (any::<u8>(), 0..30_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ], 1..5),
        level in 1..=9_u8,
        window_bits in 9..=15_u8,
        fresh: bool,
        cut in 1..300_usize,
    ) {
        let mut codec = Codec::new(Compression {
            level,
            own_window_bits: window_bits,
            peer_window_bits: window_bits,
            own_no_context_takeover: fresh,
            peer_no_context_takeover: fresh,
            ..compression()
        });
        for payload in payloads {
            let bytes = deflate(&mut codec, &payload);
            prop_assert_eq!(inflate(&mut codec, bytes.chunks(cut), payload.len()), Ok(payload));
        }
    }

    #[test]
    fn random_bytes_are_refused_or_bounded(bytes: Vec<u8>, cut in 1..20_usize) {
        let mut codec = Codec::new(compression());
        if let Ok(message) = inflate(&mut codec, bytes.chunks(cut), 1000) {
            prop_assert!(message.len() <= 1000);
        }
    }
}
