//! The opening handshake (RFC 6455 section 4): what its fields must be, for whoever parses and writes the HTTP.

mod client;
mod key;
mod server;

pub use client::{ClientAnswer, ClientHandshake, HandshakeError};
pub use server::{Handshake, Refusal, ServerAnswer};

const UPGRADE: &str = "Upgrade";
const CONNECTION: &str = "Connection";
const WEBSOCKET: &str = "websocket";
const KEY: &str = "Sec-WebSocket-Key";
const ACCEPT: &str = "Sec-WebSocket-Accept";
const VERSION: &str = "Sec-WebSocket-Version";
const PROTOCOL: &str = "Sec-WebSocket-Protocol";
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";

/// The only version there is (RFC 6455 section 4.1).
const THE_VERSION: &str = "13";

/// The elements of a comma-separated list that are not empty.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

fn has_element(value: &[u8], wanted: &str) -> bool {
    elements(value).any(|element| element.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// A field that may stand there once.
#[derive(Default)]
struct Once<T> {
    value: Option<T>,
    repeated: bool,
}

impl<T> Once<T> {
    fn set(&mut self, value: T) {
        self.repeated |= self.value.replace(value).is_some();
    }

    fn get(self) -> Option<T> {
        self.value.filter(|_| !self.repeated)
    }
}

#[cfg(test)]
mod tests;
