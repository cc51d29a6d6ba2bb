//! Sans-IO WebSocket for both roles: framing and the closing handshake (RFC 6455), permessage-deflate (RFC 7692),
//! and the fields of the opening handshake.
//!
//! Rules that hold here:
//! 1. Bytes in, events and bytes out: no socket, no clock, no randomness (`no_std` makes them unwritable). A client's
//!    masks come from a source that its caller gives.
//! 2. The caller's buffer is unmasked in place, and a message that lies whole in it is lent, not copied.
//! 3. A peer's fault ends the connection at the first byte that proves it: a bad head before its payload, bad UTF-8
//!    before the end of its message.
//! 4. "Need more bytes" is `None`, never an error. An error carries the close code that answers it.
//!
//! # A server
//!
//! ```
//! use headrace_websocket::{Connection, DeflateOptions, Event, Handshake, Limits};
//!
//! // The fields of the request, from whatever parsed the head.
//! let fields = [
//!     ("Connection", "Upgrade"),
//!     ("Upgrade", "websocket"),
//!     ("Sec-WebSocket-Version", "13"),
//!     ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
//! ];
//! let handshake = Handshake::from_request(b"GET", fields)?.expect("it asks for a WebSocket");
//! let answer = handshake.accept(None, Some(&DeflateOptions::default()));
//! assert!(answer.fields().any(|field| field == ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
//! let mut connection = Connection::server(Limits::default(), answer.compression());
//!
//! // What one `recv` brought: a masked "hi".
//! let mut received = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
//! let mut input = &mut received[..];
//! let mut out = Vec::new();
//! while let Some(event) = connection.receive(&mut input, &mut out) {
//!     match event {
//!         Event::Text(text) => connection.send_text(&text, &mut out)?,
//!         Event::Binary(bytes) => connection.send_binary(&bytes, &mut out)?,
//!         Event::Ping(_) | Event::Pong(_) => {}       // the answer to a ping is in `out` already
//!         Event::Close(_) | Event::Failed(_) => {}    // so is the answer to a close; `is_closed` is true now
//!     }
//! }
//! assert_eq!(out, b"\x81\x02hi");
//! // Write `out`; then, if `connection.is_closed()`, shut the socket down.
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod close;
mod compression;
mod connection;
mod extension;
mod frame;
mod handshake;
mod mask;
mod message;
mod role;
mod utf8;

pub use close::{Close, CloseCode, Fault};
pub use compression::{Compression, DeflateOptions};
pub use connection::{Connection, Event, Limits, SendError};
pub use extension::MalformedExtensions;
pub use handshake::{ClientAnswer, ClientHandshake, Handshake, HandshakeError, Refusal, ServerAnswer};
pub use role::{Client, Role, Server};
