//! Seeded randomness: the same seed gives the same fault plan on every machine.

use std::time::Duration;

use distlock_tests::SplitMix;

/// A generator of random choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix);

impl Random {
    /// Creates an independent stream for each list of seeds.
    pub(crate) fn new(seeds: &[u64]) -> Self {
        let state = seeds.iter().fold(SplitMix::STEP, |state, seed| {
            SplitMix::new(state ^ seed).draw()
        });
        Random(SplitMix::new(state))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below `end`, which must not be zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, of: f64) -> bool {
        self.unit() < of
    }

    /// Returns a duration in milliseconds within both bounds, inclusive.
    pub(crate) fn millis(&mut self, (from, to): (u64, u64)) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    /// Returns a duration between the bounds; every order of magnitude is equally likely.
    pub(crate) fn spread_millis(&mut self, (from, to): (u64, u64)) -> Duration {
        let (from, to) = (from as f64, to as f64);
        Duration::from_micros((1e3 * from * (to / from).powf(self.unit())) as u64)
    }

    /// Returns one of the choices, by weight.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[(T, u32)]) -> T {
        let total: u64 = choices.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut at = self.below(total.max(1));
        for (choice, weight) in choices {
            if at < u64::from(*weight) {
                return *choice;
            }
            at -= u64::from(*weight);
        }
        choices[0].0
    }
}
