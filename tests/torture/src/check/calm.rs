//! I13: nothing is lost in calm times.
//!
//! In the warm-up, and while only faults are in force that cost no holder its lock, or only other workers.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Op, Run, SECOND};
use crate::check::spans::Span;
use crate::history::{Nanos, Outcome};

/// When the call lost its hold, if it did.
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

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I13);
    let memory = run.memory() + SECOND;
    for op in &run.ops {
        let Some((acquired, _)) = op.acquired else {
            continue;
        };
        let over = lost(op).unwrap_or_else(|| op.whole().until);
        let span = Span::new(acquired, over);
        if run
            .faults
            .harms(op.id.worker, op.key, span.widened(memory, 0))
        {
            continue;
        }
        finding.checked += 1;
        if lost(op).is_some() {
            finding.violation(run, || {
                let detail = op.detail.as_deref().unwrap_or("the loss was told");
                let what = format!("lost its hold although nothing had happened: {detail}");
                // From then on it was not renewed.
                let span = Span::new(acquired.max(over.saturating_sub(op.lease)), over);
                Violation::of(run, &[op], span, what)
            });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Story};

    fn found(history: &History) -> u64 {
        check(&history.build().0).violations
    }

    #[test]
    fn kept_and_lost() {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 5000).held(5010, 5020, 1));
        assert_eq!(found(&history), 0);
        history.call(
            Story::new(1, 2, "k", 5000)
                .acquired(5010, 2, 990)
                .lost(5100),
        );
        assert_eq!(found(&history), 1);
        let lost = Story::new(1, 3, "k", 5000).acquired(5010, 3, 990);
        history.call(lost.returned(5200, Outcome::LostCompleted));
        assert_eq!(found(&history), 2);
    }

    #[test]
    fn only_a_fault_that_costs_holders_their_lock_explains_it() {
        let mut history = History::default();
        history.call(
            Story::new(1, 2, "k", 5000)
                .acquired(5010, 2, 990)
                .lost(5100),
        );
        history.fault(5000, 5050, "oom", None, true);
        assert_eq!(found(&history), 1);
        history.fault(5000, 5050, "server_stop", None, true);
        assert_eq!(found(&history), 0);
    }
}
