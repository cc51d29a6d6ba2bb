//! Timers: a binary heap on the loop's clock. A cancelled timer is let go of at once; its place in the heap
//! goes when it comes up, or with all the others once they are the majority.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use pyo3::prelude::*;

/// Below this, cancelled timers may stay in the heap: clearing it out would cost more than it saves.
const SMALL: usize = 64;

pub(super) struct Timer {
    when: f64,
    /// Among timers of one instant, the first that was made fires first.
    order: u64,
    pub(super) handle: Py<PyAny>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    /// Reversed: the heap gives its greatest first, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.when.total_cmp(&self.when).then_with(|| other.order.cmp(&self.order))
    }
}

/// The timers of one loop.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Timer>,
    made: u64,
    cancelled: usize,
}

impl Timers {
    pub(super) fn push(&mut self, when: f64, handle: Py<PyAny>) {
        self.made += 1;
        self.heap.push(Timer { when, order: self.made, handle });
    }

    /// When the earliest is due, in seconds on the loop's clock.
    pub(super) fn next(&self) -> Option<f64> {
        self.heap.peek().map(|timer| timer.when)
    }

    /// Take the earliest if it is due before `end`.
    pub(super) fn pop_due(&mut self, end: f64) -> Option<Py<PyAny>> {
        if self.next()? >= end {
            return None;
        }
        self.heap.pop().map(|timer| timer.handle)
    }

    /// One of the timers in the heap was cancelled. Returns whether it is time to [`Timers::clear_out`].
    pub(super) fn note_cancelled(&mut self) -> bool {
        self.cancelled += 1;
        self.heap.len() > SMALL && self.cancelled * 2 > self.heap.len()
    }

    /// A timer that came out of the heap turned out to be cancelled.
    pub(super) fn note_dropped(&mut self) {
        self.cancelled = self.cancelled.saturating_sub(1);
    }

    /// Take all cancelled timers out. Their handles are given back, to be dropped when nothing is borrowed.
    pub(super) fn clear_out(&mut self, is_cancelled: impl Fn(&Py<PyAny>) -> bool) -> Vec<Py<PyAny>> {
        self.cancelled = 0;
        let (gone, kept): (Vec<Timer>, Vec<Timer>) = std::mem::take(&mut self.heap)
            .into_vec()
            .into_iter()
            .partition(|timer| is_cancelled(&timer.handle));
        self.heap = kept.into();
        gone.into_iter().map(|timer| timer.handle).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.heap.iter().map(|timer| &timer.handle)
    }
}
