//! The socket of a connection, what waits to be sent on it, and TLS where it is spoken.

use std::io;

use headrace_engine::Interest;
use headrace_engine::socket::{self, Io};
use socket2::Socket;

use crate::tls::Tls;

/// A connected or connecting socket.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    tls: Option<Box<Tls>>,
    /// What the kernel did not take yet, from `written` on. Empty almost always.
    unsent: Vec<u8>,
    written: usize,
    watched: Interest,
}

/// What one `recv` brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing for now.
    Nothing,
    /// The end of the stream.
    End,
    /// So many bytes on the wire; what they hold is in the buffer, and may be nothing yet.
    Bytes(usize),
}

impl Wire {
    /// What a socket is watched for while it connects.
    pub(crate) const CONNECTING: Interest = Interest::WRITE;

    pub(crate) fn new(socket: Socket, tls: Option<Tls>) -> Self {
        Self { socket, tls: tls.map(Box::new), unsent: Vec::new(), written: 0, watched: Self::CONNECTING }
    }

    /// Whether bytes can be exchanged: the TLS handshake, if any, is over.
    pub(crate) fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_ready())
    }

    /// Begin the TLS handshake, if there is one; says how many bytes the kernel took.
    pub(crate) fn greet(&mut self) -> io::Result<usize> {
        match &mut self.tls {
            None => Ok(0),
            Some(tls) => {
                tls.output(&mut self.unsent)?;
                self.flush()
            }
        }
    }

    /// Send `bytes`, with one system call; says how many bytes the kernel took. The rest is kept.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            tls.encrypt(bytes, &mut self.unsent)?;
            return self.flush();
        }
        if self.is_blocked() {
            self.unsent.extend_from_slice(bytes);
            return Ok(0);
        }
        let sent = match socket::send(&self.socket, bytes)? {
            Io::Done(sent) => sent,
            Io::WouldBlock => 0,
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent)
    }

    /// Whether the kernel has not taken all.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Send what waits; says how many bytes the kernel took.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        if !self.is_blocked() {
            return Ok(0);
        }
        let Io::Done(sent) = socket::send(&self.socket, &self.unsent[self.written..])? else { return Ok(0) };
        self.written += sent;
        if self.written == self.unsent.len() {
            self.unsent.clear();
            self.written = 0;
        }
        Ok(sent)
    }

    /// Receive into `buffer`, with one system call. Both buffers are empty and have room; in `records` is then what
    /// TLS had in it.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>, records: &mut Vec<u8>) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else { return received(&self.socket, buffer) };
        let outcome = received(&self.socket, records)?;
        let decrypted = tls.decrypt(records, buffer);
        // What the peer did wrong is answered by an alert, before the connection is given up.
        let answered = tls.output(&mut self.unsent).and_then(|()| self.flush());
        decrypted?;
        answered?;
        Ok(outcome)
    }

    /// What the socket is to be watched for, when that is no longer what it is watched for.
    #[inline]
    pub(crate) fn new_interest(&mut self) -> Option<Interest> {
        let wanted = if self.is_blocked() { Interest::READ_WRITE } else { Interest::READ };
        (wanted != self.watched).then(|| {
            self.watched = wanted;
            wanted
        })
    }
}

fn received(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<Received> {
    Ok(match socket::receive(socket, buffer)? {
        Io::WouldBlock => Received::Nothing,
        Io::Done(0) => Received::End,
        Io::Done(count) => Received::Bytes(count),
    })
}
