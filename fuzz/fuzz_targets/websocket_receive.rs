//! A peer's bytes are read the same however they are cut, stay within the limits, and end in at most one close frame.
#![no_main]

use headrace_websocket::{
    ClientHandshake, Compression, Connection, DeflateOptions, Event, Handshake, Limits, Role,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { max_message: 5000, max_frame: 3000 };

/// A connection's whole story: its events as text, the bytes that answer them, and how it ended.
type Story = (Vec<String>, Vec<u8>, bool);

fn agreed(options: DeflateOptions) -> Option<Compression> {
    let client = ClientHandshake::new([0; 16], &[], Some(DeflateOptions::default()));
    let handshake = Handshake::from_request(b"GET", client.fields()).expect("it is right").expect("it asks");
    handshake.accept(None, Some(&options)).compression()
}

fn read<'p, R: Role>(mut connection: Connection<R>, pieces: impl Iterator<Item = &'p [u8]>) -> Story {
    let (mut events, mut out, mut ended) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let mut input = &mut bytes[..];
        while let Some(event) = connection.receive(&mut input, &mut out) {
            assert!(!ended, "{event:?} after the end");
            match &event {
                Event::Text(text) => assert!(text.len() <= LIMITS.max_message),
                Event::Binary(bytes) => assert!(bytes.len() <= LIMITS.max_message),
                Event::Ping(bytes) | Event::Pong(bytes) => assert!(bytes.len() <= 125),
                Event::Close(_) | Event::Failed(_) => ended = true,
            }
            events.push(format!("{event:?}"));
        }
        assert!(input.is_empty());
    }
    assert_eq!(connection.is_closed(), ended);
    if ended {
        assert!(connection.send_text("late", &mut out).is_err());
    }
    (events, out, ended)
}

fn check<R: Role>(make: impl Fn() -> Connection<R>, bytes: &[u8], step: usize) {
    let (whole, one, steps) = (
        read(make(), [bytes].into_iter()),
        read(make(), bytes.chunks(1)),
        read(make(), bytes.chunks(step.max(1))),
    );
    assert_eq!(whole, one);
    assert_eq!(whole, steps);
}

fuzz_target!(|data: &[u8]| {
    let [choice, step, bytes @ ..] = data else { return };
    let compression = match choice & 6 {
        0 | 2 => None,
        4 => agreed(DeflateOptions::default()),
        _ => agreed(DeflateOptions {
            peer_no_context_takeover: true,
            peer_window_bits: 9,
            ..Default::default()
        }),
    };
    if choice & 1 == 0 {
        check(|| Connection::server(LIMITS, compression), bytes, usize::from(*step));
    } else {
        check(|| Connection::client(|| 0, LIMITS, compression), bytes, usize::from(*step));
    }
});
