//! A success of `once_per` closes its period, and nothing else does.
//!
//! The resource counts the runs: a body has run from its first access that is accepted, and it has
//! completed once its write is. No body runs within the gap of a recorded success, whose
//! acquisition is not before its call, so the next one runs at least a gap after that call. A call
//! that returned `Ok` well within the timeout of a command, without a fault then or shortly before,
//! has the reply to its release, and so a record. A call is rejected only within the gap of a body
//! that completed, even if its process died afterwards.

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::resource::Resource;
use crate::check::run::{MILLI, Op, Run, SECOND};
use crate::check::spans::Span;
use crate::history::{Call, GAP, Nanos, Outcome};

/// Less than the timeout of one command.
const ANSWERED: Nanos = 40 * MILLI;

/// A client notices the end of a connection some time after an instant fault that ended it.
const AFTERMATH: Nanos = SECOND;

#[expect(clippy::cast_possible_truncation, reason = "seconds")]
const GAP_NANOS: Nanos = GAP.as_nanos() as Nanos;

/// Returns true if the release of this success was answered.
fn is_recorded(run: &Run, op: &Op) -> bool {
    let (Some(ended), Some((returned, Outcome::Ok))) = (op.ended, op.returned) else {
        return false;
    };
    let release = Span::new(ended.at, returned);
    let hits_worker = run.faults.of_worker(op.id.worker).touches(release);
    let noticed = release.widened(AFTERMATH, 0);
    let mut instant = run.faults.list.iter().filter(|f| f.kind.is_instant());
    let may_end_connection = instant.any(|fault| {
        let concerns = fault.worker.is_none_or(|worker| worker == op.id.worker);
        concerns && (noticed.from..=noticed.until).contains(&fault.span.from)
    });
    ended.completed
        && release.length() < ANSWERED
        && !hits_worker
        && !may_end_connection
        && !run.faults.at(op.key).all.touches(release)
}

pub(super) fn check(run: &Run, resource: &Resource) -> Finding {
    let mut finding = Finding::new(Invariant::Once);
    let (mut counted, mut recorded) = (0, 0);
    for mut ops in run.by_key() {
        ops.retain(|op| op.call == Call::Once);
        let Some(first) = ops.first() else { continue };
        let site = run.faults.at(first.key);
        let is_excused = |span| site.lossy_within(span, 0) || site.steps.touches(span);

        // The last recorded success before each run, in the order of the resource.
        let mut runs: Vec<_> = (ops.iter())
            .filter_map(|op| Some((resource.visits.get(&op.id)?, *op)))
            .collect();
        runs.sort_by_key(|(visit, _)| visit.at);
        counted += runs.len();
        let mut success: Option<&Op> = None;
        for &(visit, op) in &runs {
            let at = visit.at;
            if let Some(earlier) = success {
                finding.checked += 1;
                if at < earlier.invoked + GAP_NANOS {
                    let what = "a body within the period of a success".to_owned();
                    let span = Span::new(earlier.invoked, at);
                    let violation = Violation::of(run, &[earlier, op], span, what);
                    finding.unless(is_excused(span), run, violation);
                }
            }
            if is_recorded(run, op) {
                success = Some(op);
                recorded += 1;
            }
        }

        // When each body that completed had started, and ended.
        let completed = runs
            .iter()
            .filter_map(|(visit, _)| Some((visit.at, visit.done?)));
        let completed: Vec<(Nanos, Nanos)> = completed.collect();
        for op in &ops {
            let Some((returned, Outcome::AlreadyRan)) = op.returned else {
                continue;
            };
            finding.checked += 1;
            let since = op.invoked.saturating_sub(GAP_NANOS);
            let from = completed.partition_point(|(at, _)| *at < since);
            let has_ended = |(_, ended): &&(Nanos, Nanos)| *ended <= returned;
            if !completed[from..].iter().any(|body| has_ended(&body)) {
                let what = "already ran, but no body completed in the period".to_owned();
                let span = Span::new(since, returned);
                // The first acquire after a step back moves the period to its own time.
                let last = completed[..from].iter().rfind(has_ended);
                let moved = Span::new(last.map_or(since, |(at, _)| *at), returned);
                finding.unless(
                    is_excused(moved),
                    run,
                    Violation::of(run, &[op], span, what),
                );
            }
        }
    }
    finding.note = format!("{counted} runs, {recorded} successes whose record is certain");
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{self, History};
    use crate::kind::Kind;

    #[test]
    fn a_success_closes_its_period_and_only_a_success() {
        let run = |op, at, token, completed, outcome| {
            testing::Call::new(1, op, "o0", at)
                .invoked_as(Call::Once, 300, 0)
                .acquired(at + 1, token, 300)
                .ended(at + 10, completed, true)
                .returned(at + 12, outcome)
        };
        let rejected = |op, at| {
            testing::Call::new(2, op, "o0", at)
                .invoked_as(Call::Once, 300, 0)
                .returned(at + 1, Outcome::AlreadyRan)
        };
        let ok = |op, at| run(op, at, op, true, Outcome::Ok);
        let failed = |op, at| run(op, at, op, false, Outcome::Failed);
        for (calls, fault, expected) in [
            (vec![ok(1, 0), rejected(2, 1_000), ok(3, 1_801)], None, 0),
            (vec![ok(1, 0), ok(2, 1_700)], None, 1),
            (vec![failed(1, 0), ok(2, 20)], None, 0),
            (vec![ok(1, 0), failed(2, 20)], None, 1),
            (vec![failed(1, 0), rejected(2, 20)], None, 1),
            (vec![ok(1, 0), rejected(2, 1_900)], None, 1),
            (vec![rejected(1, 5), ok(2, 2)], None, 1),
            // A fault explains it.
            (vec![ok(1, 0), ok(2, 100)], Some(Kind::FlushAll), 0),
            (vec![ok(1, 0), rejected(2, 1_900)], Some(Kind::ClockStep), 0),
            (
                vec![ok(1, 20), rejected(2, 9_900)],
                Some(Kind::ClockStep),
                0,
            ),
            (
                vec![ok(1, 100), rejected(2, 9_900)],
                Some(Kind::ClockStep),
                1,
            ),
            // The connection of the release may have ended.
            (vec![ok(1, 100), ok(2, 200)], Some(Kind::KillClients), 0),
        ] {
            let mut history = History::default();
            if let Some(kind) = fault {
                history.fault(50, 60, kind, None, false);
            }
            let shown = format!("{calls:?} {fault:?}");
            for call in calls {
                history.call(call);
            }
            let finding = check(&history.build(), &history.resource());
            assert_eq!(finding.violations, expected, "{shown}");
        }
    }

    /// Without the reply to the release, a run that returned `Ok` may have no record.
    #[test]
    fn a_slow_release_proves_no_record() {
        let call = |op, at, returned| {
            testing::Call::new(1, op, "o0", at)
                .invoked_as(Call::Once, 300, 0)
                .acquired(at + 1, op, 300)
                .ended(at + 10, true, true)
                .returned(returned, Outcome::Ok)
        };
        for (returned, expected) in [(12, 1), (60, 0)] {
            let mut history = History::default();
            history.call(call(1, 0, returned)).call(call(2, 100, 112));
            let finding = check(&history.build(), &history.resource());
            assert_eq!(finding.violations, expected, "{returned}");
            // A body that the resource did not see is no run.
            assert_eq!(check(&history.build(), &Resource::default()).violations, 0);
        }
    }
}
