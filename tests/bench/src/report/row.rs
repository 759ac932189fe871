//! One line of the results.

use serde_json::{Value, json};

/// What a measurement is held to: the ratio if there is a baseline, else the value itself.
#[derive(Clone, Copy, Debug)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Row {
    pub(super) what: String,
    value: f64,
    unit: &'static str,
    baseline: Option<(String, f64)>,
    target: Option<Target>,
    pub(super) note: String,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Row {
            what: what.into(),
            value,
            unit,
            baseline: None,
            target: None,
            note: String::new(),
        }
    }

    /// The baseline, in the same unit.
    pub(crate) fn against(mut self, name: impl Into<String>, value: f64) -> Self {
        self.baseline = Some((name.into(), value));
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

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.baseline
            .as_ref()
            .map(|(_, baseline)| self.value / baseline)
    }

    /// `None` without a target. A figure that is not a number meets no target.
    pub(super) fn is_met(&self) -> Option<bool> {
        let figure = self.ratio().unwrap_or(self.value);
        self.target.map(|target| match target {
            Target::AtMost(limit) => figure <= limit,
            Target::AtLeast(limit) => figure >= limit,
        })
    }

    fn target(&self) -> String {
        match self.target {
            None => String::new(),
            Some(Target::AtMost(limit)) => format!("<= {limit}"),
            Some(Target::AtLeast(limit)) => format!(">= {limit}"),
        }
    }

    pub(super) fn cells(&self) -> [String; 6] {
        let (name, value) = match &self.baseline {
            Some((name, value)) => (name.as_str(), self.with_unit(*value)),
            None => ("", String::new()),
        };
        [
            self.what.clone(),
            self.with_unit(self.value),
            format!("{value} {name}").trim().to_owned(),
            self.ratio()
                .map(|ratio| format!("{ratio:.2}"))
                .unwrap_or_default(),
            self.target(),
            match self.is_met() {
                None => "",
                Some(true) => "ok",
                Some(false) => "MISSED",
            }
            .to_owned(),
        ]
    }

    fn with_unit(&self, value: f64) -> String {
        let digits = match value.abs() {
            value if value.fract() == 0.0 || value >= 1_000.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        format!("{value:.digits$} {}", self.unit).trim().to_owned()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline.as_ref().map(|(name, value)| json!({ "what": name, "value": value })),
            "ratio": self.ratio(),
            "target": self.target.map(|_| self.target()),
            "met": self.is_met(),
            "note": self.note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_about_the_ratio_where_there_is_a_baseline() {
        let row = Row::new("a", 120.0, "us");
        assert_eq!(row.is_met(), None);
        assert_eq!(row.clone().at_most(110.0).is_met(), Some(false));
        assert_eq!(
            row.clone().against("b", 110.0).at_most(1.15).is_met(),
            Some(true)
        );
        assert_eq!(
            row.clone().against("b", 300.0).at_least(0.5).is_met(),
            Some(false)
        );
        assert_eq!(row.against("b", 0.0).at_most(1.15).is_met(), Some(false));
    }
}
