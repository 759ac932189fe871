//! I9: no orphans.
//!
//! A lock whose token nobody ever believed in, of a worker that nothing happened to, is gone within a grant's
//! lease and grace. Such a worker has no more entries in a queue than calls under way (or returned within the
//! last second), but for the moment in which a call asks again. No ask takes a lock long after its process was
//! killed. In the end nothing is left.

use std::collections::{BTreeMap, HashMap};

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::owners::Owners;
use crate::check::run::{Key, MILLI, Op, Run, SECOND, command_deadline, grace, grant_lease};
use crate::check::spans::{Span, Spans};
use crate::check::truth::{End, LockSpan, Place, Truth};
use crate::history::Nanos;

const SLACK: Nanos = 300 * MILLI;
/// A client whose handshake's reply was swallowed dials for up to two seconds before it tries again.
const REDIALING: Nanos = 3 * SECOND;
/// How long an entry may outlive its call.
const LEAVING: Nanos = SECOND;
/// How long after its end a call may still be granted a lock: its cancel is on the way.
const CANCELLING: Nanos = 500 * MILLI;
/// A call that asks again with a new id has two entries until the old one's cancel has arrived.
const REPLACING: Nanos = 200 * MILLI;

/// Locks that nobody believed in.
pub(crate) fn orphans<'a>(
    truth: &'a Truth,
    owners: &'a Owners<'_>,
) -> impl Iterator<Item = &'a LockSpan> {
    truth.locks.iter().filter(|lock| {
        !lock.kept
            && !matches!(lock.end, End::Unknown | End::Open)
            && owners.op(lock.key, lock.token).is_none()
    })
}

/// What may have delayed the undo of a lock that nobody believed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    None,
    /// Replies were lost: its client had to connect again first.
    Replies,
    Any,
}

/// What happened to the worker that owned it, and to the server.
pub(crate) fn excuse(
    run: &Run,
    truth: &Truth,
    owners: &Owners<'_>,
    lock: &LockSpan,
    span: Span,
) -> Excuse {
    let Some((worker, generation)) = owners.process(truth, lock.owner) else {
        return Excuse::Any;
    };
    let process = &run.processes[&(worker, generation)];
    let span_before = span.widened(SECOND, 0);
    if process.killed && process.ended.is_some_and(|at| at <= span.until) {
        Excuse::Any
    } else if run.faults.lets_release(worker, lock.key, span_before) {
        Excuse::None
    } else if (run.faults).lets_requests_through(worker, lock.key, span_before) {
        Excuse::Replies
    } else {
        Excuse::Any
    }
}

/// Whether nothing happened to the worker that owned it, nor to the server, that would delay an undo.
pub(crate) fn spared(
    run: &Run,
    truth: &Truth,
    owners: &Owners<'_>,
    lock: &LockSpan,
    span: Span,
) -> bool {
    excuse(run, truth, owners, lock, span) == Excuse::None
}

pub(crate) fn check(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Finding {
    let mut finding = Finding::new(Id::I9);
    let lease = grant_lease(run.longest_lease());
    let bound = lease + grace(lease) + SLACK;
    let mut oldest = 0;
    for lock in orphans(truth, owners) {
        let bound = match excuse(run, truth, owners, lock, lock.span) {
            Excuse::None => {
                oldest = oldest.max(lock.span.length());
                bound
            }
            Excuse::Replies => bound + REDIALING,
            Excuse::Any => continue,
        };
        finding.checked += 1;
        if lock.span.length() > bound {
            finding.violation(run, || Violation {
                key: run.keys.name(lock.key).to_owned(),
                span: lock.span,
                ops: Vec::new(),
                tokens: vec![lock.token],
                what: format!(
                    "nobody believed in the lock of {}, which stayed for {} ms",
                    truth.owners.name(lock.owner),
                    lock.span.length() / MILLI
                ),
            });
        }
    }
    finding.note = format!("oldest of a spared worker {} ms", oldest / MILLI);
    finding.join(at_node(run, truth, owners));
    finding.join(left(run));
    finding
}

/// Of this, what may be asked of one of several servers.
pub(crate) fn at_node(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Finding {
    let mut finding = Finding::new(Id::I9);
    unattended(run, truth, owners, &attended(run), &mut finding);
    dead(run, truth, owners, &mut finding);
    entries(run, truth, owners, &mut finding);
    finding
}

/// In the end nothing is left anywhere.
pub(crate) fn left(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I9);
    if let Some((at, keys)) = &run.leftovers {
        finding.checked += 1;
        // The last token of a key is kept for two hours, so that the next is greater.
        for key in keys.iter().filter(|key| !key.contains(":fence:")) {
            finding.violation(run, || Violation {
                key: key.clone(),
                span: Span::new(*at, *at),
                ops: Vec::new(),
                tokens: Vec::new(),
                what: "left on the server after everybody had gone".to_owned(),
            });
        }
    }
    finding
}

/// When each worker process called for each key.
fn attended(run: &Run) -> HashMap<(Key, u32, u32), Spans> {
    let mut calls: HashMap<(Key, u32, u32), Vec<Span>> = HashMap::new();
    for op in &run.ops {
        let of = (op.key, op.id.worker, op.id.generation);
        calls.entry(of).or_default().push(op.whole());
    }
    calls
        .into_iter()
        .map(|(of, spans)| (of, Spans::of(spans)))
        .collect()
}

/// A lock given to a worker that had not called for it for a while: some call has left its entry behind.
fn unattended(
    run: &Run,
    truth: &Truth,
    owners: &Owners<'_>,
    attended: &HashMap<(Key, u32, u32), Spans>,
    finding: &mut Finding,
) {
    for lock in orphans(truth, owners) {
        let Some((worker, generation)) = owners.process(truth, lock.owner) else {
            continue;
        };
        let at = Span::new(lock.span.from, lock.span.from);
        let before = at.widened(CANCELLING, 0);
        let called = attended
            .get(&(lock.key, worker, generation))
            .is_some_and(|calls| calls.touches(before));
        // Faults of the last second may have delayed the cancel, or have had the same ask sent again.
        if !called && spared(run, truth, owners, lock, before.widened(SECOND, 0)) {
            finding.violation(run, || Violation {
                key: run.keys.name(lock.key).to_owned(),
                span: lock.span,
                ops: Vec::new(),
                tokens: vec![lock.token],
                what: format!(
                    "worker {worker}.{generation} was given the lock long after its last call for it"
                ),
            });
        }
    }
}

/// A lock taken by an ask whose process was killed long before: applied however late it was.
fn dead(run: &Run, truth: &Truth, owners: &Owners<'_>, finding: &mut Finding) {
    let latest = command_deadline(run.longest_lease()) + SLACK;
    for lock in truth.locks.iter().filter(|lock| !lock.kept && !lock.pushed) {
        let Some((worker, generation)) = owners.process(truth, lock.owner) else {
            continue;
        };
        let process = &run.processes[&(worker, generation)];
        let Some(ended) = process.ended else { continue };
        finding.checked += 1;
        if lock.span.from > ended + latest {
            finding.violation(run, || Violation {
                key: run.keys.name(lock.key).to_owned(),
                span: Span::new(ended, lock.span.from),
                ops: Vec::new(),
                tokens: vec![lock.token],
                what: format!(
                    "worker {worker}.{generation} was dead for {} ms when its ask took the lock",
                    (lock.span.from - ended) / MILLI
                ),
            });
        }
    }
}

/// More entries than calls: some call has left its entry behind.
fn entries(run: &Run, truth: &Truth, owners: &Owners<'_>, finding: &mut Finding) {
    let mut calls: HashMap<(Key, u32, u32), Vec<&Op>> = HashMap::new();
    for op in &run.ops {
        let of = (op.key, op.id.worker, op.id.generation);
        calls.entry(of).or_default().push(op);
    }
    let mut places: BTreeMap<(Key, u32, u32), Vec<&Place>> = BTreeMap::new();
    for entry in &truth.entries {
        if let Some((worker, generation)) = owners.process(truth, entry.owner) {
            let of = (entry.key, worker, generation);
            places.entry(of).or_default().push(entry);
        }
    }
    for (of, places) in places {
        finding.checked += places.len() as u64;
        let ops = calls.get(&of).map_or(&[][..], |ops| ops);
        for span in surplus(&places, ops) {
            let before = span.widened(SECOND + LEAVING, 0);
            let process = &run.processes[&(of.1, of.2)];
            let gone = process.ended.is_some_and(|at| at <= span.until);
            if gone || !run.faults.spares(of.1, of.0, before) {
                continue;
            }
            finding.violation(run, || Violation {
                key: run.keys.name(of.0).to_owned(),
                span,
                ops: Vec::new(),
                tokens: Vec::new(),
                what: format!(
                    "worker {}.{} had more entries in the queue than calls, for {} ms beyond a second",
                    of.1,
                    of.2,
                    span.length() / MILLI
                ),
            });
        }
    }
}

/// When there were more entries than calls that might own them.
fn surplus(entries: &[&Place], ops: &[&Op]) -> Vec<Span> {
    // At the same moment calls come before they go, and entries go before they come.
    let mut steps: Vec<(Nanos, u8, i64)> = Vec::new();
    for op in ops {
        let span = op.whole();
        steps.push((span.from, 0, -1));
        steps.push((span.until.saturating_add(LEAVING), 3, 1));
    }
    for entry in entries {
        steps.push((entry.span.from, 2, 1));
        steps.push((entry.span.until, 1, -1));
    }
    steps.sort_unstable();
    let (mut surplus, mut since, mut found) = (0i64, None, Vec::new());
    for (at, _, step) in steps {
        surplus += step;
        match (surplus > 0, since) {
            (true, None) => since = Some(at),
            (false, Some(from)) => {
                since = None;
                if at > from + REPLACING {
                    found.push(Span::new(from, at));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};
    use crate::history::{Outcome, SupervisorEvent};

    fn found(history: &History, server: Server) -> u64 {
        let (run, truth) = history.build_with(server);
        check(&run, &truth, &Owners::new(&run, &truth)).violations
    }

    /// Worker 1 is client `a`: it once held a lock.
    fn known() -> (History, Server) {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 10).held(11, 20, 100));
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 1250);
        server.release(20, "k", "a:1");
        (history, server)
    }

    #[test]
    fn an_orphan_that_is_gone_in_time() {
        let (history, mut server) = known();
        server.take(100, "k", "a:2", 101, 1250);
        server.look(3000, "b");
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn a_fault_that_lets_releases_through_excuses_no_orphan() {
        for (kind, expected) in [("take_time", 1), ("server_stop", 0)] {
            let (mut history, mut server) = known();
            history.call(Story::new(1, 2, "k", 90).returned(110, Outcome::Unavailable));
            history.fault(80, 300, kind, None, true);
            server.take(100, "k", "a:2", 101, 3300);
            server.look(4000, "b");
            assert_eq!(found(&history, server), expected, "{kind}");
        }
    }

    #[test]
    fn an_ask_of_the_dead() {
        for (at, expected) in [(1_100, 0), (1_800, 1)] {
            let (mut history, mut server) = known();
            history.call(Story::new(1, 2, "k", 990));
            history.supervisor.push(SupervisorEvent::WorkerEnded {
                at: 1_000 * MILLI,
                worker: 1,
                generation: 0,
                killed: true,
            });
            server.take(at, "k", "a:2", 101, 1250);
            server.look(at + 2_000, "b");
            assert_eq!(found(&history, server), expected, "{at}");
        }
    }

    #[test]
    fn a_lock_given_to_nobody() {
        let (mut history, mut server) = known();
        server.take(500, "k", "a:2", 101, 100);
        server.release(510, "k", "a:2");
        assert_eq!(found(&history, server.clone()), 0);
        server.take(600, "k", "a:3", 102, 100);
        server.release(610, "k", "a:3");
        assert_eq!(found(&history, server.clone()), 1); // called until 21
        history.call(Story::new(1, 2, "k", 50).returned(101, Outcome::Dropped));
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn an_orphan_that_stays() {
        let (mut history, mut server) = known();
        history.call(Story::new(1, 2, "k", 90).returned(95, Outcome::Dropped));
        server.take(100, "k", "a:2", 101, 1600);
        server.look(3000, "b");
        assert_eq!(found(&history, server.clone()), 1);
        history.fault(150, 200, "link_drop", Some(1), true);
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn a_lock_that_somebody_believed_in_is_none() {
        let (mut history, mut server) = known();
        server.take(100, "k", "a:2", 101, 9000);
        server.look(10_000, "b");
        history.call(Story::new(1, 2, "k", 90).acquired(101, 101, 990).lost(1000));
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn an_entry_ends_with_its_call() {
        let (mut history, mut server) = known();
        history
            .call(Story::new(1, 2, "k", 90).returned(1000, Outcome::Busy))
            .call(Story::new(1, 3, "k", 95).returned(1000, Outcome::Busy));
        server.queue(100, "k", "a:2");
        server.queue(101, "k", "a:3");
        server.leave(1001, "k", "a:2");
        server.leave(1500, "k", "a:3");
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn a_call_that_asks_again_has_two_entries_for_a_moment() {
        let (mut history, mut server) = known();
        history.call(Story::new(1, 2, "k", 90).returned(5000, Outcome::Busy));
        server.queue(100, "k", "a:2");
        server.queue(2000, "k", "a:3");
        server.leave(2100, "k", "a:2");
        server.leave(5000, "k", "a:3");
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn an_entry_that_is_left_behind() {
        let (mut history, mut server) = known();
        history
            .call(Story::new(1, 2, "k", 90).returned(1000, Outcome::Dropped))
            .call(Story::new(1, 3, "k", 1500).returned(5000, Outcome::Busy));
        server.queue(100, "k", "a:2");
        server.queue(1600, "k", "a:3");
        server.leave(2300, "k", "a:2");
        server.leave(2300, "k", "a:3");
        assert_eq!(found(&history, server.clone()), 1); // 2000 to 2300
        history.fault(900, 1100, "link_drop", Some(1), true);
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn what_is_left_in_the_end() {
        let (mut history, server) = known();
        let left = |keys: &[&str]| SupervisorEvent::Leftovers {
            at: 1,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        history.supervisor.push(left(&["distlock:fence:{k}"]));
        assert_eq!(found(&history, server.clone()), 0);
        history.supervisor.push(left(&["distlock:queue:{k}"]));
        assert_eq!(found(&history, server), 1);
    }
}
