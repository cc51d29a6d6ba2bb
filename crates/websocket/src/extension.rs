//! `Sec-WebSocket-Extensions` and the negotiation of permessage-deflate (RFC 6455 section 9.1, RFC 7692 section 7.1).
//!
//! ```text
//! list       = extension *( "," extension )        elements may be empty
//! extension  = token *( ";" param )
//! param      = token [ "=" ( token | quoted-string ) ]
//! ```

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::compression::{Compression, DeflateOptions, MIN_OWN_WINDOW_BITS};

const NAME: &str = "permessage-deflate";
const SERVER_NO_CONTEXT_TAKEOVER: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT_TAKEOVER: &str = "client_no_context_takeover";
const SERVER_MAX_WINDOW_BITS: &str = "server_max_window_bits";
const CLIENT_MAX_WINDOW_BITS: &str = "client_max_window_bits";

/// A `Sec-WebSocket-Extensions` field that does not fit its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedExtensions;

impl fmt::Display for MalformedExtensions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("malformed Sec-WebSocket-Extensions")
    }
}

impl core::error::Error for MalformedExtensions {}

/// The parameters of one permessage-deflate, as an offer or as an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeflateParams {
    pub(crate) server_no_context_takeover: bool,
    pub(crate) client_no_context_takeover: bool,
    pub(crate) server_max_window_bits: Option<u8>,
    /// `Some(None)`: named without a value, which only an offer may.
    pub(crate) client_max_window_bits: Option<Option<u8>>,
}

/// One element of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// Parameters in error or unknown are `None`: such an offer must be declined, such an answer refused (RFC 7692
    /// section 7).
    Deflate(Option<DeflateParams>),
    Other,
}

impl DeflateParams {
    /// One more parameter; `None` if it is unknown, out of range or there already.
    fn with(mut self, name: &str, value: Option<&str>) -> Option<Self> {
        let fresh = match name {
            SERVER_NO_CONTEXT_TAKEOVER if value.is_none() => {
                !core::mem::replace(&mut self.server_no_context_takeover, true)
            }
            CLIENT_NO_CONTEXT_TAKEOVER if value.is_none() => {
                !core::mem::replace(&mut self.client_no_context_takeover, true)
            }
            SERVER_MAX_WINDOW_BITS => self.server_max_window_bits.replace(window_bits(value?)?).is_none(),
            CLIENT_MAX_WINDOW_BITS => {
                let bits = match value {
                    Some(value) => Some(window_bits(value)?),
                    None => None,
                };
                self.client_max_window_bits.replace(bits).is_none()
            }
            _ => false,
        };
        fresh.then_some(self)
    }

    /// What a server answers to this offer, and what it agrees to by that; `None` if it has to decline.
    pub(crate) fn answer(&self, options: &DeflateOptions) -> Option<(Self, Compression)> {
        let options = options.clamped();
        let own_window_bits = self.server_max_window_bits.unwrap_or(15).min(options.own_window_bits);
        if own_window_bits < MIN_OWN_WINDOW_BITS {
            return None;
        }
        // Only a client that names client_max_window_bits can be told to keep to less than 15.
        let peer_window_bits =
            self.client_max_window_bits.map(|bits| bits.unwrap_or(15).min(options.peer_window_bits));
        let answer = Self {
            server_no_context_takeover: self.server_no_context_takeover || options.own_no_context_takeover,
            client_no_context_takeover: self.client_no_context_takeover || options.peer_no_context_takeover,
            server_max_window_bits: (own_window_bits < 15 || self.server_max_window_bits.is_some())
                .then_some(own_window_bits),
            client_max_window_bits: peer_window_bits.filter(|bits| *bits < 15).map(Some),
        };
        let compression = Compression {
            level: options.level,
            threshold: options.threshold,
            own_window_bits,
            peer_window_bits: peer_window_bits.unwrap_or(15),
            own_no_context_takeover: answer.server_no_context_takeover,
            peer_no_context_takeover: answer.client_no_context_takeover,
        };
        Some((answer, compression))
    }

    /// What a client offers.
    pub(crate) fn offer(options: &DeflateOptions) -> Self {
        let options = options.clamped();
        Self {
            server_no_context_takeover: options.peer_no_context_takeover,
            client_no_context_takeover: options.own_no_context_takeover,
            server_max_window_bits: Some(options.peer_window_bits).filter(|bits| *bits < 15),
            client_max_window_bits: Some(Some(options.own_window_bits).filter(|bits| *bits < 15)),
        }
    }

    /// What a client agrees to when its offer, which named all that it can, is answered with these; `None` if they go
    /// beyond the offer.
    pub(crate) fn agree(&self, options: &DeflateOptions) -> Option<Compression> {
        let options = options.clamped();
        let peer_window_bits = self.server_max_window_bits.unwrap_or(15);
        if peer_window_bits > options.peer_window_bits
            || (options.peer_no_context_takeover && !self.server_no_context_takeover)
        {
            return None;
        }
        let own_window_bits = match self.client_max_window_bits {
            Some(Some(bits)) => bits.min(options.own_window_bits),
            Some(None) => return None,
            None => options.own_window_bits,
        };
        Some(Compression {
            level: options.level,
            threshold: options.threshold,
            own_window_bits,
            peer_window_bits,
            own_no_context_takeover: self.client_no_context_takeover || options.own_no_context_takeover,
            peer_no_context_takeover: self.server_no_context_takeover,
        })
    }

    pub(crate) fn to_field(self) -> String {
        let mut field = String::from(NAME);
        for (present, name) in [
            (self.server_no_context_takeover, SERVER_NO_CONTEXT_TAKEOVER),
            (self.client_no_context_takeover, CLIENT_NO_CONTEXT_TAKEOVER),
        ] {
            if present {
                field.push_str("; ");
                field.push_str(name);
            }
        }
        for (bits, name) in [
            (self.server_max_window_bits.map(Some), SERVER_MAX_WINDOW_BITS),
            (self.client_max_window_bits, CLIENT_MAX_WINDOW_BITS),
        ] {
            if let Some(bits) = bits {
                field.push_str("; ");
                field.push_str(name);
                if let Some(bits) = bits {
                    write!(field, "={bits}").expect("writing to a String cannot fail");
                }
            }
        }
        field
    }
}

/// 8 to 15, without leading zeros (RFC 7692 section 7.1.2).
fn window_bits(value: &str) -> Option<u8> {
    match value.as_bytes() {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// Reads one field's value.
pub(crate) fn parse_extensions(value: &[u8]) -> Result<Vec<Extension>, MalformedExtensions> {
    let mut scanner = Scanner { rest: value };
    let mut extensions = Vec::new();
    loop {
        scanner.skip_spaces();
        match scanner.rest.first() {
            None => return Ok(extensions),
            Some(b',') => scanner.rest = &scanner.rest[1..],
            Some(_) => {
                extensions.push(scanner.extension()?);
                if !scanner.rest.is_empty() && !scanner.take(b',') {
                    return Err(MalformedExtensions);
                }
            }
        }
    }
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn token(&mut self) -> Result<&'a str, MalformedExtensions> {
        let end = self.rest.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        if token.is_empty() {
            return Err(MalformedExtensions);
        }
        core::str::from_utf8(token).map_err(|_| MalformedExtensions)
    }

    /// A token, or a quoted string that is one when its quotes are taken off (RFC 6455 section 9.1).
    fn value(&mut self) -> Result<Cow<'a, str>, MalformedExtensions> {
        if !self.take(b'"') {
            return self.token().map(Cow::Borrowed);
        }
        let mut value = String::new();
        loop {
            let (mut byte, rest) = self.rest.split_first().ok_or(MalformedExtensions)?;
            self.rest = rest;
            match byte {
                b'"' if value.is_empty() => return Err(MalformedExtensions),
                b'"' => return Ok(Cow::Owned(value)),
                b'\\' => {
                    (byte, self.rest) = self.rest.split_first().ok_or(MalformedExtensions)?;
                }
                _ => {}
            }
            if !is_token_byte(*byte) {
                return Err(MalformedExtensions);
            }
            value.push(char::from(*byte));
        }
    }

    fn extension(&mut self) -> Result<Extension, MalformedExtensions> {
        let is_deflate = self.token()?.eq_ignore_ascii_case(NAME);
        let mut params = Some(DeflateParams::default());
        loop {
            self.skip_spaces();
            if !self.take(b';') {
                return Ok(if is_deflate { Extension::Deflate(params) } else { Extension::Other });
            }
            self.skip_spaces();
            let name = self.token()?;
            self.skip_spaces();
            let value = if self.take(b'=') {
                self.skip_spaces();
                Some(self.value()?)
            } else {
                None
            };
            params = params.and_then(|params| params.with(name, value.as_deref()));
        }
    }
}

/// RFC 9110 section 5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
