//! What is published of a run besides the verdicts.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_tests::Spread;
use serde::Serialize;

use crate::check::deadlines::overshoot;
use crate::check::loss::{latency, told};
use crate::check::orphans::{orphans, spared};
use crate::check::owners::Owners;
use crate::check::resource::Resource;
use crate::check::run::{Op, Run, SECOND};
use crate::check::spans::Span;
use crate::check::truth::Truth;
use crate::history::{Nanos, Outcome};

/// Milliseconds of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Millis {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Millis {
    pub(crate) fn of(sample: &[Nanos]) -> Millis {
        if sample.is_empty() {
            return Millis::default();
        }
        let spread = Spread::of_millis(sample.iter().map(|&nanos| Duration::from_nanos(nanos)));
        Millis {
            count: spread.count(),
            p50: spread.percentile(50.0),
            p99: spread.percentile(99.0),
            max: spread.max(),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) acquired: u64,
    pub(crate) by_door: BTreeMap<String, u64>,
    pub(crate) by_workload: BTreeMap<String, u64>,
    pub(crate) by_outcome: BTreeMap<String, u64>,
    pub(crate) keys_acquired: u64,
    /// Of the bodies asked for, those of at most 5 ms.
    pub(crate) short_bodies_percent: f64,
    pub(crate) acquired_through_push: u64,
    pub(crate) pushed_percent: f64,
    pub(crate) grants: u64,
    /// Published, and nobody ever believed in them.
    pub(crate) grants_never_confirmed: u64,
    pub(crate) hand_overs_per_second: f64,
    pub(crate) acquisitions_per_second: f64,
    pub(crate) faults: u64,
    pub(crate) faults_by_kind: BTreeMap<String, u64>,
    /// Masters that were replaced.
    pub(crate) failovers: u64,
    /// How often a node of a quorum forgot what it had, and how often one stood still.
    pub(crate) losses: u64,
    pub(crate) freezes: u64,
    /// Holds that were believed in from before that, and went on.
    pub(crate) held_through_losses: u64,
    /// How often a replica did not hear its master.
    pub(crate) replica_outages: u64,
    /// Holds that were believed in from before a failover until after it.
    pub(crate) held_through_failovers: u64,
    /// Of the acquisitions, those at whose time no server's log counted: some invariants do not look at them.
    pub(crate) unseen_percent: f64,
    /// To another shard, with their slots.
    pub(crate) keys_moved: u64,
    /// Locks that were written, as far as it was seen.
    pub(crate) locks_by_shard: Vec<u64>,
    /// Of the acquisitions, those whose lock no fault may have made the server forget: nothing excuses an overlap.
    pub(crate) unexcused_percent: f64,
    pub(crate) lost: u64,
    pub(crate) lost_by_outcome: BTreeMap<String, u64>,
    pub(crate) overlaps_lossless: u64,
    pub(crate) overlaps_lossy: u64,
    pub(crate) lost_updates_unfenced: u64,
    pub(crate) lost_updates_fenced: u64,
    pub(crate) stale_writes_rejected: u64,
    pub(crate) loss_told_ms: Millis,
    pub(crate) wait_overshoot_ms: Millis,
    pub(crate) wait_ms: Millis,
    /// From a fault's end to the next acquisition of whom it concerned.
    pub(crate) recovery_ms_by_kind: BTreeMap<String, Millis>,
    pub(crate) orphans: u64,
    pub(crate) orphan_max_ms: f64,
    pub(crate) orphan_spared_max_ms: f64,
    pub(crate) liveness_max_ms: f64,
    pub(crate) server_scripts: u64,
    pub(crate) monitor_gaps: u64,
}

/// The name that a value has in the history.
pub(crate) fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

pub(crate) fn figures(
    run: &Run,
    truth: &Truth,
    owners: &Owners<'_>,
    resource: &Resource,
) -> Figures {
    let mut figures = Figures::default();
    calls(run, truth, &mut figures);
    let seconds = run.span().length() as f64 / SECOND as f64;
    if seconds > 0.0 {
        figures.acquisitions_per_second = figures.acquired as f64 / seconds;
        figures.hand_overs_per_second = figures.acquired_through_push as f64 / seconds;
    }
    figures.grants = truth.grants;
    for orphan in orphans(truth, owners) {
        let millis = orphan.span.length() as f64 / 1e6;
        figures.orphans += 1;
        figures.orphan_max_ms = figures.orphan_max_ms.max(millis);
        figures.grants_never_confirmed += u64::from(orphan.pushed);
        if spared(run, truth, owners, orphan, orphan.span) {
            figures.orphan_spared_max_ms = figures.orphan_spared_max_ms.max(millis);
        }
    }
    figures.faults = run.faults.list.len() as u64;
    for fault in &run.faults.list {
        *figures
            .faults_by_kind
            .entry(fault.kind.clone())
            .or_default() += 1;
    }
    let failovers = run.faults.list.iter().filter(|fault| fault.is_failover());
    figures.failovers = failovers.count() as u64;
    let outages = run.faults.list.iter().filter(|fault| fault.is_of_replica());
    figures.replica_outages = outages.count() as u64;
    let moves = run.faults.list.iter().filter(|fault| fault.is_move());
    figures.keys_moved = moves.flat_map(|fault| &fault.keys).flatten().count() as u64;
    figures.locks_by_shard = truth.taken.values().copied().collect();
    figures.recovery_ms_by_kind = recoveries(run);
    figures.lost_updates_unfenced = resource.counts.lost_unfenced;
    figures.lost_updates_fenced = resource.counts.lost_fenced;
    figures.stale_writes_rejected = resource.counts.stale_writes;
    let liveness = run.tried.iter().map(|tried| tried.waited).max();
    figures.liveness_max_ms = liveness.unwrap_or(0) as f64 / 1e6;
    figures.server_scripts = truth.scripts;
    figures.monitor_gaps = truth.gap_count;
    figures
}

fn calls(run: &Run, truth: &Truth, figures: &mut Figures) {
    let (mut short, mut unexcused, mut unseen) = (0u64, 0u64, 0u64);
    let mut keys = vec![false; run.keys.len()];
    let (mut losses, mut overshoots, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let hindered = run.hindered();
    for op in &run.ops {
        figures.calls += 1;
        if let Some(outcome) = op.outcome() {
            *figures.by_outcome.entry(name(&outcome)).or_default() += 1;
        }
        let hindered = &hindered[&op.process()];
        if op.wait > 0 && !hindered.touches(op.waiting()) {
            overshoots.extend(overshoot(op));
        }
        let Some((at, token)) = op.acquired else {
            continue;
        };
        figures.acquired += 1;
        keys[op.key as usize] = true;
        *figures.by_door.entry(name(&op.call)).or_default() += 1;
        *figures.by_workload.entry(name(&op.workload)).or_default() += 1;
        short += u64::from(op.body.micros <= 5_000);
        let believed = op.belief().unwrap_or(Span::new(at, at));
        let site = run.faults.at(op.key);
        unexcused += u64::from(!site.lossy_within(believed, op.memory()));
        unseen += u64::from(truth.gaps_at(op.key).touches(believed));
        let failovers = site.replacing.iter();
        let through = failovers.filter(|failover| believed.covers(*failover));
        figures.held_through_failovers += through.count() as u64;
        waits.push(op.waiting().length());
        if truth.lock(op.key, token).is_some_and(|lock| lock.pushed) {
            figures.acquired_through_push += 1;
        }
        if let Some(outcome) = lost(op) {
            figures.lost += 1;
            *figures.lost_by_outcome.entry(outcome).or_default() += 1;
        }
        let telling = told(op)
            .zip(op.safe_until())
            .map(|(told, until)| Span::new(until.min(told), told));
        let stops = run.faults.stops_of(op.id.worker);
        if telling.is_some_and(|telling| !stops.touches(telling)) {
            losses.extend(latency(op).filter(|latency| *latency > 0));
        }
    }
    figures.keys_acquired = keys.iter().filter(|acquired| **acquired).count() as u64;
    let percent = |part: u64| 100.0 * part as f64 / figures.acquired.max(1) as f64;
    figures.short_bodies_percent = percent(short);
    figures.unexcused_percent = percent(unexcused);
    figures.unseen_percent = percent(unseen);
    figures.pushed_percent = percent(figures.acquired_through_push);
    figures.loss_told_ms = Millis::of(&losses);
    figures.wait_overshoot_ms = Millis::of(&overshoots);
    figures.wait_ms = Millis::of(&waits);
}

/// How a call that lost its hold ended.
pub(crate) fn lost(op: &Op) -> Option<String> {
    let outcome = op.outcome();
    match outcome {
        Some(Outcome::Lost | Outcome::LostCompleted) => outcome.map(|o| name(&o)),
        _ if told(op).is_some() && outcome != Some(Outcome::HoldLimit) => {
            Some(outcome.map_or_else(
                || "process_ended".to_owned(),
                |outcome| format!("told_then_{}", name(&outcome)),
            ))
        }
        _ => None,
    }
}

/// Until the next acquisition of the worker concerned, or of anybody.
fn recoveries(run: &Run) -> BTreeMap<String, Millis> {
    let mut all: Vec<Nanos> = Vec::new();
    let mut of_worker: BTreeMap<u32, Vec<Nanos>> = BTreeMap::new();
    for op in &run.ops {
        if let Some((at, _)) = op.acquired {
            all.push(at);
            of_worker.entry(op.id.worker).or_default().push(at);
        }
    }
    all.sort_unstable();
    of_worker
        .values_mut()
        .for_each(|times| times.sort_unstable());
    let mut samples: BTreeMap<String, Vec<Nanos>> = BTreeMap::new();
    for fault in &run.faults.list {
        let times = match fault.worker {
            Some(worker) => of_worker.get(&worker),
            None => Some(&all),
        };
        let Some(times) = times else { continue };
        let Span { until, .. } = fault.span;
        let next = times.partition_point(|at| *at <= until);
        if let Some(at) = times.get(next) {
            let sample = samples.entry(fault.kind.clone()).or_default();
            sample.push(at - until);
        }
    }
    samples
        .into_iter()
        .map(|(kind, sample)| (kind, Millis::of(&sample)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};

    #[test]
    fn what_is_lived_through_and_what_is_not_seen_is_counted() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 400, 100))
            .call(Story::new(2, 1, "l", 0).held(10, 40, 100))
            .call(Story::new(2, 2, "l", 0).held(120, 140, 101))
            .call(Story::new(2, 3, "l", 400).held(500, 510, 102));
        history.fault(20, 100, "failover_kill", None, true);
        history.fault(200, 210, "replica_cut", None, true);
        let mut server = Server::default();
        server.gap(15, 90);
        let (run, truth) = history.build_with(server);
        let owners = Owners::new(&run, &truth);
        let figures = figures(&run, &truth, &owners, &Resource::default());
        assert_eq!((figures.failovers, figures.replica_outages), (1, 1));
        assert_eq!(figures.held_through_failovers, 1);
        assert_eq!(figures.unseen_percent, 50.0);
        assert_eq!(figures.unexcused_percent, 100.0);
    }

    #[test]
    fn what_is_counted() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 20, 100))
            .call(Story::new(2, 1, "k", 5).held(25, 30, 101))
            .call(
                Story::new(2, 2, "l", 40)
                    .acquired(45, 7, 990)
                    .lost(1040)
                    .ended(1041, false, false)
                    .returned(1042, Outcome::Lost),
            )
            .call(Story::new(1, 2, "l", 50).returned(1053, Outcome::Busy));
        history.fault(22, 23, "link_drop", Some(2), true);
        history.phase(2000, crate::history::Phase::Done);
        let mut server = Server::default();
        server.take(9, "k", "a:1", 100, 1250);
        server.queue(10, "k", "b:1");
        server.hand_over(21, "k", "a:1", "b:1", 101, 1250);
        server.hand_over(32, "k", "b:1", "a:9", 102, 1250);
        server.release(40, "k", "a:9");
        let (run, truth) = history.build_with(server);
        let figures = figures(
            &run,
            &truth,
            &Owners::new(&run, &truth),
            &Resource::default(),
        );
        assert_eq!((figures.calls, figures.acquired), (4, 3));
        assert_eq!(figures.acquired_through_push, 1);
        assert_eq!((figures.grants, figures.grants_never_confirmed), (2, 1));
        assert_eq!((figures.orphans, figures.orphan_max_ms), (1, 8.0));
        assert_eq!(figures.lost_by_outcome["lost"], 1);
        assert_eq!(figures.loss_told_ms.max, 5.0);
        assert_eq!(figures.wait_overshoot_ms.max, 3.0);
        assert_eq!(figures.recovery_ms_by_kind["link_drop"].max, 2.0);
        assert_eq!(figures.keys_acquired, 2);
        assert_eq!(figures.acquisitions_per_second, 1.5);
        assert_eq!(figures.short_bodies_percent, 100.0);
    }
}
