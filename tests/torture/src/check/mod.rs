//! The checker: reads a run's history and judges its invariants.
//!
//! What workers believed comes from their own files, what was true from the server's. Every invariant is a
//! file of its own: a function of typed data, in n log n time.

mod audits;
mod calm;
mod deadlines;
mod evidence;
mod faults;
mod fifo;
mod figures;
mod floors;
mod grants;
mod holds;
mod leaks;
mod liveness;
mod logs;
mod loss;
mod orphans;
mod outcomes;
mod overlaps;
mod owners;
mod ownership;
mod places;
mod proofs;
mod quorum;
mod resource;
mod run;
mod spans;
mod starvation;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
mod truth;
mod views;

use std::path::{Path, PathBuf};

use anyhow::Context;

pub(crate) use evidence::{Finding, Id};
pub(crate) use figures::{Figures, Millis};
pub(crate) use floors::Floor;
pub(crate) use run::Header;

use crate::history::{self, ResourceEvent, SupervisorEvent, WorkerEvent};
use owners::Owners;
use resource::Resource;
use run::Run;
use truth::{Replay, Truth};

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) header: Header,
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: Figures,
    /// What a full run must reach; empty for others.
    pub(crate) floors: Vec<Floor>,
}

impl Verdict {
    /// Whether no invariant was violated and, in a full run, every floor was reached.
    pub(crate) fn passed(&self) -> bool {
        self.failed().is_empty() && self.floors.iter().all(Floor::passed)
    }

    /// The invariants that were violated.
    pub(crate) fn failed(&self) -> Vec<Id> {
        let failed = self.findings.iter().filter(|finding| !finding.passed());
        failed.map(|finding| finding.id).collect()
    }
}

/// Judges the run whose history is in `dir`.
pub(crate) fn check(dir: &Path) -> anyhow::Result<Verdict> {
    let mut run = Run::default();
    let supervisor: Vec<SupervisorEvent> = history::read(&dir.join("supervisor.jsonl"))?;
    run.supervise(&supervisor);
    anyhow::ensure!(
        run.span.is_some(),
        "supervisor.jsonl does not begin with a run"
    );
    for (worker, generation, path) in workers(dir)? {
        let mut failed = None;
        let events = history::stream::<WorkerEvent>(&path)?;
        run.work(
            worker,
            generation,
            events.map_while(|e| kept(e, &mut failed)),
        );
        failed.map_or(Ok(()), Err)?;
    }
    run.complete();

    let nodes = quorum::nodes(&run.header.topology);
    let truths = truths(dir, &mut run, nodes)?;

    let mut resource = Resource::default();
    for event in history::stream::<ResourceEvent>(&dir.join("resource.jsonl"))? {
        resource.push(event?);
    }
    let (findings, mut figures) = match &truths[..] {
        truths if nodes > 0 => quorum::judge(&mut run, truths, &resource),
        truths => judge(&run, &truths[0], &resource),
    };
    figures.overlaps_lossless = findings[0].violations;
    figures.overlaps_lossy = findings[0].reported;
    Ok(Verdict {
        floors: floors::floors(&run.header, &figures),
        header: run.header.clone(),
        findings,
        figures,
    })
}

/// What the servers held: all of them together, or each node of a quorum.
fn truths(dir: &Path, run: &mut Run, nodes: u32) -> anyhow::Result<Vec<Truth>> {
    let longest_wait = run.ops.iter().map(|op| op.wait).max().unwrap_or(0);
    let mut keys = std::mem::take(&mut run.keys);
    let mut truths = Vec::new();
    for node in 0..nodes.max(1) {
        let mut replay = Replay::new(&mut keys, longest_wait);
        for event in logs::merged(dir)? {
            let (server, event) = event?;
            if nodes == 0 || server == node as usize {
                replay.push_from(server, event);
            }
        }
        truths.push(replay.finish());
    }
    run.keys = keys;
    Ok(truths)
}

fn judge(run: &Run, truth: &Truth, resource: &Resource) -> (Vec<Finding>, Figures) {
    let owners = Owners::new(run, truth);
    let findings = vec![
        overlaps::check(run),
        resource::check(run, resource),
        tokens::check(run, truth),
        outcomes::check(run),
        ownership::check(run, truth),
        loss::check(run, truth),
        deadlines::check(run),
        liveness::check(run, truth),
        orphans::check(run, truth, &owners),
        leaks::check(run),
        audits::check(run, truth),
        fifo::check(run, truth, &owners),
        calm::check(run),
        grants::check(run, truth, &owners),
        proofs::check(run, truth),
        places::check(run, truth, &owners),
    ];
    let figures = figures::figures(run, truth, &owners, resource);
    (findings, figures)
}

fn kept<E>(event: anyhow::Result<E>, failed: &mut Option<anyhow::Error>) -> Option<E> {
    event.map_err(|error| *failed = Some(error)).ok()
}

/// The workers' files: `worker-<number>-<generation>.jsonl`.
fn workers(dir: &Path) -> anyhow::Result<Vec<(u32, u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(numbers) = name
            .strip_prefix("worker-")
            .and_then(|rest| rest.strip_suffix(".jsonl"))
        else {
            continue;
        };
        let (worker, generation) = numbers
            .split_once('-')
            .with_context(|| format!("{name} is not worker-<number>-<generation>.jsonl"))?;
        found.push((worker.parse()?, generation.parse()?, path));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
