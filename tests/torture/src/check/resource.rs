//! No update through the fence is lost.
//!
//! The resource recorded its accesses in its own order. Each accepted write through the fence must
//! be the previous value plus one, or plus the amount that moves from one key to another, with a
//! token that is not lower. So a move leaves the sum of all registers as it is. A reader that reads
//! twice must find the same value. Updates lost without the fence are counted, to show its purpose.

use std::collections::HashMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::Run;
use crate::check::spans::Span;
use crate::history::{Accessed, Nanos, OpId};
use crate::resource::Access;

/// A body, as the resource saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// The first access that was accepted; without permits, it is one through the fence.
    pub(super) at: Nanos,
    /// The accepted write through the fence, or the end of a body with permits.
    pub(super) done: Option<Nanos>,
    /// The value that the body of a reader read first.
    pub(super) value: i64,
}

/// The state of the registers, which follows the accesses in the resource's order.
#[derive(Debug, Default)]
pub(super) struct Resource {
    pub(super) visits: HashMap<OpId, Visit>,
    increments: i64,
    moves: u64,
    pub(super) lost_unfenced: u64,
    pub(super) stale_writes: u64,
    wrong: Vec<(Accessed, String)>,
    /// By key and whether the register is fenced: its value and its highest token.
    registers: HashMap<(String, bool), (i64, u64)>,
}

impl Resource {
    pub(super) fn push(&mut self, accessed: Accessed) {
        let request = &accessed.request;
        let is_fenced = request.access.is_fenced();
        // Each account that is written, with its token, its new value, and the change.
        let first = (request.key.clone(), request.token);
        let written = match &request.access {
            Access::Read { .. } | Access::Enter { .. } | Access::Leave => vec![],
            Access::Write { value, .. } => vec![(first, *value, 1)],
            Access::Move {
                amount,
                values: [from, into],
                to,
                to_token,
            } => vec![
                (first, *from, -amount),
                ((to.clone(), *to_token), *into, *amount),
            ],
        };
        if !accessed.accepted {
            self.stale_writes += u64::from(!written.is_empty());
            return;
        }
        if !matches!(
            request.access,
            Access::Read { fenced: false } | Access::Write { fenced: false, .. }
        ) {
            self.visit(&accessed, !written.is_empty());
        }
        self.moves += u64::from(written.len() == 2);
        self.increments += i64::from(written.len() == 1 && is_fenced);
        for ((key, token), value, change) in written {
            let (last, highest) = self.registers.entry((key, is_fenced)).or_default();
            let (before, is_stale) = (*last, token < *highest);
            (*last, *highest) = (value, token.max(*highest));
            let is_lost = value != before + change;
            if !is_fenced {
                self.lost_unfenced += u64::from(is_lost);
            } else if is_lost {
                let what = format!("an update was lost: {value} after {before}, by {change}");
                self.wrong.push((accessed.clone(), what));
            } else if is_stale {
                let what = "a write with a stale token was accepted".to_owned();
                self.wrong.push((accessed.clone(), what));
            }
        }
    }

    /// Takes an access of a body that is not to the unfenced register.
    fn visit(&mut self, accessed: &Accessed, is_write: bool) {
        let Accessed {
            at, ref request, ..
        } = *accessed;
        let register = self.registers.get(&(request.key.clone(), true));
        let value = register.map_or(0, |(value, _)| *value);
        let (visit, done) = (
            Visit {
                at,
                done: None,
                value,
            },
            is_write || request.access == Access::Leave,
        );
        let visit = self.visits.entry(request.by).or_insert(visit);
        visit.done = visit.done.or(done.then_some(at));
        if request.shared && visit.value != value {
            let what = format!("a reader found {}, then {value}", visit.value);
            self.wrong.push((accessed.clone(), what));
        }
    }
}

pub(super) fn check(run: &Run, resource: &Resource) -> Finding {
    let mut finding = Finding::new(Invariant::Fencing);
    finding.checked = resource.increments.unsigned_abs() + resource.moves;
    finding.note = format!(
        "{} moves between keys, {} unfenced updates lost, {} stale writes refused",
        resource.moves, resource.lost_unfenced, resource.stale_writes
    );
    for (Accessed { at, request, .. }, what) in &resource.wrong {
        let violation = Violation {
            key: request.key.clone(),
            span: Span::new(*at, *at),
            ops: vec![request.by],
            tokens: vec![request.token],
            what: what.clone(),
        };
        finding.violation(run, violation);
    }
    let registers = resource.registers.iter();
    let fenced = registers.filter(|((_, is_fenced), _)| *is_fenced);
    let sum: i64 = fenced.map(|(_, (value, _))| *value).sum();
    if sum != resource.increments {
        let increments = resource.increments;
        let what = format!("the sum of all keys is {sum} after {increments} increments and moves");
        finding.violation(run, Violation::at(run.span.until, "", what));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Request;

    fn accessed(op: u64, token: u64, access: Access, accepted: bool) -> Accessed {
        let request = Request {
            key: "k".into(),
            by: OpId {
                worker: 1,
                generation: 0,
                op,
            },
            token,
            shared: access == Access::Read { fenced: true },
            access,
        };
        Accessed {
            at: 1,
            request,
            accepted,
        }
    }

    /// Returns the violations, the updates lost without a fence, and the rejected writes.
    fn found(accesses: impl IntoIterator<Item = Accessed>) -> (u64, u64, u64) {
        let mut resource = Resource::default();
        accesses
            .into_iter()
            .for_each(|access| resource.push(access));
        let finding = check(&Run::default(), &resource);
        (
            finding.violations,
            resource.lost_unfenced,
            resource.stale_writes,
        )
    }

    #[test]
    fn a_value_that_changes_under_a_reader_is_reported() {
        for (accepted, expected) in [(false, (0, 0, 1)), (true, (1, 0, 0))] {
            let read = || accessed(1, 5, Access::Read { fenced: true }, true);
            let (fenced, value) = (true, 1);
            let write = accessed(2, 4, Access::Write { fenced, value }, accepted);
            assert_eq!(found([read(), write, read()]), expected);
        }
    }

    #[test]
    fn lost_updates_and_stale_tokens() {
        for (fenced, writes, expected) in [
            (
                true,
                vec![(1, 1, true), (1, 2, false), (2, 2, true)],
                (0, 0, 1),
            ),
            // The sum is wrong as well.
            (true, vec![(1, 1, true), (2, 1, true)], (2, 0, 0)),
            (true, vec![(2, 1, true), (1, 2, true)], (1, 0, 0)),
            (false, vec![(1, 1, true), (2, 1, true)], (0, 1, 0)),
        ] {
            let accesses = (0..).zip(&writes).map(|(op, &(token, value, accepted))| {
                accessed(op, token, Access::Write { fenced, value }, accepted)
            });
            assert_eq!(found(accesses), expected, "{fenced} {writes:?}");
        }
    }

    /// Each move takes an amount; the values are those that it writes.
    #[test]
    fn a_lost_move_is_reported_although_the_sum_is_constant() {
        for (moves, expected) in [
            (vec![(3, [-3, 3], true), (2, [-5, 5], true)], (0, 0, 0)),
            (vec![(3, [-3, 3], true), (2, [-2, 2], false)], (0, 0, 1)),
            (vec![(3, [-3, 3], true), (2, [-2, 2], true)], (2, 0, 0)),
            // One account, and the sum.
            (vec![(3, [-3, 0], true)], (2, 0, 0)),
        ] {
            let accesses = (1..).zip(&moves).map(|(op, &(amount, values, accepted))| {
                let moved = Access::Move {
                    amount,
                    values,
                    to: "to".into(),
                    to_token: op,
                };
                accessed(op, op, moved, accepted)
            });
            assert_eq!(found(accesses), expected, "{moves:?}");
        }
    }
}
