use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn context(peer_masks: bool, compression: bool, in_message: bool) -> Context {
    Context { peer_masks, compression, in_message }
}

/// The verdict on every prefix of `bytes`: `None` up to the one that decides, and from there on the same.
fn parse_each_prefix(bytes: &[u8], context: Context) -> Result<Option<(FrameHead, usize)>, Fault> {
    let whole = FrameHead::parse(bytes, context);
    let mut decided = false;
    for end in 0..=bytes.len() {
        let verdict = FrameHead::parse(&bytes[..end], context);
        decided |= verdict != Ok(None);
        assert_eq!(verdict, if decided { whole } else { Ok(None) }, "{:02x?}", &bytes[..end]);
    }
    whole
}

#[test]
fn lengths_in_their_shortest_form_only() {
    for (bytes, length) in [
        (&[0x82, 0][..], Some(0)),
        (&[0x82, 125], Some(125)),
        (&[0x82, 126, 0, 125], None),
        (&[0x82, 126, 0, 126], Some(126)),
        (&[0x82, 126, 0xff, 0xff], Some(65535)),
        (&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], None),
        (&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], Some(65536)),
        (&[0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Some(i64::MAX as u64)),
        (&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], None),
    ] {
        let parsed = parse_each_prefix(bytes, context(false, false, false));
        match length {
            Some(length) => {
                let (head, taken) = parsed.expect("it is right").expect("it is whole");
                assert_eq!((head.length, taken), (length, bytes.len()));
            }
            None => assert_eq!(parsed, Err(Fault::Protocol("frame length not in its shortest form"))),
        }
    }
}

#[test]
fn every_first_byte() {
    for first in 0..=255_u8 {
        for (compression, in_message) in [(false, false), (false, true), (true, false), (true, true)] {
            let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
            let begins = matches!(opcode, 1 | 2);
            let fits_place = match opcode {
                0 => in_message,
                1 | 2 => !in_message,
                8..=10 => fin,
                _ => false,
            };
            let fits_bits = first & 0x30 == 0 && (first & 0x40 == 0 || (compression && begins));
            let parsed = parse_each_prefix(&[first, 0], context(false, compression, in_message));
            assert_eq!(parsed.is_ok(), fits_place && fits_bits, "{first:02x}");
            if let Ok(Some((head, _))) = parsed {
                assert_eq!((head.fin, head.compressed, head.opcode.bits()), (fin, first & 0x40 != 0, opcode));
                assert_eq!(head.opcode.is_control(), opcode >= 8);
            }
        }
    }
}

#[test]
fn masks_are_required_or_refused() {
    let parse = |bytes, peer_masks| parse_each_prefix(bytes, context(peer_masks, false, false));
    let (head, taken) = parse(&[0x81, 0x81, 1, 2, 3, 4], true).expect("it is right").expect("it is whole");
    assert_eq!((head.mask, taken), ([1, 2, 3, 4], 6));
    assert_eq!(parse(&[0x81, 0x81, 1, 2, 3, 4], false), Err(Fault::Protocol("masked frame")));
    assert_eq!(parse(&[0x81, 1, 2, 3, 4, 5], true), Err(Fault::Protocol("unmasked frame")));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        length in prop_oneof![0..300_usize, 65_500..65_600_usize],
        mask: Option<[u8; 4]>,
        before in prop::collection::vec(any::<u8>(), 0..4),
        compressed: bool,
    ) {
        let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let mut out = before.clone();
        if compressed {
            out.extend([0; MAX_HEAD]);
            out.extend(&payload);
            finish_compressed_frame(Opcode::Text, before.len(), mask, &mut out);
        } else {
            write_frame(Opcode::Text, &payload, mask, &mut out);
        }
        prop_assert_eq!(&out[..before.len()], &before[..]);
        let mut frame = out.split_off(before.len());
        let parsed = parse_each_prefix(&frame[..frame.len().min(20)], context(mask.is_some(), true, false));
        let (head, taken) = parsed.expect("it is right").expect("it is whole");
        let expected = FrameHead {
            opcode: Opcode::Text,
            fin: true,
            compressed,
            length: length as u64,
            mask: mask.unwrap_or_default(),
        };
        prop_assert_eq!(head, expected);
        mask::apply(&mut frame[taken..], head.mask);
        prop_assert_eq!(&frame[taken..], &payload[..]);
        let mask_length = if mask.is_some() { 4 } else { 0 };
        prop_assert!([2, 4, 10].contains(&(taken - mask_length)));
    }
}
