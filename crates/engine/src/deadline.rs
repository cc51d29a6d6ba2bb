//! Deadlines that all lie the same span ahead: a queue serves them, no heap is needed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Keys with one common span until they are due, in the order in which they were armed.
///
/// Disarming costs nothing: the owner compares the key that comes out with what it still waits for (a
/// generation in the key, or the time it last made progress) and arms it anew or forgets it. One entry for
/// each connection that is being timed is enough, however often its deadline moves.
#[derive(Debug)]
pub struct DeadlineQueue<K> {
    span: Duration,
    queue: VecDeque<(Instant, K)>,
}

impl<K> DeadlineQueue<K> {
    /// A queue whose entries fall due `span` after they are armed.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        Self { span, queue: VecDeque::new() }
    }

    /// The span of every entry.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.span
    }

    /// Arm `key`: due `span` after `from`. `from` must not lie before that of an earlier call by more than
    /// the owner is ready to be late.
    pub fn arm(&mut self, from: Instant, key: K) {
        self.queue.push_back((from + self.span, key));
    }

    /// When the next entry falls due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Take an entry that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, key)| key)
    }

    /// How many entries are armed, stale ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
