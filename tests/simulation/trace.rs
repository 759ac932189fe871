//! The trace of a world, line by line, with a hash that distinguishes two runs.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Number of lines shown before a violation.
const SHOWN: usize = 60;

#[derive(Debug)]
pub(crate) struct Trace {
    lines: Vec<String>,
    hash: u64,
    /// The number of occurrences by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The first violation, and the number of lines up to it.
    violation: Option<(String, usize)>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Trace {
            lines: Vec::new(),
            // FNV-1a.
            hash: 0xcbf2_9ce4_8422_2325,
            counts: BTreeMap::new(),
            violation: None,
        }
    }

    pub(crate) fn line(&mut self, millis: u64, detail: fmt::Arguments<'_>) {
        let mut line = String::with_capacity(80);
        // Writing to a string cannot fail.
        let _ = write!(line, "{millis:>6} {detail}");
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines.push(line);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Records a violation. Only the first one is kept.
    pub(crate) fn violated(&mut self, millis: u64, detail: fmt::Arguments<'_>) {
        self.line(millis, format_args!("VIOLATED: {detail}"));
        if self.violation.is_none() {
            self.violation = Some((detail.to_string(), self.lines.len()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the first violation, with the lines that led to it.
    pub(crate) fn violation(&self) -> Option<String> {
        let (text, after) = self.violation.as_ref()?;
        let shown = &self.lines[after.saturating_sub(SHOWN)..*after];
        Some(format!("{text}\n{}", shown.join("\n")))
    }
}
