//! A message that comes in more than one piece: put together, checked, and bounded.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::close::Fault;
use crate::connection::Event;
use crate::frame::Opcode;
use crate::utf8::{InvalidUtf8, TextBuffer};

/// A frame may promise more than ever comes: no more than this is allocated on its word alone.
const MAX_CAPACITY_ON_PROMISE: u64 = 64 * 1024;

pub(crate) const NOT_UTF8: Fault = Fault::InvalidPayload("text is no UTF-8");

#[derive(Debug)]
pub(crate) struct Message {
    body: Body,
    pub(crate) compressed: bool,
}

#[derive(Debug)]
enum Body {
    Text(TextBuffer),
    Binary(Vec<u8>),
}

impl Message {
    /// A message that begins with a frame of `opcode` and, as that frame says, `promised` bytes.
    pub(crate) fn new(opcode: Opcode, compressed: bool, promised: u64) -> Self {
        let capacity = promised.min(MAX_CAPACITY_ON_PROMISE) as usize;
        let body = match opcode {
            Opcode::Text => Body::Text(TextBuffer::with_capacity(capacity)),
            _ => Body::Binary(Vec::with_capacity(capacity)),
        };
        Self { body, compressed }
    }

    /// Bytes so far, inflated where they came compressed.
    pub(crate) fn len(&self) -> usize {
        match &self.body {
            Body::Text(text) => text.len(),
            Body::Binary(bytes) => bytes.len(),
        }
    }

    /// Appends bytes, up to `limit` in all. Bad text is found before the limit is, if it comes before it: the verdict
    /// must not depend on how the bytes were cut.
    pub(crate) fn push(&mut self, bytes: &[u8], limit: usize) -> Result<(), Fault> {
        let within = bytes.len().min(limit.saturating_sub(self.len()));
        match &mut self.body {
            Body::Text(text) => text.push(&bytes[..within]).map_err(|InvalidUtf8| NOT_UTF8)?,
            Body::Binary(all) => all.extend_from_slice(&bytes[..within]),
        }
        if within < bytes.len() { Err(Fault::TooBig) } else { Ok(()) }
    }

    pub(crate) fn finish(self) -> Result<Event<'static>, Fault> {
        match self.body {
            Body::Text(text) => match text.finish() {
                Ok(text) => Ok(Event::Text(Cow::Owned(text))),
                Err(InvalidUtf8) => Err(NOT_UTF8),
            },
            Body::Binary(bytes) => Ok(Event::Binary(Cow::Owned(bytes))),
        }
    }
}

#[cfg(test)]
mod tests;
