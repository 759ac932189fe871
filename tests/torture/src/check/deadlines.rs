//! I7: no call returns later than its wait, one command deadline (three where several servers vote), and what a busy machine takes.

use std::time::Duration;

use distlock_tests::Spread;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{MILLI, Op, Run};
use crate::check::spans::Span;
use crate::history::{Nanos, Outcome};

/// For the scheduler of a machine that runs at its limit.
pub(crate) const SLACK: Nanos = 100 * MILLI;

/// By how much a call that has used up its wait exceeded it. Tries have none to use up.
pub(crate) fn overshoot(op: &Op) -> Option<Nanos> {
    if op.acquired.is_none() && matches!(op.outcome()?, Outcome::Dropped | Outcome::ShutDown) {
        return None;
    }
    op.waiting().length().checked_sub(op.wait)
}

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I7);
    for &(at, worker, generation) in &run.stuck {
        finding.violation(run, || Violation {
            key: String::new(),
            span: Span::new(at, at),
            ops: Vec::new(),
            tokens: Vec::new(),
            what: format!("calls of worker {worker}.{generation} never returned"),
        });
    }
    let mut waited = Vec::new();
    let mut tried = Vec::new();
    let hindered = run.hindered();
    for op in &run.ops {
        let hindered = hindered[&op.process()].touches(op.waiting());
        if op.returned.is_none() && op.acquired.is_none() {
            if !hindered {
                hangs(run, op, &mut finding);
            }
            continue;
        }
        let Some(over) = overshoot(op) else { continue };
        if hindered {
            continue;
        }
        finding.checked += 1;
        hangs(run, op, &mut finding);
        let late = over.saturating_sub(run.patience(op.lease));
        if op.wait == 0 {
            tried.push((over, late, op));
        } else {
            waited.push((over, late, op));
        }
    }
    let notes = [
        judge(run, &mut finding, "waits", &waited),
        judge(run, &mut finding, "tries", &tried),
    ];
    finding.note = notes.join("; ");
    finding
}

/// A call that returned far too late, or never although its process lived on for long.
fn hangs(run: &Run, op: &Op, finding: &mut Finding) {
    let limit = op.wait + run.patience(op.lease) + 1_000 * MILLI;
    let mut span = op.waiting();
    if op.returned.is_none() && op.acquired.is_none() {
        // Nothing returns in a process that is being killed.
        let killed = run.faults.killed(op.id.worker, span);
        span.until = killed.unwrap_or(span.until);
    }
    if span.length() > limit {
        finding.violation(run, || {
            Violation::of(
                run,
                &[op],
                span,
                "it waited for a second longer than it may".to_owned(),
            )
        });
    }
}

fn judge(run: &Run, finding: &mut Finding, of: &str, calls: &[(Nanos, Nanos, &Op)]) -> String {
    if calls.is_empty() {
        return format!("no {of}");
    }
    let millis = |value: Nanos| Duration::from_nanos(value);
    let over = Spread::of_millis(calls.iter().map(|(over, _, _)| millis(*over)));
    let late = Spread::of_millis(calls.iter().map(|(_, late, _)| millis(*late)));
    if late.percentile(99.0) > SLACK as f64 / MILLI as f64 {
        for (over, _, op) in calls.iter().filter(|(_, late, _)| *late > SLACK) {
            finding.violation(run, || {
                let end = op.waiting().until;
                let what = format!(
                    "returned {} ms after its wait of {} ms",
                    over / MILLI,
                    op.wait / MILLI
                );
                Violation::of(run, &[op], Span::new(end - over, end), what)
            });
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
    use crate::check::testing::{History, Story};
    use crate::history::{Call, SupervisorEvent};

    fn found(history: &History) -> u64 {
        check(&history.build().0).violations
    }

    #[test]
    fn in_time() {
        let mut history = History::default();
        // Lease 1 s: a command may take 100 ms.
        history
            .call(Story::new(1, 1, "k", 0).returned(1199, Outcome::Busy))
            .call(
                Story::new(1, 2, "k", 0)
                    .asked(Call::Try, 1000, 0)
                    .returned(90, Outcome::Busy),
            )
            .call(Story::new(1, 3, "k", 0).held(10, 5000, 1));
        assert_eq!(found(&history), 0);
    }

    #[test]
    fn late() {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 0).returned(1300, Outcome::Busy));
        assert_eq!(found(&history), 1);
        history.fault(1100, 1200, "worker_stop", Some(1), true);
        assert_eq!(found(&history), 0);
    }

    #[test]
    fn a_blocked_runtime_is_nobodys_fault() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).returned(1300, Outcome::Busy))
            .call(Story::new(1, 2, "other", 0).blocking().held(1000, 1290, 1));
        assert_eq!(found(&history), 0);
        history.stories[1].worker = 2;
        assert_eq!(found(&history), 1);
    }

    #[test]
    fn a_late_try_and_a_late_hold() {
        let mut history = History::default();
        history
            .call(
                Story::new(1, 1, "k", 0)
                    .asked(Call::Try, 1000, 0)
                    .returned(300, Outcome::Busy),
            )
            .call(Story::new(1, 2, "k", 0).held(1300, 1400, 1));
        assert_eq!(found(&history), 2);
    }

    #[test]
    fn a_dropped_call_is_nobodys_fault() {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 0).returned(1500, Outcome::Dropped));
        assert_eq!(found(&history), 0);
    }

    #[test]
    fn a_call_that_hangs() {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 0));
        history.phase(2000, crate::history::Phase::Done);
        assert_eq!(found(&history), 0);
        history.phase(2200, crate::history::Phase::Done);
        assert_eq!(found(&history), 1);
        history.supervisor.push(SupervisorEvent::WorkerStuck {
            at: 2200,
            worker: 1,
            generation: 0,
        });
        assert_eq!(found(&history), 2);
    }

    #[test]
    fn a_killed_process_hangs_only_before_it_is_killed() {
        for (killed_at, expected) in [(1_500, 0), (2_200, 1)] {
            let mut history = History::default();
            history.call(Story::new(1, 1, "k", 0));
            history.fault(killed_at, 4_000, "client_kill", Some(1), true);
            history.supervisor.push(SupervisorEvent::WorkerEnded {
                at: 4_000 * MILLI,
                worker: 1,
                generation: 0,
                killed: true,
            });
            assert_eq!(found(&history), expected, "{killed_at}");
        }
    }
}
