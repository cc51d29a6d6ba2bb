use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::compression::DeflateOptions;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it; `first` is its first byte.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = unmasked(first, payload);
    bytes[1] |= 0x80;
    let start = bytes.len() - payload.len();
    mask::apply(&mut bytes[start..], MASK);
    bytes.splice(start..start, MASK);
    bytes
}

/// A frame as a server sends it.
fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(length as u8),
        length @ 126..65536 => {
            bytes.push(126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

fn owned(event: Event<'_>) -> Event<'static> {
    match event {
        Event::Text(text) => Event::Text(text.into_owned().into()),
        Event::Binary(bytes) => Event::Binary(bytes.into_owned().into()),
        Event::Ping(bytes) => Event::Ping(bytes.into_owned().into()),
        Event::Pong(bytes) => Event::Pong(bytes.into_owned().into()),
        Event::Close(close) => {
            Event::Close(Close { code: close.code, reason: close.reason.into_owned().into() })
        }
        Event::Failed(fault) => Event::Failed(fault),
    }
}

/// What comes of `inputs`: the events, and the bytes that answer them.
fn receive<'i, R: Role>(
    connection: &mut Connection<R>,
    inputs: impl IntoIterator<Item = &'i [u8]>,
) -> (Vec<Event<'static>>, Vec<u8>) {
    let (mut events, mut out) = (Vec::new(), Vec::new());
    for input in inputs {
        let mut bytes = input.to_vec();
        let mut input = &mut bytes[..];
        while let Some(event) = connection.receive(&mut input, &mut out) {
            events.push(owned(event));
        }
        assert!(input.is_empty());
    }
    (events, out)
}

fn server(limits: Limits, compression: Option<Compression>) -> Connection<Server> {
    Connection::server(limits, compression)
}

/// Reads `bytes` whole, byte by byte, and with a ping behind.
fn check_with(
    limits: Limits,
    compression: Option<Compression>,
    bytes: &[u8],
    expected: &[Event<'_>],
    answer: &[u8],
) {
    let (events, out) = receive(&mut server(limits, compression), [bytes]);
    assert_eq!(events, expected, "whole: {bytes:02x?}");
    assert_eq!(out, answer, "whole: {bytes:02x?}");

    let (events, out) = receive(&mut server(limits, compression), bytes.chunks(1));
    assert_eq!(events, expected, "byte by byte: {bytes:02x?}");
    assert_eq!(out, answer, "byte by byte: {bytes:02x?}");

    let (mut expected, mut answer) = (expected.to_vec(), answer.to_vec());
    if !matches!(expected.last(), Some(Event::Close(_) | Event::Failed(_))) {
        expected.push(Event::Ping(b"behind".into()));
        answer.extend(unmasked(0x8a, b"behind"));
    }
    let behind = [bytes, &masked(0x89, b"behind")].concat();
    let (events, out) = receive(&mut server(limits, compression), [&behind[..]]);
    assert_eq!(events, expected, "with another behind: {bytes:02x?}");
    assert_eq!(out, answer, "with another behind: {bytes:02x?}");
}

fn check(frames: &[Vec<u8>], expected: &[Event<'_>], answer: &[u8]) {
    check_with(Limits::default(), None, &frames.concat(), expected, answer);
}

/// Also ends the connection: what is missing after the fault would otherwise be waited for.
fn check_failed(bytes: &[u8], fault: Fault) {
    check_with(Limits::default(), None, bytes, &[Event::Failed(fault)], &close_frame(fault));
}

fn close_frame(fault: Fault) -> Vec<u8> {
    let payload = [&fault.code().get().to_be_bytes(), fault.reason().as_bytes()].concat();
    unmasked(0x88, &payload)
}

fn text(text: &str) -> Event<'_> {
    Event::Text(text.into())
}

fn binary(bytes: &[u8]) -> Event<'_> {
    Event::Binary(bytes.into())
}

#[test]
fn messages_of_every_length_form() {
    for length in [0, 1, 7, 8, 125, 126, 127, 65535, 65536, 65537] {
        let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
        check(&[masked(0x82, &payload)], &[binary(&payload)], b"");
        let letters = "x".repeat(length);
        check(&[masked(0x81, letters.as_bytes())], &[text(&letters)], b"");
    }
}

#[test]
fn the_rfc_examples() {
    // RFC 6455 section 5.7
    let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    check(&[hello.to_vec()], &[text("Hello")], b"");
    let mut client = Connection::client(|| 0, Limits::default(), None);
    let (events, out) = receive(&mut client, [&b"\x01\x03Hel\x80\x02lo\x89\x05Hello"[..]]);
    assert_eq!(events, [text("Hello"), Event::Ping(b"Hello".into())]);
    assert_eq!(out, b"\x8a\x85\0\0\0\0Hello");
}

#[test]
fn fragments_with_control_frames_between() {
    check(
        &[
            masked(0x01, "caf\u{e9} \u{1f4a7}".as_bytes().split_at(4).0),
            masked(0x89, b"still there?"),
            masked(0x00, "caf\u{e9} \u{1f4a7}".as_bytes().split_at(4).1.split_at(3).0),
            masked(0x00, b""),
            masked(0x8a, b""),
            masked(0x80, "caf\u{e9} \u{1f4a7}".as_bytes().split_at(4).1.split_at(3).1),
            masked(0x02, b""),
            masked(0x80, b""),
        ],
        &[
            Event::Ping(b"still there?".into()),
            Event::Pong(b"".into()),
            text("caf\u{e9} \u{1f4a7}"),
            binary(b""),
        ],
        &unmasked(0x8a, b"still there?"),
    );
}

#[test]
fn a_whole_message_is_lent() {
    let mut bytes = [masked(0x81, b"lent"), masked(0x82, b"this too"), masked(0x89, b"and this")].concat();
    let mut input = &mut bytes[..];
    let (mut connection, mut out) = (server(Limits::default(), None), Vec::new());
    assert!(matches!(connection.receive(&mut input, &mut out), Some(Event::Text(Cow::Borrowed("lent")))));
    assert!(matches!(
        connection.receive(&mut input, &mut out),
        Some(Event::Binary(Cow::Borrowed(b"this too")))
    ));
    // The rest can wait, and go on later.
    assert!(matches!(
        connection.receive(&mut input, &mut out),
        Some(Event::Ping(Cow::Borrowed(b"and this")))
    ));
    assert_eq!(connection.receive(&mut input, &mut out), None);
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Connection<Server>>() <= 200, "{}", size_of::<Connection<Server>>());
    // and has nothing elsewhere, once its messages are done
    let mut connection = server(Limits::default(), None);
    receive(&mut connection, masked(0x81, &[b'x'; 300]).chunks(7));
    receive(&mut connection, masked(0x89, &[b'x'; 100]).chunks(7));
    assert_eq!(connection.control.capacity(), 0);
    assert!(connection.message.is_none());
}

#[test]
fn bad_heads() {
    for (bytes, reason) in [
        (&masked(0x83, b"")[..], "reserved opcode"),
        (&masked(0x8b, b""), "reserved opcode"),
        (&masked(0xa1, b"x"), "reserved bit set"),
        (&masked(0x91, b"x"), "reserved bit set"),
        (&masked(0xc1, b"x"), "reserved bit set"), // RSV1, without compression
        (&masked(0x09, b""), "fragmented control frame"),
        (&masked(0x80, b"x"), "continuation of no message"),
        (&masked(0x00, b"x"), "continuation of no message"),
        (&unmasked(0x81, b"x"), "unmasked frame"),
        (&masked(0x89, &[0; 126]), "control frame too long"),
        (&[0x82, 0xfe, 0, 125], "frame length not in its shortest form"),
        (&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], "frame length not in its shortest form"),
        (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], "frame length not in its shortest form"),
    ] {
        check_failed(bytes, Fault::Protocol(reason));
    }
    let first = masked(0x01, b"x");
    check_failed(
        &[&first[..], &masked(0x81, b"x")].concat(),
        Fault::Protocol("new message within a fragmented one"),
    );
    let mut client = Connection::client(|| 0, Limits::default(), None);
    assert_eq!(
        receive(&mut client, [&masked(0x81, b"x")[..]]).0,
        [Event::Failed(Fault::Protocol("masked frame"))]
    );
}

#[test]
fn text_is_refused_at_its_first_bad_byte() {
    check_failed(&masked(0x81, b"\xce\xba\xed\xa0\x80"), NOT_UTF8);
    check_failed(&masked(0x81, b"cut \xf0\x9f\x92"), NOT_UTF8);
    check_failed(&[masked(0x01, b"\xf0\x9f\x92"), masked(0x80, b"x")].concat(), NOT_UTF8);
    // Not at the end of its frame: 70,000 bytes were promised.
    check_failed(&masked(0x81, &[&b"\xf4\x90"[..], &[b'x'; 70_000]].concat())[..16], NOT_UTF8);
}

#[test]
fn limits() {
    let limits = Limits { max_message: 10, max_frame: 8 };
    let check = |frames: &[Vec<u8>], expected: &[Event<'_>]| {
        let answer = match expected {
            [Event::Failed(fault)] => close_frame(*fault),
            _ => Vec::new(),
        };
        check_with(limits, None, &frames.concat(), expected, &answer);
    };
    check(&[masked(0x82, &[1; 8])], &[binary(&[1; 8])]);
    check(&[masked(0x02, &[1; 8]), masked(0x80, &[1; 2])], &[binary(&[1; 10])]);
    // Refused by the head alone:
    check(&[masked(0x82, &[1; 9])[..6].to_vec()], &[Event::Failed(Fault::TooBig)]);
    check(&[masked(0x02, &[1; 8]), masked(0x80, &[1; 3])[..6].to_vec()], &[Event::Failed(Fault::TooBig)]);
    // A control frame is no part of a message.
    let pinged = [masked(0x02, &[1; 8]), masked(0x8a, &[2; 100]), masked(0x80, &[1; 2])];
    check(&pinged, &[Event::Pong([2; 100][..].into()), binary(&[1; 10])]);
}

#[test]
fn the_peer_closes() {
    let close = |code, reason: &'static str| Event::Close(Close { code, reason: reason.into() });
    check(&[masked(0x88, b"")], &[close(CloseCode::NO_STATUS, "")], &unmasked(0x88, b""));
    check(&[masked(0x88, b"\x03\xe8bye")], &[close(CloseCode::NORMAL, "bye")], &unmasked(0x88, b"\x03\xe8"));
    let code = CloseCode::new(4000).expect("in the private range");
    check(&[masked(0x88, b"\x0f\xa0")], &[close(code, "")], &unmasked(0x88, b"\x0f\xa0"));
    check_failed(&masked(0x88, b"\x03"), Fault::Protocol("close frame of one byte"));
    check_failed(&masked(0x88, b"\x03\xed"), Fault::Protocol("close code that must not be sent"));
    check_failed(&masked(0x88, b"\x03\xe8\xff"), Fault::InvalidPayload("close reason is no UTF-8"));

    let mut connection = server(Limits::default(), None);
    receive(&mut connection, [&masked(0x88, b"")[..]]);
    assert!(connection.is_closed() && !connection.is_open());
    let mut out = Vec::new();
    assert_eq!(connection.send_text("late", &mut out), Err(SendError));
    assert_eq!(connection.send_ping(b"", &mut out), Err(SendError));
    assert_eq!(connection.send_close(CloseCode::NORMAL, "", &mut out), Err(SendError));
    assert!(out.is_empty());
}

#[test]
fn this_end_closes() {
    let (mut connection, mut out) = (server(Limits::default(), None), Vec::new());
    connection.send_close(CloseCode::GOING_AWAY, "bye", &mut out).expect("it is open");
    assert_eq!(out, b"\x88\x05\x03\xe9bye");
    assert_eq!(connection.send_binary(b"late", &mut out), Err(SendError));
    assert!(!connection.is_open() && !connection.is_closed());
    // Until the peer's close frame, its messages count, and its pings are answered.
    let inputs =
        [masked(0x81, b"x"), masked(0x89, b"y"), masked(0x88, b"\x03\xe9"), masked(0x81, b"z")].concat();
    let (events, out) = receive(&mut connection, [&inputs[..]]);
    let close = Close { code: CloseCode::GOING_AWAY, reason: "".into() };
    assert_eq!(events, [text("x"), Event::Ping(b"y".into()), Event::Close(close)]);
    assert_eq!(out, unmasked(0x8a, b"y"));
    assert!(connection.is_closed());
}

#[test]
fn a_fault_after_this_end_closed_has_no_second_close_frame() {
    let (mut connection, mut out) = (server(Limits::default(), None), Vec::new());
    connection.send_close(CloseCode::NORMAL, "", &mut out).expect("it is open");
    let (events, out) = receive(&mut connection, [&masked(0x83, b"")[..]]);
    assert_eq!(events, [Event::Failed(Fault::Protocol("reserved opcode"))]);
    assert!(out.is_empty());
}

#[test]
fn control_payloads_are_cut() {
    let (mut connection, mut out) = (server(Limits::default(), None), Vec::new());
    connection.send_ping(&[1; 200], &mut out).expect("it is open");
    assert_eq!(out, unmasked(0x89, &[1; 125]));
    out.clear();
    let reason = format!("{}\u{e9}", "x".repeat(122)); // the character would end one byte too late
    connection.send_close(CloseCode::NORMAL, &reason, &mut out).expect("it is open");
    assert_eq!(out, unmasked(0x88, &[b"\x03\xe8", "x".repeat(122).as_bytes()].concat()));
}

fn compression(options: DeflateOptions) -> Compression {
    use crate::extension::DeflateParams;
    let offer = DeflateParams { client_max_window_bits: Some(None), ..DeflateParams::default() };
    offer.answer(&options).expect("it can be met").1
}

#[test]
fn compressed_messages() {
    let compression = Some(compression(DeflateOptions::default()));
    let check = |frames: &[Vec<u8>], expected: &[Event<'_>]| {
        let answer = match expected {
            [Event::Failed(fault)] => close_frame(*fault),
            _ => Vec::new(),
        };
        check_with(Limits::default(), compression, &frames.concat(), expected, &answer);
    };
    // RFC 7692 section 7.2.3: one block; in fragments; a second message in the same window; a stored block; BFINAL;
    // two blocks
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    check(&[masked(0xc1, hello)], &[text("Hello")]);
    check(&[masked(0x41, &hello[..3]), masked(0x80, &hello[3..])], &[text("Hello")]);
    check(&[masked(0xc1, hello), masked(0xc1, b"\xf2\x00\x11\x00\x00")], &[text("Hello"), text("Hello")]);
    check(&[masked(0xc1, b"\x00\x05\x00\xfa\xffHello\x00")], &[text("Hello")]);
    check(
        &[masked(0xc1, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), masked(0xc1, hello)],
        &[text("Hello"), text("Hello")],
    );
    check(&[masked(0xc1, b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00")], &[text("Hello")]);
    // Whoever ends the stream and adds nothing
    check(
        &[masked(0xc1, b"\xf3\x48\xcd\xc9\xc9\x07\x00"), masked(0xc1, hello)],
        &[text("Hello"), text("Hello")],
    );
    // An uncompressed message between, an empty one, control frames within
    check(
        &[masked(0xc1, hello), masked(0x81, b"plain"), masked(0xc2, b"\x00")],
        &[text("Hello"), text("plain"), binary(b"")],
    );
    check(
        &[masked(0x41, &hello[..3]), masked(0x8a, b""), masked(0x80, &hello[3..])],
        &[Event::Pong(b"".into()), text("Hello")],
    );
    // Faults
    check(&[masked(0xc9, b"")], &[Event::Failed(Fault::Protocol("reserved bit set"))]);
    check(&[masked(0x41, hello), masked(0xc0, b"")], &[Event::Failed(Fault::Protocol("reserved bit set"))]);
    check(
        &[masked(0xc1, b"\xff\xff\xff\xff")],
        &[Event::Failed(Fault::InvalidPayload("data does not inflate"))],
    );
    check(&[masked(0xc1, b"\x00\x01\x00\xfe\xff\xff\x00")], &[Event::Failed(NOT_UTF8)]);
    // Two faults: the first counts, however they were cut.
    check(&[masked(0xc1, b"\x00\x01\x00\xfe\xff\xff\xff\xff")], &[Event::Failed(NOT_UTF8)]);
}

#[test]
fn a_bomb_is_not_unpacked() {
    let compression = compression(DeflateOptions { own_window_bits: 15, ..DeflateOptions::default() });
    let zeros = vec![0; 16 << 20];
    let mut client = Connection::client(|| 7, Limits::default(), Some(compression));
    let mut out = Vec::new();
    client.send_binary(&zeros, &mut out).expect("it is open");
    assert!(out.len() < zeros.len() / 100, "{}", out.len());
    let limits = Limits { max_message: 100_000, max_frame: 1 << 20 };
    let (events, _) = receive(&mut server(limits, Some(compression)), [&out[..]]);
    assert_eq!(events, [Event::Failed(Fault::TooBig)]);
    let (events, _) = receive(&mut server(Limits::default(), Some(compression)), [&out[..]]);
    assert_eq!(events, [binary(&zeros)]);
}

#[derive(Debug, Clone)]
enum Sent {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        (any::<u8>(), 0_usize..70_000).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop_oneof![
        any::<String>().prop_map(Sent::Text),
        bytes.prop_map(Sent::Binary),
        prop::collection::vec(any::<u8>(), 0..=125).prop_map(Sent::Ping),
        prop::collection::vec(any::<u8>(), 0..=125).prop_map(Sent::Pong),
    ]
}

fn options() -> impl Strategy<Value = Option<DeflateOptions>> {
    prop::option::of((1..=9_u8, 0..300_usize, 9..=15_u8, 9..=15_u8, any::<bool>(), any::<bool>()).prop_map(
        |(level, threshold, own_window_bits, peer_window_bits, own, peer)| DeflateOptions {
            level,
            threshold,
            own_window_bits,
            peer_window_bits,
            own_no_context_takeover: own,
            peer_no_context_takeover: peer,
        },
    ))
}

/// The other end's view of what was agreed.
fn mirrored(compression: Compression) -> Compression {
    Compression {
        own_window_bits: compression.peer_window_bits,
        peer_window_bits: compression.own_window_bits,
        own_no_context_takeover: compression.peer_no_context_takeover,
        peer_no_context_takeover: compression.own_no_context_takeover,
        ..compression
    }
}

fn send<R: Role>(connection: &mut Connection<R>, messages: &[Sent]) -> (Vec<u8>, Vec<Event<'static>>) {
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    for message in messages.iter().cloned() {
        let (result, event) = match message {
            Sent::Text(text) => (connection.send_text(&text, &mut out), Event::Text(text.into())),
            Sent::Binary(bytes) => (connection.send_binary(&bytes, &mut out), Event::Binary(bytes.into())),
            Sent::Ping(bytes) => (connection.send_ping(&bytes, &mut out), Event::Ping(bytes.into())),
            Sent::Pong(bytes) => (connection.send_pong(&bytes, &mut out), Event::Pong(bytes.into())),
        };
        result.expect("it is open");
        expected.push(event);
    }
    (out, expected)
}

/// `bytes` cut into pieces of the lengths that `cuts` has, the rest whole.
fn pieces<'b>(mut bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, rest) = bytes.split_at((*cut).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

proptest! {
    #[test]
    fn what_one_end_sends_the_other_receives(
        messages in prop::collection::vec(sent(), 0..12),
        options in options(),
        masks: u32,
        cuts in prop::collection::vec(prop_oneof![0_usize..8, 0_usize..5000], 0..60),
    ) {
        let agreed = options.map(compression);
        let mut masks = masks;
        let mut client = Connection::client(
            || { masks = masks.wrapping_mul(747_796_405).wrapping_add(1); masks },
            Limits::default(),
            agreed,
        );
        let mut server = server(Limits::default(), agreed.map(mirrored));

        let (bytes, expected) = send(&mut client, &messages);
        let (events, _) = receive(&mut server, pieces(&bytes, &cuts));
        prop_assert_eq!(&events, &expected);

        let (bytes, expected) = send(&mut server, &messages);
        let (events, _) = receive(&mut client, pieces(&bytes, &cuts));
        prop_assert_eq!(&events, &expected);
    }

    #[test]
    fn any_bytes_are_read_alike_however_they_are_cut(
        bytes in prop::collection::vec(prop_oneof![
            Just(0x01_u8), Just(0x80), Just(0x81), Just(0x82), Just(0xc1), Just(0x89), Just(0), any::<u8>(),
        ], 0..300),
        compressed: bool,
        cuts in prop::collection::vec(0_usize..30, 0..40),
    ) {
        let agreed = compressed.then(|| compression(DeflateOptions::default()));
        // A client's view: no masks, so that random bytes reach further.
        let client = || Connection::client(|| 0, Limits { max_message: 200, max_frame: 200 }, agreed);
        let whole = receive(&mut client(), [&bytes[..]]);
        prop_assert_eq!(&receive(&mut client(), bytes.chunks(1)), &whole);
        prop_assert_eq!(&receive(&mut client(), pieces(&bytes, &cuts)), &whole);
    }
}
