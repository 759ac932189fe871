//! I3: tokens rise in the order of real time.
//!
//! A call that begins after another believed in its hold, or believes after the other's belief was over, has
//! the greater token. (A guard that its caller finds over, after a stop, is no belief.) The second half needs a server that keeps its data: otherwise a grant may be believed
//! late, though within its lease, when a later one is over already.

use std::collections::HashMap;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::check::truth::Truth;
use crate::history::Nanos;

/// A call whose token is not above that of one that came before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Inversion<'a> {
    pub(crate) earlier: &'a Op,
    pub(crate) later: &'a Op,
}

/// For each call the greatest token that must be below its own. `steady`: the server kept its data.
pub(crate) fn inversions<'a>(ops: &[&'a Op], steady: impl Fn(&Op) -> bool) -> Vec<Inversion<'a>> {
    let holds: Vec<(&'a Op, Nanos, u64)> = ops
        .iter()
        .filter_map(|op| op.acquired.map(|(at, token)| (*op, at, token)))
        .collect();
    let by_start = Highest::new(holds.iter().map(|&(op, at, token)| (at, token, op)));
    let by_end = Highest::new(
        holds
            .iter()
            .filter_map(|&(op, _, token)| Some((op.belief()?.until, token, op))),
    );
    let mut found = Vec::new();
    for &(later, at, token) in &holds {
        let called_after = by_start.before(later.invoked);
        let believes = later.belief().is_some();
        let believed_after = (believes && steady(later))
            .then(|| by_end.before(at + 1))
            .flatten();
        let highest = [called_after, believed_after]
            .into_iter()
            .flatten()
            .filter(|(_, earlier)| earlier.id != later.id)
            .max_by_key(|(token, _)| *token);
        if let Some((before, earlier)) = highest
            && before >= token
        {
            found.push(Inversion { earlier, later });
        }
    }
    found
}

/// The greatest token up to a moment.
struct Highest<'a>(Vec<(Nanos, u64, &'a Op)>);

impl<'a> Highest<'a> {
    fn new(tokens: impl Iterator<Item = (Nanos, u64, &'a Op)>) -> Highest<'a> {
        let mut sorted: Vec<_> = tokens.collect();
        sorted.sort_by_key(|(at, token, _)| (*at, *token));
        for i in 1..sorted.len() {
            if sorted[i - 1].1 > sorted[i].1 {
                (sorted[i].1, sorted[i].2) = (sorted[i - 1].1, sorted[i - 1].2);
            }
        }
        Highest(sorted)
    }

    fn before(&self, at: Nanos) -> Option<(u64, &'a Op)> {
        let next = self.0.partition_point(|(from, _, _)| *from < at);
        let (_, token, op) = self.0[next.checked_sub(1)?];
        Some((token, op))
    }
}

/// The fence was forgotten and the server's clock was behind the earlier token: nothing could have helped.
fn excused(truth: &Truth, inversion: &Inversion<'_>) -> bool {
    let lock = |op: &Op| op.token().and_then(|token| truth.lock(op.key, token));
    let (Some(before), Some(after)) = (inversion.earlier.token(), lock(inversion.later)) else {
        return false;
    };
    let since = lock(inversion.earlier).map_or(0, |lock| lock.span.from);
    let forgotten = truth
        .amnesias
        .iter()
        .any(|&at| since <= at && at <= after.span.from);
    forgotten && after.wall_us < before
}

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I3);
    let memory = run.memory();
    for ops in run.by_key() {
        let mut seen: HashMap<u64, &Op> = HashMap::new();
        for op in &ops {
            let Some((at, token)) = op.acquired else {
                continue;
            };
            finding.checked += 1;
            if let Some(other) = seen.insert(token, op) {
                finding.violation(run, || {
                    let what = "two calls carry the same token".to_owned();
                    Violation::of(run, &[other, op], Span::new(at, at), what)
                });
            }
        }
        let steady = |op: &Op| {
            let at = op.acquired.map_or(op.invoked, |(at, _)| at);
            !run.faults
                .at(op.key)
                .lossy_within(Span::new(at, at), memory)
        };
        for inversion in inversions(&ops, steady) {
            if inversion.earlier.token() == inversion.later.token() {
                continue; // counted above
            }
            let at = inversion.later.acquired.map_or(0, |(at, _)| at);
            let violation = || {
                let what = "the later call's token is smaller".to_owned();
                let ops = [inversion.earlier, inversion.later];
                Violation::of(run, &ops, Span::new(at, at), what)
            };
            if excused(truth, &inversion) {
                finding.report(run, violation);
            } else {
                finding.violation(run, violation);
            }
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::testing::{History, Server, Story};

    fn found(history: &History, server: Server) -> (u64, u64) {
        let (run, truth) = history.build_with(server);
        let finding = check(&run, &truth);
        (finding.violations, finding.reported)
    }

    fn two(first: u64, second: u64) -> History {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 20, first))
            .call(Story::new(2, 1, "k", 0).held(30, 40, second));
        history
    }

    #[test]
    fn they_rise() {
        assert_eq!(found(&two(1, 2), Server::default()), (0, 0));
    }

    #[test]
    fn they_fall() {
        assert_eq!(found(&two(2, 1), Server::default()), (1, 0));
    }

    #[test]
    fn they_are_equal() {
        assert_eq!(found(&two(2, 2), Server::default()), (1, 0));
    }

    #[test]
    fn a_grant_believed_late_after_a_flush_is_no_inversion() {
        let mut history = two(2, 1);
        history.fault(5, 5, "flush_all", None, false);
        assert_eq!(found(&history, Server::default()), (0, 0));
        // But a call that begins after the first belief is one.
        history.stories[1] = Story::new(2, 1, "k", 25).held(30, 40, 1);
        assert_eq!(found(&history, Server::default()), (1, 0));
    }

    #[test]
    fn amnesia_and_a_backward_step_are_reported() {
        let mut history = two(5_000_009, 20_000);
        history.stories[1] = Story::new(2, 1, "k", 25).held(30, 40, 29_000);
        let mut server = Server {
            ahead_ms: 5_000,
            ..Server::default()
        };
        server.take(9, "k", "a:1", 5_000_009, 100);
        server.release(20, "k", "a:1");
        let mut steps_only = server.clone();
        server.amnesia(25);
        for server in [&mut server, &mut steps_only] {
            server.ahead_ms = 0;
            server.take(29, "k", "b:1", 29_000, 100);
        }
        assert_eq!(found(&history, server), (0, 1));
        assert_eq!(found(&history, steps_only), (1, 0));
    }

    /// Quadratic: whether any call that came before has a token that is not smaller.
    fn reference(calls: &[(u64, u64, u64, u64)]) -> usize {
        (0..calls.len())
            .filter(|&later| {
                (0..calls.len()).any(|earlier| {
                    let ((_, a_from, a_until, a), (b_called, b_from, _, b)) =
                        (calls[earlier], calls[later]);
                    earlier != later && a > b && (a_from < b_called || a_until <= b_from)
                })
            })
            .count()
    }

    proptest! {
        #[test]
        fn agrees_with_a_quadratic_reference(
            calls in prop::collection::vec((0u64..200, 0u64..50, 1u64..50), 0..20),
            shift in 0usize..20,
        ) {
            let calls: Vec<_> = calls
                .iter()
                .enumerate()
                .map(|(i, &(called, waited, long))| {
                    let token = ((i + shift) % calls.len()) as u64 + 1;
                    (called, called + waited, called + waited + long, token)
                })
                .collect();
            let mut history = History::default();
            for (op, &(called, from, until, token)) in calls.iter().enumerate() {
                history.call(Story::new(1, op as u64, "k", called).held(from, until, token));
            }
            prop_assert_eq!(found(&history, Server::default()), (reference(&calls) as u64, 0));
        }
    }
}
