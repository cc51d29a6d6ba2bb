//! What a good answer looks like: as the user says, and otherwise like the first one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Answer;
use crate::stats::Fault;

/// What the user says of good answers. By default a status below 400 and every answer like the first: the
/// same status, the same length of body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The status code of a good answer.
    pub status: Option<u16>,
    /// Bytes of a good answer's body, chunked coding removed.
    pub body_length: Option<u64>,
    /// The body of a good answer, byte for byte.
    pub body: Option<Vec<u8>>,
    /// Bodies may differ in length (a counter, a page with the time on it).
    pub any_length: bool,
}

/// The expectation of one kind of request, and what its first answer was: shared by all threads.
#[derive(Debug)]
pub(crate) struct Reference {
    expectation: Expectation,
    /// Status code and body length of the first answer, each plus one; zero before it.
    first_status: AtomicU64,
    first_length: AtomicU64,
}

/// The value in `slot`, which the first to ask sets.
fn first(slot: &AtomicU64, value: u64) -> u64 {
    match slot.compare_exchange(0, value + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => value,
        Err(set) => set - 1,
    }
}

impl Reference {
    pub(crate) fn new(expectation: Expectation) -> Self {
        Self { expectation, first_status: AtomicU64::new(0), first_length: AtomicU64::new(0) }
    }

    /// What is wrong with this status.
    pub(crate) fn judge_status(&self, status: u16) -> Option<Fault> {
        let good = match self.expectation.status {
            Some(expected) => status == expected,
            None => status < 400 && first(&self.first_status, u64::from(status)) == u64::from(status),
        };
        (!good).then_some(Fault::Status)
    }

    /// What is wrong with a body of this length, in an answer whose status was good.
    pub(crate) fn judge_length(&self, status: u16, length: u64) -> Option<Fault> {
        let expected = match (&self.expectation.body, self.expectation.body_length) {
            (Some(body), _) => body.len() as u64,
            (None, Some(expected)) => expected,
            (None, None) if self.expectation.any_length => return None,
            // An unexpected status was judged already and must not become the measure of lengths.
            (None, None) if self.judge_status(status).is_some() => return None,
            (None, None) => first(&self.first_length, length),
        };
        (length != expected).then_some(Fault::Body)
    }

    /// What is wrong with an answer that has a fault, in words.
    pub(crate) fn blame(&self, answer: &Answer) -> String {
        let known = |slot: &AtomicU64| slot.load(Ordering::Relaxed).checked_sub(1);
        match answer.fault {
            Some(Fault::Status) => match (self.expectation.status, known(&self.first_status)) {
                (Some(expected), _) => format!("status {}, expected {expected}", answer.status),
                (None, Some(first)) => format!("status {}, the first answer had {first}", answer.status),
                (None, None) => format!("status {}", answer.status),
            },
            _ if self.expectation.body.is_some() => "the body is not the expected one".to_owned(),
            _ => match (self.expectation.body_length, known(&self.first_length)) {
                (Some(expected), _) => format!("the body does not have {expected} bytes"),
                (None, Some(first)) => format!("the body does not have {first} bytes, as the first answer's"),
                (None, None) => "the body is not the expected one".to_owned(),
            },
        }
    }

    /// Whether `part`, which stands at `offset` of a body, is not what is expected there.
    #[inline]
    pub(crate) fn differs(&self, offset: u64, part: &[u8]) -> bool {
        let Some(body) = &self.expectation.body else { return false };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        start.checked_add(part.len()).and_then(|end| body.get(start..end)) != Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_good_answer_is_the_measure() {
        let reference = Reference::new(Expectation::default());
        assert_eq!(reference.judge_status(503), Some(Fault::Status));
        assert_eq!(reference.judge_length(503, 99), None);
        assert_eq!(reference.judge_status(201), None);
        assert_eq!(reference.judge_length(201, 5), None);
        assert_eq!(reference.judge_status(200), Some(Fault::Status));
        assert_eq!(reference.judge_length(201, 6), Some(Fault::Body));
        assert_eq!(reference.judge_length(201, 5), None);
    }

    #[test]
    fn what_the_user_says_goes_first() {
        let reference =
            Reference::new(Expectation { status: Some(404), body_length: Some(0), ..Expectation::default() });
        assert_eq!(reference.judge_status(404), None);
        assert_eq!(reference.judge_status(200), Some(Fault::Status));
        assert_eq!(reference.judge_length(404, 1), Some(Fault::Body));
        let any = Reference::new(Expectation { any_length: true, ..Expectation::default() });
        assert_eq!((any.judge_length(200, 1), any.judge_length(200, 2)), (None, None));
    }

    #[test]
    fn a_body_is_compared_wherever_it_is_cut() {
        let reference =
            Reference::new(Expectation { body: Some(b"hello".to_vec()), ..Expectation::default() });
        assert!(!reference.differs(0, b"hel") && !reference.differs(3, b"lo") && !reference.differs(5, b""));
        assert!(reference.differs(0, b"hal") && reference.differs(3, b"lox") && reference.differs(9, b"l"));
        assert_eq!(reference.judge_length(200, 4), Some(Fault::Body));
    }
}
