//! Any fields of an opening handshake are judged without a panic, and what a server agrees to is within the offer.
#![no_main]

use headrace_websocket::{ClientHandshake, DeflateOptions, Handshake};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = DeflateOptions::default();
    // Lines of "name: value", as an HTTP parser would hand them over; behind them, the fields that are right.
    let lines = data.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    });
    let client = ClientHandshake::new([3; 16], &["chat"], Some(options));
    let right: Vec<(&[u8], &[u8])> =
        client.fields().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let fields: Vec<(&[u8], &[u8])> = lines.collect();

    let _ = client.check(101, fields.iter().copied());
    let _ = Handshake::from_request(b"GET", fields.iter().copied());
    let Ok(read) = Handshake::from_request(b"GET", fields.into_iter().chain(right)) else { return };
    let handshake = read.expect("the client asks for a WebSocket");
    let subprotocols: Vec<&str> = handshake.subprotocols().collect();
    assert!(subprotocols.ends_with(&["chat"]));
    for (name, value) in handshake.accept(Some("chat"), Some(&options)).fields() {
        assert!(name.is_ascii() && value.bytes().all(|byte| (b' '..0x7f).contains(&byte)));
    }
    // The client's own offer comes last, and can be met.
    assert!(handshake.accept(None, Some(&options)).compression().is_some());
});
