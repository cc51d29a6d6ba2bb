//! Histograms of each second, for HDR logs: merged over threads, encoded as soon as all have delivered, so
//! that a run of hours needs no more memory than its log.

use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// One second, or what was left of it when the run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Good answers.
    pub count: u64,
    /// The longest latency, in µs.
    pub max: u64,
    /// Latencies in µs, in HdrHistogram's V2 encoding, deflated.
    pub encoded: Vec<u8>,
}

/// A second that is being collected, or is encoded.
#[derive(Debug)]
enum Slot {
    Collecting { threads: usize, histogram: Box<Histogram<u64>> },
    Done(Interval),
}

/// The seconds of a run.
#[derive(Debug)]
pub(crate) struct Intervals {
    threads: usize,
    slots: Mutex<Vec<Slot>>,
}

/// A histogram in HdrHistogram's V2 encoding, deflated: what HdrHistogram's tools read in any language.
#[must_use]
pub fn encode(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("a Vec takes all that is written");
    bytes
}

fn interval(histogram: &Histogram<u64>) -> Interval {
    Interval { count: histogram.len(), max: histogram.max(), encoded: encode(histogram) }
}

impl Intervals {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, slots: Mutex::new(Vec::new()) }
    }

    /// A thread delivers what it saw in second `second`; it delivers each second once.
    pub(crate) fn deliver(&self, second: usize, seen: &Histogram<u64>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.len() <= second {
            slots.push(Slot::Collecting { threads: 0, histogram: Box::new(crate::stats::histogram()) });
        }
        if let Slot::Collecting { threads, histogram } = &mut slots[second] {
            histogram.add(seen).expect("same bounds");
            *threads += 1;
            if *threads == self.threads {
                slots[second] = Slot::Done(interval(histogram));
            }
        }
    }

    /// All seconds, in order.
    pub(crate) fn finish(&self) -> Vec<Interval> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let done = |slot: &Slot| match slot {
            Slot::Collecting { histogram, .. } => interval(histogram),
            Slot::Done(done) => done.clone(),
        };
        slots.iter().map(done).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{histogram, record};

    #[test]
    fn threads_are_merged_second_by_second() {
        let intervals = Intervals::new(2);
        let mut one = histogram();
        record(&mut one, 5_000_000);
        intervals.deliver(1, &one);
        intervals.deliver(0, &one);
        record(&mut one, 9_000_000);
        intervals.deliver(0, &one);
        let seconds: Vec<_> = intervals.finish().iter().map(|i| (i.count, i.max / 1000)).collect();
        assert_eq!(seconds, [(3, 9), (1, 5)]);
    }

    #[test]
    fn what_is_encoded_can_be_read_again() {
        use hdrhistogram::serialization::Deserializer;
        let mut seen = histogram();
        (1..1000).for_each(|us| record(&mut seen, us * 1000));
        let bytes = encode(&seen);
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).expect("our own");
        assert_eq!(read, seen);
    }
}
