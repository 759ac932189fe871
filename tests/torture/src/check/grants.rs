//! I14: a grant to the dead is short, and single.
//!
//! A pushed grant that its client never confirmed is kept for a second and a grace at most, whatever the
//! waiter's lease is. After one that expired unanswered, its client has lost all its places in that queue:
//! it is not served again before it has asked again. One that its client confirmed is taken by its call soon, or given back.

use std::collections::HashMap;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::owners::Owners;
use crate::check::run::{Key, MILLI, Run, SECOND};
use crate::check::spans::Span;
use crate::check::truth::{Client, End, LockSpan, Owner, Truth};
use crate::history::Nanos;

const GRANT: Nanos = SECOND;
const GRACE: Nanos = 250 * MILLI;
/// Half of the longest lease for which a call may not take what it confirmed before.
const UNTAKEN: Nanos = 1_500 * MILLI;
/// An expired lock is seen to be gone when somebody looks.
const SLACK: Nanos = 300 * MILLI;

/// That a process goes on is noted a moment after it does: by then it may have looked, and so has shown that it lives.
const WOKEN: Nanos = 50 * MILLI;

fn unanswered(lock: &LockSpan) -> bool {
    lock.pushed && !lock.confirmed && lock.end == End::Expired
}

pub(crate) fn check(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Finding {
    let mut finding = Finding::new(Id::I14);
    let joined = joined(truth);
    // The last unanswered grant of each client and key.
    let mut last: HashMap<(Key, Client), &LockSpan> = HashMap::new();
    for lock in truth.locks.iter().filter(|lock| lock.pushed) {
        let client = truth.client_of(lock.owner);
        let violation = |span: Span, what: String| Violation {
            key: run.keys.name(lock.key).to_owned(),
            span,
            ops: Vec::new(),
            tokens: vec![lock.token],
            what,
        };
        if let Some(before) = last.get(&(lock.key, client))
            && joined
                .get(&(lock.key, lock.owner))
                .is_some_and(|at| *at < before.span.until)
            && stopped(run, truth, owners, lock, before)
        {
            finding.violation(run, || {
                let span = Span::new(before.span.from, lock.span.from);
                let what = "a stopped client was served again after a grant that it never answered";
                violation(span, what.to_owned())
            });
        }
        if unanswered(lock) {
            last.insert((lock.key, client), lock);
        }
        if lock.confirmed {
            let waits = untaken(owners, lock);
            if !ran(run, truth, owners, lock, waits) || truth.gaps_at(lock.key).touches(waits) {
                continue;
            }
            finding.checked += 1;
            if waits.length() > GRANT + GRACE + SLACK + UNTAKEN {
                finding.violation(run, || {
                    let millis = waits.length() / MILLI;
                    violation(
                        waits,
                        format!("a grant was kept for {millis} ms, and no call took it"),
                    )
                });
            }
        }
    }
    finding.join(unconfirmed(run, truth));
    finding
}

/// Of this, what may be asked of one of several servers: a grant that is not confirmed is short.
pub(crate) fn unconfirmed(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I14);
    let memory = run.memory();
    let mut longest = 0;
    let pushed = truth.locks.iter().filter(|lock| lock.pushed);
    for lock in pushed.filter(|lock| !lock.confirmed) {
        // Also one that its client gave back at last, when it went on.
        if matches!(lock.end, End::Open | End::Unknown)
            || run.faults.at(lock.key).lossy_within(lock.span, memory)
            || truth.gaps_at(lock.key).touches(lock.span)
        {
            continue;
        }
        finding.checked += 1;
        longest = longest.max(lock.span.length());
        let bound = GRANT + GRACE + SLACK;
        // A server that stands still lets nothing expire.
        let late = Span::new(lock.span.from + bound - SLACK, lock.span.until);
        if lock.span.length() > bound && !run.faults.at(lock.key).freezing.touches(late) {
            finding.violation(run, || Violation {
                key: run.keys.name(lock.key).to_owned(),
                span: lock.span,
                ops: Vec::new(),
                tokens: vec![lock.token],
                what: format!(
                    "an unconfirmed grant stayed for {} ms",
                    lock.span.length() / MILLI
                ),
            });
        }
    }
    finding.note = format!(
        "unconfirmed grants stayed for {} ms at most",
        longest / MILLI
    );
    finding
}

/// When each entry came.
fn joined(truth: &Truth) -> HashMap<(Key, Owner), Nanos> {
    let mut joined = HashMap::new();
    for entry in &truth.entries {
        joined
            .entry((entry.key, entry.owner))
            .or_insert(entry.span.from);
    }
    joined
}

/// From a grant until its call took it; if none did, until its end.
fn untaken(owners: &Owners<'_>, lock: &LockSpan) -> Span {
    let op = owners.op(lock.key, lock.token);
    let taken = op.and_then(|op| op.acquired).map(|(at, _)| at);
    Span::new(
        lock.span.from,
        taken.map_or(lock.span.until, |at| at.max(lock.span.from)),
    )
}

/// Whether the process of a grant ran all that time, so that it could give it back.
fn ran(run: &Run, truth: &Truth, owners: &Owners<'_>, lock: &LockSpan, span: Span) -> bool {
    let Some((worker, generation)) = owners.process(truth, lock.owner) else {
        return false;
    };
    let process = run.processes.get(&(worker, generation));
    let ended = process.and_then(|process| process.ended);
    ended.is_none_or(|at| at > span.until) && run.faults.spares(worker, lock.key, span)
}

/// Whether its process stood still all the time between two grants, so that it cannot have asked for the
/// second one itself.
fn stopped(
    run: &Run,
    truth: &Truth,
    owners: &Owners<'_>,
    lock: &LockSpan,
    before: &LockSpan,
) -> bool {
    let Some((worker, _)) = owners.process(truth, lock.owner) else {
        return false;
    };
    let mut stops = run.faults.stops_of(worker).iter();
    stops.any(|stop| stop.from <= before.span.from && stop.until >= lock.span.from + WOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};

    /// Worker 1 is client `a`, stopped from 50 to 9000; `b` hands it grants that it does not answer.
    fn found(kept: u64, second: Option<u64>, joined_again: bool) -> u64 {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 1).held(2, 20, 5));
        history.fault(50, 9000, "client_stop", Some(1), true);
        let mut server = Server::default();
        server.take(2, "k", "a:1", 5, 1250);
        server.queue(3, "k", "a:2");
        server.queue(4, "k", "a:3");
        server.hand_over(60, "k", "a:1", "a:2", 6, kept);
        server.look(60 + kept + 10, "b");
        server.leave(60 + kept + 11, "k", "a:2");
        if let Some(at) = second {
            if joined_again {
                server.leave(at - 2, "k", "a:3");
                server.queue(at - 1, "k", "a:4");
                server.hand_over(at, "k", "x:1", "a:4", 7, 1250);
            } else {
                server.hand_over(at, "k", "x:1", "a:3", 7, 1250);
            }
            server.look(at + 1500, "b");
        }
        let (run, truth) = history.build_with(server);
        check(&run, &truth, &Owners::new(&run, &truth)).violations
    }

    #[test]
    fn an_unanswered_grant_is_short() {
        assert_eq!(found(1250, None, false), 0);
        assert_eq!(found(3000, None, false), 1);
    }

    #[test]
    fn an_unconfirmed_grant_is_short_even_if_it_is_given_back() {
        for (until, expected) in [(1_300, 0), (3_000, 1)] {
            let mut server = Server::default();
            server.take(2, "k", "a:1", 5, 1250);
            server.queue(4, "k", "a:3");
            server.hand_over(60, "k", "a:1", "a:3", 6, 8800);
            server.release(60 + until, "k", "a:3");
            let (run, truth) = History::default().build_with(server);
            let finding = check(&run, &truth, &Owners::new(&run, &truth));
            assert_eq!(finding.violations, expected, "{until}");
        }
    }

    #[test]
    fn a_stopped_client_is_served_once() {
        assert_eq!(found(1250, Some(1500), false), 1);
        // It asked again, or went on meanwhile.
        assert_eq!(found(1250, Some(1500), true), 0);
        assert_eq!(found(1250, Some(9500), false), 0);
        // It was woken already, and drove the queue itself.
        assert_eq!(found(1250, Some(8999), false), 0);
        assert_eq!(found(1250, Some(8900), false), 1);
    }

    #[test]
    fn what_no_call_takes_is_given_back() {
        for (taken, expected) in [(100, 0), (3_000, 0), (3_200, 1)] {
            let mut history = History::default();
            history.call(Story::new(1, 1, "k", 1).held(60 + taken, 9_000, 6));
            history.call(Story::new(1, 2, "j", 1).held(2, 20, 5));
            let mut server = Server::default();
            server.take(2, "k", "b:1", 5, 1250);
            server.queue(4, "k", "a:3");
            server.hand_over(60, "k", "b:1", "a:3", 6, 1250);
            server.confirm(90, "k", "a:3", 15_000);
            server.release(9_500, "k", "a:3");
            let (run, truth) = history.build_with(server);
            let finding = check(&run, &truth, &Owners::new(&run, &truth));
            assert_eq!(finding.violations, expected, "{taken}");
        }
    }
}
