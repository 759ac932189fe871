//! The results: a table for people, JSON for machines.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use crate::machine;

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
    what: String,
    value: f64,
    unit: &'static str,
    baseline: Option<(String, f64)>,
    target: Option<Target>,
    note: String,
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
    fn is_met(&self) -> Option<bool> {
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

    fn cells(&self) -> [String; 6] {
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

    fn to_json(&self) -> Value {
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

/// All rows, by measurement.
#[derive(Debug)]
pub(crate) struct Report {
    quick: bool,
    load: [String; 2],
    measurements: Vec<(&'static str, Vec<Row>)>,
}

impl Report {
    pub(crate) fn new(quick: bool) -> Self {
        Report {
            quick,
            load: [machine::load_average(), String::new()],
            measurements: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, name: &'static str, rows: Vec<Row>) {
        self.measurements.push((name, rows));
    }

    pub(crate) fn finish(&mut self) {
        self.load[1] = machine::load_average();
    }

    /// How many targets were missed.
    pub(crate) fn missed(&self) -> usize {
        self.rows()
            .filter(|(_, row)| row.is_met() == Some(false))
            .count()
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, &Row)> {
        self.measurements
            .iter()
            .flat_map(|(name, rows)| rows.iter().map(|row| (*name, row)))
    }

    pub(crate) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let rows = self.rows().map(|(name, row)| {
            let mut row = row.to_json();
            row["measurement"] = name.into();
            row
        });
        let report = json!({
            "date": machine::today(),
            "quick": self.quick,
            "machine": {
                "cpu": machine::cpu_model(),
                "cores": machine::cores(),
                "system": machine::kernel(),
                "load_before": self.load[0],
                "load_after": self.load[1],
            },
            "versions": {
                "distlock": env!("CARGO_PKG_VERSION"),
                "redis-server": machine::redis_server(),
                "redis": machine::crate_version("redis"),
                "tokio": machine::crate_version("tokio"),
                "rustc": machine::rustc(),
            },
            "results": rows.collect::<Vec<_>>(),
        });
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} cores of {}, {}; load {} before, {} after",
            machine::today(),
            machine::cores(),
            machine::cpu_model(),
            machine::kernel(),
            self.load[0],
            self.load[1],
        )?;
        writeln!(
            f,
            "distlock {}, redis-server {}, redis {}, tokio {}, {}{}\n",
            env!("CARGO_PKG_VERSION"),
            machine::redis_server(),
            machine::crate_version("redis"),
            machine::crate_version("tokio"),
            machine::rustc(),
            if self.quick {
                "; QUICK: not for a judgement"
            } else {
                ""
            },
        )?;
        let head = ["measurement", "value", "baseline", "ratio", "target", ""].map(str::to_owned);
        let table: Vec<_> = [head]
            .into_iter()
            .chain(self.rows().map(|(_, row)| row.cells()))
            .collect();
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<_> = (0..6).map(width).collect();
        for (index, row) in table.iter().enumerate() {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:width$}"));
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
            if index == 0 {
                let rules = widths.iter().map(|&width| "-".repeat(width));
                writeln!(f, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
            }
        }
        writeln!(f)?;
        for (_, row) in self.rows().filter(|(_, row)| !row.note.is_empty()) {
            writeln!(f, "{}: {}", row.what, row.note)?;
        }
        Ok(())
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
