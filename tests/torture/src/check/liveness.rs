//! I8: nobody waits for ever.
//!
//! After healing every key can be acquired. Before, no key goes unheld for long while live waiters wait for
//! it: at most a dead holder's lease, one grant to a waiter that does not answer (and one more for each
//! further worker that was faulted meanwhile), the half second of a look, and some slack. And while the
//! server has no lock there at all, the half second only.

use std::collections::BTreeMap;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Key, MILLI, Op, Run, SECOND, grace, grant_lease};
use crate::check::spans::{Span, Spans};
use crate::check::truth::{LockSpan, Truth};
use crate::history::Nanos;

const LOOK: Nanos = 500 * MILLI;
const SLACK: Nanos = 500 * MILLI;
const FREE_SLACK: Nanos = 700 * MILLI;
/// A fault's consequences last a little longer than the fault: reconnecting, asking again.
const AFTERMATH: Nanos = SECOND;
/// A worker whose link swallowed part of a handshake dials for up to two seconds before it tries again.
const REDIALING: Nanos = 3 * SECOND;

/// When somebody waited who could be served: neither the server nor their worker was faulted, and their runtime ran.
fn live_waits(
    run: &Run,
    ops: &[&Op],
    disturbed: &Spans,
    hindered: &BTreeMap<(u32, u32), Spans>,
) -> Spans {
    let mut waits = Vec::new();
    for op in ops.iter().filter(|op| op.wait > 0) {
        let faults = run.faults.of_worker(op.id.worker).widened(REDIALING);
        let mut live = Spans::of([op.waiting()]).minus(&faults);
        if let Some(hindered) = hindered.get(&op.process()) {
            live = live.minus(hindered);
        }
        waits.extend(live.iter());
    }
    Spans::of(waits).minus(disturbed)
}

/// How many workers were faulted then: each may be given one grant that it does not take.
fn absent(run: &Run, span: Span) -> u64 {
    let mut workers: Vec<u32> = run
        .faults
        .list
        .iter()
        .filter(|f| f.span.from <= span.until && f.span.until >= span.from)
        .filter_map(|f| f.worker)
        .collect();
    workers.sort_unstable();
    workers.dedup();
    workers.len() as u64
}

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I8);
    finding.checked = run.tried.len() as u64;
    for tried in run.tried.iter().filter(|tried| !tried.acquired) {
        finding.violation(run, || Violation {
            key: tried.key.clone(),
            span: Span::new(tried.at, tried.at),
            ops: Vec::new(),
            tokens: Vec::new(),
            what: format!(
                "not acquired within {} ms after healing",
                tried.waited / MILLI
            ),
        });
    }

    let memory = run.memory();
    let mut locks: Vec<Vec<&LockSpan>> = vec![Vec::new(); run.keys.len()];
    for lock in &truth.locks {
        locks[lock.key as usize].push(lock);
    }
    let hindered = run.hindered();
    let mut longest = (0, 0);
    for (key, ops) in run.by_key().into_iter().enumerate() {
        let server = run.faults.at(key as Key).all.iter();
        let gaps = truth.gaps_at(key as Key).iter();
        let disturbed = Spans::of(server.map(|fault| fault.widened(0, AFTERMATH)))
            .union(&Spans::of(gaps.map(|gap| gap.widened(0, memory))));
        let waits = live_waits(run, &ops, &disturbed, &hindered);
        let held = Spans::of(ops.iter().filter_map(|op| op.belief()));
        let kept = Spans::of(locks[key].iter().filter(|l| l.kept).map(|l| l.span));
        let taken = Spans::of(locks[key].iter().map(|l| l.span));
        let lease = ops.iter().map(|op| op.lease).max().unwrap_or(0);
        let grant = grant_lease(lease);
        let one_grant = grant + grace(grant);
        for span in waits.minus(&held).minus(&kept).iter() {
            finding.checked += 1;
            longest.0 = longest.0.max(span.length());
            let others = absent(run, span.widened(memory, 0)).saturating_sub(1);
            let bound = lease + grace(lease) + one_grant * (1 + others) + LOOK + SLACK;
            if span.length() > bound {
                starved(run, &mut finding, key as Key, span, bound, "nobody held it");
            }
        }
        if truth.scripts == 0 {
            continue; // nothing is known of the server
        }
        for span in waits.minus(&held).minus(&taken).iter() {
            finding.checked += 1;
            longest.1 = longest.1.max(span.length());
            let bound = LOOK + FREE_SLACK;
            if span.length() > bound {
                let what = "the server had no lock there";
                starved(run, &mut finding, key as Key, span, bound, what);
            }
        }
    }
    finding.note = format!(
        "longest time unheld with live waiters {} ms, with the lock free {} ms",
        longest.0 / MILLI,
        longest.1 / MILLI
    );
    finding
}

fn starved(run: &Run, finding: &mut Finding, key: Key, span: Span, bound: Nanos, what: &str) {
    finding.violation(run, || {
        let waiting = |op: &&Op| {
            op.key == key
                && op.wait > 0
                && op.waiting().from <= span.until
                && op.waiting().until >= span.from
        };
        Violation {
            key: run.keys.name(key).to_owned(),
            span,
            ops: run
                .ops
                .iter()
                .filter(waiting)
                .map(|op| op.id)
                .take(8)
                .collect(),
            tokens: Vec::new(),
            what: format!(
                "live waiters waited for {} ms and {what}; the bound is {} ms",
                span.length() / MILLI,
                bound / MILLI
            ),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};
    use crate::history::{Call, Outcome, SupervisorEvent};

    fn found(history: &History, server: Server) -> u64 {
        let (run, truth) = history.build_with(server);
        check(&run, &truth).violations
    }

    fn waits(from: u64, until: u64) -> Story {
        Story::new(2, from, "k", from)
            .asked(Call::Run, 1000, until - from)
            .returned(until, Outcome::Busy)
    }

    #[test]
    fn a_key_that_cannot_be_acquired() {
        let mut history = History::default();
        let tried = |acquired| SupervisorEvent::KeyTried {
            at: 1,
            key: "k".into(),
            acquired,
            waited_ms: 2250,
        };
        history.supervisor.push(tried(true));
        assert_eq!(found(&history, Server::default()), 0);
        history.supervisor.push(tried(false));
        assert_eq!(found(&history, Server::default()), 1);
    }

    #[test]
    fn nobody_holds_it() {
        // Lease 1 s: 1.25 + 1.25 + 1 s.
        let mut history = History::default();
        history.call(waits(1000, 2000)).call(waits(1900, 4490));
        assert_eq!(found(&history, Server::default()), 0);
        history.call(waits(4400, 4600));
        assert_eq!(found(&history, Server::default()), 1);
        // Held in between.
        history.call(Story::new(1, 1, "k", 2900).held(3000, 3001, 1));
        assert_eq!(found(&history, Server::default()), 0);
    }

    #[test]
    fn a_key_kept_by_min_hold_is_not_starved() {
        let mut history = History::default();
        history.call(waits(1000, 7500));
        let mut server = Server::default();
        server.take(900, "k", "a:1", 1, 1000);
        server.keep(950, "k", "a:1", 1, 6000);
        server.look(9000, "a");
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn faults_explain_it() {
        let mut history = History::default();
        history.call(waits(1000, 5000));
        assert_eq!(found(&history, Server::default()), 1);
        let mut server = history.clone();
        server.fault(2500, 2600, "server_stop", None, true);
        assert_eq!(found(&server, Server::default()), 0);
        // A dead worker besides another may cost one more grant.
        history.fault(900, 1100, "worker_kill", Some(7), true);
        assert_eq!(found(&history, Server::default()), 1);
        history.fault(900, 1100, "worker_kill", Some(8), true);
        assert_eq!(found(&history, Server::default()), 0);
    }

    #[test]
    fn a_stopped_waiter_is_not_live() {
        let mut history = History::default();
        history.call(waits(1000, 5000));
        history.fault(1000, 5000, "worker_stop", Some(2), true);
        assert_eq!(found(&history, Server::default()), 0);
    }

    #[test]
    fn the_lock_is_free_and_nobody_is_served() {
        let mut history = History::default();
        history.call(waits(1000, 2500));
        let mut server = Server::default();
        server.take(10, "k", "a:1", 1, 1_500);
        server.look(3000, "a");
        assert_eq!(found(&history, server.clone()), 0);
        let mut server = Server::default();
        server.take(10, "k", "a:1", 1, 1000);
        server.look(3000, "a");
        assert_eq!(found(&history, server), 1);
    }
}
