//! Holders are notified of a loss in time.
//!
//! A running process is notified within 50 ms of the end of its validity (p99). A process that was
//! stopped beyond its validity reports the loss at its first reading. The timers of a suspended
//! process stood still, so it checks its holds within 250 ms after the suspend.

use std::time::Duration;

use distlock_tests::Spread;

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{MILLI, Op, Run};
use crate::check::spans::Span;
use crate::history::Nanos;

const BOUND: Nanos = 50 * MILLI;
/// Upper limit of a timer that a suspend stops.
const TICK: Nanos = 250 * MILLI;
/// How long after its validity a body that nothing interrupts may end without a notice.
const UNNOTICED: Nanos = 250 * MILLI;

/// Returns when the holder was notified of its loss, by the loss itself or by the end of its body.
pub(super) fn notified(op: &Op) -> Option<Nanos> {
    let stopped = op.ended.filter(|e| !e.completed && !e.believed);
    let stopped = stopped.map(|ended| ended.at);
    [op.loss_seen, stopped].into_iter().flatten().min()
}

/// Returns the time from the end of the validity to the notice, if there was a notice. It is empty
/// if a reply of the server revealed the loss before.
pub(super) fn delay(op: &Op) -> Option<Span> {
    let notified = notified(op)?;
    // A guard may have ended before its caller got it; then there is no validity that could end.
    Some(Span::new(op.safe_until()?.min(notified), notified))
}

/// Returns the stop after which a process still reported an ended hold as valid.
fn wrong_after_stop(run: &Run, op: &Op) -> Option<Span> {
    let (acquired, _) = op.acquired?;
    run.faults.stops_of(op.id.worker).iter().find(|stop| {
        let before = stop.from >= acquired && op.whole().until >= stop.from;
        // The stop was longer than the lease, so every renewal before it has expired.
        let over = stop.from + op.lease < stop.until;
        let answer = op.statements.iter().find(|s| s.at > stop.until);
        before && over && answer.is_some_and(|s| s.until.is_some())
    })
}

/// Returns true if a reading was valid after an earlier reading had ended.
fn revived(op: &Op) -> bool {
    let over = op.statements.iter().find(|s| s.until.is_none());
    let over = over.map(|s| s.at).into_iter().chain(op.loss_seen).min();
    let mut statements = op.statements.iter();
    over.is_some_and(|over| statements.any(|s| s.at > over && s.until.is_some()))
}

/// Returns true if the body continued for long after its validity without a notice.
fn unnoticed(op: &Op) -> bool {
    let (Some(ended), Some(until)) = (op.ended, op.safe_until()) else {
        return false;
    };
    !ended.believed && ended.at > until + UNNOTICED && op.returned.is_some()
}

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Losses);
    let mut late = Vec::new();
    for op in &run.ops {
        let Some((acquired, _)) = op.acquired else {
            continue;
        };
        let whole = Span::new(acquired, op.whole().until);
        let mut wrong = |span: Span, what: &str| {
            finding.violation(run, Violation::of(run, &[op], span, what.to_owned()));
        };
        if revived(op) {
            wrong(whole, "believed in its hold after it had been over");
        }
        if let Some(stop) = wrong_after_stop(run, op) {
            wrong(
                stop,
                "believed in its hold after a stop longer than its lease",
            );
        }
        let stops = run.faults.stops_of(op.id.worker);
        let Some(delay) = delay(op) else {
            if notified(op).is_none() && unnoticed(op) && !stops.touches(whole) {
                wrong(
                    whole,
                    "the body ended long after its validity, without a notice",
                );
            }
            continue;
        };
        finding.checked += 1;
        let suspends = run.faults.suspends_of(op.id.worker);
        let is_suspended = delay.length() < TICK && suspends.touches(delay.widened(TICK, 0));
        if delay.length() > 0 && !stops.touches(delay) && !is_suspended {
            late.push((delay, op));
        }
    }
    judge(run, &mut finding, &late);
    finding
}

fn judge(run: &Run, finding: &mut Finding, late: &[(Span, &Op)]) {
    if late.is_empty() {
        finding.note = "nothing was lost by running out".to_owned();
        return;
    }
    let delays = late
        .iter()
        .map(|(delay, _)| Duration::from_nanos(delay.length()));
    let spread = Spread::of_millis(delays);
    let p99 = spread.percentile(99.0);
    finding.note = format!(
        "after validity: p50 {:.1} ms, p99 {p99:.1} ms, max {:.1} ms",
        spread.percentile(50.0),
        spread.max()
    );
    if p99 > BOUND as f64 / MILLI as f64 {
        for (delay, op) in late.iter().filter(|(delay, _)| delay.length() > BOUND) {
            let by = delay.length() / MILLI;
            let what = format!("notified {by} ms after its validity");
            finding.violation(run, Violation::of(run, &[op], *delay, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::history::Outcome;
    use crate::kind::Kind;

    type Fault = (u64, u64, Kind);

    fn found(calls: impl IntoIterator<Item = Call>, fault: Option<Fault>) -> u64 {
        let mut history = History::default();
        for call in calls {
            history.call(call);
        }
        if let Some((from, until, kind)) = fault {
            history.fault(from, until, kind, Some(1), true);
        }
        check(&history.build()).violations
    }

    /// Acquired at 10 ms, and valid until 1000 ms.
    fn acquired() -> Call {
        Call::new(1, 1, "k", 0).acquired(10, 7, 990)
    }

    fn lost(call: Call, at: u64) -> Call {
        call.lost(at)
            .ended(at, false, false)
            .returned(at + 1, Outcome::Lost)
    }

    #[test]
    fn a_loss_is_noticed_in_time() {
        let (stop, suspend) = (Kind::ClientStop, Kind::ClientSuspend);
        for (at, fault, expected) in [
            (300, None, 0),
            (1_049, None, 0),
            (1_051, None, 1),
            // A process that was stopped meanwhile could not be notified.
            (1_051, Some((900, 1_040, stop)), 0),
            (1_240, Some((700, 990, stop)), 1),
            (1_240, Some((700, 990, suspend)), 0),
            (1_260, Some((700, 990, suspend)), 1),
        ] {
            assert_eq!(
                found([lost(acquired(), at)], fault),
                expected,
                "{at} {fault:?}"
            );
        }
    }

    #[test]
    fn a_few_late_losses_are_within_the_bound() {
        let found_with = |late: &[u64]| {
            let calls = (0..200).map(|op| {
                let at = 10_000 * op;
                let after = if late.contains(&op) { 1_300 } else { 1_010 };
                let call = Call::new(1, op, "k", at).acquired(at + 10, op + 1, 990);
                lost(call, at + after)
            });
            found(calls, None)
        };
        assert_eq!(found_with(&[0]), 0);
        assert_eq!(found_with(&[0, 50, 100]), 3);
    }

    #[test]
    fn a_loss_is_noticed_and_is_final() {
        let unreported = |at| {
            let call = acquired().ended(at, true, false);
            call.returned(2_000, Outcome::LostCompleted)
        };
        assert_eq!(found([unreported(1_100)], None), 0);
        assert_eq!(found([unreported(1_300)], None), 1);
        for (remaining, expected) in [(0, 0), (500, 1)] {
            let call = acquired().sampled(900, 0).lost(901).sampled(950, remaining);
            let call = call.ended(960, false, false).returned(970, Outcome::Lost);
            assert_eq!(found([call], None), expected, "{remaining}");
        }
    }

    #[test]
    fn a_stop_beyond_its_lease_ends_a_hold() {
        let long = (100, 1_200, Kind::ClientStop);
        for (call, stop, expected) in [
            (acquired().sampled(1_201, 0), long, 0),
            (acquired().ended(1_201, false, false), long, 0),
            // Read before the stop, written after it.
            (acquired().sampled(99, 900).sampled(1_201, 0), long, 0),
            (acquired().sampled(1_201, 500).sampled(1_202, 0), long, 1),
            (acquired().ended(1_201, true, true), long, 1),
            (
                acquired().sampled(700, 300),
                (100, 690, Kind::ClientStop),
                0,
            ),
        ] {
            assert_eq!(found([call.clone()], Some(stop)), expected, "{call:?}");
        }
    }
}
