//! I4: a body that ended after its hold, or was stopped, is no success (`on_lost = "cancel"`).

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::history::{Call, OnLost, Outcome};

/// What is wrong with this call's outcome.
fn wrong(op: &Op) -> Option<&'static str> {
    // A guard leaves its body to its user, and cannot know what became of it.
    if !matches!(op.call, Call::Attribute | Call::Run) {
        return None;
    }
    let cancels = op.on_lost == OnLost::Cancel;
    let (ended, outcome) = (op.ended?, op.outcome()?);
    match outcome {
        // `Stale` is what the body itself said: the lock has returned it as a result.
        Outcome::Ok | Outcome::Stale if cancels && !ended.completed => {
            Some("Ok although the body was dropped")
        }
        Outcome::Ok | Outcome::Stale if cancels && !ended.believed => {
            Some("Ok although the hold was over")
        }
        Outcome::Lost if ended.completed => Some("the body completed, and is told to have not"),
        Outcome::LostCompleted if !ended.completed => {
            Some("the body was dropped, and is told to have completed")
        }
        _ => None,
    }
}

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I4);
    for op in &run.ops {
        let Some(ended) = op.ended else { continue };
        finding.checked += u64::from(op.returned.is_some());
        if let Some(what) = wrong(op) {
            let span = Span::new(ended.at, op.whole().until);
            finding.violation(run, || Violation::of(run, &[op], span, what.to_owned()));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Story};

    fn found(call: Call, completed: bool, believed: bool, outcome: Outcome) -> u64 {
        let mut history = History::default();
        history.call(
            Story::new(1, 1, "k", 0)
                .asked(call, 1000, 1000)
                .acquired(10, 1, 100)
                .ended(200, completed, believed)
                .returned(210, outcome),
        );
        check(&history.build().0).violations
    }

    #[test]
    fn told_rightly() {
        assert_eq!(found(Call::Run, true, true, Outcome::Ok), 0);
        assert_eq!(found(Call::Run, true, false, Outcome::LostCompleted), 0);
        assert_eq!(found(Call::Attribute, false, false, Outcome::Lost), 0);
        assert_eq!(found(Call::Run, true, true, Outcome::LostCompleted), 0); // lost just after
        assert_eq!(found(Call::Guard, true, false, Outcome::Ok), 0);
        assert_eq!(found(Call::Guard, false, false, Outcome::LostCompleted), 0);
    }

    #[test]
    fn told_wrongly() {
        assert_eq!(found(Call::Run, true, false, Outcome::Ok), 1);
        assert_eq!(found(Call::Attribute, false, true, Outcome::Ok), 1);
        assert_eq!(found(Call::Run, true, false, Outcome::Lost), 1);
        assert_eq!(found(Call::Run, false, false, Outcome::LostCompleted), 1);
    }
}
