//! Chance that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;

/// The same numbers for the same seed (SplitMix64). Not for secrets.
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
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn a_seed_is_repeated_and_another_is_not() {
    let draw = |seed| {
        let random = SeededRandom::new(seed);
        (0..8).map(|_| random.next()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    // The reference values of SplitMix64 for the seed 0.
    assert_eq!(draw(0)[..2], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
}
