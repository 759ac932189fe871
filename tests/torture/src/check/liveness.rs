//! No waiter starves.
//!
//! After healing, every key can be acquired. Before that, no key stays unheld for long while live
//! waiters want it. The bound is the sum of:
//! - a dead holder's lease,
//! - one grant to a waiter that does not answer, and one for each further worker with a fault,
//! - the half second until the queue is checked, and some slack.
//!
//! A quorum has no order: waiting calls try again at random times. The bound is then a dead
//! holder's lease and [`SERVED_WITHIN`], and every call that waits longer must be served.
//!
//! A call for two keys may hold the first of them, in the order of all calls, but only while
//! another call has the second one. So a deadlock leaves keys unheld.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Key, MILLI, Op, Run, SECOND, grace, grant_lease};
use crate::check::spans::{Span, Spans};
use crate::history::{Call, Nanos, Outcome};
use crate::servers::IDLE_IN_TRANSACTION;

const QUEUE_CHECK_INTERVAL: Nanos = 500 * MILLI;
const SLACK: Nanos = 500 * MILLI;
/// The consequences of a fault outlast it a little, for example a reconnect or a retry.
const AFTERMATH: Nanos = SECOND;
/// A worker that lost part of a handshake to its link dials for up to 2 s before it retries.
const REDIALING: Nanos = 3 * SECOND;

/// How long a transaction may outlive its client: the server's timeout, and some slack.
const OUTLIVES: Nanos = IDLE_IN_TRANSACTION.as_secs() * SECOND + SECOND;

/// How long a call may wait over a quorum while a majority of the servers serves it. Its attempts
/// are at most 80 ms apart, so this is more than a hundred of them.
const SERVED_WITHIN: Nanos = 10 * SECOND;

/// The run with what is known about all its keys.
struct Waits<'a> {
    run: &'a Run,
    hindered: BTreeMap<(u32, u32), Spans>,
    /// By key: the longest lease.
    leases: Vec<Nanos>,
    /// By key: when its servers had a fault, and the consequences.
    disturbed: Vec<Spans>,
    /// By key: when a call held it, or may have held it before its body.
    held: Vec<Spans>,
}

impl<'a> Waits<'a> {
    fn new(run: &'a Run, by_key: &[Vec<&Op>]) -> Waits<'a> {
        let keys = || 0..run.keys.len() as Key;
        let disturbed = keys().map(|key| {
            let servers = run.faults.at(key).all.iter();
            Spans::of(servers.map(|fault| fault.widened(0, AFTERMATH)))
        });
        let leases = by_key
            .iter()
            .map(|ops| ops.iter().map(|op| op.lease).max().unwrap_or(0));
        let mut waits = Waits {
            run,
            hindered: run.hindered(),
            leases: leases.collect(),
            disturbed: disturbed.collect(),
            held: vec![Spans::default(); by_key.len()],
        };
        let mut order: Vec<Key> = keys().collect();
        order.sort_by_key(|key| Reverse(run.keys.name(*key)));
        for key in order {
            let spans = by_key[key as usize]
                .iter()
                .flat_map(|op| waits.may_hold(op));
            waits.held[key as usize] = Spans::of(spans);
        }
        waits
    }

    /// Returns when a call may have held its key.
    fn may_hold(&self, op: &Op) -> Vec<Span> {
        let mut spans: Vec<_> = op.belief().into_iter().collect();
        // Its transaction keeps the lock, and may outlive a connection that was cut off.
        if op.call == Call::Transfer
            && let Some((at, _)) = op.acquired
        {
            let is_done = op.outcome() == Some(Outcome::Ok);
            let after = if is_done { 0 } else { OUTLIVES };
            spans.push(op.whole().since(at).widened(0, after));
        }
        if let Some(other) = op.other {
            let released = op.acquired.map(|(at, _)| op.whole().since(at));
            spans.extend(released);
            if self.run.keys.name(op.key) < self.run.keys.name(other) {
                spans.extend(self.blocked(op).iter());
                spans.extend(self.absent(op).iter());
            }
        }
        spans
    }

    /// Returns when a call for two keys may have waited for its other key.
    fn blocked(&self, op: &Op) -> Spans {
        let Some(other) = op.other else {
            return Spans::default();
        };
        let waiting = op.waiting();
        let bound = self.bound(other, waiting);
        let held = self.held[other as usize].within(waiting.widened(bound, 0));
        let until_served = held.map(|held| {
            Span::new(
                held.from.max(waiting.from),
                (held.until + bound).min(waiting.until),
            )
        });
        Spans::of(until_served.chain(self.disturbed[other as usize].within(waiting)))
    }

    /// Returns when the worker of a waiting call had a fault, or its runtime was not running.
    fn absent(&self, op: &Op) -> Spans {
        let faults = self.run.faults.of_worker(op.id.worker).widened(REDIALING);
        let hindered = self.hindered.get(&op.process());
        let hindered = hindered
            .into_iter()
            .flat_map(|spans| spans.within(op.waiting()));
        Spans::of(faults.within(op.waiting()).chain(hindered))
    }

    /// Returns when a waiter was waiting that could be served.
    fn live(&self, key: Key, ops: &[&Op]) -> Spans {
        let waits = ops.iter().filter(|op| op.wait > 0).flat_map(|op| {
            let live = Spans::of([op.waiting()]).minus(&self.absent(op));
            live.minus(&self.blocked(op)).iter().collect::<Vec<_>>()
        });
        Spans::of(waits).minus(&self.disturbed[key as usize])
    }

    /// Returns how long a call waited over a quorum that could have served it.
    fn unserved(&self, op: &Op) -> Nanos {
        self.live(op.key, &[op]).iter().map(Span::length).sum()
    }

    /// Returns how long a key may stay unheld.
    fn bound(&self, key: Key, span: Span) -> Nanos {
        let lease = self.leases[key as usize];
        if self.run.quorum_servers().is_some() {
            return lease + grace(lease) + SERVED_WITHIN;
        }
        let grant = grant_lease(lease);
        let one_grant = grant + grace(grant);
        let others = absent(self.run, span.widened(self.run.memory(), 0)).saturating_sub(1);
        lease + grace(lease) + one_grant * (1 + others) + QUEUE_CHECK_INTERVAL + SLACK
    }
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
    let by_key = run.by_key();
    let waits = Waits::new(run, &by_key);
    let mut longest = 0;
    for (key, ops) in (0..).zip(&by_key) {
        let unheld = waits.live(key, ops).minus(&waits.held[key as usize]);
        for span in unheld.iter() {
            finding.checked += 1;
            longest = longest.max(span.length());
            let bound = waits.bound(key, span);
            if span.length() > bound {
                finding.violation(run, starved(run, key, ops, span, bound));
            }
        }
    }
    finding.note = format!(
        "longest time unheld with live waiters {} ms",
        longest / MILLI
    );
    if run.quorum_servers().is_some() {
        longest = 0;
        for op in run.ops.iter().filter(|op| op.wait > SERVED_WITHIN) {
            finding.checked += 1;
            let unserved = waits.unserved(op);
            longest = longest.max(unserved);
            if unserved > SERVED_WITHIN {
                let what = format!("waited for {} ms of a quorum's time", unserved / MILLI);
                finding.violation(run, Violation::of(run, &[op], op.waiting(), what));
            }
        }
        finding.note += &format!(", longest wait {} ms", longest / MILLI);
    }
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

    /// Two calls for two keys wait from 1 to 9 s, and each may hold one of them. A hold of a key
    /// explains 3.5 s of the wait for it, and the lesser key may be held as long.
    #[test]
    fn a_deadlock_is_a_violation() {
        let several = |worker, op, key: &str, other: &str| {
            let call = Call::new(worker, op, key, 1_000).invoked_as(Door::Run, 1000, 8_000);
            call.with_key(other).returned(9_000, Outcome::Busy)
        };
        for (held, expected) in [
            (None, 2),
            (Some(("b", 1_010, 8_000)), 0),
            (Some(("a", 1_010, 8_000)), 0),
            (Some(("c", 1_010, 8_000)), 2),
            (Some(("b", 1_010, 1_020)), 1),
        ] {
            let mut history = History::default();
            for (worker, keys) in [(1, ["a", "b"]), (2, ["b", "a"])] {
                history.call(several(worker, 1, keys[0], keys[1]));
                history.call(several(worker, 2, keys[1], keys[0]));
            }
            if let Some((key, from, until)) = held {
                history.call(
                    Call::new(1, 3, key, 1_000)
                        .acquired(from, 1, 7_500)
                        .ended(until, true, true),
                );
            }
            assert_eq!(found(&history), expected, "{held:?}");
        }
    }

    #[test]
    fn a_call_that_a_quorum_does_not_serve_is_a_violation() {
        for (until, silent, expected) in [(10_900, 0, 0), (11_100, 0, 1), (11_100, 2, 0)] {
            let mut history = History::of("quorum3");
            let wait = |op, until| Call::new(1, op, "k", 1_000).returned(until, Outcome::Busy);
            history.call(wait(1, until).invoked_as(Door::Run, 1000, 20_000));
            // One silent server explains nothing, and two do.
            for node in 0..silent.max(1) {
                history.fault_at(node, 2_000, 3_000, Kind::ServerStop, None);
            }
            assert_eq!(found(&history), expected, "{until} {silent}");
        }
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
