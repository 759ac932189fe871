//! The verdict on a run, as text.

use std::fmt::{Display, Formatter, Result};

use crate::check::{Bound, Figure, Figures, Finding, Verdict};

/// Upper limit of the violations shown.
const SHOWN: usize = 5;

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let header = &self.header;
        write!(
            f,
            "torture: seed {}, {} s, profile {}, {}, {} workers, {} keys, {}, commit {}",
            header.seed,
            header.seconds,
            header.profile,
            header.topology,
            header.workers,
            header.keys,
            header.server_version,
            header.commit
        )?;
        if let Some(name) = &header.sabotage {
            write!(f, ", SABOTAGED: {name}")?;
        }
        writeln!(
            f,
            "\n\n{:<10} {:<40} {:>9} {:>10} {:>8}  verdict",
            "invariant", "", "checked", "violations", "excused"
        )?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(f, "\n{}", self.figures)?;
        for finding in &self.findings {
            for evidence in finding.evidence.iter().take(SHOWN) {
                writeln!(f, "{} violated {evidence}", finding.of)?;
            }
        }
        let violated: Vec<_> = self.violated().iter().map(ToString::to_string).collect();
        match (self.passed(), violated.is_empty()) {
            (true, _) => writeln!(f, "passed"),
            (false, true) => writeln!(f, "FAILED: too easy a run"),
            (false, false) => writeln!(f, "FAILED: {}", violated.join(" ")),
        }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let verdict = if self.passed() { "ok" } else { "VIOLATED" };
        write!(
            f,
            "{:<10} {:<40} {:>9} {:>10} {:>8}  {verdict}  {}",
            self.of,
            self.of.title(),
            self.checked,
            self.violations,
            self.excused,
            self.note
        )
    }
}

impl Display for Figures {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for figure in &self.table {
            writeln!(f, "{figure}")?;
        }
        let outcomes = self.outcomes.iter().map(|(name, n)| format!("{name} {n}"));
        let outcomes = outcomes.collect::<Vec<_>>().join(", ");
        writeln!(f, "{:<32} {outcomes}", "outcomes")?;
        writeln!(f, "{:<32} {}", "wait, ms", self.wait)?;
        writeln!(f, "{:<32} {}", "beyond the wait, ms", self.overshoot)?;
        writeln!(f, "{:<32} {}", "notice of a loss, ms", self.notice)?;
        for (kind, (count, recovery)) in &self.faults {
            let kind = format!("{kind:?}");
            writeln!(f, "{kind:<20} {count:>5}  recovery, ms: {recovery}")?;
        }
        Ok(())
    }
}

impl Display for Figure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:<32} {:>10.1}", self.what, self.value)?;
        match self.bound {
            None => return Ok(()),
            Some(Bound::AtLeast(bound)) => write!(f, "  of {bound:.1}")?,
            Some(Bound::AtMost(bound)) => write!(f, "  at most {bound:.1}")?,
        }
        f.write_str(if self.passed() { "" } else { "  MISSED" })
    }
}
