//! WebSocket, the client's side: messages that the server sends back, as `headrace-websocket` frames them.

use std::sync::Arc;

use headrace_http1::{FieldSlots, Limits as HeadLimits, RequestContext, parse_response};
use headrace_websocket::{Client, ClientHandshake, Connection, Event, Limits};

use crate::expectation::Expectation;
use crate::protocol::{Answer, Protocol, Step};
use crate::random::Random;
use crate::stats::Fault;

/// Bytes of a message where the user gives none; what websocket benches usually send.
pub(crate) const DEFAULT_SIZE: usize = 256;

/// What is sent and expected, the same for all threads.
#[derive(Debug)]
pub(crate) struct WebSocketLoad {
    /// The beginning of the opening request: its request line, Host, and the user's fields.
    pub(crate) head: Vec<u8>,
    /// A message, and what must come back.
    pub(crate) message: Vec<u8>,
    pub(crate) expectation: Expectation,
}

/// Gives masks. They are random, but from a seeded source: nothing here needs the protection of masks, which
/// is against intermediaries that mistake a payload for HTTP (RFC 6455 section 10.3).
type Masks = Box<dyn FnMut() -> u32>;

/// WebSockets of one thread.
pub(crate) struct WebSocket {
    load: Arc<WebSocketLoad>,
    /// The message, where it is text.
    text: bool,
    random: Random,
    /// What is to be sent, in one piece.
    out: Vec<u8>,
}

/// Where a connection stands.
pub(crate) struct WebSocketConnection {
    stage: Stage,
    /// What the protocol itself has to send: pongs and closes.
    replies: Vec<u8>,
}

enum Stage {
    New,
    /// The opening request is sent; of its answer this has come.
    Opening(Box<ClientHandshake>, Vec<u8>),
    Open(Box<Connection<Client<Masks>>>),
}

impl WebSocket {
    pub(crate) fn new(load: Arc<WebSocketLoad>, seed: u64) -> Self {
        let text = std::str::from_utf8(&load.message).is_ok();
        Self { load, text, random: Random::new(seed), out: Vec::new() }
    }

    /// Take the answer to the opening request, whole or in parts.
    fn upgrade(&mut self, connection: &mut WebSocketConnection, bytes: &[u8]) -> (usize, Step) {
        let Stage::Opening(handshake, partial) = &mut connection.stage else { return (0, Step::More) };
        let before = partial.len();
        partial.extend_from_slice(bytes);
        let mut slots = FieldSlots::new();
        let parsed = parse_response(partial, &mut slots, &HeadLimits::default(), &RequestContext::default());
        match parsed {
            Ok(None) => (bytes.len(), Step::More),
            Ok(Some(head)) => {
                let fields = head.fields.iter().map(|field| (field.name, field.value));
                if let Err(error) = handshake.check(head.status, fields) {
                    return (0, Step::Fault(Fault::Status, error.to_string()));
                }
                let used = head.length - before;
                let mut random = Random::new(self.random.next());
                let masks: Masks = Box::new(move || random.next() as u32);
                let open = Connection::client(masks, Limits::default(), None);
                connection.stage = Stage::Open(Box::new(open));
                (used, Step::Ready)
            }
            Err(reject) => (0, Step::Fault(Fault::Protocol, reject.to_string())),
        }
    }

    /// The verdict on a message.
    fn judge(&self, message: &[u8]) -> Answer {
        let expected = self.load.expectation.body.as_deref().unwrap_or(&self.load.message);
        let good = self.load.expectation.any_length || message == expected;
        Answer { fault: (!good).then_some(Fault::Body), ..Answer::GOOD }
    }
}

impl Protocol for WebSocket {
    type Connection = WebSocketConnection;

    fn open(&self) -> WebSocketConnection {
        WebSocketConnection { stage: Stage::New, replies: Vec::new() }
    }

    fn greeting<'a>(&'a mut self, connection: &'a mut WebSocketConnection) -> Option<&'a [u8]> {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.random.next().to_ne_bytes());
        nonce[8..].copy_from_slice(&self.random.next().to_ne_bytes());
        let handshake = ClientHandshake::new(nonce, &[], None);
        self.out.clear();
        self.out.extend_from_slice(&self.load.head);
        for (name, value) in handshake.fields() {
            self.out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
        connection.stage = Stage::Opening(Box::new(handshake), Vec::new());
        Some(&self.out)
    }

    fn requests<'a>(&'a mut self, connection: &'a mut WebSocketConnection, count: usize) -> &'a [u8] {
        self.out.clear();
        if let Stage::Open(open) = &mut connection.stage {
            for _ in 0..count {
                // A connection that has begun to close sends nothing more: its loss is counted when it ends.
                let _ = match std::str::from_utf8(&self.load.message) {
                    Ok(text) if self.text => open.send_text(text, &mut self.out),
                    _ => open.send_binary(&self.load.message, &mut self.out),
                };
            }
        }
        &self.out
    }

    fn receive(&mut self, connection: &mut WebSocketConnection, bytes: &mut [u8]) -> (usize, Step) {
        let Stage::Open(open) = &mut connection.stage else { return self.upgrade(connection, bytes) };
        let all = bytes.len();
        let mut rest = bytes;
        while let Some(event) = open.receive(&mut rest, &mut connection.replies) {
            let step = match event {
                Event::Text(text) => Step::Answer(self.judge(text.as_bytes())),
                Event::Binary(bytes) => Step::Answer(self.judge(&bytes)),
                Event::Ping(_) | Event::Pong(_) => continue,
                Event::Close(_) => Step::Fault(Fault::Read, "the server closed the WebSocket".to_owned()),
                Event::Failed(fault) => Step::Fault(Fault::Protocol, fault.reason().to_owned()),
            };
            return (all - rest.len(), step);
        }
        (all, Step::More)
    }

    fn replies<'a>(&'a mut self, connection: &'a mut WebSocketConnection) -> Option<&'a mut Vec<u8>> {
        (!connection.replies.is_empty()).then_some(&mut connection.replies)
    }

    fn end(&mut self, _: &mut WebSocketConnection) -> Step {
        Step::More
    }

    fn blame(&self, _: &Answer) -> String {
        "the message that came back is not the one that was sent".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_websocket::{Handshake, Server};

    /// A server made of the same crate, to speak with.
    struct Peer(Connection<Server>);

    impl Peer {
        fn echo(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
            let (mut input, mut out) = (&mut bytes[..], Vec::new());
            while let Some(event) = self.0.receive(&mut input, &mut out) {
                match event {
                    Event::Text(text) => self.0.send_text(&text, &mut out).expect("open"),
                    Event::Binary(bytes) => self.0.send_binary(&bytes, &mut out).expect("open"),
                    _ => {}
                }
            }
            out
        }
    }

    fn load(message: &[u8], expectation: Expectation) -> WebSocket {
        let head = b"GET /ws HTTP/1.1\r\nHost: h\r\n".to_vec();
        WebSocket::new(Arc::new(WebSocketLoad { head, message: message.to_vec(), expectation }), 1)
    }

    /// Open a connection: what is sent to begin with, and the answer that accepts it.
    fn opened(client: &mut WebSocket) -> (WebSocketConnection, Peer, String) {
        let mut connection = client.open();
        let request = client.greeting(&mut connection).expect("a greeting").to_vec();
        let text = String::from_utf8(request).expect("ASCII");
        let fields = text.lines().filter_map(|line| line.split_once(": "));
        let handshake = Handshake::from_request(b"GET", fields).expect("good").expect("a WebSocket's");
        let answer = handshake.accept(None, None);
        let mut head = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in answer.fields() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        (connection, Peer(Connection::server(Limits::default(), None)), head + "\r\n")
    }

    #[test]
    fn messages_come_back_however_they_are_cut() {
        for message in [&b"hello"[..], &[0xff; 70_000]] {
            for step in [1, 7, 1_000_000] {
                let mut client = load(message, Expectation::default());
                let (mut connection, mut peer, head) = opened(&mut client);
                let mut steps = Vec::new();
                let mut take =
                    |client: &mut WebSocket, connection: &mut WebSocketConnection, bytes: &[u8]| {
                        for piece in bytes.chunks(step) {
                            let mut piece = piece.to_vec();
                            let mut at = 0;
                            while at < piece.len() {
                                let (used, step) = client.receive(connection, &mut piece[at..]);
                                at += used;
                                steps.push(step);
                            }
                        }
                    };
                take(&mut client, &mut connection, head.as_bytes());
                let sent = client.requests(&mut connection, 2).to_vec();
                take(&mut client, &mut connection, &peer.echo(sent));
                steps.retain(|step| *step != Step::More);
                let good = Step::Answer(Answer::GOOD);
                assert_eq!(steps, [Step::Ready, good.clone(), good], "in steps of {step}");
            }
        }
    }

    #[test]
    fn another_message_is_a_body_fault_and_a_ping_is_answered() {
        let mut client = load(b"hello", Expectation::default());
        let (mut connection, mut peer, head) = opened(&mut client);
        assert_eq!(client.receive(&mut connection, &mut head.clone().into_bytes()).1, Step::Ready);
        let mut bytes = Vec::new();
        peer.0.send_ping(b"p", &mut bytes).expect("open");
        peer.0.send_text("hallo", &mut bytes).expect("open");
        let (used, step) = client.receive(&mut connection, &mut bytes.clone());
        let fault = Some(Fault::Body);
        assert_eq!((used, step), (bytes.len(), Step::Answer(Answer { fault, ..Answer::GOOD })));
        assert!(client.replies(&mut connection).is_some_and(|pong| pong[0] == 0x8a));
    }

    #[test]
    fn a_refusal_and_garbage_are_faults() {
        for (answer, fault) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Fault::Status),
            ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", Fault::Status),
            ("SSH-2.0\r\n\r\n", Fault::Protocol),
        ] {
            let mut client = load(b"hello", Expectation::default());
            let (mut connection, _, _) = opened(&mut client);
            let (_, step) = client.receive(&mut connection, &mut answer.to_owned().into_bytes());
            assert!(matches!(step, Step::Fault(found, _) if found == fault), "{answer}: {step:?}");
        }
        let mut client = load(b"hello", Expectation::default());
        let (mut connection, _, head) = opened(&mut client);
        client.receive(&mut connection, &mut head.into_bytes());
        let (_, step) = client.receive(&mut connection, &mut [0xff; 10]);
        assert!(matches!(step, Step::Fault(Fault::Protocol, _)));
    }
}
