//! The findings of an invariant.

use std::fmt;

use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::history::{Nanos, OpId};

/// Upper limit of the violations kept as text; all are counted.
const KEPT: usize = 20;

/// Upper limit of the faults named with a violation.
const LATEST: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Invariant {
    Exclusion,
    Fencing,
    Tokens,
    Audits,
    Outcomes,
    Losses,
    Calm,
    Deadlines,
    Liveness,
    Leaks,
    Once,
    Transfers,
}

impl Invariant {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Invariant::Exclusion => "no two believe in the same lock at once",
            Invariant::Fencing => "no update through the fence is lost",
            Invariant::Tokens => "tokens rise",
            Invariant::Audits => "a believed hold is in the store",
            Invariant::Outcomes => "no Ok after validity",
            Invariant::Losses => "holders are notified of a loss in time",
            Invariant::Calm => "no loss without a cause",
            Invariant::Deadlines => "a call returns in time",
            Invariant::Liveness => "no waiter starves",
            Invariant::Leaks => "nothing is left behind",
            Invariant::Once => "a success closes its period, and only a success",
            Invariant::Transfers => "no update in a transaction is lost",
        }
    }

    /// Returns true if the invariant bounds times, which a busy machine can exceed.
    pub(crate) fn is_of_time(self) -> bool {
        matches!(
            self,
            Invariant::Losses | Invariant::Calm | Invariant::Deadlines
        )
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// The calls that broke an invariant, and when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    pub(crate) key: String,
    pub(crate) span: Span,
    pub(crate) ops: Vec<OpId>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) what: String,
}

impl Violation {
    /// Creates a violation by calls of one key.
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

    /// Creates a violation without calls, of a key or of no particular key (empty).
    pub(crate) fn at(at: Nanos, key: &str, what: String) -> Violation {
        Violation {
            key: key.to_owned(),
            span: Span::new(at, at),
            ops: Vec::new(),
            tokens: Vec::new(),
            what,
        }
    }
}

/// A violation and its circumstances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    pub(crate) violation: Violation,
    /// Relative to the beginning of the run.
    pub(crate) span: Span,
    pub(crate) faults: Vec<String>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |at: Nanos| at as f64 / 1e6;
        write!(f, "at {:.3} ms", millis(self.span.from))?;
        if self.span.length() > 0 {
            write!(f, " for {:.3} ms", millis(self.span.length()))?;
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
            return write!(f, "; no fault in force");
        }
        // The latest faults are the most informative.
        let earlier = self.faults.len().saturating_sub(LATEST);
        write!(f, "; in force: {}", self.faults[earlier..].join(", "))?;
        match earlier {
            0 => Ok(()),
            _ => write!(f, ", and {earlier} before"),
        }
    }
}

/// The verdict on one invariant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) of: Invariant,
    /// The number of things checked.
    pub(crate) checked: u64,
    pub(crate) violations: u64,
    /// The number of violations that a fault explains, so that they do not count.
    pub(crate) excused: u64,
    pub(crate) evidence: Vec<Evidence>,
    /// Bounds and figures, as text.
    pub(crate) note: String,
}

impl Finding {
    pub(crate) fn new(of: Invariant) -> Finding {
        Finding {
            of,
            checked: 0,
            violations: 0,
            excused: 0,
            evidence: Vec::new(),
            note: String::new(),
        }
    }

    /// Counts a violation. A bound on time is excused if the machine was too busy.
    pub(crate) fn violation(&mut self, run: &Run, violation: Violation) {
        if self.of.is_of_time() && run.starvation.explains(&violation) {
            self.excused += 1;
            return;
        }
        self.violations += 1;
        if self.evidence.len() < KEPT {
            self.evidence.push(surrounded(run, violation));
        }
    }

    /// Counts a violation that a fault may excuse.
    pub(crate) fn unless(&mut self, excused: bool, run: &Run, violation: Violation) {
        if excused {
            self.excused += 1;
        } else {
            self.violation(run, violation);
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.violations == 0
    }
}

fn surrounded(run: &Run, violation: Violation) -> Evidence {
    let start = run.span.from;
    let Span { from, until } = violation.span;
    let around = violation.span.widened(run.memory(), 0);
    Evidence {
        span: Span::new(from.saturating_sub(start), until.saturating_sub(start)),
        faults: run.faults.named(around, run.keys.known(&violation.key)),
        violation,
    }
}
