//! Reproducible random numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_tests::SplitMix;

use crate::util::random::Random;

/// A generator that returns the same numbers for the same seed.
#[derive(Debug)]
pub(crate) struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        SeededRandom(AtomicU64::new(seed))
    }

    /// Returns an independent generator, so that draws of one part do not change those of another.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.next())
    }

    /// Returns a number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number between two bounds, inclusive.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in `per_mille` of a thousand cases.
    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        // An impossible case draws no number.
        per_mille > 0 && self.below(1_000) < per_mille
    }

    pub(crate) fn pick<'a, T>(&self, among: &'a [T]) -> &'a T {
        &among[usize::try_from(self.below(among.len() as u64)).unwrap()]
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        let before = self.0.fetch_add(SplitMix::STEP, Ordering::Relaxed);
        SplitMix::mixed(before.wrapping_add(SplitMix::STEP))
    }
}
