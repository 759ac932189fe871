//! The distribution of measured numbers.

use std::fmt;
use std::time::Duration;

/// A sorted sample: minimum, mean, percentiles, maximum.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    /// Creates the spread of `values`.
    ///
    /// # Panics
    ///
    /// Panics if there are none, because a test that measured nothing must not pass.
    #[track_caller]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        assert!(!sorted.is_empty(), "the spread of nothing");
        sorted.sort_by(f64::total_cmp);
        Spread { sorted }
    }

    /// Creates the spread of durations, in milliseconds.
    #[track_caller]
    pub fn of_millis(values: impl IntoIterator<Item = Duration>) -> Spread {
        Spread::of(values.into_iter().map(|value| value.as_secs_f64() * 1e3))
    }

    /// Creates the spread of counts (turns per waiter, ...).
    #[track_caller]
    pub fn of_counts(values: impl IntoIterator<Item = u64>) -> Spread {
        Spread::of(values.into_iter().map(|value| value as f64))
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the smallest value.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// Returns the largest value.
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// Returns the arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// Returns the smallest value that at least `percent` of all do not exceed (nearest rank).
    ///
    /// # Panics
    ///
    /// Panics if `percent` is not within 0 to 100.
    #[track_caller]
    pub fn percentile(&self, percent: f64) -> f64 {
        assert!(
            (0.0..=100.0).contains(&percent),
            "{percent} is not a percentage"
        );
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted[rank.saturating_sub(1)]
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "n {}, min {:.3}, mean {:.3}, p50 {:.3}, p99 {:.3}, max {:.3}",
            self.count(),
            self.min(),
            self.mean(),
            self.percentile(50.0),
            self.percentile(99.0),
            self.max(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let spread = Spread::of_counts((1..=100).rev());
        assert_eq!(
            (spread.count(), spread.min(), spread.max()),
            (100, 1.0, 100.0)
        );
        assert_eq!(spread.mean(), 50.5);
        for (percent, value) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (50.0, 50.0),
            (99.0, 99.0),
            (99.1, 100.0),
            (100.0, 100.0),
        ] {
            assert_eq!(spread.percentile(percent), value, "p{percent}");
        }
    }
}
