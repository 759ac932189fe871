//! I1: at most one believes in a key's lock at any moment.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;

/// A stretch of time in which two calls believed in the same lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Overlap<'a> {
    pub(crate) earlier: &'a Op,
    pub(crate) later: &'a Op,
    pub(crate) span: Span,
}

/// For each belief that begins during another of its key: the one that lasts longest of those before it.
pub(crate) fn overlaps<'a>(ops: &[&'a Op]) -> Vec<Overlap<'a>> {
    let mut beliefs: Vec<(Span, &'a Op)> = ops
        .iter()
        .filter_map(|op| Some((op.belief()?, *op)))
        .collect();
    beliefs.sort_by_key(|(span, op)| (*span, op.id));
    let mut found = Vec::new();
    let mut longest: Option<(Span, &'a Op)> = None;
    for (span, op) in beliefs {
        if let Some((before, earlier)) = longest
            && span.from < before.until
        {
            found.push(Overlap {
                earlier,
                later: op,
                span: Span::new(span.from, span.until.min(before.until)),
            });
        }
        if longest.is_none_or(|(before, _)| span.until > before.until) {
            longest = Some((span, op));
        }
    }
    found
}

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I1);
    for ops in run.by_key() {
        finding.checked += ops.iter().filter(|op| op.belief().is_some()).count() as u64;
        for overlap in overlaps(&ops) {
            let violation = || {
                let micros = overlap.span.length() / 1000;
                let what = format!("two believed in the lock for {micros} us");
                let ops = [overlap.earlier, overlap.later];
                Violation::of(run, &ops, overlap.span, what)
            };
            // Either of them may be the one whose lock was forgotten.
            let memory = overlap.earlier.memory().max(overlap.later.memory());
            if (run.faults.at(overlap.later.key)).lossy_within(overlap.span, memory) {
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
    use crate::check::testing::{History, Story};
    use crate::history::{Call, Outcome, Phase};

    fn found(history: &History) -> (u64, u64) {
        let (run, _) = history.build();
        let finding = check(&run);
        (finding.violations, finding.reported)
    }

    #[test]
    fn one_after_the_other() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 20, 1))
            .call(Story::new(2, 1, "k", 0).held(20, 30, 2))
            .call(Story::new(2, 2, "other", 0).held(15, 30, 2));
        assert_eq!(found(&history), (0, 0));
    }

    #[test]
    fn two_at_once() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 20, 1))
            .call(Story::new(2, 1, "k", 0).held(19, 30, 2));
        let (run, _) = history.build();
        let finding = check(&run);
        assert_eq!((finding.violations, finding.checked), (1, 2));
        let evidence = &finding.evidence[0];
        assert_eq!((evidence.from, evidence.until), (19_000_000, 20_000_000));
        assert_eq!(evidence.violation.tokens, [1, 2]);
        assert_eq!(
            evidence.to_string(),
            "at 19.000 ms for 1.000 ms, key `k`: two believed in the lock for 1000 us; worker 1.0 op 1; \
             worker 2.0 op 1; token 1; token 2; no fault in force"
        );
    }

    #[test]
    fn a_lossy_fault_explains_it_for_a_lease_and_grace() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 2000).held(2010, 2020, 1))
            .call(Story::new(2, 1, "k", 2000).held(2019, 2030, 2));
        let mut near = history.clone();
        near.fault(770, 770, "flush_all", None, false);
        assert_eq!(found(&near), (0, 1));
        let mut far = history.clone();
        far.fault(760, 760, "flush_all", None, false);
        assert_eq!(found(&far), (1, 0));
        history.fault(2015, 2015, "stop", None, true);
        assert_eq!(found(&history), (1, 0));
    }

    #[test]
    fn a_failover_explains_it_from_its_begin_to_a_lease_and_grace_after_its_end() {
        for (from, until, expected) in [
            (500, 770, (0, 1)),
            (500, 760, (1, 0)),
            (2000, 4000, (0, 1)),
            // In force only when it was over.
            (2021, 4000, (1, 0)),
        ] {
            let mut history = History::default();
            history
                .call(Story::new(1, 1, "k", 2000).held(2010, 2020, 1))
                .call(Story::new(2, 1, "k", 2000).held(2019, 2030, 2))
                .fault(from, until, "failover_kill", None, false);
            assert_eq!(found(&history), expected, "{from} {until}");
        }
    }

    #[test]
    fn what_ends_a_belief() {
        let story = || Story::new(1, 1, "k", 0).acquired(10, 1, 100);
        let until = |story: Story| {
            let mut history = History::default();
            history.call(story).phase(9_000, Phase::Done);
            history.build().0.ops[0]
                .belief()
                .map(|b| b.until / 1_000_000)
        };
        let guard = || {
            Story::new(1, 1, "k", 0)
                .asked(Call::Guard, 1000, 0)
                .acquired(10, 1, 100)
        };
        assert_eq!(until(story()), Some(110));
        assert_eq!(until(story().sampled(50, 300)), Some(350));
        assert_eq!(until(story().sampled(50, 0)), Some(50));
        assert_eq!(until(story().lost(60)), Some(60));
        assert_eq!(until(story().ended(70, true, true)), Some(70));
        assert_eq!(until(guard().ended(70, true, true)), Some(70));
        assert_eq!(until(guard().ended(70, true, true).releasing(80)), Some(80));
        assert_eq!(until(story().returned(90, Outcome::Dropped)), Some(90));
        // Believed at its end although nobody had said so before: a belief that never expires.
        assert_eq!(until(guard().ended(500, true, true)), Some(500));
        assert_eq!(until(Story::new(1, 1, "k", 0).acquired(10, 1, 0)), None);
    }

    /// Quadratic: whether each belief begins during an earlier one.
    fn reference(beliefs: &[(u64, u64)]) -> usize {
        (0..beliefs.len())
            .filter(|&later| {
                (0..beliefs.len()).any(|earlier| {
                    let (a, b) = (beliefs[earlier], beliefs[later]);
                    earlier != later && (a, earlier) < (b, later) && b.0 < a.1
                })
            })
            .count()
    }

    proptest! {
        #[test]
        fn agrees_with_a_quadratic_reference(
            beliefs in prop::collection::vec((0u64..300, 1u64..40), 0..25)
        ) {
            let beliefs: Vec<_> = beliefs.into_iter().map(|(from, long)| (from, from + long)).collect();
            let mut history = History::default();
            for (op, &(from, until)) in beliefs.iter().enumerate() {
                history.call(Story::new(1, op as u64, "k", 0).held(from, until, op as u64));
            }
            prop_assert_eq!(found(&history), (reference(&beliefs) as u64, 0));
        }
    }
}
