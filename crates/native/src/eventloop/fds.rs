//! Who waits for which descriptor: a table by number, and what the poller has been told of it.

use std::io;
use std::os::fd::RawFd;

use headrace_engine::{Interest, Poller, Readiness, Token};
use pyo3::prelude::*;

use crate::ffi::descriptor;

/// Token of the loop's own waker; no descriptor number is that large.
pub(super) const WAKER: Token = Token(0xFFFF_FFFF);
/// Bits of a token that tell the generation of a descriptor's entry; above the number, below the guest's byte.
const GENERATION_BITS: u32 = 24;

/// What one descriptor is watched for, and for whom.
#[derive(Default)]
pub(super) struct Entry {
    generation: u32,
    registered: Interest0,
    /// Handle of `add_reader`.
    pub(super) reader: Option<Py<PyAny>>,
    /// Handle of `add_writer`.
    pub(super) writer: Option<Py<PyAny>>,
    /// The socket that `sock_*` operations were last done on: a weak reference to it.
    pub(super) socket: Option<Py<PyAny>>,
    /// A stream socket whose last read left nothing behind.
    pub(super) drained: bool,
    pub(super) is_stream: bool,
    /// What `sock_*` operations on it wait for. Reading stays watched between operations.
    pub(super) socket_interest: Interest0,
    /// The futures that those operations wait on: to read, to write.
    pub(super) waiting: [Option<Py<PyAny>>; 2],
    /// A native transport that wants to read, or to write, or both.
    pub(super) transport: Option<Py<PyAny>>,
    transport_interest: Interest0,
}

/// An interest that starts out empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Interest0(pub(super) Interest);

impl Default for Interest0 {
    fn default() -> Self {
        Self(Interest::NONE)
    }
}

impl Entry {
    /// Take it that the poller knows nothing of the descriptor: registering it anew mends a wrong guess.
    pub(super) fn forget_registration(&mut self) {
        self.registered = Interest0(Interest::NONE);
    }

    fn wanted(&self) -> Interest {
        let mut wanted = self.transport_interest.0.with(self.socket_interest.0);
        if self.reader.is_some() {
            wanted = wanted.with(Interest::READ);
        }
        if self.writer.is_some() {
            wanted = wanted.with(Interest::WRITE);
        }
        wanted
    }
}

/// The table.
#[derive(Default)]
pub(super) struct Descriptors {
    entries: Vec<Entry>,
}

/// What an event is for.
pub(super) enum Watcher {
    Transport {
        transport: Py<PyAny>,
        read: bool,
        write: bool,
    },
    Handles {
        reader: Option<Py<PyAny>>,
        writer: Option<Py<PyAny>>,
        /// Futures of `sock_*` operations, to complete.
        waiting: [Option<Py<PyAny>>; 2],
    },
}

impl Descriptors {
    pub(super) fn get(&self, fd: RawFd) -> Option<&Entry> {
        self.entries.get(usize::try_from(fd).ok()?)
    }

    /// The entry of `fd`, made if there is none. `None` for a negative number.
    pub(super) fn entry(&mut self, fd: RawFd) -> Option<&mut Entry> {
        let index = usize::try_from(fd).ok()?;
        if index >= self.entries.len() {
            self.entries.resize_with((index + 1).next_power_of_two().max(64), Entry::default);
        }
        self.entries.get_mut(index)
    }

    /// Somebody else than `sock_*` begins to use `fd`: what those left watched may be of a socket that was
    /// closed since, whose number this is now. Gives back what they held.
    pub(super) fn end_socket_use(&mut self, poller: &Poller, fd: RawFd) -> Option<Py<PyAny>> {
        let entry = self.entry(fd)?;
        let socket = entry.socket.take()?;
        entry.socket_interest = Interest0(Interest::NONE);
        entry.drained = false;
        entry.forget_registration();
        let _ = poller.deregister(descriptor::borrowed(fd));
        Some(socket)
    }

    /// What a native transport wants of its descriptor from now on; with nothing wanted it is let go.
    pub(super) fn set_transport(
        &mut self,
        fd: RawFd,
        transport: Option<Py<PyAny>>,
        interest: Interest,
    ) -> Option<Py<PyAny>> {
        let Some(entry) = self.entry(fd) else { return transport };
        entry.transport_interest = Interest0(interest);
        std::mem::replace(&mut entry.transport, transport)
    }

    /// Tell the poller what is wanted of `fd` now.
    pub(super) fn update(&mut self, poller: &Poller, fd: RawFd) -> io::Result<()> {
        let Some(entry) = self.entry(fd) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let wanted = entry.wanted();
        let known = entry.registered.0;
        if wanted == known {
            return Ok(());
        }
        let borrowed = descriptor::borrowed(fd);
        if wanted.is_empty() {
            entry.registered = Interest0(Interest::NONE);
            // Fails when the descriptor was closed before: then it is not watched any more either.
            let _ = poller.deregister(borrowed);
            return Ok(());
        }
        if known.is_empty() {
            entry.generation = entry.generation.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        }
        let token = Token(u64::from(entry.generation) << 32 | u64::from(fd as u32));
        let mut outcome = if known.is_empty() {
            poller.register(borrowed, token, wanted)
        } else {
            poller.modify(borrowed, token, wanted)
        };
        // The number may have been closed and opened again without our hearing of it.
        if let Err(error) = &outcome {
            if error.kind() == io::ErrorKind::NotFound {
                outcome = poller.register(borrowed, token, wanted);
            } else if error.kind() == io::ErrorKind::AlreadyExists {
                outcome = poller.modify(borrowed, token, wanted);
            }
        }
        entry.registered = Interest0(if outcome.is_ok() { wanted } else { Interest::NONE });
        outcome
    }

    /// Whom an event is for; `None` for one that has gone stale.
    pub(super) fn watcher(
        &mut self,
        py: Python<'_>,
        poller: &Poller,
        token: Token,
        readiness: Readiness,
    ) -> Option<Watcher> {
        let fd = (token.0 & 0xFFFF_FFFF) as usize;
        let entry = self.entries.get_mut(fd)?;
        if u64::from(entry.generation) != token.0 >> 32 || entry.registered.0.is_empty() {
            return None;
        }
        if let Some(transport) = &entry.transport {
            let interest = entry.transport_interest.0;
            return Some(Watcher::Transport {
                transport: transport.clone_ref(py),
                read: readiness.readable && interest.contains(Interest::READ),
                write: readiness.writable && interest.contains(Interest::WRITE),
            });
        }
        let pick = |handle: &Option<Py<PyAny>>, ready: bool| {
            handle.as_ref().filter(|_| ready).map(|h| h.clone_ref(py))
        };
        let reader = pick(&entry.reader, readiness.readable);
        let writer = pick(&entry.writer, readiness.writable);
        let mut waiting = [None, None];
        if !entry.socket_interest.0.is_empty() {
            let before = entry.socket_interest.0;
            if readiness.readable {
                waiting[0] = entry.waiting[0].take();
                entry.drained = false;
                // Nobody waits to read: that the next operation will, was a wrong guess.
                if waiting[0].is_none() {
                    entry.socket_interest = Interest0(before.without(Interest::READ));
                }
            }
            if readiness.writable && before.contains(Interest::WRITE) {
                waiting[1] = entry.waiting[1].take();
                entry.socket_interest = Interest0(entry.socket_interest.0.without(Interest::WRITE));
            }
            if entry.socket_interest.0 != before {
                let _ = self.update(poller, fd as RawFd);
            }
        }
        Some(Watcher::Handles { reader, writer, waiting })
    }

    /// Each watched descriptor, and whether for reading and for writing.
    pub(super) fn watched(&self) -> Vec<(RawFd, bool, bool)> {
        let mut watched = Vec::new();
        for (fd, entry) in self.entries.iter().enumerate() {
            let interest = entry.registered.0;
            if !interest.is_empty() {
                let (read, write) = (interest.contains(Interest::READ), interest.contains(Interest::WRITE));
                watched.push((fd as RawFd, read, write));
            }
        }
        watched
    }

    /// Every object that the table keeps alive.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.entries.iter().flat_map(|e| {
            e.reader.iter().chain(&e.writer).chain(&e.transport).chain(e.waiting.iter().flatten())
        })
    }

    /// Register everything anew, with another poller (in a forked child).
    pub(super) fn move_to(&mut self, poller: &Poller) {
        for fd in 0..self.entries.len() {
            if !self.entries[fd].registered.0.is_empty() {
                self.entries[fd].registered = Interest0(Interest::NONE);
                // A descriptor that cannot be watched any more was closed in the child.
                let _ = self.update(poller, fd as RawFd);
            }
        }
    }
}
