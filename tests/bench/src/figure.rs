//! A statistic of the samples of several rounds.

use distlock_tests::Spread;

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

/// Returns the smallest sample that at least a fraction `p` of them does not exceed; NaN without
/// samples.
pub(crate) fn percentile(samples: &[f64], p: f64) -> f64 {
    if samples.is_empty() {
        return f64::NAN;
    }
    Spread::of(samples.iter().copied()).percentile(100.0 * p)
}
