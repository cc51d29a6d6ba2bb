//! Which kind of request comes next: at random, by weights.

use crate::random::Random;

/// Kinds of requests and their shares.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// The sum of the weights up to and including each kind's.
    bounds: Vec<u64>,
    random: Random,
}

impl Mix {
    /// Kinds with these weights; at least one of them is above zero.
    pub(crate) fn new(weights: &[u32], seed: u64) -> Self {
        let mut sum = 0;
        let add = |weight: &u32| {
            sum += u64::from(*weight);
            sum
        };
        Self { bounds: weights.iter().map(add).collect(), random: Random::new(seed) }
    }

    /// The next kind.
    pub(crate) fn next(&mut self) -> usize {
        match self.bounds.as_slice() {
            [] | [_] => 0,
            [.., sum] => {
                let drawn = self.random.below(*sum);
                self.bounds.partition_point(|bound| *bound <= drawn)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights() {
        let mut mix = Mix::new(&[1, 0, 3], 5);
        let mut seen = [0u32; 3];
        for _ in 0..40_000 {
            seen[mix.next()] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!(seen[0].abs_diff(10_000) < 400, "{seen:?}");
    }

    #[test]
    fn one_kind_needs_no_dice() {
        assert_eq!(Mix::new(&[7], 1).next(), 0);
    }
}
