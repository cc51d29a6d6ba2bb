//! A thread that sleeps until another one wakes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

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

    /// End the sleep, or the next one.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
