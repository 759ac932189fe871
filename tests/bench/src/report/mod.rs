//! The results: a table for people, JSON for machines, charts for both.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::machine;
use crate::peers;

pub(crate) mod chart;
mod row;

pub(crate) use chart::Chart;
pub(crate) use row::Row;

/// What a measurement has found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    pub(crate) charts: Vec<Chart>,
}

impl From<Vec<Row>> for Findings {
    fn from(rows: Vec<Row>) -> Self {
        Findings {
            rows,
            charts: Vec::new(),
        }
    }
}

/// How the run was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub(crate) quick: bool,
    pub(crate) pinned: bool,
    pub(crate) peers: bool,
}

impl Conditions {
    /// What a reader has to know of the whole run.
    fn remarks(self) -> Vec<&'static str> {
        let mut remarks = Vec::new();
        if self.quick {
            remarks.push("QUICK: not for a judgement");
        }
        if !self.pinned {
            remarks.push("fewer than two cores: nothing was pinned, those rows are left out");
        }
        remarks
    }
}

/// All rows, by measurement.
#[derive(Debug)]
pub(crate) struct Report {
    conditions: Conditions,
    load: [String; 2],
    measurements: Vec<(&'static str, Findings)>,
}

impl Report {
    pub(crate) fn new(conditions: Conditions) -> Self {
        Report {
            conditions,
            load: [machine::load_average(), String::new()],
            measurements: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, name: &'static str, findings: Findings) {
        self.measurements.push((name, findings));
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
            .flat_map(|(name, findings)| findings.rows.iter().map(|row| (*name, row)))
    }

    /// Versions of the peers, if they took part.
    fn peers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let names = peers::NAMES.into_iter().filter(|_| self.conditions.peers);
        names.map(|name| (name, machine::peer_version(name)))
    }

    /// Writes each chart into a folder.
    pub(crate) fn write_charts(&self, folder: &Path) -> anyhow::Result<()> {
        let findings = self.measurements.iter();
        for chart in findings.flat_map(|(_, findings)| &findings.charts) {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            let path = folder.join(format!("{}.svg", chart.name));
            fs::write(&path, &chart.svg)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    pub(crate) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let rows = self.rows().map(|(name, row)| {
            let mut row = row.to_json();
            row["measurement"] = name.into();
            row
        });
        let report = json!({
            "date": machine::today(),
            "quick": self.conditions.quick,
            "pinned": self.conditions.pinned,
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
            "peers": self.peers().collect::<BTreeMap<_, _>>(),
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
        write!(
            f,
            "distlock {}, redis-server {}, redis {}, tokio {}, {}",
            env!("CARGO_PKG_VERSION"),
            machine::redis_server(),
            machine::crate_version("redis"),
            machine::crate_version("tokio"),
            machine::rustc(),
        )?;
        for (name, version) in self.peers() {
            write!(f, "; {name} {version}")?;
        }
        for remark in self.conditions.remarks() {
            write!(f, "; {remark}")?;
        }
        writeln!(f, "\n")?;
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
