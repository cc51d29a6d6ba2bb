use alloc::string::String;
use alloc::vec::Vec;
use core::str::from_utf8;

use proptest::prelude::*;

use super::{InvalidUtf8, TextBuffer};

/// Pushes byte by byte; the index of the byte at which it is refused, or the text.
fn byte_by_byte(bytes: &[u8]) -> Result<String, usize> {
    let mut buffer = TextBuffer::default();
    for (index, byte) in bytes.iter().enumerate() {
        buffer.push(&[*byte]).map_err(|InvalidUtf8| index)?;
        assert_eq!(buffer.len(), index + 1);
    }
    buffer.finish().map_err(|InvalidUtf8| bytes.len())
}

#[test]
fn refuses_at_the_first_impossible_byte() {
    for (bytes, index) in [
        (&b"\x80"[..], 0),                        // a continuation byte by itself
        (b"a\xc0\xaf", 1),                        // overlong: no character begins with C0
        (b"\xe0\x80\x80", 1),                     // overlong in three bytes
        (b"\xed\xa0\x80", 1),                     // a surrogate
        (b"\xf4\x90\x80\x80", 1),                 // beyond U+10FFFF
        (b"\xf5", 0),                             // no character begins with F5
        (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xff", 7), // after whole characters
        (b"\xf0\x9f\x92", 3),                     // the end is the fault
    ] {
        assert_eq!(byte_by_byte(bytes), Err(index), "{bytes:?}");
    }
}

/// Text of all widths, whole or damaged.
fn nearly_text() -> impl Strategy<Value = Vec<u8>> {
    (any::<String>(), any::<Option<(prop::sample::Index, u8)>>()).prop_map(|(text, damage)| {
        let mut bytes = text.into_bytes();
        if let (Some((index, byte)), false) = (damage, bytes.is_empty()) {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn agrees_with_the_standard_library(bytes in nearly_text(), cuts in prop::collection::vec(0_usize..9, 0..40)) {
        let expected = from_utf8(&bytes).map(String::from).ok();
        prop_assert_eq!(byte_by_byte(&bytes).ok(), expected.clone());

        let mut buffer = TextBuffer::with_capacity(8);
        let mut rest = &bytes[..];
        let mut refused = false;
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            refused |= !refused && buffer.push(piece).is_err();
            rest = after;
        }
        refused = refused || buffer.push(rest).is_err();
        prop_assert_eq!(if refused { None } else { buffer.finish().ok() }, expected);
    }
}
