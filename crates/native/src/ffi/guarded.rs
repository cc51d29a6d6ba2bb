//! State that only a thread attached to the interpreter touches.
#![allow(unsafe_code, reason = "declares Send and Sync for state that the interpreter lock guards")]

use std::ops::Deref;

/// State of a Python object that is not thread-safe by itself: cells, reference counts.
///
/// It is reached through the Python object alone, hence only by the thread that holds the interpreter lock.
/// Nothing here may be borrowed while the lock is given up.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(T);

// SAFETY: a `Guarded` is a field of a Python object, which is reached only with the interpreter lock held
// (rule 2 of this folder), so no two threads are in it at once.
unsafe impl<T> Sync for Guarded<T> {}
// SAFETY: as above: moving the object to another thread hands the lock over first.
unsafe impl<T> Send for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self(state)
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
