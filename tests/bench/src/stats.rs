//! Percentiles of samples, and medians over rounds that alternate.

use std::time::Duration;

/// The value below which a fraction `p` of the sorted samples lies; 0 without samples.
pub(crate) fn percentile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    // In 0..=last, and samples are far fewer than 2^52.
    let index = (last as f64 * p).round() as usize;
    sorted[index.min(last)]
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(&sorted(values.to_vec()), 0.5)
}

/// Which of the values is better than all others.
pub(crate) fn best(values: &[f64], better: impl Fn(&f64, &f64) -> bool) -> Option<usize> {
    let places = 0..values.len();
    places.reduce(|best, place| {
        if better(&values[place], &values[best]) {
            place
        } else {
            best
        }
    })
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// One number per round. What else runs on the machine disturbs a round of ours and its neighbour of
/// the baseline alike, so medians over the rounds are compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl From<Vec<f64>> for Rounds {
    fn from(values: Vec<f64>) -> Self {
        Rounds(values)
    }
}

impl Rounds {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds the median of one round's samples.
    pub(crate) fn push_median(&mut self, samples: &[Duration]) {
        let samples: Vec<_> = samples.iter().copied().map(micros).collect();
        self.push(median(&samples));
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.0)
    }

    /// The middle half of the rounds.
    pub(crate) fn middle_half(&self, digits: usize) -> String {
        let values = sorted(self.0.clone());
        let [low, high] = [0.25, 0.75].map(|p| percentile(&values, p));
        format!("half of the rounds: {low:.digits$} to {high:.digits$}")
    }

    /// The middle half of the ratios of single rounds: how far this run can be trusted.
    pub(crate) fn ratios_to(&self, baseline: &Rounds) -> String {
        let ratios = self.0.iter().zip(&baseline.0);
        Rounds(ratios.map(|(ours, theirs)| ours / theirs).collect()).middle_half(2)
    }
}
