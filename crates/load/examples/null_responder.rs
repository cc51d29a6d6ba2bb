//! The least that a server can do, to measure the load generator itself against.
//!
//! `null_responder http|echo ADDRESS [DELAY_US [EVERY LONG_US]]`: answers each `recv` that ends a request with
//! the same bytes (http), or with what came (echo), after DELAY_US microseconds; every EVERY-th answer after
//! LONG_US instead. Without delays it answers at once. It prints the address it listens on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use headrace_engine::socket::{self, Io};
use headrace_engine::{Events, Interest, Poller, Token};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:00 GMT\r\nContent-Length: 13\r\n\r\nHello, world!";
const LISTENER: Token = Token(u64::MAX);

struct Connection {
    fd: OwnedFd,
    waiting: Vec<u8>,
}

fn number(argument: Option<String>) -> u64 {
    argument.map_or(0, |text| text.parse().expect("a number"))
}

#[expect(clippy::print_stdout, reason = "the address is this program's output")]
fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let http = match arguments.next().as_deref() {
        Some("http") => true,
        Some("echo") => false,
        _ => panic!("usage: null_responder http|echo ADDRESS [DELAY_US [EVERY LONG_US]]"),
    };
    let address: SocketAddr = arguments.next().and_then(|text| text.parse().ok()).expect("an address");
    let delay = number(arguments.next());
    let (every, long) = (number(arguments.next()), number(arguments.next()));
    let poller = Poller::new()?;
    let listener = socket::listen_tcp(address, 4096, false)?;
    println!("{}", listener.local_addr()?.as_socket().expect("an IP socket"));
    poller.register(&listener, LISTENER, Interest::READ)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut events = Events::with_capacity(512);
    let mut buffer = Vec::with_capacity(256 * 1024);
    let mut answers = 0u64;
    loop {
        // It spins for the last two milliseconds: the delays must be exact, its own CPU time does not matter.
        let timeout = due.peek().map(|Reverse((at, _))| {
            at.saturating_duration_since(Instant::now()).saturating_sub(Duration::from_millis(2))
        });
        match poller.wait(&mut events, timeout) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in events.iter() {
            if event.token == LISTENER {
                while let Some((fd, _)) = socket::accept(&listener)? {
                    socket::set_nodelay(&fd);
                    let index = connections.iter().position(Option::is_none).unwrap_or(connections.len());
                    if index == connections.len() {
                        connections.push(None);
                    }
                    poller.register(&fd, Token(index as u64), Interest::READ)?;
                    connections[index] = Some(Connection { fd, waiting: Vec::new() });
                }
                continue;
            }
            let index = event.token.0 as usize;
            let Some(connection) = connections[index].as_mut() else { continue };
            buffer.clear();
            match socket::receive(&connection.fd, &mut buffer) {
                Ok(Io::WouldBlock) => continue,
                Ok(Io::Done(n)) if n > 0 => {}
                _ => {
                    connections[index] = None;
                    continue;
                }
            }
            if http && !buffer.ends_with(b"\r\n\r\n") {
                continue;
            }
            let answer = if http { ANSWER } else { &buffer };
            answers += 1;
            let micros = if every > 0 && answers.is_multiple_of(every) { long } else { delay };
            if micros == 0 {
                send_all(&connection.fd, answer);
            } else {
                connection.waiting.extend_from_slice(answer);
                due.push(Reverse((Instant::now() + Duration::from_micros(micros), index)));
            }
        }
        while let Some(Reverse((at, index))) = due.peek().copied()
            && at <= Instant::now()
        {
            due.pop();
            if let Some(connection) = connections[index].as_mut() {
                let answer = std::mem::take(&mut connection.waiting);
                send_all(&connection.fd, &answer);
            }
        }
    }
}

/// Send it all; a full socket is waited for, a broken one shows at its next event.
fn send_all(fd: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match socket::send(fd, bytes) {
            Ok(Io::Done(sent)) => bytes = &bytes[sent..],
            Ok(Io::WouldBlock) => std::thread::yield_now(),
            Err(_) => return,
        }
    }
}
