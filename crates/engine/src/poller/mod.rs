//! The poller's contract; the mechanism (epoll) is one short file beside this one.
//!
//! - Level-triggered: an event is reported by each wait for as long as its condition holds.
//! - A file descriptor is registered at most once. Closing it deregisters it, but events that were already
//!   taken from the kernel stay in the batch: the owner of tokens must recognise one that has gone stale
//!   (a generation in the token does that).
//! - `wait` never returns early for want of precision: a timeout is rounded up, never down, so that a timer
//!   due in 0.3 ms does not spin.

mod epoll;

pub use epoll::{Event, Events, Poller};

/// What the owner of a registration wants to have back with each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// What to be told about. Hang-up and error are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Nothing but hang-up and error.
    pub const NONE: Self = Self(0);
    /// Readable, or the peer will send no more.
    pub const READ: Self = Self(1);
    /// Writable.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const READ_WRITE: Self = Self(3);
    /// The peer has shut down its writing half, told apart from readable data. Wanted where reading is
    /// paused (back-pressure) and a disconnect must still be noticed.
    pub const READ_CLOSED: Self = Self(4);

    /// The union of two interests.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This interest without another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in this one.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is wanted.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a registration has become ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// A read will not block: data, end of stream, or an error to collect.
    pub readable: bool,
    /// A write will not block, or will return the error to collect.
    pub writable: bool,
    /// The peer will send no more (it may still read).
    pub read_closed: bool,
    /// Both directions are over, or the socket has an error.
    pub hangup: bool,
}
