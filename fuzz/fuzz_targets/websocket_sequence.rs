//! Two ends that agreed on anything do anything to each other in any order: what one sends, the other receives, and
//! neither finds a fault.
#![no_main]

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use headrace_websocket::{
    Client, ClientHandshake, CloseCode, Connection, DeflateOptions, Event, Handshake, Limits, Role, Server,
};
use libfuzzer_sys::fuzz_target;

/// How the payload of a pong begins that answers no ping.
const HEARTBEAT: &[u8] = b"!";

#[derive(Arbitrary, Debug)]
struct Deflate {
    level: u8,
    threshold: u8,
    own_window_bits: u8,
    peer_window_bits: u8,
    own_no_context_takeover: bool,
    peer_no_context_takeover: bool,
}

impl From<&Deflate> for DeflateOptions {
    fn from(options: &Deflate) -> Self {
        Self {
            level: options.level,
            threshold: usize::from(options.threshold),
            own_window_bits: options.own_window_bits,
            peer_window_bits: options.peer_window_bits,
            own_no_context_takeover: options.own_no_context_takeover,
            peer_no_context_takeover: options.peer_no_context_takeover,
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Text(String),
    Binary(Vec<u8>),
    Long(u8, u16),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    /// So many bytes arrive at the other end.
    Deliver(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    client: Option<Deflate>,
    server: Option<Deflate>,
    /// Who does it, and what.
    operations: Vec<(bool, Operation)>,
}

struct End<R> {
    connection: Connection<R>,
    /// On the way to the other end.
    sent: Vec<u8>,
    /// What the other end must report, pongs that answer pings apart.
    expected: VecDeque<Event<'static>>,
    /// Answers to pings that the other end must report.
    pongs: VecDeque<Vec<u8>>,
}

impl<R: Role> End<R> {
    fn new(connection: Connection<R>) -> Self {
        Self { connection, sent: Vec::new(), expected: VecDeque::new(), pongs: VecDeque::new() }
    }

    fn operate(&mut self, operation: Operation) {
        let (connection, out) = (&mut self.connection, &mut self.sent);
        let open = connection.is_open();
        let (result, event) = match operation {
            Operation::Text(text) => (connection.send_text(&text, out), Some(Event::Text(text.into()))),
            Operation::Binary(bytes) => {
                (connection.send_binary(&bytes, out), Some(Event::Binary(bytes.into())))
            }
            Operation::Long(byte, length) => {
                let bytes = vec![byte; usize::from(length)];
                (connection.send_binary(&bytes, out), Some(Event::Binary(bytes.into())))
            }
            Operation::Ping(mut bytes) => {
                bytes.retain(|byte| !HEARTBEAT.contains(byte));
                let result = connection.send_ping(&bytes, out);
                bytes.truncate(125);
                (result, Some(Event::Ping(bytes.into())))
            }
            Operation::Pong(mut bytes) => {
                bytes.splice(..0, HEARTBEAT.iter().copied());
                bytes.truncate(125);
                (connection.send_pong(&bytes, out), Some(Event::Pong(bytes.into())))
            }
            Operation::Close(code, reason) => {
                let code = CloseCode::new(code).unwrap_or(CloseCode::NO_STATUS);
                (connection.send_close(code, &reason, out), None)
            }
            Operation::Deliver(_) => return,
        };
        assert_eq!(result.is_ok(), open);
        if let (true, Some(event)) = (open, event) {
            self.expected.push_back(event);
        }
    }
}

fn deliver<A: Role, B: Role>(from: &mut End<A>, to: &mut End<B>, count: usize) {
    let mut bytes: Vec<u8> = from.sent.drain(..count.min(from.sent.len())).collect();
    let mut input = &mut bytes[..];
    while let Some(event) = to.connection.receive(&mut input, &mut to.sent) {
        match event {
            Event::Failed(fault) => panic!("{fault}"),
            Event::Close(_) => {
                assert!(from.expected.is_empty(), "lost: {:?}", from.expected);
                assert!(to.connection.is_closed());
            }
            Event::Pong(bytes) if !bytes.starts_with(HEARTBEAT) => {
                assert_eq!(from.pongs.pop_front().as_deref(), Some(&*bytes));
            }
            event => {
                if let Event::Ping(bytes) = &event {
                    to.pongs.push_back(bytes.to_vec());
                }
                assert_eq!(from.expected.pop_front(), Some(event));
            }
        }
    }
}

fn connect(input: &Input) -> (End<Client<impl FnMut() -> u32 + use<>>>, End<Server>) {
    let offered = ClientHandshake::new([7; 16], &[], input.client.as_ref().map(DeflateOptions::from));
    let handshake = Handshake::from_request(b"GET", offered.fields()).expect("it is right").expect("it asks");
    let answer = handshake.accept(None, input.server.as_ref().map(DeflateOptions::from).as_ref());
    let checked = offered.check(101, answer.fields()).expect("the server keeps to the offer");
    assert_eq!(checked.compression().is_some(), answer.compression().is_some());
    let mut masks = 1_u32;
    let masks = move || {
        masks = masks.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        masks
    };
    (
        End::new(Connection::client(masks, Limits::default(), checked.compression())),
        End::new(Connection::server(Limits::default(), answer.compression())),
    )
}

fuzz_target!(|input: Input| {
    let (mut client, mut server) = connect(&input);
    for (by_client, operation) in input.operations {
        match (by_client, operation) {
            (true, Operation::Deliver(count)) => deliver(&mut client, &mut server, usize::from(count)),
            (false, Operation::Deliver(count)) => deliver(&mut server, &mut client, usize::from(count)),
            (true, operation) => client.operate(operation),
            (false, operation) => server.operate(operation),
        }
    }
    // All that is under way arrives; answers to it too.
    for _ in 0..3 {
        deliver(&mut client, &mut server, usize::MAX);
        deliver(&mut server, &mut client, usize::MAX);
    }
    assert!(client.sent.is_empty() && server.sent.is_empty());
    let closed = client.connection.is_closed();
    assert_eq!(closed, server.connection.is_closed());
    assert!(closed || (client.expected.is_empty() && server.expected.is_empty()));
});
