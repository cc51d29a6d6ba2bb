//! A request's head reads the same however it is cut, and what is read obeys the grammar.
#![no_main]

use headrace_http1::{FieldSlots, Limits, Reject, RequestHead, is_field_value, is_token, parse_request};
use libfuzzer_sys::fuzz_target;

/// The reading as text: simplest to compare.
fn read(bytes: &[u8], limits: &Limits) -> Result<Option<String>, Reject> {
    let mut slots = FieldSlots::new();
    let head = parse_request(bytes, &mut slots, limits)?;
    Ok(head.map(|head| {
        well_formed(bytes, &head);
        format!("{head:?}")
    }))
}

fn well_formed(bytes: &[u8], head: &RequestHead<'_, '_>) {
    let raw = &bytes[..head.length];
    assert!(raw.ends_with(b"\r\n\r\n"));
    for (at, byte) in raw.iter().enumerate() {
        assert!(*byte != b'\n' || raw[at - 1] == b'\r', "bare LF");
        assert!(*byte != b'\r' || raw[at + 1] == b'\n', "bare CR");
        assert!(*byte >= b' ' || matches!(byte, b'\t' | b'\r' | b'\n'), "control character");
    }
    assert!(is_token(head.method.as_bytes()));
    assert!(head.target.path.starts_with(b"/") || head.target.path == b"*");
    assert!(head.target.path.iter().chain(head.target.query).all(|b| b.is_ascii_graphic() && *b != b'#'));
    assert!(!head.target.path.contains(&b'?'));
    for field in head.fields {
        assert!(is_token(field.name.as_bytes()) && is_field_value(field.value));
        let first_and_last = field.value.first().into_iter().chain(field.value.last());
        assert!(first_and_last.into_iter().all(|byte| !matches!(byte, b' ' | b'\t')));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let limits = match choice % 3 {
        0 => Limits::default(),
        1 => Limits { head: 200, target: 20, fields: 3 },
        _ => Limits { head: 60, target: 100, fields: 100 },
    };
    let whole = read(bytes, &limits);
    // Every beginning says "more" or what the whole says; once it has said so, it stays.
    let stride = bytes.len() / 256 + 1;
    let mut decided = false;
    for end in (0..bytes.len()).step_by(stride) {
        let reading = read(&bytes[..end], &limits);
        if decided || reading != Ok(None) {
            assert_eq!(reading, whole, "at {end}");
            decided = true;
        }
    }
});
