//! Random numbers, for client names, owner ids and the pauses between attempts to connect.

use std::cell::RefCell;
use std::fmt;

/// A source of random numbers, injected like the clock, so that a simulation can be repeated.
pub(crate) trait Random: Send + Sync + fmt::Debug {
    /// Returns a number that another process cannot guess.
    fn next(&self) -> u64;

    /// Like `next`, but no copy of this process returns the same number. A machine that was cloned
    /// while it ran has the same memory as its clones.
    fn fresh(&self) -> u64 {
        self.next()
    }
}

/// The operating system's random numbers. Each thread draws some in advance, because a system call
/// for every number would be expensive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemRandom;

/// The count of numbers drawn at once.
const BATCH: usize = 64;

thread_local! {
    static BUFFER: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        // A thread that ends has no numbers left.
        let drawn = BUFFER.try_with(|numbers| {
            let mut numbers = numbers.borrow_mut();
            if numbers.is_empty() {
                *numbers = draw();
            }
            numbers.pop()
        });
        drawn.ok().flatten().unwrap_or_else(|| self.fresh())
    }

    fn fresh(&self) -> u64 {
        // Some bits of a UUID are fixed. After the rotation, each half covers those of the other.
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        high.rotate_left(32) ^ low
    }
}

/// Returns new numbers, or none if the system call fails.
fn draw() -> Vec<u64> {
    let mut bytes = [0; BATCH * 8];
    let drawn = getrandom::fill(&mut bytes);
    let (numbers, _) = bytes.as_chunks::<8>();
    let numbers = numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    drawn.map_or_else(|_| Vec::new(), |()| numbers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_numbers_differ() {
        let both = |_| [SystemRandom.next(), SystemRandom.fresh()];
        let mut drawn: Vec<_> = (0..2 * BATCH).flat_map(both).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 4 * BATCH);
        // No bit is fixed.
        assert_eq!(drawn.iter().fold(0, |all, one| all | one), u64::MAX);
        assert_eq!(drawn.iter().fold(u64::MAX, |all, one| all & one), 0);
    }
}
