//! One time base for all threads of a run: nanoseconds since the run was set up.

use std::time::{Duration, Instant};

/// A monotonic clock that reads as nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the clock was made; 64 bits of them last for 584 years.
    pub(crate) fn now(self) -> u64 {
        nanos(self.0.elapsed())
    }
}

/// A duration in nanoseconds, as the clock counts.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
