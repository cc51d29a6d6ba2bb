//! What else may live on the loop's poller: the server, and whatever comes later.
//!
//! A guest registers its descriptors with the loop's own poller under tokens whose top byte is the guest's
//! number, and is called straight from the loop's run cycle: no Python-level callback stands in between.

use std::sync::Arc;
use std::time::Instant;

use headrace_engine::{Poller, Readiness, Token};
use pyo3::prelude::*;

use crate::parker::Handover;

/// Bits of a token that belong to the guest; the byte above them tells whose token it is (0: the loop's own).
pub(crate) const GUEST_TOKEN_BITS: u32 = 56;

/// Something that shares the loop's poller and thread.
pub(crate) trait Guest {
    /// One of the guest's descriptors is ready. May run Python code; must not raise.
    fn ready(&self, py: Python<'_>, token: Token, readiness: Readiness);

    /// When [`Guest::expire`] wants to be called next; asked before each wait.
    fn next_deadline(&self) -> Option<Instant>;

    /// Whether something was put off that [`Guest::expire`] is to do before the loop waits.
    fn has_work(&self) -> bool;

    /// The deadline has passed. May run Python code; must not raise.
    fn expire(&self, py: Python<'_>, now: Instant);

    /// Whether another thread is to have the interpreter lock; asked before each wait.
    fn hand_over(&self) -> Option<Handover>;
}

/// A guest's place on a loop: what it needs to register descriptors.
#[derive(Clone)]
pub(crate) struct Seat {
    /// The loop's poller.
    pub(crate) poller: Arc<Poller>,
    /// To be or-ed into every token.
    pub(crate) token_base: u64,
}
