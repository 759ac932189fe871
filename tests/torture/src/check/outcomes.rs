//! A body that ended after its hold, or was stopped, is not a success (`on_lost = "cancel"`).

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::history::{Call, OnLost, Outcome};

/// Returns what is wrong with the outcome of this call.
fn wrong(op: &Op) -> Option<&'static str> {
    // A guard does not control its body, so it cannot know how the body ended.
    if !matches!(op.call, Call::Attribute | Call::Run) {
        return None;
    }
    let cancels = op.on_lost == OnLost::Cancel;
    let (ended, outcome) = (op.ended?, op.outcome()?);
    match outcome {
        // `Stale` is the result of the body itself, so the lock returned `Ok`.
        Outcome::Ok | Outcome::Stale if cancels && !ended.completed => {
            Some("Ok although the body was dropped")
        }
        Outcome::Ok | Outcome::Stale if cancels && !ended.believed => {
            Some("Ok although the hold was over")
        }
        Outcome::Lost if ended.completed => Some("the body completed, and the error denies it"),
        Outcome::LostCompleted if !ended.completed => {
            Some("the body was dropped, and the error claims that it completed")
        }
        _ => None,
    }
}

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Outcomes);
    for op in &run.ops {
        let Some(ended) = op.ended else { continue };
        finding.checked += u64::from(op.returned.is_some());
        if let Some(what) = wrong(op) {
            let span = Span::new(ended.at, op.whole().until);
            finding.violation(run, Violation::of(run, &[op], span, what.to_owned()));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{self, History};

    #[test]
    fn outcomes() {
        for (call, completed, believed, outcome, expected) in [
            (Call::Run, true, true, Outcome::Ok, 0),
            (Call::Run, true, false, Outcome::LostCompleted, 0),
            (Call::Attribute, false, false, Outcome::Lost, 0),
            // Lost just after the body ended.
            (Call::Run, true, true, Outcome::LostCompleted, 0),
            (Call::Guard, true, false, Outcome::Ok, 0),
            (Call::Guard, false, false, Outcome::LostCompleted, 0),
            (Call::Run, true, false, Outcome::Ok, 1),
            (Call::Attribute, false, true, Outcome::Ok, 1),
            (Call::Run, true, false, Outcome::Lost, 1),
            (Call::Run, false, false, Outcome::LostCompleted, 1),
        ] {
            let mut history = History::default();
            history.call(
                testing::Call::new(1, 1, "k", 0)
                    .invoked_as(call, 1000, 1000)
                    .acquired(10, 1, 100)
                    .ended(200, completed, believed)
                    .returned(210, outcome),
            );
            let found = check(&history.build()).violations;
            assert_eq!(
                found, expected,
                "{call:?} {completed} {believed} {outcome:?}"
            );
        }
    }
}
