//! Wake-up of a waiting poller, from any thread and from signal handlers' wake-up descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that a poller watches and that any thread can make readable.
#[derive(Debug)]
pub struct Waker {
    eventfd: OwnedFd,
}

impl Waker {
    /// A new waker, not signalled.
    ///
    /// # Errors
    /// The system's: out of file descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Make the descriptor readable. Waking twice before [`Waker::drain`] is one wake-up.
    pub fn wake(&self) {
        // EAGAIN means that the counter is full, which is a wake-up already; nothing else can fail on an open eventfd.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }

    /// Take the wake-up back, before looking at what it was for.
    pub fn drain(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}
