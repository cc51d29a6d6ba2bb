//! Waiting for events with the interpreter lock given up.
#![allow(unsafe_code, reason = "the events' buffer holds a union with a pointer, which is never one")]

use std::io;
use std::time::Duration;

use headrace_engine::{Events, Poller};
use pyo3::prelude::*;

use crate::parker::Handover;

/// The events' buffer on its way through a section without the lock.
struct Borrowed<'a>(&'a mut Events);

// SAFETY: the section runs on the same thread. What keeps `Events` from being `Send` is the pointer in the
// kernel's `epoll_data` union, which holds tokens here.
unsafe impl Send for Borrowed<'_> {}

/// [`Poller::wait`] while other threads may run Python code, first of all the one that `handover` names.
pub(crate) fn detached(
    py: Python<'_>,
    poller: &Poller,
    events: &mut Events,
    timeout: Option<Duration>,
    handover: Option<&Handover>,
) -> io::Result<()> {
    let events = Borrowed(events);
    py.detach(move || {
        let Borrowed(events) = { events };
        if let Some(handover) = handover {
            handover.run();
        }
        poller.wait(events, timeout)
    })
}
