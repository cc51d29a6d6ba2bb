use alloc::vec;

use proptest::prelude::*;

use super::*;

fn offers(value: &str) -> Vec<Extension> {
    parse_extensions(value.as_bytes()).expect("it fits the grammar")
}

/// The only element, which must be a permessage-deflate without faults.
fn params(value: &str) -> DeflateParams {
    match &offers(value)[..] {
        [Extension::Deflate(Some(params))] => *params,
        other => panic!("{value}: {other:?}"),
    }
}

#[test]
fn lists() {
    assert_eq!(offers(""), []);
    assert_eq!(offers(" , ,\t"), []);
    assert_eq!(offers("x-other; a=b; c"), [Extension::Other]);
    let deflate = || Extension::Deflate(Some(DeflateParams::default()));
    assert_eq!(offers("permessage-deflate"), [deflate()]);
    assert_eq!(offers("x ,Permessage-Deflate,, y;z=\"q\""), [Extension::Other, deflate(), Extension::Other]);
}

#[test]
fn parameters() {
    let all = params(
        "permessage-deflate; server_no_context_takeover;client_no_context_takeover ; \
         server_max_window_bits = 10; client_max_window_bits=\"1\\5\"",
    );
    assert_eq!(
        all,
        DeflateParams {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: Some(10),
            client_max_window_bits: Some(Some(15)),
        }
    );
    assert_eq!(params("permessage-deflate; client_max_window_bits").client_max_window_bits, Some(None));
}

#[test]
fn parameters_in_error_are_declined() {
    for faulty in [
        "unknown",
        "server_no_context_takeover=1",
        "client_no_context_takeover=true",
        "server_max_window_bits",
        "server_max_window_bits=7",
        "server_max_window_bits=16",
        "server_max_window_bits=08",
        "server_max_window_bits=1e1",
        "client_max_window_bits=7",
        "client_max_window_bits", // named twice
    ] {
        let value = alloc::format!("permessage-deflate; client_max_window_bits; {faulty}");
        assert_eq!(offers(&value), [Extension::Deflate(None)], "{faulty}");
    }
    for name in [SERVER_NO_CONTEXT_TAKEOVER, CLIENT_NO_CONTEXT_TAKEOVER, "server_max_window_bits=9"] {
        assert_eq!(offers(&alloc::format!("{NAME};{name};{name}")), [Extension::Deflate(None)], "{name}");
    }
}

#[test]
fn malformed_values() {
    for value in [
        ";",
        "a b",
        "a;",
        "a;=",
        "a;b=",
        "a;b=\"",
        "a;b=\"\"",
        "a;b=\"c d\"",
        "a;b=\"c\\",
        "a;b=c=d",
        "\u{e9}",
        "a,;",
    ] {
        assert_eq!(parse_extensions(value.as_bytes()), Err(MalformedExtensions), "{value}");
    }
}

#[test]
fn a_server_answers() {
    let default = DeflateOptions { own_window_bits: 15, ..DeflateOptions::default() };
    let answer = |offer: &str, options: &DeflateOptions| {
        params(offer).answer(options).map(|(answer, _)| answer.to_field())
    };
    let small = DeflateOptions { own_window_bits: 10, peer_window_bits: 9, ..default };
    let fresh = DeflateOptions { own_no_context_takeover: true, peer_no_context_takeover: true, ..default };
    for (offer, options, expected) in [
        ("permessage-deflate", &default, "permessage-deflate"),
        ("permessage-deflate; client_max_window_bits", &default, "permessage-deflate"),
        (
            "permessage-deflate; client_max_window_bits=11",
            &default,
            "permessage-deflate; client_max_window_bits=11",
        ),
        (
            "permessage-deflate; server_max_window_bits=12",
            &default,
            "permessage-deflate; server_max_window_bits=12",
        ),
        (
            "permessage-deflate; server_max_window_bits=15",
            &default,
            "permessage-deflate; server_max_window_bits=15",
        ),
        (
            "permessage-deflate; server_no_context_takeover",
            &default,
            "permessage-deflate; server_no_context_takeover",
        ),
        // A client that does not name client_max_window_bits is not asked to keep to one.
        ("permessage-deflate", &small, "permessage-deflate; server_max_window_bits=10"),
        (
            "permessage-deflate; client_max_window_bits; server_max_window_bits=12",
            &small,
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=9",
        ),
        (
            "permessage-deflate",
            &fresh,
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
    ] {
        assert_eq!(answer(offer, options).as_deref(), Some(expected), "{offer}");
    }
    // zlib's raw deflate has no window of eight bits.
    assert_eq!(answer("permessage-deflate; server_max_window_bits=8", &default), None);
}

#[test]
fn a_client_refuses_more_than_it_offered() {
    let options =
        DeflateOptions { peer_window_bits: 10, peer_no_context_takeover: true, ..DeflateOptions::default() };
    let agree = |answer: &str| params(answer).agree(&options);
    assert_eq!(agree("permessage-deflate; server_no_context_takeover"), None);
    assert_eq!(agree("permessage-deflate; server_max_window_bits=10"), None);
    assert_eq!(agree("permessage-deflate; server_no_context_takeover; server_max_window_bits=11"), None);
    let valued =
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits";
    assert_eq!(agree(valued), None);
    let agreed = agree(&alloc::format!("{valued}=8")).expect("it was offered");
    assert_eq!((agreed.own_window_bits, agreed.peer_window_bits), (8, 10));
    assert!(agreed.peer_no_context_takeover && !agreed.own_no_context_takeover);
}

fn options() -> impl Strategy<Value = DeflateOptions> {
    // Also beyond the ranges
    (any::<u8>(), any::<usize>(), 0..20_u8, 0..20_u8, any::<bool>(), any::<bool>()).prop_map(
        |(level, threshold, own_window_bits, peer_window_bits, own, peer)| DeflateOptions {
            level,
            threshold,
            own_window_bits,
            peer_window_bits,
            own_no_context_takeover: own,
            peer_no_context_takeover: peer,
        },
    )
}

proptest! {
    #[test]
    fn both_ends_agree(client in options(), server in options()) {
        let offer = DeflateParams::offer(&client);
        prop_assert_eq!(params(&offer.to_field()), offer);
        let Some((answer, servers)) = offer.answer(&server) else {
            prop_assert_eq!(offer.server_max_window_bits, Some(8));
            return Ok(());
        };
        let answer = params(&answer.to_field());
        let clients = answer.agree(&client).expect("the server keeps to the offer");
        prop_assert!(servers.own_window_bits <= clients.peer_window_bits);
        prop_assert!(clients.own_window_bits <= servers.peer_window_bits);
        prop_assert_eq!(servers.own_no_context_takeover, clients.peer_no_context_takeover);
        // A client may do so without a word; a server that was told keeps no window.
        prop_assert!(clients.own_no_context_takeover || !servers.peer_no_context_takeover);
    }

    #[test]
    fn any_value_is_read_or_refused(value in "(permessage-deflate|[a-z;,=\"\\\\ ]|server_max_window_bits|[0-9]){0,30}") {
        for extension in parse_extensions(value.as_bytes()).unwrap_or(vec![]) {
            if let Extension::Deflate(Some(read)) = extension {
                prop_assert_eq!(params(&read.to_field()), read);
            }
        }
    }
}
