//! I11 and I15 where several servers vote: who believes has the lock at a quorum of them, for as long as that.
//!
//! What a node has forgotten counts as if it still had it, for it does not vote for as long as anybody may believe in it; what
//! it executed while nobody looked counts as the best that it may have done. So a belief fails for what too many nodes
//! are known not to have.

use std::collections::HashMap;

use crate::check::audits;
use crate::check::evidence::{Finding, Id, Violation};
use crate::check::owners::{Process, Processes};
use crate::check::run::{Key, MILLI, Op, Run};
use crate::check::spans::{Span, Spans};
use crate::check::truth::{End, LockSpan, Truth};
use crate::check::views::at_once;
use crate::history::Nanos;

/// The shortest that there is.
const GRACE: Nanos = 250 * MILLI;
/// A server counts in milliseconds.
const ROUNDING: Nanos = 2 * MILLI;
/// How exactly the time is known at which a server did something.
const MOMENT: Nanos = 5 * MILLI;

/// A key, a token and a worker: two nodes may have the next token for two owners.
type Of = (Key, u64, Option<Process>);

/// What a node had confirmed.
struct Confirmed<'a> {
    truth: &'a Truth,
    locks: HashMap<Of, Vec<&'a LockSpan>>,
}

impl<'a> Confirmed<'a> {
    fn of((truth, processes): (&'a Truth, &Processes)) -> Confirmed<'a> {
        let mut locks: HashMap<_, Vec<_>> = HashMap::new();
        for lock in truth.locks.iter().filter(|lock| !lock.vote && !lock.kept) {
            let process = processes.get(&truth.client_of(lock.owner));
            let of = (lock.key, lock.token, process.copied());
            locks.entry(of).or_default().push(lock);
        }
        Confirmed { truth, locks }
    }

    /// Those of its worker, and those of which nobody knows whose they are.
    fn locks(&self, op: &Op) -> Vec<&'a LockSpan> {
        let token = op.token().unwrap_or(0);
        let processes = [Some((op.id.worker, op.id.generation)), None];
        let of = |process| self.locks.get(&(op.key, token, process));
        processes
            .into_iter()
            .filter_map(of)
            .flatten()
            .copied()
            .collect()
    }

    /// When it is known not to have had what the call believed in.
    fn lacked(&self, op: &Op, belief: Span) -> Spans {
        let had = self.locks(op).into_iter().map(|lock| {
            let forgotten = matches!(lock.end, End::Forgotten | End::Unknown);
            let until = if forgotten {
                Nanos::MAX
            } else {
                lock.span.until.saturating_add(MOMENT)
            };
            Span::new(lock.span.from.saturating_sub(MOMENT), until)
        });
        Spans::of([belief])
            .minus(&Spans::of(had))
            .minus(&self.unseen(op, belief))
    }

    /// When it may have had it although nobody saw it: from what was not seen of it on.
    fn unseen(&self, op: &Op, belief: Span) -> Spans {
        let gaps = self.truth.gaps_at(op.key).iter();
        let since = Span::new(op.invoked, belief.until);
        let known = gaps.filter(|gap| gap.from <= since.until && gap.until >= since.from);
        Spans::of(known.map(|gap| Span::new(gap.from, Nanos::MAX)))
    }

    /// Until when it promised to keep it; for ever if it is not known.
    fn promised(&self, op: &Op, until: Nanos) -> Nanos {
        let belief = Span::new(op.invoked, until);
        if self.truth.gaps_at(op.key).touches(belief) {
            return Nanos::MAX;
        }
        let promised = self.locks(op).into_iter().map(|lock| lock.promised);
        promised.max().unwrap_or(0)
    }
}

/// How many nodes a lock can do without.
fn spare(truths: &[Truth]) -> usize {
    truths.len().saturating_sub(1) / 2
}

/// I11: while a call believes in its hold, a quorum has it; and whoever looks there sees that.
pub(crate) fn held_by_quorum(run: &Run, truths: &[Truth], clients: &[Processes]) -> Finding {
    let mut finding = audits::looked(run);
    let nodes: Vec<_> = truths.iter().zip(clients).map(Confirmed::of).collect();
    let too_many = u32::try_from(spare(truths) + 1).unwrap_or(u32::MAX);
    for op in &run.ops {
        let Some(belief) = op.belief() else { continue };
        finding.checked += 1;
        let lacked: Vec<_> = nodes.iter().map(|node| node.lacked(op, belief)).collect();
        let lost = at_once(&lacked, too_many);
        let Some(span) = lost.iter().find(|span| span.length() > MOMENT) else {
            continue;
        };
        let had = nodes
            .iter()
            .filter(|node| !node.locks(op).is_empty())
            .count();
        let violation = || {
            let what = format!(
                "believed in a hold that a quorum of {} nodes did not have; {had} had ever confirmed it",
                truths.len()
            );
            Violation::of(run, &[op], span, what)
        };
        if run.faults.at(op.key).lossy_within(span, op.memory()) {
            finding.report(run, violation);
        } else {
            finding.violation(run, violation);
        }
    }
    finding
}

/// I15: a quorum had promised to keep it for a grace longer than it was believed in.
pub(crate) fn proven_by_quorum(run: &Run, truths: &[Truth], clients: &[Processes]) -> Finding {
    let mut finding = Finding::new(Id::I15);
    let nodes: Vec<_> = truths.iter().zip(clients).map(Confirmed::of).collect();
    let mut narrowest: Option<Nanos> = None;
    for op in &run.ops {
        let (Some((acquired, _)), Some(until)) = (op.acquired, op.safe_until()) else {
            continue;
        };
        let mut promised: Vec<_> = nodes.iter().map(|node| node.promised(op, until)).collect();
        promised.sort_unstable();
        // As long as this, and those that are longer, are a quorum.
        let Some(&least) = promised.get(spare(truths)) else {
            continue;
        };
        finding.checked += 1;
        let margin = least.saturating_sub(until);
        narrowest = Some(narrowest.map_or(margin, |known| known.min(margin)));
        if until + GRACE > least.saturating_add(ROUNDING) {
            finding.violation(run, || {
                let what = format!(
                    "believed until {} ms before a quorum may let go, with a grace of 250 ms",
                    margin / MILLI
                );
                Violation::of(run, &[op], Span::new(acquired, until), what)
            });
        }
    }
    if let Some(narrowest) = narrowest {
        finding.note = format!(
            "beliefs end at least {} ms before a quorum lets go",
            narrowest / MILLI
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::owners::at_nodes;
    use crate::check::testing::{History, Server, Story};

    /// Believed in from 10 to 500, with a token of 7, which these nodes had; they let go of it at the time after it.
    fn judged(nodes: [Option<(u64, u64)>; 3], more: impl Fn(&mut [Server; 3])) -> (u64, u64) {
        judged_with(nodes, [], more)
    }

    fn judged_with(
        nodes: [Option<(u64, u64)>; 3],
        stories: impl IntoIterator<Item = Story>,
        more: impl Fn(&mut [Server; 3]),
    ) -> (u64, u64) {
        let mut history = History::default();
        for story in stories {
            history.call(story);
        }
        let story = Story::new(1, 1, "k", 0).acquired(10, 7, 490);
        history.call(story.ended(500, true, true));
        let mut servers = [(); 3].map(|()| Server::default());
        for (server, node) in servers.iter_mut().zip(nodes) {
            server.look(1, "z");
            if let Some((from, until)) = node {
                server.set_by(from, "k", "confirm_vote", "a:1", "a:1", 7, until - from);
            }
        }
        more(&mut servers);
        for server in &mut servers {
            server.look(2_000, "z");
        }
        let (mut run, _) = history.build();
        let truths = servers.map(|server| server.replay_with(&mut run.keys));
        let clients = at_nodes(&run, &truths);
        let held = held_by_quorum(&run, &truths, &clients).violations;
        (held, proven_by_quorum(&run, &truths, &clients).violations)
    }

    const HELD: Option<(u64, u64)> = Some((8, 752));

    #[test]
    fn a_quorum_has_it_and_one_node_does_not() {
        assert_eq!(judged([HELD, HELD, HELD], |_| {}), (0, 0));
        assert_eq!(judged([None, HELD, HELD], |_| {}), (0, 0));
        assert_eq!(judged([None, None, HELD], |_| {}), (1, 1));
    }

    #[test]
    fn it_was_had_too_late_or_for_too_short() {
        assert_eq!(judged([None, Some((60, 752)), HELD], |_| {}), (1, 0));
        assert_eq!(judged([None, Some((8, 300)), HELD], |_| {}), (1, 1));
        // Without the grace that must follow.
        assert_eq!(judged([None, Some((8, 700)), HELD], |_| {}), (0, 1));
    }

    #[test]
    fn a_vote_is_no_hold() {
        let votes = |servers: &mut [Server; 3]| {
            servers[0].vote(8, "k", "a:1", 7, 900);
        };
        assert_eq!(judged([None, None, HELD], votes), (1, 1));
    }

    #[test]
    fn the_same_token_of_another_worker_is_no_hold() {
        let other = |servers: &mut [Server; 3]| {
            servers[0].set_by(8, "k", "release", "b:1", "b:1", 7, 900);
            for server in servers {
                server.take(1_000, "other", "b:1", 100, 5);
            }
        };
        let story = Story::new(2, 1, "other", 990).acquired(1_000, 100, 3);
        let more = [story.ended(1_004, true, true)];
        assert_eq!(judged_with([None, None, HELD], more, other).0, 1);
    }

    #[test]
    fn what_was_given_up_is_not_had_and_what_was_forgotten_or_not_seen_may_be() {
        let released = |servers: &mut [Server; 3]| servers[1].release(100, "k", "a:1");
        assert_eq!(judged([None, HELD, HELD], released).0, 1);
        let forgets = |servers: &mut [Server; 3]| servers[1].amnesia(100);
        assert_eq!(judged([None, HELD, HELD], forgets), (0, 0));
        let unseen = |servers: &mut [Server; 3]| servers[1].gap(5, 9);
        assert_eq!(judged([None, None, HELD], unseen), (0, 0));
    }
}
