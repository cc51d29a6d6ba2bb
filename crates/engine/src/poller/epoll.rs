//! The poller over Linux epoll.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use super::{Interest, Readiness, Token};

/// Watches file descriptors for readiness. See the module's contract.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// The events of one [`Poller::wait`], in a buffer that is kept from one wait to the next.
pub struct Events {
    buffer: Vec<epoll::Event>,
}

/// One event: whose, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The token given at registration.
    pub token: Token,
    /// What it is ready for.
    pub readiness: Readiness,
}

impl Events {
    /// A buffer for at most `capacity` events a wait; the kernel hands out the others at the next one, in turn.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buffer: Vec::with_capacity(capacity.max(1)) }
    }

    /// How many events the last wait gave.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the last wait gave none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The event at `index`, by value: handling one may run code that waits again on another buffer.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Event> {
        self.buffer.get(index).map(Event::from_epoll)
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.buffer.iter().map(Event::from_epoll)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Event {
    fn from_epoll(event: &epoll::Event) -> Self {
        let flags = event.flags;
        let error = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Self {
            token: Token(event.data.u64()),
            readiness: Readiness {
                // An error or hang-up ends waiting in both directions: whoever waits collects it by trying.
                readable: error
                    || flags.intersects(
                        epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::PRI,
                    ),
                writable: error || flags.contains(epoll::EventFlags::OUT),
                read_closed: flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP),
                hangup: error,
            },
        }
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    if interest.contains(Interest::READ) {
        flags |= epoll::EventFlags::IN;
    }
    if interest.contains(Interest::WRITE) {
        flags |= epoll::EventFlags::OUT;
    }
    if interest.contains(Interest::READ_CLOSED) {
        flags |= epoll::EventFlags::RDHUP;
    }
    flags
}

impl Poller {
    /// A new poller, closed on exec.
    ///
    /// # Errors
    /// The system's: out of file descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Start to watch `fd`.
    ///
    /// # Errors
    /// `AlreadyExists` when it is watched already, `PermissionDenied` for a regular file, or the system's.
    pub fn register(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token.0), flags(interest))?)
    }

    /// Change token or interest of a watched `fd`.
    ///
    /// # Errors
    /// `NotFound` when it is not watched, or the system's.
    pub fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token.0), flags(interest))?)
    }

    /// Stop watching `fd`.
    ///
    /// # Errors
    /// `NotFound` when it is not watched, or the system's.
    pub fn deregister(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Wait until something is ready or `timeout` has passed (`None`: for ever; zero: only look).
    ///
    /// # Errors
    /// `Interrupted` when a signal came first; the events are then empty.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.buffer.clear();
        // Without its feature "linux_5_11" rustix calls epoll_pwait, which every kernel and container profile
        // knows, and rounds up to whole milliseconds.
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events.buffer), timeout.as_ref())?;
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Poller {
    /// The poller itself can be watched by another loop: it is readable while it has events.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
