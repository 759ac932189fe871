//! Where chance comes from: the names of clients, and the pauses between attempts to connect.

use std::fmt;

/// A source of random numbers, injected like the clock, so that a simulation can be repeated.
pub(crate) trait Random: Send + Sync + fmt::Debug {
    fn next(&self) -> u64;
}

/// What the system offers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        // Some bits of a UUID are fixed; turned, each half covers those of the other.
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        high.rotate_left(32) ^ low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_numbers_differ() {
        let mut drawn: Vec<_> = (0..64).map(|_| SystemRandom.next()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 64);
        // Every bit is free.
        assert_eq!(drawn.iter().fold(0, |all, one| all | one), u64::MAX);
        assert_eq!(drawn.iter().fold(u64::MAX, |all, one| all & one), 0);
    }
}
