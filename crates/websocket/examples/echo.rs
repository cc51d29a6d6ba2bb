//! An echo server on blocking sockets, a thread for each connection: the crate's proof against the Autobahn suite.
//!
//! `cargo run --release -p headrace-websocket --example echo [ADDRESS]` serves until it is stopped; with port 0, the
//! line that it prints names the port that was free.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::{env, thread};

use headrace_websocket::{Connection, DeflateOptions, Event, Handshake, Limits, ServerAnswer};

/// The head of a request that is longer is not read to its end.
const MAX_HEAD: usize = 16 * 1024;

/// A few of the Autobahn cases send messages of 16 MiB exactly.
const LIMITS: Limits = Limits { max_message: 32 << 20, max_frame: 32 << 20 };

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".into());
    let listener = TcpListener::bind(address)?;
    writeln!(io::stdout(), "ws://{}", listener.local_addr()?)?;
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                // The reader may be gone, as the peer is.
                let _ = writeln!(io::stderr(), "{error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> Result<(), Box<dyn Error>> {
    stream.set_nodelay(true)?;
    let (head, mut behind) = read_head(&mut stream)?;
    let (answer, mut out) = answer(&head)?;
    let mut connection = Connection::server(LIMITS, answer.compression());
    let mut buffer = vec![0; 64 * 1024];
    echo(&mut connection, &mut behind, &mut out)?;
    loop {
        stream.write_all(&out)?;
        out.clear();
        if connection.is_closed() {
            stream.shutdown(Shutdown::Write)?;
            // What the peer still sends is read, so that the kernel does not answer it with a reset that would take
            // the close frame with it.
            io::copy(&mut stream, &mut io::sink())?;
            return Ok(());
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        echo(&mut connection, &mut buffer[..length], &mut out)?;
    }
}

fn echo(
    connection: &mut Connection<headrace_websocket::Server>,
    mut input: &mut [u8],
    out: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    while let Some(event) = connection.receive(&mut input, out) {
        match event {
            Event::Text(text) => connection.send_text(&text, out)?,
            Event::Binary(bytes) => connection.send_binary(&bytes, out)?,
            Event::Ping(_) | Event::Pong(_) | Event::Close(_) | Event::Failed(_) => {}
        }
    }
    Ok(())
}

/// The head's text, and the bytes that came behind it.
fn read_head(stream: &mut TcpStream) -> Result<(String, Vec<u8>), Box<dyn Error>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while bytes.len() < MAX_HEAD {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        bytes.extend_from_slice(&chunk[..length]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let behind = bytes.split_off(end + 4);
            bytes.truncate(end);
            return Ok((String::from_utf8(bytes)?, behind));
        }
    }
    Err("no request's head".into())
}

/// What was agreed, and the head of the answer.
fn answer(head: &str) -> Result<(ServerAnswer, Vec<u8>), Box<dyn Error>> {
    let (request, fields) = head.split_once("\r\n").ok_or("a request without fields")?;
    let method = request.split(' ').next().unwrap_or_default();
    let fields = fields
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()));
    let handshake = Handshake::from_request(method.as_bytes(), fields)?.ok_or("it asks for no WebSocket")?;
    let answer = handshake.accept(None, Some(&DeflateOptions { threshold: 0, ..DeflateOptions::default() }));
    let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    for (name, value) in answer.fields() {
        write!(head, "{name}: {value}\r\n")?;
    }
    head.extend_from_slice(b"\r\n");
    Ok((answer, head))
}
