//! When requests are meant to start.
//!
//! A closed loop has no schedule: each connection sends its next request when the answer to the last has
//! come. An open loop has one that knows nothing of answers, and latency counts from the intended start: a
//! server that stalls does not slow down the clients that would have come meanwhile.

use crate::random::Random;
use crate::shared::Window;
use crate::target::{PlanError, refuse};

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// As fast as answers come.
    Closed,
    /// At a rate, whatever the answers do.
    Open {
        /// Requests a second at the start of the window (and in the warm-up), all connections together.
        from: f64,
        /// Requests a second at its end: between the two the rate changes evenly.
        to: f64,
        /// Random gaps, exponentially distributed, as of many independent users; otherwise even ones.
        poisson: bool,
    },
}

impl Schedule {
    /// Requests a second on average, where that is given.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match *self {
            Self::Closed => None,
            Self::Open { from, to, .. } => Some(f64::midpoint(from, to)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let good = |rate: f64| rate > 0.0 && rate <= MAX_RATE;
        match *self {
            Self::Open { from, to, .. } if !good(from) || !good(to) => {
                refuse(format!("the rate must be above 0 and at most {MAX_RATE:.0} requests a second"))
            }
            _ => Ok(()),
        }
    }
}

/// Ten million a second: twice what a core can send with pipelining, so anything above is a slip.
const MAX_RATE: f64 = 1e7;

/// The intended starts of one thread, in order.
///
/// Arrival number n of a process with one arrival a second is stretched in time by the wanted rate: for
/// `from + slope * t` arrivals a second, n of them have come when t = 2n / (from + sqrt(from² + 2 slope n)).
/// Each time is computed from n alone, so no rate drifts.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Nanoseconds on the run's clock at which the first second begins.
    begin: f64,
    /// Seconds before the rate begins to change, and the arrivals in them.
    level: f64,
    in_level: f64,
    from: f64,
    slope: f64,
    /// Random gaps, or even ones.
    random: Option<Random>,
    arrival: f64,
    /// The time of this arrival.
    next: u64,
}

impl Arrivals {
    /// The share of thread `thread` of `threads`; `None` for a closed loop.
    ///
    /// Threads of an even schedule take turns; Poisson processes that run side by side add up to one.
    pub(crate) fn new(
        schedule: Schedule,
        window: &Window,
        thread: usize,
        threads: usize,
        seed: u64,
    ) -> Option<Self> {
        let Schedule::Open { from, to, poisson } = schedule else { return None };
        let (from, to) = (from / threads as f64, to / threads as f64);
        let level = (window.start - window.begin) as f64 / 1e9;
        let mut arrivals = Self {
            begin: window.begin as f64,
            level,
            in_level: from * level,
            from,
            slope: (to - from) / ((window.end - window.start) as f64 / 1e9),
            random: poisson.then(|| Random::new(seed ^ (thread as u64) << 32)),
            arrival: if poisson { 0.0 } else { thread as f64 / threads as f64 - 1.0 },
            next: 0,
        };
        arrivals.advance();
        Some(arrivals)
    }

    /// When the next request is meant to start.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Go on to the one after it.
    pub(crate) fn advance(&mut self) {
        self.arrival += self.random.as_mut().map_or(1.0, |random| -random.unit().ln());
        let beyond = self.arrival - self.in_level;
        let seconds = if beyond <= 0.0 {
            self.arrival / self.from
        } else {
            // A rate that falls never reaches some arrivals: the root is then no number, and the time no end.
            self.level
                + 2.0 * beyond / (self.from + (self.from * self.from + 2.0 * self.slope * beyond).sqrt())
        };
        self.next = if seconds.is_nan() { u64::MAX } else { (self.begin + seconds * 1e9) as u64 };
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

    fn starts(schedule: Schedule, threads: usize, warmup: u64, seconds: u64) -> Vec<u64> {
        let window = Window { begin: 0, start: warmup * SECOND, end: (warmup + seconds) * SECOND };
        let mut all = Vec::new();
        for thread in 0..threads {
            let mut arrivals =
                Arrivals::new(schedule, &window, thread, threads, 7).expect("an open schedule");
            while arrivals.next() < window.end {
                all.push(arrivals.next());
                arrivals.advance();
            }
        }
        all.sort_unstable();
        all
    }

    fn even(rate: f64) -> Schedule {
        Schedule::Open { from: rate, to: rate, poisson: false }
    }

    #[test]
    fn even_arrivals_are_even_over_threads_and_do_not_drift() {
        let all = starts(even(3_000.0), 3, 0, 100);
        assert_eq!((all.len(), all[0]), (300_000, 0));
        let gaps = all.windows(2).map(|w| w[1] - w[0]);
        assert!(gaps.clone().min() >= Some(333_332) && gaps.max() <= Some(333_335));
    }

    #[test]
    fn poisson_has_the_mean_and_the_spread_of_exponential_gaps() {
        let all = starts(Schedule::Open { from: 10_000.0, to: 10_000.0, poisson: true }, 2, 0, 20);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean / 1e5 - 1.0).abs() < 0.02, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation}");
    }

    #[test]
    fn a_ramp_is_level_in_the_warm_up_and_then_even_up_or_down() {
        for (from, to, poisson) in [(100.0, 1_100.0, false), (1_100.0, 100.0, false), (100.0, 1_100.0, true)]
        {
            let all = starts(Schedule::Open { from, to, poisson }, 2, 5, 10);
            let within =
                |a: u64, b: u64| all.iter().filter(|t| (a * SECOND..b * SECOND).contains(t)).count() as f64;
            let near = |seen: f64, expected: f64| {
                let slack = if poisson { 5.0 * expected.sqrt() } else { 2.0 };
                assert!((seen - expected).abs() <= slack, "{from} to {to}: {seen} for {expected}");
            };
            near(within(0, 5), from * 5.0);
            near(within(5, 15), 6_000.0);
            near(within(5, 10), 5.0 * (0.75 * from + 0.25 * to));
        }
    }

    #[test]
    fn nonsense_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(even(rate).check().is_err(), "{rate}");
            assert!(Schedule::Open { from: 1.0, to: rate, poisson: true }.check().is_err(), "{rate}");
        }
        assert!(Schedule::Closed.check().is_ok());
    }
}
