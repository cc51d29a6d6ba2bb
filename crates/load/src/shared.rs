//! What the threads of a run share: the clock, the window, the wish to stop, and how far they are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::clock::Clock;
use crate::intervals::Intervals;

/// When what happens, on the run's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first requests are sent.
    pub(crate) begin: u64,
    /// Counting begins.
    pub(crate) start: u64,
    /// Counting ends, and with it the run.
    pub(crate) end: u64,
}

impl Window {
    /// Whether what happens at `now` counts.
    #[inline]
    pub(crate) fn counts(&self, now: u64) -> bool {
        now.wrapping_sub(self.start) < self.end - self.start
    }
}

/// How far one thread is; written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) open: AtomicUsize,
    pub(crate) good: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// What the threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Set when every thread is ready.
    pub(crate) window: OnceLock<Window>,
    /// Threads whose connections are all open, or have failed once.
    pub(crate) ready: AtomicUsize,
    stop: AtomicBool,
    pub(crate) progress: Vec<Progress>,
    pub(crate) intervals: Intervals,
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            clock: Clock::start(),
            window: OnceLock::new(),
            ready: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            intervals: Intervals::new(threads),
            progress: (0..threads).map(|_| Progress::default()).collect(),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
