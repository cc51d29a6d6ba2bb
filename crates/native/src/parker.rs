//! A thread that sleeps until another one wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The sleep of one thread, the one that made it.
#[derive(Debug)]
pub(crate) struct Parker {
    woken: AtomicBool,
    thread: Thread,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self { woken: AtomicBool::new(false), thread: thread::current() }
    }

    /// Sleep until [`Parker::wake`]; not at all if that came first. To be called by the thread that made it.
    pub(crate) fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }

    /// As [`Parker::sleep`], but no longer than `time`.
    pub(crate) fn sleep_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.woken.swap(false, Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// Forget a [`Parker::wake`] that came too late for the sleep it was meant to end.
    pub(crate) fn forget(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// End the sleep, or the next one.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// What a thread does as soon as it has given up the interpreter lock, before it waits.
#[derive(Debug)]
pub(crate) struct Handover {
    /// To be woken now: before, it would have had to wait for the lock.
    pub(crate) next: Arc<Parker>,
    /// To sleep on for so long at most, until the other has done what there was to do: awake, we would only wait
    /// for the lock.
    pub(crate) until: Option<(Arc<Parker>, Duration)>,
}

impl Handover {
    pub(crate) fn run(&self) {
        self.next.wake();
        if let Some((parker, time)) = &self.until {
            parker.sleep_for(*time);
        }
    }
}
