//! A client on blocking sockets that echoes what a server sends: the client role's proof against the Autobahn suite.
//!
//! `cargo run --release -p headrace-websocket --example echo_client ws://HOST:PORT` runs every case of the suite's
//! fuzzing server, and has it write its report.

use std::collections::hash_map::RandomState;
use std::env;
use std::error::Error;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::TcpStream;

use headrace_websocket::{ClientAnswer, ClientHandshake, Connection, DeflateOptions, Event, Limits};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The head of an answer that is longer is not read to its end.
const MAX_HEAD: usize = 16 * 1024;

/// A few of the cases send messages of 16 MiB exactly.
const LIMITS: Limits = Limits { max_message: 32 << 20, max_frame: 32 << 20 };

fn main() -> Outcome<()> {
    let url = env::args().nth(1).ok_or("give the fuzzing server's URL: ws://HOST:PORT")?;
    let host = url.strip_prefix("ws://").ok_or("the URL must begin with ws://")?.trim_end_matches('/');
    let mut count = String::new();
    run(host, "/getCaseCount", |text| count = text.into())?;
    for case in 1..=count.parse::<u32>()? {
        // Some cases end the connection hard by design: the suite's report tells what was right.
        if let Err(error) = run(host, &format!("/runCase?case={case}&agent=client"), |_| {}) {
            writeln!(io::stderr(), "case {case}: {error}")?;
        }
    }
    run(host, "/updateReports?agent=client", |_| {})
}

/// One connection: echoes until the server closes it.
fn run(host: &str, target: &str, mut on_text: impl FnMut(&str)) -> Outcome<()> {
    let mut stream = TcpStream::connect(host)?;
    stream.set_nodelay(true)?;
    let (answer, mut behind) = open(&mut stream, host, target)?;
    let mut connection = Connection::client(|| random() as u32, LIMITS, answer.compression());
    let mut buffer = vec![0; 64 * 1024];
    let mut out = Vec::new();
    let mut input = &mut behind[..];
    loop {
        while let Some(event) = connection.receive(&mut input, &mut out) {
            match event {
                Event::Text(text) => {
                    on_text(&text);
                    connection.send_text(&text, &mut out)?;
                }
                Event::Binary(bytes) => connection.send_binary(&bytes, &mut out)?,
                Event::Ping(_) | Event::Pong(_) | Event::Close(_) => {}
                Event::Failed(_) => {
                    stream.write_all(&out)?;
                    return Ok(());
                }
            }
        }
        stream.write_all(&out)?;
        out.clear();
        // After the closing handshake too: it is the server that ends the TCP connection (RFC 6455 section 7.1.1). The
        // suite's does so with a reset.
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Err(_) if connection.is_closed() => return Ok(()),
            result => result?,
        };
        input = &mut buffer[..length];
    }
}

/// The opening handshake: what was agreed, and the bytes that came behind it.
fn open(stream: &mut TcpStream, host: &str, target: &str) -> Outcome<(ClientAnswer, Vec<u8>)> {
    let nonce = u128::from(random()) << 64 | u128::from(random());
    let deflate = DeflateOptions { threshold: 0, ..DeflateOptions::default() };
    let handshake = ClientHandshake::new(nonce.to_ne_bytes(), &[], Some(deflate));
    let mut request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in handshake.fields() {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    stream.write_all(request.as_bytes())?;

    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let length = stream.read(&mut chunk)?;
        if length == 0 || bytes.len() > MAX_HEAD {
            return Err("no answer's head".into());
        }
        bytes.extend_from_slice(&chunk[..length]);
    };
    let behind = bytes.split_off(end + 4);
    let head = str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status")?.parse()?;
    let fields = lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()));
    Ok((handshake.check(status, fields)?, behind))
}

/// From the standard library's only source of randomness: it keys its hash maps with the system's. Enough for a test
/// on loopback.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
