//! What a thread reads off while it runs: its CPU time, and the seconds of the log.

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::shared::{Shared, Window};
use crate::stats::{histogram, record};

/// Nanoseconds of a second of the log.
const SECOND: u64 = 1_000_000_000;

/// The second that is being recorded, where a log is kept.
#[derive(Debug)]
pub(super) struct Seconds {
    current: Option<Histogram<u64>>,
    number: usize,
}

impl Seconds {
    pub(super) fn new(log: bool) -> Self {
        Self { current: log.then(histogram), number: 0 }
    }

    /// Record the latency of a good answer.
    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        if let Some(current) = &mut self.current {
            record(current, nanos);
        }
    }

    /// Deliver the seconds that are over at `now`.
    pub(super) fn turn(&mut self, shared: &Shared, window: &Window, now: u64) {
        let Some(current) = &mut self.current else { return };
        loop {
            let start = window.start + self.number as u64 * SECOND;
            if start >= window.end || now < window.end.min(start + SECOND) {
                return;
            }
            shared.intervals.deliver(self.number, current);
            current.reset();
            self.number += 1;
        }
    }

    /// Deliver the rest: a second that was cut short, or answers that came after the window.
    pub(super) fn finish(self, shared: &Shared) {
        if let Some(rest) = self.current.filter(|rest| !rest.is_empty()) {
            shared.intervals.deliver(self.number, &rest);
        }
    }
}

/// CPU time of this thread at the ends of the window.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    start: Option<u64>,
    end: Option<u64>,
}

impl Cpu {
    /// Look at the meter, if it is time.
    pub(super) fn look(&mut self, window: &Window, now: u64) {
        if now >= window.start {
            self.start.get_or_insert_with(thread_cpu);
        }
        if now >= window.end {
            self.end.get_or_insert_with(thread_cpu);
        }
    }

    /// Nanoseconds between the ends of the window; to now, when it was cut short.
    pub(super) fn used(&self) -> u64 {
        self.start.map_or(0, |start| self.end.unwrap_or_else(thread_cpu) - start)
    }
}

fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
