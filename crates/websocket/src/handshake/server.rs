//! The server's side of the opening handshake (RFC 6455 section 4.2).

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, str};

use super::key::{self, Accept, Key};
use super::{
    ACCEPT, CONNECTION, EXTENSIONS, KEY, Once, PROTOCOL, THE_VERSION, UPGRADE, VERSION, WEBSOCKET, elements,
    has_element,
};
use crate::compression::{Compression, DeflateOptions};
use crate::extension::{DeflateParams, Extension, is_token_byte, parse_extensions};

/// Why a request that asks for a WebSocket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 400, and what is wrong.
    BadRequest(&'static str),
    /// 426: a version other than 13. The answer must have the field `Sec-WebSocket-Version: 13`.
    Version,
}

impl Refusal {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Version => 426,
        }
    }

    /// A field that the answer must have.
    #[must_use]
    pub fn field(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::BadRequest(_) => None,
            Self::Version => Some((VERSION, THE_VERSION)),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::BadRequest(reason) => reason,
            Self::Version => "unsupported Sec-WebSocket-Version",
        })
    }
}

impl core::error::Error for Refusal {}

/// A request for a WebSocket that may be accepted.
#[derive(Debug, Clone)]
pub struct Handshake {
    accept: Accept,
    subprotocols: Vec<String>,
    deflate_offers: Vec<DeflateParams>,
}

impl Handshake {
    /// Reads the fields of an HTTP/1.1 request (names in any case, values without white space around them). `None` when
    /// it does not ask for a WebSocket. That the version is 1.1 and that there is one `Host`, the HTTP parser has checked.
    ///
    /// # Errors
    /// When it asks for a WebSocket, but not as RFC 6455 section 4.2.1 has it.
    pub fn from_request<N, V>(
        method: &[u8],
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Option<Self>, Refusal>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let (mut upgrade, mut connection) = (false, false);
        let (mut key, mut version) = (Once::default(), Once::default());
        let mut subprotocols = Vec::new();
        let mut deflate_offers = Vec::new();
        let mut malformed = None;
        for (name, value) in fields {
            let (name, value) = (name.as_ref(), value.as_ref());
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            if is(UPGRADE) {
                upgrade |= has_element(value, WEBSOCKET);
            } else if is(CONNECTION) {
                connection |= has_element(value, UPGRADE);
            } else if is(KEY) {
                key.set(key::parse_key(value));
            } else if is(VERSION) {
                version.set(value == THE_VERSION.as_bytes());
            } else if is(PROTOCOL) {
                for subprotocol in elements(value) {
                    match str::from_utf8(subprotocol) {
                        Ok(text) if subprotocol.iter().all(|byte| is_token_byte(*byte)) => {
                            subprotocols.push(text.into())
                        }
                        _ => malformed = Some(Refusal::BadRequest("malformed Sec-WebSocket-Protocol")),
                    }
                }
            } else if is(EXTENSIONS) {
                match parse_extensions(value) {
                    Ok(extensions) => {
                        deflate_offers.extend(extensions.into_iter().filter_map(
                            |extension| match extension {
                                Extension::Deflate(params) => params,
                                Extension::Other => None,
                            },
                        ))
                    }
                    Err(_) => malformed = Some(Refusal::BadRequest("malformed Sec-WebSocket-Extensions")),
                }
            }
        }
        if !upgrade {
            return Ok(None);
        }
        if method != b"GET" {
            return Err(Refusal::BadRequest("a WebSocket is asked for by GET"));
        }
        if !connection {
            return Err(Refusal::BadRequest("Connection does not list Upgrade"));
        }
        match version.get() {
            Some(true) => {}
            Some(false) => return Err(Refusal::Version),
            None => return Err(Refusal::BadRequest("missing or repeated Sec-WebSocket-Version")),
        }
        let key: Key = match key.get() {
            Some(Some(key)) => key,
            Some(None) => return Err(Refusal::BadRequest("malformed Sec-WebSocket-Key")),
            None => return Err(Refusal::BadRequest("missing or repeated Sec-WebSocket-Key")),
        };
        match malformed {
            Some(refusal) => Err(refusal),
            None => Ok(Some(Self { accept: key::accept(&key), subprotocols, deflate_offers })),
        }
    }

    /// The subprotocols that the client would speak, the one it likes best first.
    pub fn subprotocols(&self) -> impl ExactSizeIterator<Item = &str> {
        self.subprotocols.iter().map(String::as_str)
    }

    /// Accepts. `subprotocol` should be one that the client named. With `deflate`, the client's first offer of
    /// permessage-deflate that can be met is; without, none.
    #[must_use]
    pub fn accept(&self, subprotocol: Option<&str>, deflate: Option<&DeflateOptions>) -> ServerAnswer {
        let agreed =
            deflate.and_then(|options| self.deflate_offers.iter().find_map(|offer| offer.answer(options)));
        ServerAnswer {
            accept: self.accept,
            subprotocol: subprotocol.map(String::from),
            extensions: agreed.map(|(params, _)| params.to_field()),
            compression: agreed.map(|(_, compression)| compression),
        }
    }
}

/// What goes into the 101 answer, and what was agreed by it.
#[derive(Debug, Clone)]
pub struct ServerAnswer {
    accept: Accept,
    subprotocol: Option<String>,
    extensions: Option<String>,
    compression: Option<Compression>,
}

impl ServerAnswer {
    /// The fields of the 101 answer.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let accept = str::from_utf8(&self.accept).expect("base64 is ASCII");
        [(UPGRADE, WEBSOCKET), (CONNECTION, UPGRADE), (ACCEPT, accept)]
            .into_iter()
            .chain(self.subprotocol.as_deref().map(|subprotocol| (PROTOCOL, subprotocol)))
            .chain(self.extensions.as_deref().map(|extensions| (EXTENSIONS, extensions)))
    }

    /// For [`Connection::server`](crate::Connection::server).
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }
}
