//! The run cycle: wait, hand out events, fire timers, run what is ready.
//!
//! A turn runs the callbacks that were ready when its last step began; what they schedule runs in the next
//! turn, as in asyncio. What I/O made ready runs in the same turn. While callbacks keep making others ready,
//! the poller is not asked in every turn but after [`POLL_AFTER`] or [`POLL_AFTER_TURNS`].

use std::time::{Duration, Instant};

use headrace_engine::{Events, Token};
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use super::core::LoopCore;
use super::errors::{ends_the_run, os_error};
use super::fds::{WAKER, Watcher};
use super::futures;
use super::transport;
use crate::ffi::{handle, wait, while_running};
use crate::guest::GUEST_TOKEN_BITS;
use crate::parker::Handover;

/// While callbacks are ready, the poller is asked no later than after this time …
const POLL_AFTER: f64 = 50e-6;
/// … or after so many turns: a system call of 0.3 µs for each 32 turns of at least 0.1 µs.
const POLL_AFTER_TURNS: u32 = 32;
/// asyncio's `MAXIMUM_SELECT_TIMEOUT`: a day.
const LONGEST_WAIT: f64 = 24.0 * 3600.0;
/// asyncio's clock resolution: a timer due within it is due.
const RESOLUTION: f64 = 1e-9;

/// `time.monotonic()`, the loop's clock, in seconds.
pub(super) fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// How many bytes streams are fed before their readers run: half of a small second-level cache.
const FED_AT_MOST: usize = 128 * 1024;

/// When the poller was asked last.
struct LastPoll {
    at: f64,
    turns: u32,
}

impl LoopCore {
    /// Run turns until `stop()` was called.
    ///
    /// # Errors
    /// `KeyboardInterrupt` and `SystemExit` of a callback or signal handler; the system's of the poller.
    pub(super) fn run(&self, slf: &Bound<'_, PyAny>) -> PyResult<()> {
        self.adopt_after_fork(slf.py())?;
        let mut events = self.events.take().unwrap_or_else(|| Events::with_capacity(1));
        self.in_callback.set(true);
        let outcome = while_running(slf.py(), || self.turns(slf, &mut events));
        self.in_callback.set(false);
        self.events.set(Some(events));
        outcome
    }

    fn turns(&self, slf: &Bound<'_, PyAny>, events: &mut Events) -> PyResult<()> {
        let mut last = LastPoll { at: f64::NEG_INFINITY, turns: 0 };
        loop {
            if self.poll(slf.py(), events, &mut last)? {
                self.dispatch_all(slf, events)?;
            }
            self.fire_timers(slf.py());
            self.run_ready(slf)?;
            if self.stopping.get() {
                return Ok(());
            }
        }
    }

    /// Hand all events out.
    ///
    /// What they make ready runs after them: one kind of work at a time keeps the code in the cache, 3 to 4 % of
    /// the CPU of small echoes. But once streams were fed [`FED_AT_MOST`], their readers run first, while the data
    /// is in the cache: 10 to 15 % of echoes of 100 KB. Not where other callbacks wait: they would run with each
    /// such part of a batch, before events that came when they did.
    fn dispatch_all(&self, slf: &Bound<'_, PyAny>, events: &Events) -> PyResult<()> {
        let mut others = !self.ready.borrow().is_empty();
        self.fed.set(0);
        for index in 0..events.len() {
            self.dispatch(slf, events, index)?;
            if self.fed.get() >= FED_AT_MOST && !others {
                self.fed.set(0);
                self.run_ready(slf)?;
                others = !self.ready.borrow().is_empty();
            }
        }
        Ok(())
    }

    /// Ask the poller for events, and wait for them if nothing else is to be done. Returns whether it was asked.
    fn poll(&self, py: Python<'_>, events: &mut Events, last: &mut LastPoll) -> PyResult<bool> {
        if self.ready.borrow().is_empty()
            && self.guests.borrow().iter().flatten().any(|guest| guest.has_work())
        {
            // What was put off to the end of the turn, before the wait rather than after an empty one.
            self.expire_guests(py);
        }
        let busy = !self.ready.borrow().is_empty() || self.stopping.get();
        if busy {
            last.turns += 1;
            if last.turns < POLL_AFTER_TURNS {
                let time = now();
                if time - last.at < POLL_AFTER {
                    return Ok(false);
                }
                last.at = time;
            }
            last.turns = 0;
        }
        let poller = self.poller().map_err(|error| os_error(py, &error))?;
        let timeout = if busy { Some(Duration::ZERO) } else { self.wait_limit() };
        let handover = self.hand_over();
        let outcome = if timeout == Some(Duration::ZERO) {
            if let Some(handover) = handover {
                handover.next.wake();
            }
            poller.wait(events, timeout)
        } else {
            // A signal that came while only native code ran is handled before the wait, not after it.
            py.check_signals()?;
            self.waiting.set(true);
            self.in_callback.set(false);
            let outcome = wait::detached(py, &poller, events, timeout, handover.as_ref());
            self.in_callback.set(true);
            self.waiting.set(false);
            last.at = f64::NEG_INFINITY;
            outcome
        };
        match outcome {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                py.check_signals().map(|()| false)
            }
            Err(error) => Err(os_error(py, &error)),
        }
    }

    /// How long the wait may last: until the first timer or a guest's deadline.
    fn wait_limit(&self) -> Option<Duration> {
        let timer = self.timers.borrow().next().map(|when| {
            Duration::try_from_secs_f64((when - now()).clamp(0.0, LONGEST_WAIT)).unwrap_or(Duration::ZERO)
        });
        let guests = self.guests.borrow();
        let guest = guests
            .iter()
            .flatten()
            .filter_map(|guest| guest.next_deadline())
            .min()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        timer.into_iter().chain(guest).min()
    }

    /// The thread to which a guest wants to hand the interpreter lock over.
    fn hand_over(&self) -> Option<Handover> {
        let mut chosen: Option<Handover> = None;
        for handover in self.guests.borrow().iter().flatten().filter_map(|guest| guest.hand_over()) {
            if let Some(another) = chosen.replace(handover) {
                another.next.wake();
            }
        }
        chosen
    }

    /// Hand one event out.
    fn dispatch(&self, slf: &Bound<'_, PyAny>, events: &Events, index: usize) -> PyResult<()> {
        let py = slf.py();
        let Some(event) = events.get(index) else { return Ok(()) };
        let guest = event.token.0 >> GUEST_TOKEN_BITS;
        if guest != 0 {
            let guest = self.guests.borrow().get(guest as usize - 1).cloned().flatten();
            if let Some(guest) = guest {
                guest.ready(py, Token(event.token.0 & ((1 << GUEST_TOKEN_BITS) - 1)), event.readiness);
                self.flush(slf)?;
            }
            return Ok(());
        }
        if event.token == WAKER {
            self.drain_waker();
            return Ok(());
        }
        let poller = self.poller().map_err(|error| os_error(py, &error))?;
        let watcher = self.fds.borrow_mut().watcher(py, &poller, event.token, event.readiness);
        match watcher {
            Some(Watcher::Transport { transport, read, write }) => {
                let outcome = transport::ready(self, transport.bind(py), read, write);
                self.settle(slf, outcome)?;
                self.flush(slf)
            }
            Some(Watcher::Handles { reader, writer, waiting }) => {
                for future in waiting.into_iter().flatten() {
                    let outcome = futures::complete(future.bind(py));
                    self.settle(slf, outcome)?;
                }
                let fd = (event.token.0 & 0xFFFF_FFFF) as i32;
                for (handle, write) in [(reader, false), (writer, true)] {
                    let Some(handle) = handle else { continue };
                    if handle::is_cancelled(handle.bind_borrowed(py)) {
                        self.unwatch(py, fd, write);
                    } else {
                        self.push_ready(handle);
                    }
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Move timers that are due to the ready queue, and call guests whose deadline has passed.
    fn fire_timers(&self, py: Python<'_>) {
        if self.timers.borrow().next().is_some() {
            let end = now() + RESOLUTION;
            loop {
                let Some(timer) = self.timers.borrow_mut().pop_due(end) else { break };
                handle::unschedule(timer.bind_borrowed(py));
                if handle::is_cancelled(timer.bind_borrowed(py)) {
                    self.timers.borrow_mut().note_dropped();
                } else {
                    self.push_ready(timer);
                }
            }
        }
        if !self.guests.borrow().is_empty() {
            self.expire_guests(py);
        }
    }

    fn expire_guests(&self, py: Python<'_>) {
        let now = Instant::now();
        for index in 0.. {
            // Asked anew each time: a guest may come or go while another one runs.
            let Some(guest) = self.guests.borrow().get(index).cloned() else { break };
            if let Some(guest) = guest
                && guest.next_deadline().is_some_and(|deadline| deadline <= now)
            {
                guest.expire(py, now);
            }
        }
    }

    /// Run what is ready now, each callback with its flush.
    fn run_ready(&self, slf: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let count = self.ready.borrow().len();
        for _ in 0..count {
            let Some(next) = self.ready.borrow_mut().pop_front() else { break };
            let next = next.into_bound(py);
            if self.debug.get() {
                let outcome = slf.call_method1(pyo3::intern!(py, "_run_in_debug"), (&next,)).map(drop);
                handle::let_go(&next);
                self.settle(slf, outcome)?;
            } else if handle::is_native(next.as_borrowed()) {
                if let Err(error) = handle::run(&next) {
                    self.report(slf, &next, error)?;
                }
            } else {
                self.run_foreign(slf, &next)?;
            }
            self.flush(slf)?;
        }
        Ok(())
    }

    /// A handle of asyncio's own class, as `add_signal_handler` makes them.
    fn run_foreign(&self, slf: &Bound<'_, PyAny>, handle: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let outcome = handle.getattr(pyo3::intern!(py, "_cancelled")).and_then(|cancelled| {
            if !cancelled.is_truthy()? {
                handle.call_method0(pyo3::intern!(py, "_run"))?;
            }
            Ok(())
        });
        self.settle(slf, outcome)
    }

    /// Give a callback's exception to the loop's exception handler, unless it ends the run.
    #[cold]
    fn report(&self, slf: &Bound<'_, PyAny>, handle: &Bound<'_, PyAny>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        if ends_the_run(py, &error) {
            return Err(error);
        }
        slf.call_method1(pyo3::intern!(py, "_callback_failed"), (handle, error.into_value(py)))?;
        Ok(())
    }

    /// Give an exception that escaped a native callback to the exception handler, unless it ends the run.
    pub(super) fn settle(&self, slf: &Bound<'_, PyAny>, outcome: PyResult<()>) -> PyResult<()> {
        let Err(error) = outcome else { return Ok(()) };
        let py = slf.py();
        if ends_the_run(py, &error) {
            return Err(error);
        }
        slf.call_method1(pyo3::intern!(py, "_callback_failed"), (py.None(), error.into_value(py)))?;
        Ok(())
    }

    /// Send what the last callback has written.
    pub(super) fn flush(&self, slf: &Bound<'_, PyAny>) -> PyResult<()> {
        loop {
            let Some(transport) = self.dirty.borrow_mut().pop_front() else { return Ok(()) };
            let outcome = transport::flush_transport(transport.bind(slf.py()));
            self.settle(slf, outcome)?;
        }
    }
}
