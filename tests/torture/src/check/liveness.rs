//! No waiter starves.
//!
//! After healing, every key can be acquired. Before that, no key stays unheld for long while live
//! waiters want it. The bound is the sum of:
//! - a dead holder's lease,
//! - one grant to a waiter that does not answer, and one for each further worker with a fault,
//! - the half second until the queue is checked, and some slack.

use std::collections::BTreeMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Key, MILLI, Op, Run, SECOND, grace, grant_lease};
use crate::check::spans::{Span, Spans};
use crate::history::{Call, Nanos};

const QUEUE_CHECK_INTERVAL: Nanos = 500 * MILLI;
const SLACK: Nanos = 500 * MILLI;
/// The consequences of a fault outlast it a little, for example a reconnect or a retry.
const AFTERMATH: Nanos = SECOND;
/// A worker that lost part of a handshake to its link dials for up to 2 s before it retries.
const REDIALING: Nanos = 3 * SECOND;

/// Returns when a waiter was waiting that could be served: the server and its worker had no fault,
/// and its runtime was running.
fn live_waits(
    run: &Run,
    ops: &[&Op],
    disturbed: &Spans,
    hindered: &BTreeMap<(u32, u32), Spans>,
) -> Spans {
    let mut waits = Vec::new();
    // A call for two keys may be waiting for the other one.
    let one_key = |op: &&&Op| op.wait > 0 && op.call != Call::Several;
    for op in ops.iter().filter(one_key) {
        let faults = run.faults.of_worker(op.id.worker).widened(REDIALING);
        let mut live = Spans::of([op.waiting()]).minus(&faults);
        if let Some(hindered) = hindered.get(&op.process()) {
            live = live.minus(hindered);
        }
        waits.extend(live.iter());
    }
    Spans::of(waits).minus(disturbed)
}

/// Returns the workers with a fault in `span`; each may receive one grant that it does not use.
fn absent(run: &Run, span: Span) -> u64 {
    let faults = run.faults.list.iter();
    let touching = faults.filter(|f| f.span.from <= span.until && f.span.until >= span.from);
    let mut workers: Vec<u32> = touching.filter_map(|f| f.worker).collect();
    workers.sort_unstable();
    workers.dedup();
    workers.len() as u64
}

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Liveness);
    finding.checked = run.tried.len() as u64;
    for tried in run.tried.iter().filter(|tried| !tried.acquired) {
        let waited = tried.waited / MILLI;
        let what = format!("not acquired within {waited} ms after healing");
        finding.violation(run, Violation::at(tried.at, &tried.key, what));
    }
    let hindered = run.hindered();
    let mut longest = 0;
    for (key, ops) in (0..).zip(run.by_key()) {
        let servers = run.faults.at(key).all.iter();
        let disturbed = Spans::of(servers.map(|fault| fault.widened(0, AFTERMATH)));
        // A call for two keys may hold this one before its body.
        let two_keys = ops.iter().filter(|op| op.call == Call::Several);
        let two_keys = two_keys.map(|op| op.whole());
        let held = Spans::of(ops.iter().filter_map(|op| op.belief()).chain(two_keys));
        let lease = ops.iter().map(|op| op.lease).max().unwrap_or(0);
        let grant = grant_lease(lease);
        let one_grant = grant + grace(grant);
        let waits = live_waits(run, &ops, &disturbed, &hindered);
        for span in waits.minus(&held).iter() {
            finding.checked += 1;
            longest = longest.max(span.length());
            let others = absent(run, span.widened(run.memory(), 0)).saturating_sub(1);
            let bound =
                lease + grace(lease) + one_grant * (1 + others) + QUEUE_CHECK_INTERVAL + SLACK;
            if span.length() > bound {
                finding.violation(run, starved(run, key, &ops, span, bound));
            }
        }
    }
    finding.note = format!(
        "longest time unheld with live waiters {} ms",
        longest / MILLI
    );
    finding
}

fn starved(run: &Run, key: Key, ops: &[&Op], span: Span, bound: Nanos) -> Violation {
    let is_waiting = |op: &&&Op| {
        op.wait > 0 && op.waiting().from <= span.until && op.waiting().until >= span.from
    };
    let waiting = ops.iter().filter(is_waiting);
    Violation {
        key: run.keys.name(key).to_owned(),
        span,
        ops: waiting.map(|op| op.id).take(8).collect(),
        tokens: Vec::new(),
        what: format!(
            "live waiters waited for {} ms and no worker held it; the bound is {} ms",
            span.length() / MILLI,
            bound / MILLI
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::history::{Call as Door, Outcome, SupervisorEvent};
    use crate::kind::Kind;

    fn found(history: &History) -> u64 {
        check(&history.build()).violations
    }

    fn waits(from: u64, until: u64) -> Call {
        Call::new(2, from, "k", from)
            .invoked_as(Door::Run, 1000, until - from)
            .returned(until, Outcome::Busy)
    }

    #[test]
    fn a_key_that_cannot_be_acquired() {
        for acquired in [true, false] {
            let mut history = History::default();
            history.supervisor.push(SupervisorEvent::KeyTried {
                at: 1,
                key: "k".into(),
                acquired,
                waited_ms: 2250,
            });
            assert_eq!(found(&history), u64::from(!acquired));
        }
    }

    /// With a lease of 1 s, the bound is 1.25 + 1.25 + 1 s.
    #[test]
    fn a_lock_without_a_holder_is_a_violation() {
        let mut history = History::default();
        history.call(waits(1_000, 2_000)).call(waits(1_900, 4_490));
        assert_eq!(found(&history), 0);
        history.call(waits(4_400, 4_600));
        assert_eq!(found(&history), 1);
        // A holder in between ends the violation.
        history.call(Call::new(1, 1, "k", 2_900).held(3_000, 3_001, 1));
        assert_eq!(found(&history), 0);
    }

    #[test]
    fn faults_explain_a_missing_grant() {
        for (faults, expected) in [
            (vec![], 1),
            (vec![(2_500, 2_600, Kind::ServerStop, None)], 0),
            // The waiter itself is not live.
            (vec![(1_000, 5_000, Kind::ClientStop, Some(2))], 0),
            // A second dead worker may cost one more grant.
            (vec![(900, 1_100, Kind::ClientKill, Some(7))], 1),
            (
                vec![
                    (900, 1_100, Kind::ClientKill, Some(7)),
                    (900, 1_100, Kind::ClientKill, Some(8)),
                ],
                0,
            ),
        ] {
            let mut history = History::default();
            history.call(waits(1_000, 5_000));
            for &(from, until, kind, worker) in &faults {
                history.fault(from, until, kind, worker, true);
            }
            assert_eq!(found(&history), expected, "{faults:?}");
        }
    }
}
