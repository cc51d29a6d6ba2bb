//! What waits to be written to one connection.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use headrace_engine::socket::{self, Io};

use crate::file::{FileSpan, TURN};

/// Bytes that somebody else owns and that stay as they are for as long as this lives.
pub trait Payload {
    /// The bytes; the same at each call.
    fn bytes(&self) -> &[u8];
}

impl Payload for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Something that waits behind the buffer.
pub(crate) enum Piece {
    Bytes(Box<dyn Payload>),
    File(FileSpan),
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(payload) => payload.bytes().len(),
            Self::File(file) => usize::try_from(file.length()).unwrap_or(usize::MAX),
        }
    }
}

/// Parts of one `sendmsg`; the kernel takes up to 1024, few are needed to fill a socket.
const MAX_PARTS: usize = 16;

/// A connection's unsent bytes: a buffer for heads and small bodies, behind it whole payloads.
#[derive(Default)]
pub(crate) struct Output {
    /// Goes out first.
    buffer: Vec<u8>,
    /// So many bytes of `buffer`, or of the first payload once the buffer is out, are sent.
    sent: usize,
    /// From here on, `buffer` is a head that is held back until it is complete.
    held: Option<usize>,
    /// Go out after the buffer, in order.
    payloads: VecDeque<Piece>,
    /// Bytes of all payloads.
    payload_bytes: usize,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("pending", &self.pending())
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// Bytes that can be sent now.
    pub(crate) fn pending(&self) -> usize {
        self.held.unwrap_or(self.buffer.len()) + self.payload_bytes - self.sent
    }

    /// Bytes that wait here, held ones included.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.len() + self.payload_bytes == self.sent
    }

    /// Give the buffer room that is used again, when it has none.
    pub(crate) fn lend(&mut self, spare: &mut Vec<Vec<u8>>) {
        if self.buffer.capacity() == 0
            && let Some(buffer) = spare.pop()
        {
            self.buffer = buffer;
        }
    }

    /// Take the room back, once all is sent.
    pub(crate) fn reclaim(&mut self, spare: &mut Vec<Vec<u8>>) {
        if self.is_empty() && self.buffer.capacity() > 0 {
            let mut buffer = std::mem::take(&mut self.buffer);
            self.sent = 0;
            self.held = None;
            if spare.len() < MAX_SPARE && buffer.capacity() <= MAX_SPARE_CAPACITY {
                buffer.clear();
                spare.push(buffer);
            }
        }
    }

    /// Add a head that is not complete yet; nothing of it is sent before [`Output::release`].
    pub(crate) fn hold(&mut self, head: &[u8]) {
        debug_assert!(self.payloads.is_empty(), "an answer begins only when the one before it is out");
        self.held = Some(self.buffer.len());
        self.buffer.extend_from_slice(head);
    }

    /// Add what goes out ahead of the held head, if there is one.
    pub(crate) fn insert_before_held(&mut self, bytes: &[u8]) {
        match &mut self.held {
            Some(held) => {
                self.buffer.splice(*held..*held, bytes.iter().copied());
                *held += bytes.len();
            }
            None => self.append(bytes),
        }
    }

    /// The held head is complete once `finish` has written to it.
    pub(crate) fn release<T>(&mut self, finish: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.held = None;
        finish(&mut self.buffer)
    }

    /// Drop the held head.
    pub(crate) fn withdraw(&mut self) {
        if let Some(held) = self.held.take() {
            self.buffer.truncate(held);
        }
    }

    /// Room for framing and small bodies, in order behind what is there already.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.payloads.is_empty() {
            self.buffer.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            self.push(Piece::Bytes(Box::new(bytes.to_vec())));
        }
    }

    /// Write with the buffer, when nothing is queued behind it.
    pub(crate) fn append_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.payloads.is_empty() {
            write(&mut self.buffer);
        } else {
            let mut bytes = Vec::new();
            write(&mut bytes);
            self.push(Piece::Bytes(Box::new(bytes)));
        }
    }

    /// Queue a payload behind everything else. One without bytes would never be done with.
    pub(crate) fn push(&mut self, payload: Piece) {
        let length = payload.length();
        debug_assert!(length > 0, "an empty payload");
        self.payload_bytes = self.payload_bytes.saturating_add(length);
        self.payloads.push_back(payload);
    }

    /// Queue a payload of which the first `sent` bytes are out; everything before it is, too, unless that is none.
    pub(crate) fn push_from(&mut self, payload: Box<dyn Payload>, sent: usize) {
        debug_assert!(self.payloads.is_empty() && (sent == 0 || self.buffer.is_empty()));
        self.push(Piece::Bytes(payload));
        self.advance(sent);
    }

    /// Whether something is queued behind the buffer.
    pub(crate) fn has_payloads(&self) -> bool {
        !self.payloads.is_empty()
    }

    /// Send what is pending with, behind it, `body`, in one system call. Returns how much of `body` went.
    pub(crate) fn send_with(&mut self, fd: impl AsFd, body: &[u8]) -> io::Result<usize> {
        debug_assert!(self.payloads.is_empty() && self.held.is_none());
        let parts = [IoSlice::new(&self.buffer[self.sent..]), IoSlice::new(body)];
        match socket::send_vectored(fd, &parts)? {
            Io::WouldBlock => Ok(0),
            Io::Done(sent) => {
                let from_buffer = sent.min(self.buffer.len() - self.sent);
                self.advance(from_buffer);
                Ok(sent - from_buffer)
            }
        }
    }

    /// Send what the kernel takes, of files one turn's bytes. Returns whether nothing is pending any more.
    pub(crate) fn flush(&mut self, fd: impl AsFd) -> io::Result<bool> {
        let fd = fd.as_fd();
        let mut from_files = 0;
        loop {
            let pending = self.pending();
            if pending == 0 {
                return Ok(true);
            }
            let outcome = if self.payloads.is_empty() {
                let end = self.held.unwrap_or(self.buffer.len());
                socket::send(fd, &self.buffer[self.sent..end])?
            } else if let Some(Piece::File(file)) = self.payloads.front()
                && self.sent >= self.buffer.len()
            {
                if from_files >= TURN {
                    return Ok(false);
                }
                let outcome = file.send(fd, self.sent - self.buffer.len())?;
                if let Io::Done(sent) = outcome {
                    from_files += sent;
                }
                outcome
            } else {
                self.send_pieces(fd)?
            };
            match outcome {
                Io::WouldBlock => return Ok(false),
                Io::Done(sent) => self.advance(sent),
            }
        }
    }

    /// Send what is in memory before the next file, of which the packets are left open for what it begins with.
    fn send_pieces(&self, fd: BorrowedFd<'_>) -> io::Result<Io> {
        let mut parts: [IoSlice<'_>; MAX_PARTS] = std::array::from_fn(|_| IoSlice::new(&[]));
        let buffered = self.sent < self.buffer.len();
        let mut skip = if buffered { 0 } else { self.sent - self.buffer.len() };
        let mut count = 0;
        if buffered {
            parts[0] = IoSlice::new(&self.buffer[self.sent..]);
            count = 1;
        }
        for payload in &self.payloads {
            match payload {
                Piece::File(_) => return socket::send_vectored_before_more(fd, &parts[..count]),
                Piece::Bytes(_) if count == MAX_PARTS => break,
                Piece::Bytes(payload) => parts[count] = IoSlice::new(&payload.bytes()[skip..]),
            }
            skip = 0;
            count += 1;
        }
        socket::send_vectored(fd, &parts[..count])
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.payloads.front() {
            let length = first.length();
            if self.sent < self.buffer.len() + length {
                break;
            }
            self.sent -= length;
            self.payload_bytes -= length;
            self.payloads.pop_front();
        }
        if self.payloads.is_empty() && self.held.is_none() && self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
    }
}

/// Buffers kept for the next answer, and the largest that is worth keeping.
const MAX_SPARE: usize = 64;
const MAX_SPARE_CAPACITY: usize = 64 * 1024;

#[cfg(test)]
mod tests;
