//! What an invariant found.

use std::fmt;

use crate::check::run::{Op, OpId, Run};
use crate::check::spans::Span;
use crate::history::Nanos;

/// As many violations are kept in words; all are counted.
pub(crate) const KEPT: usize = 20;

/// So many faults are named with a violation.
const LATEST: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Id {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    I16,
}

impl Id {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Id::I1 => "no two believe in the same lock at once",
            Id::I2 => "no update through the fence is lost",
            Id::I3 => "tokens rise",
            Id::I4 => "no Ok after validity",
            Id::I5 => "nobody touches another's lock",
            Id::I6 => "a loss is told in time",
            Id::I7 => "a call returns in time",
            Id::I8 => "nobody waits for ever",
            Id::I9 => "no orphans",
            Id::I10 => "nothing leaks",
            Id::I11 => "who believes, holds",
            Id::I12 => "first come, first served",
            Id::I13 => "no loss in calm times",
            Id::I14 => "a grant to the dead is short, and single",
            Id::I15 => "no belief beyond its proof",
            Id::I16 => "a live waiter keeps its place",
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Which calls broke an invariant, and when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    pub(crate) key: String,
    pub(crate) span: Span,
    pub(crate) ops: Vec<OpId>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) what: String,
}

impl Violation {
    /// About calls of one key.
    pub(crate) fn of(run: &Run, ops: &[&Op], span: Span, what: String) -> Violation {
        Violation {
            key: ops
                .first()
                .map_or_else(String::new, |op| run.keys.name(op.key).to_owned()),
            span,
            ops: ops.iter().map(|op| op.id).collect(),
            tokens: ops.iter().filter_map(|op| op.token()).collect(),
            what,
        }
    }
}

/// A violation with what surrounded it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    pub(crate) violation: Violation,
    /// Since the run's beginning.
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
    pub(crate) faults: Vec<String>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |at: Nanos| at as f64 / 1e6;
        write!(f, "at {:.3} ms", millis(self.from))?;
        if self.until > self.from {
            write!(f, " for {:.3} ms", millis(self.until - self.from))?;
        }
        if !self.violation.key.is_empty() {
            write!(f, ", key `{}`", self.violation.key)?;
        }
        write!(f, ": {}", self.violation.what)?;
        for op in &self.violation.ops {
            write!(f, "; worker {}.{} op {}", op.worker, op.generation, op.op)?;
        }
        for token in &self.violation.tokens {
            write!(f, "; token {token}")?;
        }
        if self.faults.is_empty() {
            write!(f, "; no fault in force")
        } else {
            // The latest say most.
            let earlier = self.faults.len().saturating_sub(LATEST);
            let latest = self.faults[earlier..].join(", ");
            match earlier {
                0 => write!(f, "; in force: {latest}"),
                _ => write!(f, "; in force: {latest}, and {earlier} before"),
            }
        }
    }
}

/// One invariant's verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) id: Id,
    /// How many things were looked at.
    pub(crate) checked: u64,
    pub(crate) violations: u64,
    /// What is told but does not count: explained by a fault that no lock survives.
    pub(crate) reported: u64,
    pub(crate) evidence: Vec<Evidence>,
    /// Of what was only reported.
    pub(crate) remarks: Vec<Evidence>,
    /// Beyond the count: bounds and figures, in words.
    pub(crate) note: String,
}

impl Finding {
    pub(crate) fn new(id: Id) -> Finding {
        Finding {
            id,
            checked: 0,
            violations: 0,
            reported: 0,
            evidence: Vec::new(),
            remarks: Vec::new(),
            note: String::new(),
        }
    }

    /// Counts a violation; it is only reported if the machine was too busy for a bound on time.
    pub(crate) fn violation(&mut self, run: &Run, violation: impl FnOnce() -> Violation) {
        let violation = violation();
        if run.starvation.explains(self.id, &violation) {
            self.report(run, || violation);
            return;
        }
        self.violations += 1;
        if self.evidence.len() < KEPT {
            self.evidence.push(surrounded(run, violation));
        }
    }

    pub(crate) fn report(&mut self, run: &Run, violation: impl FnOnce() -> Violation) {
        self.reported += 1;
        if self.remarks.len() < KEPT {
            self.remarks.push(surrounded(run, violation()));
        }
    }

    /// Takes what was found of the same elsewhere.
    pub(crate) fn join(&mut self, more: Finding) {
        self.checked += more.checked;
        self.violations += more.violations;
        self.reported += more.reported;
        self.evidence.extend(more.evidence);
        self.remarks.extend(more.remarks);
        self.evidence.truncate(KEPT);
        self.remarks.truncate(KEPT);
        if !more.note.is_empty() && !self.note.contains(&more.note) {
            let separator = if self.note.is_empty() { "" } else { "; " };
            self.note = format!("{}{separator}{}", self.note, more.note);
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.violations == 0
    }
}

fn surrounded(run: &Run, violation: Violation) -> Evidence {
    let start = run.span().from;
    let span = violation.span;
    Evidence {
        from: span.from.saturating_sub(start),
        until: span.until.saturating_sub(start),
        faults: (run.faults).named(
            span.widened(run.memory(), 0),
            run.keys.known(&violation.key),
        ),
        violation,
    }
}
