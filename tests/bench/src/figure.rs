//! A statistic of the samples of several rounds.

use crate::measure::Results;

/// A percentile of one metric of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    subject: String,
    metric: &'static str,
    p: f64,
    /// Set for all rounds' samples together; otherwise the value is the median over the rounds.
    is_pooled: bool,
}

impl Figure {
    /// Returns the median over the rounds of a percentile of each.
    pub(crate) fn of_rounds(p: f64, subject: impl Into<String>, metric: &'static str) -> Self {
        Figure {
            subject: subject.into(),
            metric,
            p,
            is_pooled: false,
        }
    }

    /// Returns the median over the rounds of the median of each.
    pub(crate) fn p50(subject: impl Into<String>, metric: &'static str) -> Self {
        Figure::of_rounds(0.5, subject, metric)
    }

    /// Returns a percentile of the samples of all rounds together.
    pub(crate) fn of_all(p: f64, subject: impl Into<String>, metric: &'static str) -> Self {
        Figure {
            is_pooled: true,
            ..Figure::of_rounds(p, subject, metric)
        }
    }

    /// Returns the same figure of another subject.
    pub(crate) fn of(&self, subject: impl Into<String>) -> Self {
        Figure {
            subject: subject.into(),
            ..self.clone()
        }
    }

    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    pub(crate) fn value(&self, results: &Results) -> anyhow::Result<f64> {
        if self.is_pooled {
            let rounds = results.rounds(&self.subject, self.metric)?;
            return Ok(percentile(&rounds.concat(), self.p));
        }
        Ok(percentile(&self.by_round(results)?, 0.5))
    }

    pub(crate) fn by_round(&self, results: &Results) -> anyhow::Result<Vec<f64>> {
        let rounds = results.rounds(&self.subject, self.metric)?.iter();
        Ok(rounds.map(|round| percentile(round, self.p)).collect())
    }
}

/// Returns the value below which a fraction `p` of the samples lies; NaN without samples.
pub(crate) fn percentile(samples: &[f64], p: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (samples.len().saturating_sub(1) as f64 * p).round();
    sorted.get(index as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_samples() {
        let samples = [3.0, 1.0, 2.0];
        assert_eq!(
            [0.0, 0.5, 0.99].map(|p| percentile(&samples, p)),
            [1.0, 2.0, 3.0]
        );
        assert!(percentile(&[], 0.5).is_nan());
    }
}
