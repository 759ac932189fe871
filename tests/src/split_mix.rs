//! Chance that can be repeated, on every machine.

/// SplitMix64: small, fast, and good enough to choose faults with. Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// How far the state moves with each number.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The same numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        Self::mixed(self.0)
    }

    /// The number of a state.
    #[must_use]
    pub const fn mixed(state: u64) -> u64 {
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_repeated_and_another_is_not() {
        let draw = |seed| {
            let mut random = SplitMix::new(seed);
            [random.draw(), random.draw()]
        };
        assert_ne!(draw(7), draw(8));
        // The reference values for the seed 0.
        assert_eq!(draw(0), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
