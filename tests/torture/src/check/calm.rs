//! No hold is lost without a cause: before the first fault, and while all faults in force spare
//! holders or affect only other workers.

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Op, Run, SECOND};
use crate::check::spans::Span;
use crate::history::{Nanos, Outcome};

/// Returns when the call lost its hold, if it did.
fn lost(op: &Op) -> Option<Nanos> {
    if op.outcome() == Some(Outcome::ShutDown) {
        return None;
    }
    let returned = op
        .returned
        .filter(|(_, outcome)| matches!(outcome, Outcome::Lost | Outcome::LostCompleted))
        .map(|(at, _)| at);
    op.loss_seen.or(returned)
}

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Calm);
    let memory = run.memory() + SECOND;
    for op in &run.ops {
        let Some((acquired, _)) = op.acquired else {
            continue;
        };
        let over = lost(op).unwrap_or_else(|| op.whole().until);
        let span = Span::new(acquired, over).widened(memory, 0);
        if run.faults.harms(op.id.worker, op.key, span) {
            continue;
        }
        finding.checked += 1;
        if lost(op).is_some() {
            let detail = op.detail.as_deref().unwrap_or("its holder was notified");
            let what = format!("lost its hold without a cause: {detail}");
            // The hold was not renewed during this span.
            let span = Span::new(acquired.max(over.saturating_sub(op.lease)), over);
            finding.violation(run, Violation::of(run, &[op], span, what));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::kind::Kind;

    #[test]
    fn only_a_fault_that_costs_holders_their_lock_explains_a_loss() {
        let held = || Call::new(1, 1, "k", 5_000).acquired(5_010, 1, 990);
        for (call, fault, expected) in [
            (
                Call::new(1, 1, "k", 5_000).held(5_010, 5_020, 1),
                Kind::ScriptFlush,
                0,
            ),
            (held().lost(5_100), Kind::ScriptFlush, 1),
            (held().lost(5_100), Kind::OutOfMemory, 1),
            (held().lost(5_100), Kind::ServerStop, 0),
            (
                held().returned(5_200, Outcome::LostCompleted),
                Kind::OutOfMemory,
                1,
            ),
        ] {
            let mut history = History::default();
            history.call(call.clone());
            history.fault(5_000, 5_050, fault, None, true);
            let found = check(&history.build()).violations;
            assert_eq!(found, expected, "{call:?} {fault:?}");
        }
    }
}
