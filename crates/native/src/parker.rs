//! A thread that sleeps until another one wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

    /// As [`Parker::sleep`], but no longer than `time`. Returns whether it was woken.
    fn sleep_for(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.woken.swap(false, Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
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
    /// To sleep until the other has done what there was to do: awake, we would only wait for the lock.
    pub(crate) nap: Option<Nap>,
}

/// A sleep while others get on.
#[derive(Debug)]
pub(crate) struct Nap {
    pub(crate) parker: Arc<Parker>,
    /// Goes on as the others do.
    pub(crate) progress: Arc<AtomicUsize>,
    /// The sleep ends when there was no progress for this time ...
    pub(crate) patience: Duration,
    /// ... and after this time at the latest.
    pub(crate) most: Duration,
}

impl Nap {
    fn take(&self) {
        let end = Instant::now() + self.most;
        let mut seen = self.progress.load(Ordering::Relaxed);
        while !self.parker.sleep_for(self.patience) && Instant::now() < end {
            let now = self.progress.load(Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
        }
    }
}

impl Handover {
    pub(crate) fn run(&self) {
        self.next.wake();
        if let Some(nap) = &self.nap {
            nap.take();
        }
    }
}
