//! Every call returns within its wait, one command timeout (three with a quorum) and some slack.

use std::time::Duration;

use distlock_tests::Spread;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{MILLI, Op, Run};
use crate::check::spans::Span;
use crate::history::{Nanos, Outcome};

/// Slack for the scheduler of a machine at its limit.
const SLACK: Nanos = 100 * MILLI;

/// Returns how long a call exceeded its wait, or `None` if it did not use it up. A try has no wait.
pub(super) fn overshoot(op: &Op) -> Option<Nanos> {
    if op.acquired.is_none() && matches!(op.outcome()?, Outcome::Dropped | Outcome::ShutDown) {
        return None;
    }
    op.waiting().length().checked_sub(op.wait)
}

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Deadlines);
    for &(at, worker, generation) in &run.stuck {
        let what = format!("calls of worker {worker}.{generation} never returned");
        finding.violation(run, Violation::at(at, "", what));
    }
    let (mut waited, mut tried) = (Vec::new(), Vec::new());
    let hindered = run.hindered();
    for op in &run.ops {
        if hindered[&op.process()].touches(op.waiting()) {
            continue;
        }
        if op.returned.is_none() && op.acquired.is_none() {
            hangs(run, op, &mut finding);
            continue;
        }
        let Some(over) = overshoot(op) else { continue };
        finding.checked += 1;
        hangs(run, op, &mut finding);
        let late = over.saturating_sub(run.patience(op.lease));
        let calls = if op.wait == 0 {
            &mut tried
        } else {
            &mut waited
        };
        calls.push((over, late, op));
    }
    let notes = [
        judge(run, &mut finding, "waits", &waited),
        judge(run, &mut finding, "tries", &tried),
    ];
    finding.note = notes.join("; ");
    finding
}

/// Reports a call that returned far too late, or not at all although its process lived on for long.
fn hangs(run: &Run, op: &Op, finding: &mut Finding) {
    let limit = op.wait + run.patience(op.lease) + 1_000 * MILLI;
    let mut span = op.waiting();
    if op.returned.is_none() && op.acquired.is_none() {
        // No call returns in a process that is being killed.
        let killed = run.faults.killed(op.id.worker, span);
        span.until = killed.unwrap_or(span.until);
    }
    if span.length() > limit {
        let what = "it waited for a second longer than it may".to_owned();
        finding.violation(run, Violation::of(run, &[op], span, what));
    }
}

fn judge(run: &Run, finding: &mut Finding, of: &str, calls: &[(Nanos, Nanos, &Op)]) -> String {
    if calls.is_empty() {
        return format!("no {of}");
    }
    let over = calls.iter().map(|call| Duration::from_nanos(call.0));
    let late = calls.iter().map(|call| Duration::from_nanos(call.1));
    let (over, late) = (Spread::of_millis(over), Spread::of_millis(late));
    if late.percentile(99.0) > SLACK as f64 / MILLI as f64 {
        for (over, _, op) in calls.iter().filter(|(_, late, _)| *late > SLACK) {
            let end = op.waiting().until;
            let (by, wait) = (over / MILLI, op.wait / MILLI);
            let what = format!("returned {by} ms after its wait of {wait} ms");
            let span = Span::new(end - over, end);
            finding.violation(run, Violation::of(run, &[op], span, what));
        }
    }
    format!(
        "{of} over by p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms (beyond a command: p99 {:.1} ms)",
        over.percentile(50.0),
        over.percentile(99.0),
        over.max(),
        late.percentile(99.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::history::{Call as Door, SupervisorEvent};
    use crate::kind::Kind;

    fn found(calls: &[Call]) -> u64 {
        let mut history = History::default();
        for call in calls {
            history.call(call.clone());
        }
        check(&history.build()).violations
    }

    /// Lease and wait are 1 s, so a command may take 100 ms.
    #[test]
    fn a_call_is_late_beyond_its_wait_a_command_and_slack() {
        let call = || Call::new(1, 1, "k", 0);
        let tried = || call().invoked_as(Door::Try, 1000, 0);
        for (call, expected) in [
            (call().returned(1_199, Outcome::Busy), 0),
            (call().returned(1_300, Outcome::Busy), 1),
            (call().held(10, 5_000, 1), 0),
            (call().held(1_300, 1_400, 1), 1),
            (tried().returned(90, Outcome::Busy), 0),
            (tried().returned(300, Outcome::Busy), 1),
            (call().returned(1_500, Outcome::Dropped), 0),
        ] {
            assert_eq!(found(std::slice::from_ref(&call)), expected, "{call:?}");
        }
    }

    #[test]
    fn a_worker_that_did_not_run_is_not_late() {
        let late = Call::new(1, 1, "k", 0).returned(1_300, Outcome::Busy);
        let mut history = History::default();
        history.call(late.clone());
        history.fault(1_100, 1_200, Kind::ClientStop, Some(1), true);
        assert_eq!(check(&history.build()).violations, 0);
        for (worker, expected) in [(1, 0), (2, 1)] {
            let blocks = Call::new(worker, 2, "other", 0).blocking();
            assert_eq!(
                found(&[late.clone(), blocks.held(1_000, 1_290, 1)]),
                expected
            );
        }
    }

    #[test]
    fn a_call_that_hangs_is_late_until_its_process_is_killed() {
        let call = Call::new(1, 1, "k", 0);
        for (end, killed_at, stuck, expected) in [
            (2_000, None, false, 0),
            (2_200, None, false, 1),
            (2_200, None, true, 2),
            (4_000, Some(1_500), false, 0),
            (4_000, Some(2_200), false, 1),
        ] {
            let mut history = History::default();
            history.call(call.clone());
            if let Some(at) = killed_at {
                history.fault(at, 4_000, Kind::ClientKill, Some(1), true);
            }
            if stuck {
                history.supervisor.push(SupervisorEvent::WorkerStuck {
                    at: 2_200,
                    worker: 1,
                    generation: 0,
                });
            }
            history.done(end);
            assert_eq!(
                check(&history.build()).violations,
                expected,
                "{end} {killed_at:?}"
            );
        }
    }
}
