//! I12: first come, first served, while nothing happens to the server.
//!
//! The server's own order decides: a lock must not go to an owner while another stands in its queue who came
//! before it, or while anybody stands there if it did not queue at all (a try, a newcomer). So what happens to
//! workers and links excuses nothing. A server whose clock steps may lose a queue by its TTL.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::owners::Owners;
use crate::check::run::{Key, Run, SECOND};
use crate::check::spans::Span;
use crate::check::truth::{Owner, Truth};
use crate::history::Nanos;

/// A fault of the server this long ago may still have waiters ask again.
const CALM: Nanos = 2 * SECOND;

/// Somebody was served before one who had come earlier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Passed {
    pub(crate) at: Nanos,
    pub(crate) key: Key,
    pub(crate) granted: Owner,
    pub(crate) token: u64,
    pub(crate) whom: Owner,
    pub(crate) since: Nanos,
}

pub(crate) fn check(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Finding {
    let mut finding = Finding::new(Id::I12);
    let calm = |key: Key, span: Span| !run.faults.at(key).all.touches(span.widened(CALM, 0));
    finding.checked = truth
        .locks
        .iter()
        .filter(|lock| !lock.kept && calm(lock.key, Span::new(lock.span.from, lock.span.from)))
        .count() as u64;
    for passed in &truth.passed {
        let span = Span::new(passed.since, passed.at);
        let violation = || Violation {
            key: run.keys.name(passed.key).to_owned(),
            span,
            ops: owners
                .op(passed.key, passed.token)
                .map(|op| op.id)
                .into_iter()
                .collect(),
            tokens: vec![passed.token],
            what: format!(
                "{} was served while {} waited, who had come earlier",
                truth.owners.name(passed.granted),
                truth.owners.name(passed.whom)
            ),
        };
        if calm(passed.key, span) {
            finding.violation(run, violation);
        } else {
            finding.report(run, violation);
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::check::testing::{History, Server};
    use crate::history::ServerEvent;

    fn passed(server: &Server) -> usize {
        server.clone().replay().0.passed.len()
    }

    #[test]
    fn in_order() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 500);
        server.queue(20, "k", "b:1");
        server.queue(21, "k", "c:1");
        server.queue(22, "k", "b:1"); // asks again: keeps its place
        server.hand_over(30, "k", "a:1", "b:1", 101, 400);
        server.hand_over(40, "k", "b:1", "c:1", 102, 400);
        server.release(50, "k", "c:1");
        assert_eq!(passed(&server), 0);
    }

    #[test]
    fn who_left_is_not_passed() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 500);
        server.queue(20, "k", "b:1");
        server.queue(21, "k", "c:1");
        server.leave(25, "k", "b:1");
        server.hand_over(30, "k", "a:1", "c:1", 101, 400);
        assert_eq!(passed(&server), 0);
    }

    #[test]
    fn the_wrong_one_is_served() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 500);
        server.queue(20, "k", "b:1");
        server.queue(21, "k", "c:1");
        server.hand_over(30, "k", "a:1", "c:1", 101, 400);
        assert_eq!(passed(&server), 1);
    }

    #[test]
    fn who_may_have_queued_in_a_gap_is_not_judged() {
        let mut server = Server::default();
        server.gap(5, 8);
        server.queue(10, "k", "b:1");
        server.take(20, "k", "c:1", 101, 500);
        server.hand_over(30, "k", "c:1", "d:1", 101, 500);
        server.release(31, "k", "d:1");
        assert_eq!(passed(&server), 0);
        // Nothing is left of what queued before the server forgot everything.
        server.amnesia(40);
        server.queue(50, "k", "b:1");
        server.take(60, "k", "c:2", 102, 500);
        assert_eq!(passed(&server), 1);
    }

    #[test]
    fn a_newcomer_passes_the_queue() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 500);
        server.queue(20, "k", "b:1");
        server.release(30, "k", "a:1");
        server.take(31, "k", "c:1", 101, 500);
        let mut history = History::default();
        let found = |history: &History| {
            let (mut run, _) = history.build();
            let truth = server.clone().replay_with(&mut run.keys);
            let finding = check(&run, &truth, &Owners::new(&run, &truth));
            (finding.violations, finding.reported)
        };
        assert_eq!(found(&history), (1, 0));
        history.fault(15, 25, "client_kill", Some(7), true);
        assert_eq!(found(&history), (1, 0));
        history.fault(15, 25, "clock_step", None, false);
        assert_eq!(found(&history), (0, 1));
    }

    /// Quadratic: at each write of a lock, looks at everybody who ever queued before.
    fn reference(events: &[ServerEvent]) -> usize {
        let mut found = 0;
        for (i, event) in events.iter().enumerate() {
            let ServerEvent::Set {
                key: k,
                owner: served,
                serial: s,
                ..
            } = event
            else {
                continue;
            };
            // When each owner that is in the queue came there; a script's own removal of whom it serves does
            // not count.
            let mut came: HashMap<&str, usize> = HashMap::new();
            let mut granted: HashMap<&str, bool> = HashMap::new();
            for (j, earlier) in events[..i].iter().enumerate() {
                match earlier {
                    ServerEvent::Queue {
                        key,
                        owner,
                        added,
                        serial,
                        ..
                    } if key == k => {
                        if *added {
                            came.entry(owner).or_insert(j);
                        } else if !(serial == s && owner == served) {
                            came.remove(owner.as_str());
                            granted.remove(owner.as_str());
                        }
                    }
                    ServerEvent::Set { key, owner, .. } if key == k => {
                        granted.insert(owner, true);
                    }
                    _ => {}
                }
            }
            let own = came.get(served.as_str()).copied();
            let passes = came.iter().any(|(owner, &since)| {
                owner != served
                    && !granted.get(owner).copied().unwrap_or(false)
                    && own.is_none_or(|own| since < own)
            });
            found += usize::from(passes);
        }
        found
    }

    proptest! {
        #[test]
        fn agrees_with_a_quadratic_reference(
            steps in prop::collection::vec((0u8..5, 0usize..5, 0usize..5, 0usize..2), 1..60)
        ) {
            let mut server = Server::default();
            let mut names: HashMap<(usize, usize), (u64, u64)> = HashMap::new();
            let owner = |names: &mut HashMap<(usize, usize), (u64, u64)>, who, key| {
                let (sequence, _) = *names.entry((who, key)).or_insert((0, 0));
                format!("{who}:{sequence}")
            };
            for (step, &(what, who, other, key)) in steps.iter().enumerate() {
                let at = 10 * (step as u64 + 1);
                let k = ["k", "l"][key];
                let one = owner(&mut names, who, key);
                let two = owner(&mut names, other, key);
                match what {
                    0 | 1 => server.queue(at, k, &one),
                    2 => server.leave(at, k, &one),
                    3 => {
                        server.take(at, k, &one, 1000 + step as u64, 400);
                        server.release(at + 1, k, &one);
                        server.leave(at + 2, k, &one);
                        names.insert((who, key), (step as u64 + 1, 0));
                    }
                    _ => {
                        server.hand_over(at, k, &one, &two, 1000 + step as u64, 400);
                        server.leave(at + 1, k, &two);
                        names.insert((other, key), (step as u64 + 1, 0));
                    }
                }
            }
            prop_assert_eq!(passed(&server), reference(&server.events));
        }
    }
}
