//! Reads of a body that come when its request is answered.

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

#[test]
fn a_bad_body_behind_an_answer_is_not_answered_again() {
    let path = std::env::temp_dir().join(format!("headrace-late-reads-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a path of our own");
    listener.set_nonblocking(true).expect("a socket");
    let mut client = UnixStream::connect(&path).expect("somebody listens");
    std::fs::remove_file(&path).expect("it was made above");
    let poller = Arc::new(Poller::new().expect("a poller"));
    let now = Instant::now();
    let server = Server::new(Config::default(), Arc::clone(&poller), 0, now);
    server.listen(listener.into()).expect("room for a watch");
    let app = Requests::default();
    let turn = || {
        let mut events = Events::with_capacity(8);
        poller.wait(&mut events, Some(Duration::from_millis(10))).expect("a wait");
        for event in events.iter() {
            server.ready(&app, event.token, event.readiness, now);
        }
    };

    turn();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("room");
    turn();
    let id = app.0.borrow()[0];
    let mut head = Vec::new();
    let encoder = ResponseEncoder::begin(&mut head, 200, b"").expect("a good status");
    server.start_response(id, encoder, &head).expect("nothing is answered yet");
    let body = vec![b'b'; ANSWER];
    server.send_body(id, &body, false, || Box::new(body.clone())).expect("the client is there");
    client.write_all(b"no chunk\r\n").expect("room");
    assert_eq!(server.read_body(id, <[u8]>::len), BodyRead::Disconnected);

    let mut answer = Vec::new();
    let mut room = [0; 65_536];
    client.set_read_timeout(Some(Duration::from_millis(10))).expect("a socket");
    for _ in 0..10_000 {
        turn();
        match client.read(&mut room) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&room[..length]),
            Err(_) => {}
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(answer.ends_with(&body), "nothing stands behind the answer");
}
