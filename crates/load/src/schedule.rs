//! When requests are meant to start.
//!
//! A closed loop has no schedule: each connection sends its next request when the answer to the last has
//! come. An open loop has one that knows nothing of answers, and latency counts from the intended start: a
//! server that stalls does not slow down the clients that would have come meanwhile.

use crate::random::Random;
use crate::target::{PlanError, refuse};

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// As fast as answers come.
    Closed,
    /// `rate` a second, evenly spaced.
    Constant {
        /// Requests a second, all connections together.
        rate: f64,
    },
    /// `rate` a second on average, with exponentially distributed gaps: many independent users.
    Poisson {
        /// Requests a second on average, all connections together.
        rate: f64,
    },
}

impl Schedule {
    /// Requests a second, where that is given.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match *self {
            Self::Closed => None,
            Self::Constant { rate } | Self::Poisson { rate } => Some(rate),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        match self.rate() {
            Some(rate) if !(rate > 0.0 && rate <= MAX_RATE) => {
                refuse(format!("the rate must be above 0 and at most {MAX_RATE:.0} requests a second"))
            }
            _ => Ok(()),
        }
    }
}

/// Ten million a second: twice what a core can send with pipelining, so anything above is a slip.
const MAX_RATE: f64 = 1e7;

/// The intended starts of one thread, in order.
#[derive(Debug)]
pub(crate) struct Arrivals {
    schedule: Schedule,
    /// Nanoseconds between two arrivals of this thread, on average.
    gap: f64,
    /// The next arrival: nanoseconds on the run's clock, with their fraction, so that no rate drifts.
    next: f64,
    random: Random,
}

impl Arrivals {
    /// The share of thread `thread` of `threads`, beginning at `origin`; `None` for a closed loop.
    ///
    /// Threads of a constant schedule take turns; Poisson processes that run side by side add up to one.
    pub(crate) fn new(
        schedule: Schedule,
        thread: usize,
        threads: usize,
        origin: u64,
        seed: u64,
    ) -> Option<Self> {
        let rate = schedule.rate()?;
        let gap = 1e9 * threads as f64 / rate;
        let mut arrivals =
            Self { schedule, gap, next: origin as f64, random: Random::new(seed ^ (thread as u64) << 32) };
        match schedule {
            Schedule::Constant { .. } => arrivals.next += gap * thread as f64 / threads as f64,
            _ => arrivals.advance(),
        }
        Some(arrivals)
    }

    /// When the next request is meant to start.
    pub(crate) fn next(&self) -> u64 {
        self.next as u64
    }

    /// Go on to the one after it.
    pub(crate) fn advance(&mut self) {
        self.next += match self.schedule {
            Schedule::Poisson { .. } => -self.random.unit().ln() * self.gap,
            _ => self.gap,
        };
    }

    /// How many are meant to start before `end`, from the next one on.
    pub(crate) fn count_until(mut self, end: u64) -> u64 {
        let mut count = 0;
        while self.next() < end {
            count += 1;
            self.advance();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn starts(schedule: Schedule, threads: usize, until: u64) -> Vec<u64> {
        let mut all = Vec::new();
        for thread in 0..threads {
            let mut arrivals = Arrivals::new(schedule, thread, threads, 0, 7).expect("an open schedule");
            while arrivals.next() < until {
                all.push(arrivals.next());
                arrivals.advance();
            }
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn constant_is_even_over_threads_and_does_not_drift() {
        let all = starts(Schedule::Constant { rate: 3_000.0 }, 3, 100 * SECOND);
        assert_eq!(all.len(), 300_000);
        let gaps = all.windows(2).map(|w| w[1] - w[0]);
        assert!(gaps.clone().min() >= Some(333_332) && gaps.max() <= Some(333_335));
    }

    #[test]
    fn poisson_has_the_mean_and_the_spread_of_exponential_gaps() {
        let all = starts(Schedule::Poisson { rate: 10_000.0 }, 2, 20 * SECOND);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean / 1e5 - 1.0).abs() < 0.02, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation}");
    }

    #[test]
    fn nonsense_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Schedule::Constant { rate }.check().is_err(), "{rate}");
            assert!(Schedule::Poisson { rate }.check().is_err(), "{rate}");
        }
        assert!(Schedule::Closed.check().is_ok());
    }
}
