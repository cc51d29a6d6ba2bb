//! Reactor: tokens in, readiness and timeouts out; sockets, timers and wake-up.
//!
//! Three rules hold here:
//! 1. No protocol and no Python: callers hand in a [`Token`] and get it back with a [`Readiness`].
//! 2. Readiness is level-triggered. A short read or write proves that the socket is drained or full, so no
//!    caller needs a second call that ends in `EAGAIN`.
//! 3. Nothing here blocks but [`Poller::wait`].

#![forbid(unsafe_code)]

mod deadline;
mod poller;
pub mod socket;
mod waker;

pub use deadline::DeadlineQueue;
pub use poller::{Event, Events, Interest, Poller, Readiness, Token};
pub use waker::Waker;
