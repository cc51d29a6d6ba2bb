//! Answers that wait for each other, and for how long.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use headrace_engine::{Events, Poller};
use headrace_server::http1::{RequestHead, ResponseEncoder};
use headrace_server::{App, Config, ConnectionInfo, ExchangeId, Server};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

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

/// A server, three clients, and a clock that goes when it is told to.
struct Scene {
    server: Server,
    app: Requests,
    poller: Arc<Poller>,
    clients: [UnixStream; 3],
    now: Instant,
}

impl Scene {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headrace-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a path of our own");
        listener.set_nonblocking(true).expect("a socket");
        let clients = std::array::from_fn(|_| {
            let client = UnixStream::connect(&path).expect("somebody listens");
            client.set_nonblocking(true).expect("a socket");
            client
        });
        std::fs::remove_file(&path).expect("it was made above");
        let poller = Arc::new(Poller::new().expect("a poller"));
        let now = Instant::now();
        let server = Server::new(Config::default(), Arc::clone(&poller), 0, now);
        server.listen(listener.into()).expect("room for a watch");
        let scene = Self { server, app: Requests::default(), poller, clients, now };
        scene.events();
        scene
    }

    fn events(&self) {
        let mut events = Events::with_capacity(8);
        self.poller.wait(&mut events, Some(Duration::from_millis(10))).expect("a wait");
        for event in events.iter() {
            self.server.ready(&self.app, event.token, event.readiness, self.now);
        }
    }

    /// A request of each client, in their order.
    fn requests(&mut self) -> Vec<ExchangeId> {
        for index in 0..self.clients.len() {
            self.clients[index].write_all(REQUEST).expect("room");
            self.events();
        }
        self.app.0.take()
    }

    /// Answer after the application took `work` over it.
    fn answer(&mut self, id: ExchangeId, work: Duration) {
        self.now += work;
        self.server.tell_time(self.now);
        let mut head = Vec::new();
        let encoder = ResponseEncoder::begin(&mut head, 200, b"").expect("a good status");
        self.server.start_response(id, encoder, &head).expect("nothing is answered yet");
        self.server
            .send_body(id, b"hello", false, || Box::new(b"hello".to_vec()))
            .expect("the client is there");
    }

    /// Which clients have something to read. It is taken.
    fn reached(&mut self) -> [bool; 3] {
        let mut buffer = [0; 4096];
        std::array::from_fn(|index| match self.clients[index].read(&mut buffer) {
            Ok(length) => length > 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        })
    }

    fn turn_ends(&self) {
        assert!(self.server.has_work());
        assert_eq!(self.server.next_deadline(), Some(self.now));
        self.server.expire(&self.app, self.now);
        assert!(!self.server.has_work());
    }
}

const QUICK: Duration = Duration::from_micros(20);
const SLOW: Duration = Duration::from_millis(20);

#[test]
fn quick_answers_go_out_together_when_the_turn_ends() {
    let mut scene = Scene::new("together");
    for _ in 0..3 {
        for id in scene.requests() {
            scene.answer(id, QUICK);
        }
        assert_eq!(scene.reached(), [false; 3]);
        scene.turn_ends();
        assert_eq!(scene.reached(), [true; 3]);
    }
}

#[test]
fn no_answer_waits_for_long() {
    let mut scene = Scene::new("long");
    let ids = scene.requests();
    scene.answer(ids[0], QUICK);
    scene.answer(ids[1], Duration::from_millis(1));
    assert_eq!(scene.reached(), [true, true, false]);
    scene.answer(ids[2], QUICK);
    assert_eq!(scene.reached(), [false; 3]);
    scene.turn_ends();
    assert_eq!(scene.reached(), [false, false, true]);
}

#[test]
fn nothing_waits_for_an_application_that_is_slow() {
    let mut scene = Scene::new("slow");
    let ids = scene.requests();
    scene.answer(ids[0], QUICK);
    scene.answer(ids[1], SLOW);
    assert_eq!(scene.reached(), [true, true, false], "with the next answer at the latest");
    scene.answer(ids[2], QUICK);
    assert_eq!(scene.reached(), [false, false, true], "it might be the next to wait");
    let ids = scene.requests();
    scene.answer(ids[0], QUICK);
    assert_eq!(scene.reached(), [true, false, false]);
    scene.now += Duration::from_secs(2);
    scene.answer(ids[1], QUICK);
    scene.answer(ids[2], QUICK);
    assert_eq!(scene.reached(), [false; 3], "it was long ago");
    scene.turn_ends();
    assert_eq!(scene.reached(), [false, true, true]);
}

#[test]
fn what_is_held_goes_out_before_the_end() {
    for (name, end) in [("drain", Server::drain as fn(&Server)), ("abort", Server::abort)] {
        let mut scene = Scene::new(name);
        let ids = scene.requests();
        scene.answer(ids[0], QUICK);
        assert_eq!(scene.reached(), [false; 3]);
        end(&scene.server);
        assert_eq!(scene.reached(), [true, false, false]);
    }
}

#[test]
fn an_answer_that_may_not_wait_takes_the_others_with_it() {
    let mut scene = Scene::new("others");
    let ids = scene.requests();
    scene.answer(ids[0], QUICK);
    scene.server.hold_answers(false);
    scene.answer(ids[1], QUICK);
    assert_eq!(scene.reached(), [true, true, false]);
    assert!(!scene.server.has_work());
}

#[test]
fn another_thread_learns_of_output_that_nobody_sends() {
    let mut scene = Scene::new("stuck");
    let ids = scene.requests();
    let output = scene.server.held_output();
    let (sender, stuck) = mpsc::channel();
    let watcher = thread::spawn({
        let output = Arc::clone(&output);
        move || {
            while output.wait_until_stuck() {
                sender.send(()).expect("the test goes on");
            }
        }
    });
    for (index, id) in ids.into_iter().enumerate() {
        // The second time the watcher has long been asleep.
        thread::sleep(Duration::from_millis(200) * index as u32);
        scene.answer(id, QUICK);
        stuck.recv_timeout(Duration::from_secs(10)).expect("it is noticed");
        scene.server.flush_held(scene.now);
        assert!(scene.reached()[index]);
        thread::sleep(Duration::from_millis(20));
        while stuck.try_recv().is_ok() {}
        thread::sleep(Duration::from_millis(20));
        assert!(stuck.try_recv().is_err(), "nothing is held any more");
    }
    output.end();
    watcher.join().expect("it ends");
}
