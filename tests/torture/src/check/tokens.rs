//! Tokens rise in the order of real time.
//!
//! A call has a greater token than another call of its key if it began after the other had
//! acquired. Readers of a phase share its token, and permits have none. The same holds if its belief began after the other's belief had ended. A guard that
//! its caller finds ended after a stop has no belief. The second case requires a server that keeps
//! its data. Otherwise a grant may be used late, within its lease, after a later one has ended.

use std::collections::HashMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::history::{Call, Nanos};

/// A call with a token that is not above the token of an earlier call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inversion<'a> {
    earlier: &'a Op,
    later: &'a Op,
}

/// Returns each call with the greatest token that must be below its own. `steady`: data was kept.
fn inversions<'a>(ops: &[&'a Op], steady: impl Fn(&Op) -> bool) -> Vec<Inversion<'a>> {
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

/// The greatest token up to each moment.
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

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Tokens);
    let memory = run.memory();
    for mut ops in run.by_key() {
        ops.retain(|op| op.call != Call::Permits);
        let mut seen: HashMap<u64, &Op> = HashMap::new();
        for op in &ops {
            let Some((at, token)) = op.acquired else {
                continue;
            };
            finding.checked += 1;
            if let Some(other) = seen.insert(token, op)
                && !(op.call.is_read() && other.call.is_read())
            {
                let what = "two calls carry the same token".to_owned();
                let span = Span::new(at, at);
                finding.violation(run, Violation::of(run, &[other, op], span, what));
            }
        }
        let steady = |op: &Op| {
            let at = op.acquired.map_or(op.invoked, |(at, _)| at);
            let site = run.faults.at(op.key);
            !site.lossy_within(Span::new(at, at), memory)
        };
        for Inversion { earlier, later } in inversions(&ops, steady) {
            if earlier.token() == later.token() {
                continue; // readers, or counted above
            }
            let at = later.acquired.map_or(0, |(at, _)| at);
            let what = "the later call's token is smaller".to_owned();
            let violation = Violation::of(run, &[earlier, later], Span::new(at, at), what);
            finding.violation(run, violation);
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::kind::Kind;

    fn found(history: &History) -> u64 {
        check(&history.build()).violations
    }

    #[test]
    fn tokens_rise() {
        // The tokens, when the second call begins, and whether the server forgot everything before.
        for (first, second, invoked, flushed, expected) in [
            (1, 2, 0, false, 0),
            (2, 1, 0, false, 1),
            (2, 2, 0, false, 1),
            // After a flush, a grant may be used late.
            (2, 1, 0, true, 0),
            // A call that begins after the first acquisition still has a greater token.
            (2, 1, 25, true, 1),
        ] {
            let mut history = History::default();
            history
                .call(Call::new(1, 1, "k", 0).held(10, 20, first))
                .call(Call::new(2, 1, "k", invoked).held(30, 40, second));
            if flushed {
                history.fault(5, 5, Kind::FlushAll, None, false);
            }
            assert_eq!(
                found(&history),
                expected,
                "{first} {second} {invoked} {flushed}"
            );
        }
    }
}
