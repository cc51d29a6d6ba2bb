//! The client's side of the opening handshake (RFC 6455 section 4.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, str};

use super::key::{self, Key};
use super::{
    ACCEPT, CONNECTION, EXTENSIONS, KEY, Once, PROTOCOL, THE_VERSION, UPGRADE, VERSION, WEBSOCKET, elements,
    has_element,
};
use crate::compression::{Compression, DeflateOptions};
use crate::extension::{DeflateParams, Extension, parse_extensions};

/// Why an answer does not open a WebSocket. The client closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeError {
    /// Another status than 101.
    Status(u16),
    /// A 101 that breaks RFC 6455 section 4.1, or agrees to what was not offered.
    Invalid(&'static str),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(formatter, "the server answered {status} instead of 101"),
            Self::Invalid(reason) => formatter.write_str(reason),
        }
    }
}

impl core::error::Error for HandshakeError {}

/// A client's request for a WebSocket.
#[derive(Debug, Clone)]
pub struct ClientHandshake {
    key: Key,
    subprotocols: Vec<String>,
    deflate: Option<DeflateOptions>,
    /// The values of `Sec-WebSocket-Protocol` and `Sec-WebSocket-Extensions`.
    subprotocols_field: Option<String>,
    offer: Option<String>,
}

impl ClientHandshake {
    /// `nonce` is to be random for every connection. `subprotocols` are tokens, the best liked first. With `deflate`,
    /// permessage-deflate is offered.
    #[must_use]
    pub fn new(nonce: [u8; 16], subprotocols: &[&str], deflate: Option<DeflateOptions>) -> Self {
        Self {
            key: key::key(nonce),
            subprotocols: subprotocols.iter().map(|subprotocol| String::from(*subprotocol)).collect(),
            deflate,
            subprotocols_field: (!subprotocols.is_empty()).then(|| subprotocols.join(", ")),
            offer: deflate.map(|options| DeflateParams::offer(&options).to_field()),
        }
    }

    /// The fields of the GET request, but for `Host`.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = str::from_utf8(&self.key).expect("base64 is ASCII");
        [(UPGRADE, WEBSOCKET), (CONNECTION, UPGRADE), (KEY, key), (VERSION, THE_VERSION)]
            .into_iter()
            .chain(self.subprotocols_field.as_deref().map(|field| (PROTOCOL, field)))
            .chain(self.offer.as_deref().map(|field| (EXTENSIONS, field)))
    }

    /// Checks the answer's status and fields (names in any case, values without white space around them).
    ///
    /// # Errors
    /// When it does not open a WebSocket.
    pub fn check<N, V>(
        &self,
        status: u16,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<ClientAnswer, HandshakeError>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        if status != 101 {
            return Err(HandshakeError::Status(status));
        }
        let (mut upgrade, mut connection) = (false, false);
        let (mut accept, mut subprotocol) = (Once::default(), Once::default());
        let mut extensions = Vec::new();
        for (name, value) in fields {
            let (name, value) = (name.as_ref(), value.as_ref());
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            if is(UPGRADE) {
                upgrade |= value.eq_ignore_ascii_case(WEBSOCKET.as_bytes());
            } else if is(CONNECTION) {
                connection |= has_element(value, UPGRADE);
            } else if is(ACCEPT) {
                accept.set(value == key::accept(&self.key));
            } else if is(PROTOCOL) {
                for element in elements(value) {
                    subprotocol
                        .set(self.subprotocols.iter().find(|offered| offered.as_bytes() == element).cloned());
                }
            } else if is(EXTENSIONS) {
                let parsed = parse_extensions(value);
                extensions.extend(
                    parsed.map_err(|_| HandshakeError::Invalid("malformed Sec-WebSocket-Extensions"))?,
                );
            }
        }
        if !upgrade || !connection {
            return Err(HandshakeError::Invalid("the answer does not upgrade to a WebSocket"));
        }
        if accept.get() != Some(true) {
            return Err(HandshakeError::Invalid("Sec-WebSocket-Accept does not fit the key"));
        }
        if subprotocol.repeated || matches!(subprotocol.value, Some(None)) {
            return Err(HandshakeError::Invalid("a subprotocol that was not offered"));
        }
        let compression = match (&extensions[..], &self.deflate) {
            ([], _) => None,
            ([Extension::Deflate(Some(params))], Some(options)) => {
                let agreed = params.agree(options);
                Some(agreed.ok_or(HandshakeError::Invalid("permessage-deflate beyond what was offered"))?)
            }
            _ => return Err(HandshakeError::Invalid("an extension that was not offered")),
        };
        Ok(ClientAnswer { subprotocol: subprotocol.value.flatten(), compression })
    }
}

/// What a server agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAnswer {
    subprotocol: Option<String>,
    compression: Option<Compression>,
}

impl ClientAnswer {
    /// The subprotocol that the server chose.
    #[must_use]
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// For [`Connection::client`](crate::Connection::client).
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }
}
