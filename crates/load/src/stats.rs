//! What a thread counts, and how threads are added up.

use hdrhistogram::Histogram;

/// Why an exchange did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection: refused, unreachable, not in time.
    Connect,
    /// The connection failed, or ended, while an answer was awaited.
    Read,
    /// The connection failed while a request was sent.
    Write,
    /// No complete answer in time.
    Timeout,
    /// An answer with another status than expected.
    Status,
    /// An answer whose body was not the expected one.
    Body,
    /// Bytes that are no answer.
    Protocol,
}

impl Fault {
    /// Every kind, in the order in which [`Errors`] counts them.
    pub const ALL: [Self; 7] =
        [Self::Connect, Self::Read, Self::Write, Self::Timeout, Self::Status, Self::Body, Self::Protocol];

    /// The kind's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Read => "read",
            Self::Write => "write",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Body => "body",
            Self::Protocol => "protocol",
        }
    }
}

/// How often each fault was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors([u64; Fault::ALL.len()]);

impl Errors {
    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often `fault` was seen.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// All faults together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// Status codes have three digits (RFC 9110, section 15).
pub(crate) const STATUS_CODES: usize = 1000;

/// The longest latency that is told apart from longer ones: an hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Three digits: exact to 1 µs up to 2 ms, to 0.1 % above.
const DIGITS: u8 = 3;

/// A histogram of microseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
        .expect("the bounds are in order and the digits below six")
}

/// Record a span of nanoseconds, to the nearest microsecond.
pub(crate) fn record(histogram: &mut Histogram<u64>, nanos: u64) {
    histogram.saturating_record((nanos + 500) / 1000);
}

/// What was seen of one kind of request.
#[derive(Clone, Debug)]
pub struct KindStats {
    /// Latencies of good answers, in µs.
    pub latency: Histogram<u64>,
    /// Answers that were not good.
    pub bad: u64,
}

/// What one thread, or all of them, saw in the measured window.
#[derive(Clone, Debug)]
pub struct Stats {
    /// From the start of a request (open loop: the intended start) to its complete good answer, in µs.
    pub latency: Histogram<u64>,
    /// Open loop: from the intended start to the sending, in µs.
    pub lag: Histogram<u64>,
    /// What went wrong.
    pub errors: Errors,
    /// Good answers.
    pub good: u64,
    /// Answers by status code, good or not (HTTP).
    pub(crate) status: Vec<u64>,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections opened anew after a loss or a close.
    pub reconnects: u64,
    /// By kind of request, where there are several.
    pub kinds: Vec<KindStats>,
}

impl Stats {
    /// Nothing seen yet, of so many kinds of requests.
    pub(crate) fn new(kinds: usize) -> Self {
        let kinds = if kinds > 1 { kinds } else { 0 };
        Self {
            latency: histogram(),
            lag: histogram(),
            errors: Errors::default(),
            good: 0,
            status: vec![0; STATUS_CODES],
            bytes_in: 0,
            bytes_out: 0,
            reconnects: 0,
            kinds: vec![KindStats { latency: histogram(), bad: 0 }; kinds],
        }
    }

    /// Count a good answer.
    #[inline]
    pub(crate) fn good(&mut self, kind: usize, nanos: u64) {
        self.good += 1;
        record(&mut self.latency, nanos);
        if let Some(kind) = self.kinds.get_mut(kind) {
            record(&mut kind.latency, nanos);
        }
    }

    /// Count an answer that is not good.
    pub(crate) fn bad(&mut self, kind: usize, fault: Fault) {
        self.errors.count(fault);
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.bad += 1;
        }
    }

    /// Status codes that were seen, and how often.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.status.iter().enumerate().filter(|(_, n)| **n > 0).map(|(code, n)| (code as u16, *n))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("same bounds");
        self.lag.add(&other.lag).expect("same bounds");
        self.errors.add(&other.errors);
        self.good += other.good;
        for (mine, theirs) in self.status.iter_mut().zip(&other.status) {
            *mine += theirs;
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.reconnects += other.reconnects;
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.latency.add(&theirs.latency).expect("same bounds");
            mine.bad += theirs.bad;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_exact_up_to_two_milliseconds_and_a_thousandth_above() {
        for us in [1u64, 17, 999, 2047, 20_000, 1_234_567, 59_999_999] {
            let mut h = histogram();
            record(&mut h, us * 1000 + 499);
            let seen = h.value_at_quantile(0.999);
            if us < 2048 {
                assert_eq!(seen, us);
            } else {
                assert!(seen.abs_diff(us) * 1000 <= us, "{us}: {seen}");
            }
        }
    }

    #[test]
    fn threads_add_up() {
        let mut one = Stats::new(2);
        let mut two = Stats::new(2);
        one.status[200] = 3;
        one.errors.count(Fault::Timeout);
        record(&mut one.latency, 5_000);
        two.status[200] = 4;
        two.status[503] = 1;
        two.errors.count(Fault::Timeout);
        two.errors.count(Fault::Status);
        two.good(1, 7_000);
        one.add(&two);
        assert_eq!(one.statuses().collect::<Vec<_>>(), [(200, 7), (503, 1)]);
        assert_eq!((one.errors.of(Fault::Timeout), one.errors.total()), (2, 3));
        assert_eq!((one.latency.len(), one.latency.max()), (2, 7));
        assert_eq!((one.kinds[0].latency.len(), one.kinds[1].latency.max()), (0, 7));
    }
}
