//! The published figures of a run, and whether the run was hard enough to be meaningful.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_tests::Spread;
use serde::Serialize;

use crate::check::deadlines::overshoot;
use crate::check::loss::{delay, notified};
use crate::check::resource::Resource;
use crate::check::run::{MILLI, Op, Run};
use crate::check::spans::Span;
use crate::history::{Call, Nanos, Outcome};
use crate::kind::Kind;
use crate::worker::LONG_WAIT_MS;

/// A hold survived the absence of a server if it was valid from before it until this long into it.
const NOTICED: Nanos = 50 * MILLI;

/// A number, and its bound in a full run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn passed(&self) -> bool {
        match self.bound {
            None => true,
            Some(Bound::AtLeast(bound)) => self.value >= bound,
            Some(Bound::AtMost(bound)) => self.value <= bound,
        }
    }
}

/// A sample of durations, shown in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Millis(Vec<Nanos>);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return write!(f, "none");
        }
        let spread = Spread::of_millis(self.0.iter().map(|&nanos| Duration::from_nanos(nanos)));
        let (p50, p99) = (spread.percentile(50.0), spread.percentile(99.0));
        let (max, count) = (spread.max(), spread.count());
        write!(f, "p50 {p50:.1}, p99 {p99:.1}, max {max:.1} (n {count})")
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) table: Vec<Figure>,
    /// The number of calls by outcome.
    pub(crate) outcomes: BTreeMap<String, u64>,
    pub(crate) wait: Millis,
    pub(crate) overshoot: Millis,
    /// From the end of a lost hold's validity to its notice.
    pub(crate) notice: Millis,
    /// For each kind: the number of faults, and the times until the next acquisition after a fault.
    /// The acquisition is one of the worker concerned, or any.
    pub(crate) faults: BTreeMap<Kind, (u64, Millis)>,
}

/// Returns the name of a value in the history.
fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Returns the figures of a run. `excused` counts the overlaps that a fault explains.
pub(super) fn figures(run: &Run, resource: &Resource, excused: u64) -> Figures {
    let mut figures = Figures {
        faults: recoveries(run),
        ..Figures::default()
    };
    let hindered = run.hindered();
    let mut counts = AcquisitionCounts::default();
    for op in &run.ops {
        if let Some(outcome) = op.outcome() {
            *figures.outcomes.entry(name(&outcome)).or_default() += 1;
        }
        if op.wait > 0 && !hindered[&op.process()].touches(op.waiting()) {
            figures.overshoot.0.extend(overshoot(op));
        }
        if let Some((at, _)) = op.acquired {
            counts.acquired(run, op, op.belief().unwrap_or(Span::new(at, at)));
            figures.wait.0.push(op.waiting().length());
            let stops = run.faults.stops_of(op.id.worker);
            let delay = delay(op).filter(|delay| !stops.touches(*delay));
            let delay = delay.map(Span::length).filter(|delay| *delay > 0);
            figures.notice.0.extend(delay);
        }
    }
    figures.table = table(run, &counts, resource, excused);
    figures
}

/// Counts of acquisitions.
#[derive(Debug, Default)]
struct AcquisitionCounts {
    acquired: u64,
    keys: std::collections::BTreeSet<u32>,
    /// Acquisitions with a body of at most 5 ms.
    short: u64,
    /// Acquisitions of locks that no fault may have erased, so that nothing excuses an overlap.
    unexcused: u64,
    lost: u64,
    /// Holds valid across a failover, or since before a server of a quorum forgot or froze.
    lived_through: u64,
}

impl AcquisitionCounts {
    fn acquired(&mut self, run: &Run, op: &Op, believed: Span) {
        self.acquired += 1;
        self.keys.insert(op.key);
        self.short += u64::from(op.body.micros <= 5_000);
        let site = run.faults.at(op.key);
        self.unexcused += u64::from(!site.lossy_within(believed, op.memory()));
        let outcome = op.outcome();
        let is_lost = matches!(outcome, Some(Outcome::Lost | Outcome::LostCompleted))
            || notified(op).is_some() && outcome != Some(Outcome::MaxHoldExceeded);
        self.lost += u64::from(is_lost);
        let failovers = site.replacing.iter();
        let through = failovers.filter(|failover| believed.covers(*failover));
        self.lived_through += through.count() as u64;
        let away = run.faults.list.iter().filter(|fault| {
            let from = fault.span.from;
            let noticed = Span::new(from, from + NOTICED.min(fault.span.length()));
            fault.worker.is_none()
                && fault.node.is_some()
                && (fault.kind.forgets() || fault.kind == Kind::ServerStop)
                && believed.covers(noticed)
        });
        self.lived_through += away.count() as u64;
    }
}

/// Returns all figures. Only those of a full run have bounds.
fn table(run: &Run, counts: &AcquisitionCounts, resource: &Resource, excused: u64) -> Vec<Figure> {
    let header = &run.header;
    let minutes = header.seconds as f64 / 60.0;
    let full = header.profile == "all" && minutes >= 1.0;
    let topology = header.topology.as_str();
    let is_quorum = topology.starts_with("quorum");
    let has_failovers = matches!(topology, "sentinel" | "replicas" | "cluster");
    // Per minute.
    let (acquisitions, faults) = match topology {
        "tls" => (10_000.0, 200.0),
        // Only workers and servers have faults.
        "sentinel" => (8_000.0, 40.0),
        // No lock counts while there is no replica.
        "replicas" => (2_000.0, 40.0),
        "cluster" => (9_000.0, 50.0),
        // A lock takes three servers or more, all on one machine.
        "quorum3" => (6_000.0, 300.0),
        "quorum5" => (3_000.0, 400.0),
        "postgres" => (3_000.0, 150.0),
        _ => (20_000.0, 200.0),
    };
    let least = |bound: f64| full.then_some(Bound::AtLeast(bound));
    let failovers = least(4.0 * minutes).filter(|_| has_failovers);
    let lived_through = match topology {
        "replicas" => least(12.0 * minutes),
        "quorum3" | "quorum5" => least(5.0 * minutes),
        _ => None,
    };
    // Forgetting by a failover is excused, so a run needs time without failovers. No fault may
    // excuse the loss of a lock that was acknowledged, or granted by a quorum.
    let unexcused = match topology {
        "sentinel" => least(30.0),
        "cluster" => least(75.0),
        "replicas" | "quorum3" | "quorum5" => least(100.0),
        _ => None,
    };
    let percent = |part: u64| 100.0 * part as f64 / counts.acquired.max(1) as f64;
    let few = 0.002 * counts.acquired as f64;
    let overlaps = (full && has_failovers).then_some(Bound::AtMost(few));
    let count = |wanted: &dyn Fn(Kind) -> bool| {
        let list = run.faults.list.iter();
        let wanted = list.filter(|fault| fault.worker.is_none() && wanted(fault.kind));
        wanted.count() as f64
    };
    let moved = run.faults.list.iter();
    let moved = moved.filter(|fault| fault.kind == Kind::SlotsMove);
    let moved = moved.flat_map(|fault| &fault.keys).flatten().count() as f64;
    let of_once = |outcome: Option<Outcome>| {
        let once = run.ops.iter().filter(|op| op.call == Call::Once);
        let wanted = once.filter(|op| op.acquired.is_some() || outcome.is_some());
        wanted.filter(|op| op.outcome() == outcome).count() as f64
    };
    let has_once = matches!(topology, "standalone" | "postgres");
    let least_once = |bound: f64| least(bound * minutes).filter(|_| has_once);
    // A call for two keys is recorded as two calls.
    let held = |call: Call| {
        let calls = run.ops.iter().filter(|op| op.call == call);
        calls.filter(|op| op.acquired.is_some()).count() as f64
    };
    let least_held = |share: f64| least(share * acquisitions * minutes);
    let least_counted = |share: f64| least_held(share).filter(|_| !is_quorum);
    let has_accounts = topology == "postgres";
    let transferred = |outcome: Outcome| {
        let calls = run.ops.iter().filter(|op| op.call == Call::Transfer);
        calls.filter(|op| op.outcome() == Some(outcome)).count() as f64
    };
    let long_wait = LONG_WAIT_MS * MILLI;
    let several = run
        .ops
        .iter()
        .filter(|op| op.call == Call::Several && op.wait == long_wait);
    let timed_out = several.filter(|op| op.outcome() == Some(Outcome::Busy));
    let after = run.tried.iter().map(|tried| tried.waited).max();
    let rows = [
        ("calls", run.ops.len() as f64, None),
        (
            "acquisitions",
            counts.acquired as f64,
            least(acquisitions * minutes),
        ),
        ("  keys", counts.keys.len() as f64, least(64.0)),
        ("  % bodies up to 5 ms", percent(counts.short), least(80.0)),
        (
            "  % that no fault excuses",
            percent(counts.unexcused),
            unexcused,
        ),
        ("  lost", counts.lost as f64, None),
        ("  reads", held(Call::Read), least_counted(0.01)),
        ("  writes", held(Call::Write), least_counted(0.005)),
        ("  downgrades", held(Call::Downgraded), least_counted(0.001)),
        ("  permits", held(Call::Permits), least_counted(0.005)),
        (
            "  several keys",
            held(Call::Several) / 2.0,
            least_held(0.005),
        ),
        (
            "transfers committed",
            transferred(Outcome::Ok),
            least(100.0 * minutes).filter(|_| has_accounts),
        ),
        (
            "  refused without the lock",
            transferred(Outcome::Stale),
            least(minutes).filter(|_| has_accounts),
        ),
        (
            "several keys: busy after 10 s",
            timed_out.count() as f64 / 2.0,
            None,
        ),
        (
            "faults",
            run.faults.list.len() as f64,
            least(faults * minutes),
        ),
        ("  failovers", count(&Kind::is_failover), failovers),
        (
            "  outages of replicas",
            count(&Kind::is_of_replica),
            least(3.0 * minutes).filter(|_| topology == "replicas"),
        ),
        (
            "  keys moved with slots",
            moved,
            least(15.0 * minutes).filter(|_| topology == "cluster"),
        ),
        (
            "  losses of data",
            count(&Kind::forgets),
            least(4.0 * minutes).filter(|_| is_quorum),
        ),
        (
            "  of each kind at each server",
            of_each_server(run),
            // Chance may spare a server for a minute.
            least((0.4 * minutes).floor()).filter(|_| is_quorum),
        ),
        (
            "holds that lived through",
            counts.lived_through as f64,
            lived_through,
        ),
        (
            "runs once per period",
            of_once(Some(Outcome::Ok)),
            least_once(30.0),
        ),
        (
            "  skipped: already ran",
            of_once(Some(Outcome::AlreadyRan)),
            least_once(200.0),
        ),
        ("  failed", of_once(Some(Outcome::Failed)), least_once(5.0)),
        ("  died in the body", of_once(None), None),
        ("excused overlaps", excused as f64, overlaps),
        (
            "updates lost without a fence",
            resource.lost_unfenced as f64,
            None,
        ),
        ("stale writes refused", resource.stale_writes as f64, None),
        (
            "ms to acquire after healing",
            after.unwrap_or(0) as f64 / 1e6,
            None,
        ),
    ];
    let figure = |(what, value, bound)| Figure { what, value, bound };
    rows.into_iter().map(figure).collect()
}

/// Returns how often every server of a quorum was killed, frozen, emptied and cut off from a
/// worker, at least: the number for the server and the kind with the fewest.
fn of_each_server(run: &Run) -> f64 {
    let kinds = [
        Kind::RestartLossy,
        Kind::ServerStop,
        Kind::FlushAll,
        Kind::CutOff,
    ];
    let servers = 0..run.quorum_servers().unwrap_or(0);
    let counts = servers.flat_map(|server| {
        kinds.map(|kind| {
            let list = run.faults.list.iter();
            let wanted = list.filter(|fault| fault.node == Some(server) && fault.kind == kind);
            wanted.count()
        })
    });
    counts.min().unwrap_or(0) as f64
}

fn recoveries(run: &Run) -> BTreeMap<Kind, (u64, Millis)> {
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
    let mut samples: BTreeMap<Kind, (u64, Millis)> = BTreeMap::new();
    for fault in &run.faults.list {
        let sample = samples.entry(fault.kind).or_default();
        sample.0 += 1;
        let times = match fault.worker {
            Some(worker) => of_worker.get(&worker),
            None => Some(&all),
        };
        let Some(times) = times else { continue };
        let until = fault.span.until;
        let next = times.get(times.partition_point(|at| *at <= until));
        sample.1.0.extend(next.map(|at| at - until));
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};

    fn value(figures: &Figures, what: &str) -> f64 {
        let mut table = figures.table.iter();
        let figure = table.find(|figure| figure.what.trim() == what);
        figure.unwrap_or_else(|| panic!("no figure {what}")).value
    }

    #[test]
    fn figures_count_calls_holds_and_losses() {
        let mut history = History::default();
        let lost = Call::new(2, 2, "l", 40).acquired(45, 7, 990);
        history
            .call(Call::new(1, 1, "k", 0).held(10, 400, 100))
            .call(Call::new(2, 1, "k", 405).held(425, 430, 101))
            .call(
                lost.lost(1_040)
                    .ended(1_041, false, false)
                    .returned(1_042, Outcome::Lost),
            )
            .call(Call::new(1, 2, "l", 50).returned(1_053, Outcome::Busy))
            .fault(20, 100, Kind::FailoverKill, None, true)
            .fault(422, 423, Kind::Reset, Some(2), true)
            .done(2_000);
        let figures = figures(&history.build(), &Resource::default(), 0);
        for (what, expected) in [
            ("calls", 4.0),
            ("acquisitions", 3.0),
            ("keys", 2.0),
            ("% bodies up to 5 ms", 100.0),
            ("% that no fault excuses", 100.0),
            ("lost", 1.0),
            ("failovers", 1.0),
            ("holds that lived through", 1.0),
        ] {
            assert_eq!(value(&figures, what), expected, "{what}");
        }
        assert_eq!(figures.outcomes["lost"], 1);
        assert_eq!(
            figures.notice.to_string(),
            "p50 5.0, p99 5.0, max 5.0 (n 1)"
        );
        assert_eq!(
            figures.overshoot.to_string(),
            "p50 3.0, p99 3.0, max 3.0 (n 1)"
        );
        assert_eq!(figures.faults[&Kind::Reset].1.0, [2 * MILLI]);
    }

    #[test]
    fn a_full_run_has_bounds_and_another_has_none() {
        for (profile, topology, seconds, bounds) in [
            ("all", "standalone", 60, 12),
            ("all", "standalone", 59, 0),
            ("pause", "standalone", 60, 0),
            ("all", "postgres", 60, 14),
            ("all", "sentinel", 600, 12),
            ("all", "replicas", 60, 14),
            ("all", "cluster", 60, 13),
            ("all", "quorum5", 60, 9),
        ] {
            let mut run = Run::default();
            run.header.profile = profile.into();
            run.header.topology = topology.into();
            run.header.seconds = seconds;
            let table = table(&run, &AcquisitionCounts::default(), &Resource::default(), 0);
            let bounded = table.iter().filter(|figure| figure.bound.is_some());
            assert_eq!(bounded.count(), bounds, "{profile} {topology} {seconds}");
        }
    }
}
