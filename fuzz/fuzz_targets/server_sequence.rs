//! Anything that clients, the application and the clock can do to a server, in any order, over real sockets: a request
//! gets one answer at the most, every exchange ends and is heard of once, whoever waits is woken, and a client that
//! floods is stopped.
#![no_main]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use headrace_engine::{Events, Poller};
use headrace_http1::{
    BodyDecoder, FieldSlots, Limits, RequestContext, RequestHead, ResponseEncoder, parse_response,
};
use headrace_server::{App, BodyRead, Config, ConnectionInfo, ExchangeId, SendError, Server, WriteState};
use libfuzzer_sys::fuzz_target;
use support::{Policy, Reader};

#[path = "../../crates/http1/tests/support/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests, which use more of it")]
mod support;

/// What a client sends in one go.
const SENT: [&[u8]; 16] = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b"Host: a\r\n\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nA: b\r\n\r\n",
    b"123456789",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
];
const STATUS: [u16; 4] = [200, 204, 304, 404];
/// Pieces of body: nothing, copied, sent from where it is, more than a socket holds.
const SIZES: [usize; 6] = [0, 1, 100, 9_000, 70_000, 600_000];
const CLIENTS: usize = 3;
/// Above what sockets and the server's buffers hold together.
const FLOOD: usize = 4 << 20;

#[derive(Arbitrary, Clone, Debug)]
enum Act {
    ReadBody,
    WholeBody,
    Start { status: u8, length: Option<u8>, close: bool },
    Send { size: u8, more: bool },
    Answer { size: u8 },
    Interim,
    Trailers,
    Fail,
    Detach,
    Upgrade,
    Converse { size: u8 },
    HangUp,
    LimitBody(u8),
    RefuseLong,
    EndAfterAnswer,
    Close,
    IsFull,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Send { client: u8, what: u8 },
    Raw { client: u8, bytes: &'a [u8] },
    Flood { client: u8 },
    Take { client: u8, size: u16 },
    ShutDown { client: u8 },
    Leave { client: u8 },
    Turn,
    Wait { tenths: u16 },
    Act { exchange: u8, act: Act },
    Drain,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// What the application does while a request is handed to it.
    at_once: Vec<Act>,
    small_body: bool,
    late: bool,
    gather: bool,
    hold: bool,
    steps: Vec<Step<'a>>,
}

/// What the application knows of a request.
struct Known {
    id: ExchangeId,
    head_request: bool,
    ended: bool,
    told: bool,
    upgraded: bool,
    sent: usize,
    waits_for_body: bool,
    waits_for_room: bool,
}

struct Application {
    known: RefCell<Vec<Known>>,
    at_once: RefCell<Vec<Act>>,
}

impl Application {
    fn with<T>(&self, id: ExchangeId, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.borrow_mut();
        change(known.iter_mut().find(|known| known.id == id).expect("only what was handed over is named"))
    }

    fn sent(&self, id: ExchangeId, outcome: Result<WriteState, SendError>, size: usize, more: bool) {
        self.with(id, |known| match outcome {
            Ok(state) => {
                assert!(!known.ended, "an answer has an end");
                known.sent += size;
                known.waits_for_room |= state == WriteState::Full;
                known.ended = !more;
            }
            Err(_) => {}
        });
    }

    fn act(&self, server: &Server, index: usize, act: &Act) {
        let (id, ended) = {
            let known = self.known.borrow();
            let Some(known) = known.get(index) else { return };
            (known.id, known.ended)
        };
        match *act {
            Act::ReadBody => {
                let read = server.read_body(id, <[u8]>::len);
                if read == BodyRead::Pending {
                    assert!(!ended, "who has answered would wait for ever");
                    self.with(id, |known| known.waits_for_body = true);
                }
            }
            Act::WholeBody => {
                server.whole_body(id, <[u8]>::len);
            }
            Act::Start { status, length, close } => {
                let length = length.map(|size| SIZES[usize::from(size) % SIZES.len()]);
                self.start(server, id, index, STATUS[usize::from(status) % STATUS.len()], length, close);
            }
            Act::Send { size, more } => self.send(server, id, size, more),
            Act::Answer { size } => {
                self.start(server, id, index, 200, None, false);
                self.send(server, id, size, false);
            }
            Act::Interim => {
                let outcome = server.send_interim(id, b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n");
                if outcome.is_ok() {
                    self.sent(id, outcome, 0, true);
                }
            }
            Act::Trailers => {
                let outcome = server.send_trailers(id, b"a: b\r\n");
                self.sent(id, outcome, 0, false);
            }
            Act::Fail => {
                server.fail(id, 500, "Internal Server Error");
            }
            Act::Detach => {
                if server.detach(id).is_some() {
                    assert!(!ended);
                    self.with(id, |known| known.ended = true);
                }
            }
            Act::Upgrade => {
                if server.upgrade(id, b"HTTP/1.1 101 Switching Protocols\r\n\r\n").is_ok() {
                    self.with(id, |known| known.upgraded = true);
                }
            }
            Act::Converse { size } => {
                let size = SIZES[usize::from(size) % SIZES.len()];
                let outcome = server.converse(id, |input, out| {
                    input.clear();
                    out.resize(size, b'u');
                });
                if let Ok(((), WriteState::Full)) = outcome {
                    self.with(id, |known| known.waits_for_room = true);
                }
            }
            Act::HangUp => {
                if self.with(id, |known| known.upgraded) {
                    server.hang_up(id);
                    self.with(id, |known| known.ended = true);
                }
            }
            Act::LimitBody(size) => server.limit_body(id, SIZES[usize::from(size) % SIZES.len()] as u64),
            Act::RefuseLong => {
                server.refuse_long_body(id);
            }
            Act::EndAfterAnswer => server.end_after_answer(id),
            Act::Close => server.close(id),
            Act::IsFull => {
                if server.is_full(id) && !ended {
                    self.with(id, |known| known.waits_for_room = true);
                }
            }
        }
    }

    fn start(
        &self,
        server: &Server,
        id: ExchangeId,
        tag: usize,
        status: u16,
        length: Option<usize>,
        close: bool,
    ) {
        let mut head = Vec::new();
        let mut encoder = ResponseEncoder::begin(&mut head, status, b"").expect("a good status");
        let mut field = |name: &str, value: String| {
            encoder.field(&mut head, name.as_bytes(), value.as_bytes()).expect("a good field");
        };
        field("x-exchange", tag.to_string());
        if let Some(length) = length {
            field("content-length", length.to_string());
        }
        if close {
            field("connection", "close".to_owned());
        }
        let _ = server.start_response(id, encoder, &head);
    }

    fn send(&self, server: &Server, id: ExchangeId, size: u8, more: bool) {
        let size = SIZES[usize::from(size) % SIZES.len()];
        let body = vec![b'b'; size];
        let outcome = server.send_body(id, &body, more, || Box::new(body.clone()));
        self.sent(id, outcome, size, more);
    }
}

impl App for Application {
    fn request(&self, server: &Server, id: ExchangeId, head: &RequestHead<'_, '_>, _from: &ConnectionInfo) {
        let index = {
            let mut known = self.known.borrow_mut();
            assert!(known.iter().all(|other| other.id != id), "handed over twice");
            known.push(Known {
                id,
                head_request: head.method == "HEAD",
                ended: false,
                told: false,
                upgraded: false,
                sent: 0,
                waits_for_body: false,
                waits_for_room: false,
            });
            known.len() - 1
        };
        for _ in 0..2 {
            let act = self.at_once.borrow_mut().pop();
            if let Some(act) = act {
                self.act(server, index, &act);
            }
        }
    }

    fn body_ready(&self, _server: &Server, id: ExchangeId) {
        self.with(id, |known| known.waits_for_body = false);
    }

    fn writable(&self, _server: &Server, id: ExchangeId) {
        self.with(id, |known| known.waits_for_room = false);
    }

    fn disconnected(&self, _server: &Server, id: ExchangeId) {
        self.with(id, |known| {
            assert!(!known.told, "told twice");
            known.told = true;
            known.waits_for_body = false;
            known.waits_for_room = false;
        });
    }
}

struct Client {
    stream: Option<UnixStream>,
    sent: Vec<u8>,
    /// More was sent than is kept in `sent`.
    flooded: bool,
    received: Vec<u8>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) -> usize {
        let Some(stream) = &mut self.stream else { return 0 };
        let length = stream.write(bytes).unwrap_or(0);
        self.sent.extend_from_slice(&bytes[..length]);
        length
    }

    fn take(&mut self, size: usize) {
        let Some(stream) = &mut self.stream else { return };
        let mut room = [0; 16 * 1024];
        let mut left = size;
        while left > 0 {
            let most = left.min(room.len());
            match stream.read(&mut room[..most]) {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    self.received.extend_from_slice(&room[..length]);
                    left -= length;
                }
            }
        }
    }

    /// Hold what was answered against what was asked.
    fn check(&self, known: &[Known]) {
        let mut reader = Reader::new(Policy::Always, Limits::default());
        reader.feed(&self.sent);
        let asked = reader.finish().len();
        let (mut at, mut answers, mut last, mut over) = (0, 0, None, false);
        while at < self.received.len() {
            let bytes = &self.received[at..];
            let read = |head_request, found: &mut dyn FnMut(&headrace_http1::ResponseHead<'_, '_>)| {
                let mut slots = FieldSlots::new();
                let context = RequestContext { head_request };
                let head = parse_response(bytes, &mut slots, &Limits::default(), &context);
                head.expect("only good answers are sent").as_ref().map(found).is_some()
            };
            let mut tag: Option<usize> = None;
            let complete = read(false, &mut |head| {
                let field = head.fields.iter().find(|field| field.name == "x-exchange");
                tag = field.map(|field| std::str::from_utf8(field.value).unwrap().parse().unwrap());
            });
            if !complete {
                return;
            }
            assert!(!over, "nothing comes behind the server's own answer");
            let head_request = tag.is_some_and(|tag| known[tag].head_request);
            let (mut length, mut interim, mut upgrade, mut decoder) = (0, false, false, None);
            read(head_request, &mut |head| {
                (length, interim, upgrade) = (head.length, head.is_interim(), head.status == 101);
                decoder = Some(BodyDecoder::new(head.body));
            });
            at += length;
            if interim {
                continue;
            }
            answers += 1;
            assert!(answers <= asked || self.flooded, "{answers} answers to {asked} requests");
            if upgrade {
                return;
            }
            over = tag.is_none();
            if let Some(tag) = tag {
                assert!(last.is_none_or(|last| last < tag), "answers are in order");
                last = Some(tag);
            }
            let mut decoder = decoder.expect("a complete head was read");
            let mut body = 0;
            while !decoder.is_done() {
                let piece = decoder.decode(&self.received[at..]).expect("a body is framed well");
                body += piece.data.len();
                at += piece.consumed;
                if piece.consumed == 0 {
                    break;
                }
            }
            assert!(tag.is_none_or(|tag| body <= known[tag].sent), "a body of the application's bytes");
            if !decoder.is_done() {
                // Cut off, or until the connection's end.
                assert_eq!(at, self.received.len());
            }
        }
    }
}

struct Run {
    server: Server,
    application: Application,
    poller: Arc<Poller>,
    now: Instant,
}

impl Run {
    fn turn(&mut self) {
        let mut events = Events::with_capacity(16);
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("a poll");
        for event in events.iter() {
            self.server.ready(&self.application, event.token, event.readiness, self.now);
        }
        self.server.expire(&self.application, self.now);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    fn is_open(&self) -> bool {
        self.application.known.borrow().iter().any(|known| self.server.is_open(known.id))
    }
}

fuzz_target!(|input: Input<'_>| {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = format!("headrace-fuzz-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a new name");
    listener.set_nonblocking(true).expect("a socket");
    let poller = Arc::new(Poller::new().expect("a poller"));
    let now = Instant::now();
    let config = Config {
        body: if input.small_body { 20 } else { 1 << 30 },
        body_limit_is_late: input.late,
        gather_pieces: input.gather,
        ..Config::default()
    };
    let server = Server::new(config, Arc::clone(&poller), 0, now);
    server.listen(listener.into()).expect("a poller with room");
    server.hold_answers(input.hold);
    let application = Application { known: RefCell::default(), at_once: RefCell::new(input.at_once) };
    let mut run = Run { server, application, poller, now };
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let stream = UnixStream::connect_addr(&address).expect("a listener with room");
            stream.set_nonblocking(true).expect("a socket");
            Client { stream: Some(stream), sent: Vec::new(), flooded: false, received: Vec::new() }
        })
        .collect();
    run.turn();

    for step in input.steps.iter().take(100) {
        match *step {
            Step::Send { client, what } => {
                clients[usize::from(client) % CLIENTS].send(SENT[usize::from(what) % SENT.len()]);
            }
            Step::Raw { client, bytes } => {
                clients[usize::from(client) % CLIENTS].send(bytes);
            }
            Step::Flood { client } => {
                let only = &mut clients[usize::from(client) % CLIENTS];
                let (open, mut taken) = (run.is_open(), 0);
                while taken < FLOOD {
                    let length = only.send(&[b'x'; 65_536]);
                    taken += length;
                    only.sent.truncate(only.sent.len() - length);
                    run.turn();
                    if length == 0 {
                        break;
                    }
                }
                only.flooded |= taken > 0;
                // Requests that are refused are read to their end for a while; so only where none can be.
                let alone = clients.iter().filter(|client| client.stream.is_some()).count() == 1;
                let known = run.application.known.borrow();
                let unended = known.len() == 1 && !known[0].ended && !known[0].told;
                assert!(taken < FLOOD || !(open && alone && unended), "a client that floods is stopped");
            }
            Step::Take { client, size } => {
                clients[usize::from(client) % CLIENTS].take(usize::from(size) * 16 + 1)
            }
            Step::ShutDown { client } => {
                if let Some(stream) = &clients[usize::from(client) % CLIENTS].stream {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            Step::Leave { client } => clients[usize::from(client) % CLIENTS].stream = None,
            Step::Turn => run.turn(),
            Step::Wait { tenths } => run.wait(Duration::from_millis(u64::from(tenths % 1000) * 100)),
            Step::Act { exchange, ref act } => {
                let count = run.application.known.borrow().len();
                if count > 0 {
                    run.application.act(&run.server, usize::from(exchange) % count, act);
                }
            }
            Step::Drain => run.server.drain(),
        }
    }

    // Time alone ends what is not with the application; the application ends the others.
    for _ in 0..6 {
        run.wait(Duration::from_secs(200));
    }
    let statistics = run.server.statistics();
    assert_eq!(statistics.connections, statistics.in_flight, "a connection that nothing ends");
    let count = run.application.known.borrow().len();
    for index in 0..count {
        run.application.act(&run.server, index, &Act::HangUp);
        run.application.act(&run.server, index, &Act::Fail);
    }
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| client.take(1 << 20));
        run.turn();
    }
    for _ in 0..12 {
        run.wait(Duration::from_secs(200));
        // Behind one exchange that ends there may be the next.
        let count = run.application.known.borrow().len();
        (0..count).for_each(|index| run.application.act(&run.server, index, &Act::Fail));
    }
    clients.iter_mut().for_each(|client| client.stream = None);
    run.turn();
    run.turn();
    assert_eq!(run.server.statistics().connections, 0, "a connection that outlives its client");
    let known = run.application.known.borrow();
    for known in known.iter() {
        assert!(known.ended || known.told, "an exchange that has no end");
        assert!(known.ended || !known.waits_for_body, "who waits for a body is woken");
        assert!(known.ended || !known.waits_for_room, "who waits for room is woken");
    }
    clients.iter().for_each(|client| client.check(&known));
});
