//! Chance that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock_tests::SplitMix;

use crate::util::random::Random;

/// The same numbers for the same seed.
#[derive(Debug)]
pub(crate) struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        SeededRandom(AtomicU64::new(seed))
    }

    /// A source of its own, so that what one part draws does not change what another one gets.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.next())
    }

    /// A number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number between two, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Whether something that happens so many times in a thousand happens.
    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        // Nothing is drawn for what cannot happen.
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
