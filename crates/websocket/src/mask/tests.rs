use alloc::vec::Vec;

use proptest::prelude::*;

use super::apply;

proptest! {
    #[test]
    fn is_the_rfc_definition(bytes: Vec<u8>, mask: [u8; 4]) {
        let mut masked = bytes.clone();
        apply(&mut masked, mask);
        for (index, byte) in bytes.iter().enumerate() {
            prop_assert_eq!(masked[index], byte ^ mask[index % 4]);
        }
    }

    #[test]
    fn pieces_are_the_whole(bytes: Vec<u8>, mask: [u8; 4], cuts in prop::collection::vec(0_usize..40, 0..20)) {
        let mut whole = bytes.clone();
        apply(&mut whole, mask);
        let mut pieces = bytes;
        let (mut rest, mut mask) = (&mut pieces[..], mask);
        for cut in cuts {
            let (piece, after) = rest.split_at_mut(cut.min(rest.len()));
            mask = apply(piece, mask);
            rest = after;
        }
        apply(rest, mask);
        prop_assert_eq!(pieces, whole);
    }
}
