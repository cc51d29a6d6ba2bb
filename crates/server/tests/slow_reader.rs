//! What comes while an answer is still on its way to a client that reads slowly.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_engine::{Events, Poller};
use headrace_server::http1::{RequestHead, ResponseEncoder};
use headrace_server::{App, BodyRead, Config, ConnectionInfo, ExchangeId, Server};

/// More than a socket holds, so that the answer is still on its way when the body is read.
const ANSWER: usize = 4 << 20;

#[derive(Default)]
struct Requests(RefCell<Vec<ExchangeId>>);

impl App for Requests {
    fn request(&self, _: &Server, id: ExchangeId, _: &RequestHead<'_, '_>, _: &ConnectionInfo) {
        self.0.borrow_mut().push(id);
    }
    fn body_ready(&self, _: &Server, _: ExchangeId) {}
    fn writable(&self, _: &Server, _: ExchangeId) {}
    fn disconnected(&self, _: &Server, _: ExchangeId) {}
}

/// A server, and a client that has been answered `ANSWER` bytes to its first request and has read none of them.
struct Scene {
    server: Server,
    app: Requests,
    poller: Arc<Poller>,
    client: UnixStream,
    now: Instant,
}

impl Scene {
    fn new(name: &str, request: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("headrace-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a path of our own");
        listener.set_nonblocking(true).expect("a socket");
        let client = UnixStream::connect(&path).expect("somebody listens");
        client.set_read_timeout(Some(Duration::from_millis(10))).expect("a socket");
        std::fs::remove_file(&path).expect("it was made above");
        let poller = Arc::new(Poller::new().expect("a poller"));
        let now = Instant::now();
        let server = Server::new(Config::default(), Arc::clone(&poller), 0, now);
        server.listen(listener.into()).expect("room for a watch");
        let mut scene = Self { server, app: Requests::default(), poller, client, now };
        scene.turn();
        scene.send(request);
        scene.answer(0, &[b'b'; ANSWER]);
        scene
    }

    fn turn(&self) {
        let mut events = Events::with_capacity(8);
        self.poller.wait(&mut events, Some(Duration::from_millis(10))).expect("a wait");
        for event in events.iter() {
            self.server.ready(&self.app, event.token, event.readiness, self.now);
        }
        self.server.expire(&self.app, self.now);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).expect("room");
        self.turn();
    }

    fn requests(&self) -> usize {
        self.app.0.borrow().len()
    }

    fn answer(&self, index: usize, body: &[u8]) {
        let id = self.app.0.borrow()[index];
        let mut head = Vec::new();
        let encoder = ResponseEncoder::begin(&mut head, 200, b"").expect("a good status");
        self.server.start_response(id, encoder, &head).expect("nothing is answered yet");
        self.server.send_body(id, body, false, || Box::new(body.to_vec())).expect("the client is there");
    }

    /// What the client gets until `enough` says so, or the connection ends.
    fn read(&mut self, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut room = [0; 65_536];
        for _ in 0..10_000 {
            self.turn();
            match self.client.read(&mut room) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&room[..length]),
                Err(_) if enough(&answer) => break,
                Err(_) => {}
            }
        }
        answer
    }
}

#[test]
fn a_bad_body_behind_an_answer_is_not_answered_again() {
    let mut scene =
        Scene::new("bad-body", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    scene.client.write_all(b"no chunk\r\n").expect("room");
    let id = scene.app.0.borrow()[0];
    assert_eq!(scene.server.read_body(id, <[u8]>::len), BodyRead::Disconnected);

    let answer = scene.read(|_| false);
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(answer.ends_with(&[b'b'; ANSWER]), "nothing stands behind the answer");
}

#[test]
fn the_next_request_waits_until_the_answer_is_out() {
    let mut scene = Scene::new("next-request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    scene.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(scene.requests(), 1);

    let first = scene.read(|got| got.ends_with(&[b'b'; ANSWER]));
    assert!(first.ends_with(&[b'b'; ANSWER]));
    scene.turn();
    assert_eq!(scene.requests(), 2);
    scene.answer(1, b"second");
    let second = scene.read(|got| got.ends_with(b"second"));
    assert!(second.starts_with(b"HTTP/1.1 200 OK\r\n") && second.ends_with(b"second"));
}
