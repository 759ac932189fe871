//! The checker: reads the history of a run and judges its invariants from outside. It looks at what
//! workers believed, what the fenced resource saw, how long calls took, and what remained in the
//! store.
//!
//! Every invariant is a function of typed data in a file of its own, in n log n time.

mod audits;
mod calm;
mod deadlines;
mod evidence;
mod faults;
mod figures;
mod leaks;
mod liveness;
mod loss;
mod once;
mod outcomes;
mod overlaps;
mod quorum;
mod resource;
mod run;
mod spans;
mod starvation;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tokens;
mod transfers;

use std::path::Path;

use anyhow::ensure;

pub(crate) use evidence::{Finding, Invariant};
pub(crate) use figures::{Bound, Figure, Figures};

use crate::history::{self, Accessed, Header, SupervisorEvent, WorkerEvent};
use resource::Resource;
use run::Run;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) header: Header,
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: Figures,
}

impl Verdict {
    /// Returns true if no invariant was violated and no figure missed a bound.
    pub(crate) fn passed(&self) -> bool {
        self.violated().is_empty() && self.figures.table.iter().all(Figure::passed)
    }

    pub(crate) fn violated(&self) -> Vec<Invariant> {
        let violated = self.findings.iter().filter(|finding| !finding.passed());
        violated.map(|finding| finding.of).collect()
    }
}

/// Judges the run with the history in `dir`.
pub(crate) fn check(dir: &Path) -> anyhow::Result<Verdict> {
    let mut run = Run::default();
    let events = history::stream::<SupervisorEvent>(&dir.join("supervisor.jsonl"))?;
    let events = events.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        matches!(events.first(), Some(SupervisorEvent::Run { .. })),
        "supervisor.jsonl does not begin with a run"
    );
    ensure!(
        matches!(events.last(), Some(SupervisorEvent::Done { .. })),
        "the run did not end"
    );
    run.supervise(&events);
    let started: Vec<_> = run.processes.keys().copied().collect();
    for (worker, generation) in started {
        let path = dir.join(history::worker_file(worker, generation));
        // A process that was killed at once has written nothing.
        if path.exists() {
            for event in history::stream::<WorkerEvent>(&path)? {
                run.work(worker, generation, event?);
            }
        }
    }
    run.complete();
    let mut resource = Resource::default();
    for access in history::stream::<Accessed>(&dir.join("resource.jsonl"))? {
        resource.push(access?);
    }
    let findings = vec![
        overlaps::check(&run, &resource),
        resource::check(&run, &resource),
        tokens::check(&run),
        audits::check(&run),
        outcomes::check(&run),
        loss::check(&run),
        calm::check(&run),
        deadlines::check(&run),
        liveness::check(&run),
        leaks::check(&run),
        once::check(&run, &resource),
        transfers::check(&run),
    ];
    Ok(Verdict {
        figures: figures::figures(&run, &resource, findings[0].excused),
        header: run.header,
        findings,
    })
}
