//! No update through the fence is lost.
//!
//! The resource recorded its accesses in its own order. Each accepted write through the fence must
//! be the previous value plus one, with a token that is not lower. A call that reads twice, without
//! writing in between, must find the same value. Updates lost without the fence are counted, to show
//! its purpose.

use std::collections::HashMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::Run;
use crate::check::spans::Span;
use crate::history::{Accessed, OpId};

/// The state of the registers, which follows the accesses in the resource's order.
#[derive(Debug, Default)]
pub(super) struct Resource {
    writes: u64,
    pub(super) lost_unfenced: u64,
    pub(super) stale_writes: u64,
    wrong: Vec<(Accessed, String)>,
    /// By key and whether the register is fenced: its value and its highest token.
    registers: HashMap<(String, bool), (u64, u64)>,
    /// The value that each call read first through the fence.
    first_reads: HashMap<OpId, u64>,
}

impl Resource {
    pub(super) fn push(&mut self, access: Accessed) {
        let Some(value) = access.write else {
            return self.read(access);
        };
        if !access.accepted {
            self.stale_writes += 1;
            return;
        }
        let register = (access.key.clone(), access.fenced);
        let (last, highest) = self.registers.entry(register).or_default();
        let (expected, is_stale) = (*last + 1, access.token < *highest);
        (*last, *highest) = (value, access.token.max(*highest));
        if !access.fenced {
            self.lost_unfenced += u64::from(value != expected);
            return;
        }
        self.writes += 1;
        if value != expected {
            let what = format!("an update was lost: {value} after {}", expected - 1);
            self.wrong.push((access, what));
        } else if is_stale {
            let what = "a write with a stale token was accepted".to_owned();
            self.wrong.push((access, what));
        }
    }

    fn read(&mut self, access: Accessed) {
        if !access.fenced || !access.accepted {
            return;
        }
        let register = self.registers.get(&(access.key.clone(), true));
        let value = register.map_or(0, |(value, _)| *value);
        let first = *self.first_reads.entry(access.by).or_insert(value);
        if first != value {
            let what = format!("a reader found {first}, then {value}");
            self.wrong.push((access, what));
        }
    }
}

pub(super) fn check(run: &Run, resource: &Resource) -> Finding {
    let mut finding = Finding::new(Invariant::Fencing);
    finding.checked = resource.writes;
    finding.note = format!(
        "{} unfenced updates lost, {} stale writes refused",
        resource.lost_unfenced, resource.stale_writes
    );
    for (access, what) in &resource.wrong {
        let violation = Violation {
            key: access.key.clone(),
            span: Span::new(access.at, access.at),
            ops: vec![access.by],
            tokens: vec![access.token],
            what: what.clone(),
        };
        finding.violation(run, violation);
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token, value, and whether the write was accepted.
    type Write = (u64, u64, bool);

    /// Returns the violations, the updates lost without a fence, and the rejected writes.
    fn found(fenced: bool, writes: &[Write]) -> (u64, u64, u64) {
        let mut resource = Resource::default();
        for &(token, value, accepted) in writes {
            resource.push(Accessed {
                at: 1,
                key: "k".into(),
                fenced,
                by: OpId {
                    worker: 1,
                    generation: 0,
                    op: value,
                },
                token,
                write: Some(value),
                accepted,
            });
        }
        let finding = check(&Run::default(), &resource);
        (
            finding.violations,
            resource.lost_unfenced,
            resource.stale_writes,
        )
    }

    #[test]
    fn a_value_that_changes_under_a_reader_is_reported() {
        for (accepted, expected) in [(false, 0), (true, 1)] {
            let mut resource = Resource::default();
            for (op, token, write, accepted) in [
                (1, 5, None, true),
                (2, 4, Some(1), accepted),
                (1, 5, None, true),
            ] {
                resource.push(Accessed {
                    at: 1,
                    key: "r".into(),
                    fenced: true,
                    by: OpId {
                        worker: 1,
                        generation: 0,
                        op,
                    },
                    token,
                    write,
                    accepted,
                });
            }
            assert_eq!(check(&Run::default(), &resource).violations, expected);
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
            (true, vec![(1, 1, true), (2, 1, true)], (1, 0, 0)),
            (true, vec![(2, 1, true), (1, 2, true)], (1, 0, 0)),
            (false, vec![(1, 1, true), (2, 1, true)], (0, 1, 0)),
        ] {
            assert_eq!(found(fenced, &writes), expected, "{fenced} {writes:?}");
        }
    }
}
