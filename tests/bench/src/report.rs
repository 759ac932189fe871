//! The report: a table, the spread of its figures, and the processor time.

use std::fmt;

use crate::machine;
use crate::measurements::Bench;
use crate::peers;
use crate::row::Line;

/// The results and the conditions of all measurements.
#[derive(Debug)]
pub(crate) struct Report {
    conditions: Vec<String>,
    load_before: String,
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(bench: &Bench) -> Self {
        let mut conditions = machine::versions();
        if bench.peers.is_some() {
            conditions.extend(peers::NAMES.map(machine::peer_version));
        }
        if bench.quick {
            conditions.push("QUICK: not for a judgement".into());
        }
        if bench.cores.is_none() {
            conditions.push("fewer than two cores: no rows with pinned processes".into());
        }
        Report {
            conditions,
            load_before: machine::load_average(),
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, (lines, notes): (Vec<Line>, Vec<String>)) {
        self.lines.extend(lines);
        self.notes.extend(notes);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (&self.load_before, machine::load_average());
        let machine = machine::description();
        writeln!(f, "{machine}; load {before} before, {after} after")?;
        writeln!(f, "{}\n", self.conditions.join(", "))?;
        let head = ["measurement", "value", "baseline", "ratio", "target", ""].map(str::to_owned);
        let mut table = vec![&head];
        table.extend(self.lines.iter().map(|line| &line.cells));
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let rule = widths.map(|width| "-".repeat(width));
        table.insert(1, &rule);
        for row in table {
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
        }
        writeln!(f)?;
        let spreads = self.lines.iter().map(|line| &line.spread);
        spreads
            .chain(&self.notes)
            .try_for_each(|note| writeln!(f, "{note}"))
    }
}
