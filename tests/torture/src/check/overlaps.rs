//! At any moment, the holders that consider their hold of a key valid fit: one of a mutex, one writer
//! or any number of readers. The bodies with permits that the resource has at once never have more
//! permits than there are.

use std::collections::BTreeMap;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::resource::Resource;
use crate::check::run::{Op, Run};
use crate::check::spans::{Span, Spans};
use crate::history::{Call, PERMITS};

/// A time span in which calls considered their holds of a key valid that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Overlap<'a> {
    earlier: &'a Op,
    later: &'a Op,
    span: Span,
}

/// Returns an overlap for each hold that does not fit to the earlier ones of its key. The overlap
/// is with the earlier hold that ends last.
fn overlaps<'a>(mut holds: Vec<(Span, &'a Op)>) -> Vec<Overlap<'a>> {
    holds.sort_by_key(|(span, op)| (*span, op.id));
    let mut found = Vec::new();
    let mut active: Vec<(Span, &'a Op)> = Vec::new();
    for (span, op) in holds {
        active.retain(|(before, _)| span.from < before.until);
        let held: u32 = active.iter().map(|(_, earlier)| weight(earlier)).sum();
        if held + weight(op) > capacity(op)
            && let Some((before, earlier)) = active.iter().max_by_key(|(span, _)| span.until)
        {
            found.push(Overlap {
                earlier,
                later: op,
                span: Span::new(span.from, span.until.min(before.until)),
            });
        }
        active.push((span, op));
    }
    found
}

fn capacity(op: &Op) -> u32 {
    match op.call {
        Call::Read | Call::Downgraded | Call::Write => u32::MAX / 2,
        Call::Permits => PERMITS,
        _ => 1,
    }
}

fn weight(op: &Op) -> u32 {
    match op.call {
        Call::Write => capacity(op),
        _ => op.weight,
    }
}

/// Returns when the resource had the body of a call with permits. It has no token to reject a body
/// that outlasts its hold, which happens only to a process that could not run.
fn visit(
    run: &Run,
    resource: &Resource,
    hindered: &BTreeMap<(u32, u32), Spans>,
    op: &Op,
) -> Option<Span> {
    let visit = resource.visits.get(&op.id)?;
    let span = Span::new(visit.at, visit.done.unwrap_or(op.process_ended));
    let valid_until = op.safe_until()?;
    let beyond = span.since(valid_until);
    let could_not_run = || {
        hindered[&op.process()].touches(beyond)
            || run.faults.killed(op.id.worker, span).is_some()
            || (run.starvation).explains(&Violation::of(run, &[op], beyond, String::new()))
    };
    let ends_late = valid_until < span.until && could_not_run();
    let until = if ends_late { valid_until } else { span.until };
    (span.from < until).then(|| Span::new(span.from, until))
}

pub(super) fn check(run: &Run, resource: &Resource) -> Finding {
    let mut finding = Finding::new(Invariant::Exclusion);
    let hindered = run.hindered();
    let held = |op: &Op| match op.call {
        Call::Permits => visit(run, resource, &hindered, op),
        _ => op.belief(),
    };
    for ops in run.by_key() {
        let holds = ops.iter().filter_map(|op| Some((held(op)?, *op)));
        let holds: Vec<_> = holds.collect();
        finding.checked += holds.len() as u64;
        for overlap in overlaps(holds) {
            let micros = overlap.span.length() / 1000;
            let what = match overlap.later.call {
                Call::Permits => format!("too many permits were in use for {micros} us"),
                _ => format!("too many believed in the lock for {micros} us"),
            };
            let ops = [overlap.earlier, overlap.later];
            let violation = Violation::of(run, &ops, overlap.span, what);
            // The lock that was forgotten may belong to either of them.
            let memory = overlap.earlier.memory().max(overlap.later.memory());
            let site = run.faults.at(overlap.later.key);
            let is_outdated = |op| run.stepped_since_stop(op, overlap.span);
            let excused =
                site.lossy_within(overlap.span, memory) || ops.into_iter().any(is_outdated);
            finding.unless(excused, run, violation);
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::history::{Call as Door, Outcome};
    use crate::kind::Kind;

    fn found(history: &History) -> (u64, u64) {
        let finding = check(&history.build(), &history.resource());
        (finding.violations, finding.excused)
    }

    fn two_at_once(at: u64) -> History {
        let mut history = History::default();
        history
            .call(Call::new(1, 1, "k", at).held(at + 10, at + 20, 1))
            .call(Call::new(2, 1, "k", at).held(at + 19, at + 30, 2));
        history
    }

    #[test]
    fn overlapping_holds_are_reported() {
        let mut history = History::default();
        history
            .call(Call::new(1, 1, "k", 0).held(10, 20, 1))
            .call(Call::new(2, 1, "k", 0).held(20, 30, 2))
            .call(Call::new(2, 2, "other", 0).held(15, 30, 2));
        assert_eq!(found(&history), (0, 0));
        let finding = check(&two_at_once(0).build(), &Resource::default());
        assert_eq!((finding.violations, finding.checked), (1, 2));
        assert_eq!(
            finding.evidence[0].to_string(),
            "at 19.000 ms for 1.000 ms, key `k`: too many believed in the lock for 1000 us; worker 1.0 op 1; \
             worker 2.0 op 1; token 1; token 2; no fault in force"
        );
    }

    #[test]
    fn readers_and_permits_overlap_while_they_fit() {
        use Door::{Permits, Read, Write};
        for (calls, expected) in [
            (vec![(Read, 1), (Read, 1), (Read, 1)], 0),
            (vec![(Read, 1), (Read, 1), (Write, 1)], 1),
            (vec![(Write, 1), (Read, 1)], 1),
            (vec![(Permits, 2), (Permits, 1)], 0),
            (vec![(Permits, 1), (Permits, 1), (Permits, 1)], 0),
            (vec![(Permits, 2), (Permits, 2)], 1),
            (vec![(Permits, 2), (Permits, 1), (Permits, 1)], 1),
        ] {
            let mut history = History::default();
            for (number, (door, weight)) in (1..).zip(&calls) {
                let call = Call::new(1, number, "k", 0).invoked_as(*door, 1000, 0);
                history.call(call.weighing(*weight).held(10 + number, 50, number));
            }
            assert_eq!(found(&history), (expected, 0), "{calls:?}");
        }
    }

    /// A body with two permits and a hold until 110 ms, and a body that begins at 400 ms.
    #[test]
    fn only_a_process_that_cannot_run_keeps_permits_beyond_its_hold() {
        let stop = |from| Some((from, 600, Kind::ClientStop));
        for (left, fault, expected) in [
            (Some(390), None, 0),
            (Some(410), None, 1),
            (Some(410), stop(90), 0),
            (Some(410), stop(420), 1),
            (Some(410), Some((90, 600, Kind::BlackHole)), 1),
            (None, Some((90, 90, Kind::ClientKill)), 0),
        ] {
            let mut history = History::default();
            let permits = |worker, at| {
                let call = Call::new(worker, 1, "s0", at).invoked_as(Door::Permits, 1000, 0);
                call.weighing(2).acquired(at + 10, 0, 100)
            };
            let ended = |call: Call, at| call.ended(at, false, false);
            let first = permits(1, 0);
            history.call(match left {
                Some(left) => ended(first, left),
                None => first,
            });
            history.call(ended(permits(2, 390), 450)).done(9_000);
            if let Some((from, until, kind)) = fault {
                history.fault(from, until, kind, Some(1), true);
            }
            assert_eq!(found(&history), (expected, 0), "{left:?} {fault:?}");
        }
    }

    /// Two holds at 2019 ms, with a lease of 1 s and a grace period of 250 ms.
    #[test]
    fn a_data_loss_excuses_overlaps_until_a_lease_and_grace_after_its_end() {
        for (from, until, lossless, expected) in [
            (770, 770, false, (0, 1)),
            (760, 760, false, (1, 0)),
            (500, 770, false, (0, 1)),
            (2_000, 4_000, false, (0, 1)),
            // The fault begins only after the overlap.
            (2_021, 4_000, false, (1, 0)),
            (2_015, 2_015, true, (1, 0)),
        ] {
            let mut history = two_at_once(2_000);
            history.fault(from, until, Kind::FailoverKill, None, lossless);
            assert_eq!(found(&history), expected, "{from} {until} {lossless}");
        }
    }

    /// A grant that the second worker may use 1.1 s after the clock stepped.
    #[test]
    fn a_clock_step_during_a_stop_excuses_overlaps_after_it() {
        for (stop, expected) in [
            (Some((2, 500, 2_005)), (0, 1)),
            (Some((2, 1_960, 2_005)), (1, 0)),
            (Some((3, 500, 2_005)), (1, 0)),
            (None, (1, 0)),
        ] {
            let mut history = two_at_once(2_000);
            history.fault(600, 700, Kind::ClockStep, None, false);
            if let Some((worker, from, until)) = stop {
                history.fault(from, until, Kind::ClientStop, Some(worker), true);
            }
            let memory = 1_250;
            assert!(700 + memory < 2_019, "the step alone excuses nothing");
            assert_eq!(found(&history), expected, "{stop:?}");
        }
    }

    #[test]
    fn a_hold_ends_with_its_last_sample_loss_or_release() {
        let call = || Call::new(1, 1, "k", 0).acquired(10, 1, 100);
        let guard = || {
            let guard = Call::new(1, 1, "k", 0).invoked_as(Door::Guard, 1000, 0);
            guard.acquired(10, 1, 100)
        };
        for (call, expected) in [
            (call(), Some(110)),
            (call().sampled(50, 300), Some(350)),
            (call().sampled(50, 0), Some(50)),
            (call().lost(60), Some(60)),
            (call().ended(70, true, true), Some(70)),
            (guard().ended(70, true, true), Some(70)),
            (guard().ended(70, true, true).releasing(80), Some(80)),
            (call().returned(90, Outcome::Dropped), Some(90)),
            // Valid at its end although no reading said so: a belief that never expires.
            (guard().ended(500, true, true), Some(500)),
            (Call::new(1, 1, "k", 0).acquired(10, 1, 0), None),
        ] {
            let mut history = History::default();
            history.call(call.clone()).done(9_000);
            let belief = history.build().ops[0].belief();
            let until = belief.map(|belief| belief.until / 1_000_000);
            assert_eq!(until, expected, "{call:?}");
        }
    }
}
