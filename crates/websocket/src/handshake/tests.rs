use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::compression::DeflateOptions;

type Fields = Vec<(&'static str, &'static str)>;

fn request() -> Fields {
    [
        ("Host", "localhost"),
        (UPGRADE, "websocket"),
        (CONNECTION, "keep-alive, Upgrade"),
        (VERSION, "13"),
        (KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    .into()
}

fn read(fields: Fields) -> Result<Option<Handshake>, Refusal> {
    Handshake::from_request(b"GET", fields)
}

/// The request with the fields of that name replaced.
fn with(name: &str, values: &[&'static str]) -> Fields {
    let mut fields = request();
    let place = fields.iter().position(|field| field.0 == name).unwrap_or(0);
    let name = fields.iter().find(|field| field.0 == name).map_or(PROTOCOL, |field| field.0);
    fields.retain(|field| field.0 != name);
    fields.splice(place..place, values.iter().map(|value| (name, *value)));
    fields
}

#[test]
fn the_rfc_example() {
    let handshake = read(request()).expect("it is right").expect("it asks");
    assert_eq!(handshake.subprotocols().len(), 0);
    let answer = handshake.accept(None, None);
    let expected = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    ];
    assert_eq!(answer.fields().collect::<Vec<_>>(), expected);
    assert_eq!(answer.compression(), None);
}

#[test]
fn what_does_not_ask_for_a_websocket() {
    assert!(matches!(read(with(UPGRADE, &[])), Ok(None)));
    assert!(matches!(read(with(UPGRADE, &["h2c"])), Ok(None)));
    assert!(matches!(Handshake::from_request(b"POST", [("Content-Length", "0")]), Ok(None)));
}

#[test]
fn names_and_tokens_in_any_case() {
    let fields: Vec<(String, Vec<u8>)> = request()
        .into_iter()
        .map(|(name, value)| {
            let value = if name == KEY { value.into() } else { value.to_ascii_uppercase() };
            (name.to_ascii_lowercase(), value.into_bytes())
        })
        .collect();
    assert!(matches!(Handshake::from_request(b"GET", fields), Ok(Some(_))));
    assert!(matches!(read(with(UPGRADE, &["h2c", "x, WebSocket"])), Ok(Some(_))));
    assert!(matches!(read(with(CONNECTION, &["keep-alive", "upgrade"])), Ok(Some(_))));
}

#[test]
fn refusals() {
    for (fields, reason) in [
        (with(CONNECTION, &["keep-alive"]), "Connection does not list Upgrade"),
        (with(VERSION, &[]), "missing or repeated Sec-WebSocket-Version"),
        (with(VERSION, &["13", "13"]), "missing or repeated Sec-WebSocket-Version"),
        (with(KEY, &[]), "missing or repeated Sec-WebSocket-Key"),
        (with(KEY, &["dGhlIHNhbXBsZSBub25jZQ==", "x"]), "missing or repeated Sec-WebSocket-Key"),
        (with(KEY, &[""]), "malformed Sec-WebSocket-Key"),
        (with(KEY, &["dGhlIHNhbXBsZSBub25jZQ"]), "malformed Sec-WebSocket-Key"),
        (with(KEY, &["dGhlIHNhbXBsZSBub25jZQ=x"]), "malformed Sec-WebSocket-Key"),
        (with(KEY, &["dGhlIHNhbXBsZSBub25j?Q=="]), "malformed Sec-WebSocket-Key"),
        (with(PROTOCOL, &["chat, two words"]), "malformed Sec-WebSocket-Protocol"),
    ] {
        let refusal = read(fields).expect_err(reason);
        assert_eq!(refusal, Refusal::BadRequest(reason));
        assert_eq!((refusal.status(), refusal.field()), (400, None));
    }
    let mut fields = request();
    fields.push((EXTENSIONS, "a b"));
    assert_eq!(read(fields).err(), Some(Refusal::BadRequest("malformed Sec-WebSocket-Extensions")));
    let refusal = read(with(VERSION, &["8"])).expect_err("there is only 13");
    assert_eq!((refusal.status(), refusal.field()), (426, Some(("Sec-WebSocket-Version", "13"))));
    let posted = Handshake::from_request(b"POST", request());
    assert_eq!(posted.err(), Some(Refusal::BadRequest("a WebSocket is asked for by GET")));
}

#[test]
fn subprotocols_and_extensions() {
    let mut fields = request();
    fields.extend([
        (PROTOCOL, "chat, superchat"),
        (PROTOCOL, "graphql-ws"),
        // The first cannot be met, the second is in error.
        (EXTENSIONS, "permessage-deflate; server_max_window_bits=8, permessage-deflate; x"),
        (EXTENSIONS, "x-other, permessage-deflate; server_no_context_takeover, permessage-deflate"),
    ]);
    let handshake = read(fields).expect("it is right").expect("it asks");
    assert_eq!(handshake.subprotocols().collect::<Vec<_>>(), ["chat", "superchat", "graphql-ws"]);
    let answer = handshake
        .accept(Some("superchat"), Some(&DeflateOptions { own_window_bits: 15, ..Default::default() }));
    assert_eq!(
        answer.fields().skip(3).collect::<Vec<_>>(),
        [(PROTOCOL, "superchat"), (EXTENSIONS, "permessage-deflate; server_no_context_takeover")]
    );
    assert!(answer.compression().is_some());
    let plain = handshake.accept(None, None);
    assert_eq!((plain.fields().count(), plain.compression()), (3, None));
}

fn client() -> ClientHandshake {
    ClientHandshake::new(*b"the sample nonce", &["chat", "superchat"], Some(DeflateOptions::default()))
}

fn answer() -> Fields {
    [(UPGRADE, "websocket"), (CONNECTION, "Upgrade"), (ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")].into()
}

#[test]
fn a_clients_request() {
    assert_eq!(
        client().fields().collect::<Vec<_>>(),
        [
            (UPGRADE, "websocket"),
            (CONNECTION, "Upgrade"),
            (KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
            (VERSION, "13"),
            (PROTOCOL, "chat, superchat"),
            (EXTENSIONS, "permessage-deflate; client_max_window_bits=12"),
        ]
    );
    assert_eq!(ClientHandshake::new([0; 16], &[], None).fields().count(), 4);
}

#[test]
fn a_client_checks_the_answer() {
    let checked = client().check(101, answer()).expect("it is right");
    assert_eq!((checked.subprotocol(), checked.compression()), (None, None));
    let mut agreed = answer();
    agreed.extend([(PROTOCOL, "superchat"), (EXTENSIONS, "permessage-deflate; client_max_window_bits=10")]);
    let checked = client().check(101, agreed).expect("it is right");
    assert_eq!(checked.subprotocol(), Some("superchat"));
    assert_eq!(checked.compression().map(|compression| compression.own_window_bits), Some(10));

    assert_eq!(client().check(200, answer()), Err(HandshakeError::Status(200)));
    for (field, reason) in [
        ((PROTOCOL, "other"), "a subprotocol that was not offered"),
        ((PROTOCOL, "chat, superchat"), "a subprotocol that was not offered"),
        ((EXTENSIONS, "x-other"), "an extension that was not offered"),
        ((EXTENSIONS, "permessage-deflate; unknown"), "an extension that was not offered"),
        ((EXTENSIONS, "permessage-deflate, permessage-deflate"), "an extension that was not offered"),
        (
            (EXTENSIONS, "permessage-deflate; client_max_window_bits"),
            "permessage-deflate beyond what was offered",
        ),
        ((EXTENSIONS, "a b"), "malformed Sec-WebSocket-Extensions"),
        ((ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "Sec-WebSocket-Accept does not fit the key"),
    ] {
        let mut fields = answer();
        fields.push(field);
        assert_eq!(client().check(101, fields), Err(HandshakeError::Invalid(reason)), "{field:?}");
    }
    let unasked = ClientHandshake::new(*b"the sample nonce", &[], None);
    let mut fields = answer();
    fields.push((EXTENSIONS, "permessage-deflate"));
    assert_eq!(unasked.check(101, fields), Err(HandshakeError::Invalid("an extension that was not offered")));
    for missing in 0..2 {
        let mut fields = answer();
        fields.remove(missing);
        let expected = HandshakeError::Invalid("the answer does not upgrade to a WebSocket");
        assert_eq!(client().check(101, fields), Err(expected));
    }
    let mut fields = answer();
    fields[2].1 = "AAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let expected = HandshakeError::Invalid("Sec-WebSocket-Accept does not fit the key");
    assert_eq!(client().check(101, fields), Err(expected));
}

proptest! {
    #[test]
    fn both_ends_agree(nonce: [u8; 16], offered: bool, taken: bool, chosen in prop::option::of(0..2_usize)) {
        let options = DeflateOptions::default();
        let client = ClientHandshake::new(nonce, &["chat", "superchat"], offered.then_some(options));
        let handshake = Handshake::from_request(b"GET", client.fields()).expect("it is right").expect("it asks");
        let subprotocols: Vec<&str> = handshake.subprotocols().collect();
        let subprotocol = chosen.map(|index| subprotocols[index]);
        let answer = handshake.accept(subprotocol, taken.then_some(&options));
        let checked = client.check(101, answer.fields()).expect("it is right");
        prop_assert_eq!(checked.subprotocol(), subprotocol);
        prop_assert_eq!(checked.compression().is_some(), offered && taken);
        prop_assert_eq!(answer.compression().is_some(), offered && taken);
    }
}
