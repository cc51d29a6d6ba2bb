//! An answer's head and body read the same however they are cut.
#![no_main]

use headrace_http1::{BodyDecoder, FieldSlots, Limits, Reject, RequestContext, is_token, parse_response};
use libfuzzer_sys::fuzz_target;

/// The reading as text, and the body behind it as far as it goes.
fn read(bytes: &[u8], limits: &Limits, request: &RequestContext) -> Result<Option<String>, Reject> {
    let mut slots = FieldSlots::new();
    let head = parse_response(bytes, &mut slots, limits, request)?;
    Ok(head.map(|head| {
        assert!(head.length <= bytes.len() && (100..=999).contains(&head.status));
        assert!(head.fields.iter().all(|field| is_token(field.name.as_bytes())));
        let mut decoder = BodyDecoder::new(head.body);
        let mut at = head.length;
        while let Ok(piece) = decoder.decode(&bytes[at..]) {
            at += piece.consumed;
            if piece.end || piece.data.is_empty() {
                break;
            }
        }
        format!("{head:?}")
    }))
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let limits = match choice & 1 {
        0 => Limits::default(),
        _ => Limits { head: 100, target: 0, fields: 3 },
    };
    let request = RequestContext { head_request: choice & 2 != 0 };
    let whole = read(bytes, &limits, &request);
    let stride = bytes.len() / 256 + 1;
    let mut decided = false;
    for end in (0..bytes.len()).step_by(stride) {
        let reading = read(&bytes[..end], &limits, &request);
        if decided || reading != Ok(None) {
            assert_eq!(reading, whole, "at {end}");
            decided = true;
        }
    }
});
