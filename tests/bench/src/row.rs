//! The rows of the table, with their baselines and targets.

use crate::figure::{Figure, percentile};
use crate::measure::Results;

/// A row before its measurement.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    ours: Figure,
    baseline: Option<(String, Figure)>,
    target: Option<Target>,
}

/// The target of the ratio if there is a baseline, and of the value otherwise.
#[derive(Clone, Copy, Debug)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// A row after its measurement.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) cells: [String; 6],
    pub(crate) spread: String,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, ours: Figure) -> Self {
        Row {
            name: name.into(),
            unit,
            ours,
            baseline: None,
            target: None,
        }
    }

    /// Sets the baseline to the same figure of another subject.
    pub(crate) fn against(self, label: &str, subject: impl Into<String>) -> Self {
        let figure = self.ours.of(subject);
        self.against_figure(label, figure)
    }

    pub(crate) fn against_figure(mut self, label: &str, figure: Figure) -> Self {
        self.baseline = Some((label.to_owned(), figure));
        self
    }

    pub(crate) fn at_most(mut self, limit: f64) -> Self {
        self.target = Some(Target::AtMost(limit));
        self
    }

    pub(crate) fn at_least(mut self, limit: f64) -> Self {
        self.target = Some(Target::AtLeast(limit));
        self
    }

    /// Returns the subject of the baseline.
    pub(crate) fn baseline(&self) -> Option<&str> {
        self.baseline.as_ref().map(|(_, figure)| figure.subject())
    }

    /// Evaluates the row, and appends `suffix` to its name.
    pub(crate) fn evaluate(&self, results: &Results, suffix: &str) -> anyhow::Result<Line> {
        let value = self.ours.value(results)?;
        let mut rounds = self.ours.by_round(results)?;
        let (mut baseline, mut ratio) = (String::new(), None);
        if let Some((label, figure)) = &self.baseline {
            let other = figure.value(results)?;
            baseline = format!("{} {label}", self.with_unit(other));
            ratio = Some(value / other);
            let others = figure.by_round(results)?;
            let pairs = rounds.iter().zip(&others);
            rounds = pairs.map(|(ours, other)| ours / other).collect();
        }
        let (target, met) = match self.target {
            None => (String::new(), ""),
            Some(target) => target.judge(ratio.unwrap_or(value)),
        };
        let name = format!("{}{suffix}", self.name);
        let quartiles = [0.25, 0.75].map(|p| percentile(&rounds, p));
        Ok(Line {
            spread: format!(
                "{name}: half of the rounds: {:.2} to {:.2}",
                quartiles[0], quartiles[1]
            ),
            cells: [
                name,
                self.with_unit(value),
                baseline,
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                target,
                met.to_owned(),
            ],
        })
    }

    fn with_unit(&self, value: f64) -> String {
        let digits = match value.abs() {
            value if value.fract() == 0.0 || value >= 1_000.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        format!("{value:.digits$} {}", self.unit).trim().to_owned()
    }
}

impl Target {
    /// Returns the target and whether the figure meets it; NaN meets no target.
    fn judge(self, figure: f64) -> (String, &'static str) {
        let (target, is_met) = match self {
            Target::AtMost(limit) => (format!("<= {limit}"), figure <= limit),
            Target::AtLeast(limit) => (format!(">= {limit}"), figure >= limit),
        };
        (target, if is_met { "ok" } else { "MISSED" })
    }
}
