//! I6: a loss is told.
//!
//! A running process is told within 50 ms of the end of its validity (p99), and before the server may give
//! the lock to anybody else. A process that was stopped beyond its validity says so at its first word. The timers of one
//! that was suspended stood still, so its holds are looked at within 250 ms after that.

use std::time::Duration;

use distlock_tests::Spread;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{MILLI, Op, Run};
use crate::check::spans::Span;
use crate::check::truth::{End, Truth};
use crate::history::Nanos;

const BOUND: Nanos = 50 * MILLI;
/// A timer that a suspend stopped is no longer than this.
const TICK: Nanos = 250 * MILLI;
/// A body that nobody interrupts may end this long after its validity without a word about the loss.
const UNTOLD: Nanos = 250 * MILLI;

/// When the holder was told that its hold is over: by the loss itself, or by the end of its body.
pub(crate) fn told(op: &Op) -> Option<Nanos> {
    let stopped = op
        .ended
        .filter(|e| !e.completed && !e.believed)
        .map(|e| e.at);
    [op.loss_seen, stopped].into_iter().flatten().min()
}

/// How long after its validity the loss was told; zero if before: the server had said so.
pub(crate) fn latency(op: &Op) -> Option<Nanos> {
    Some(told(op)?.saturating_sub(op.safe_until()?))
}

/// What a stopped process said of a hold that was over when it went on.
fn wrong_after_stop(op: &Op, stops: &[Span]) -> Option<Span> {
    let (acquired, _) = op.acquired?;
    stops.iter().copied().find(|stop| {
        let before = stop.from >= acquired;
        // Whatever was renewed before it was stopped is over.
        let over = stop.from + op.lease < stop.until;
        let said = op.statements.iter().find(|s| s.at > stop.until);
        before && over && said.is_some_and(|s| s.until.is_some())
    })
}

/// Said to be held after it was said to be over.
fn revived(op: &Op) -> bool {
    let over = op.statements.iter().find(|s| s.until.is_none());
    let over = over.map(|s| s.at).into_iter().chain(op.loss_seen).min();
    over.is_some_and(|over| {
        op.statements
            .iter()
            .any(|s| s.at > over && s.until.is_some())
    })
}

/// Its body went on for long after its validity, and nobody was told.
fn untold(op: &Op) -> bool {
    let (Some(ended), Some(until)) = (op.ended, op.safe_until()) else {
        return false;
    };
    !ended.believed && told(op).is_none() && ended.at > until + UNTOLD && op.returned.is_some()
}

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I6);
    let memory = run.memory();
    let mut latencies = Vec::new();
    for op in &run.ops {
        let Some((acquired, token)) = op.acquired else {
            continue;
        };
        let stops = run.faults.stops_of(op.id.worker);
        if revived(op) {
            finding.violation(run, || {
                let what = "believed in its hold after it had been over".to_owned();
                Violation::of(run, &[op], Span::new(acquired, op.whole().until), what)
            });
        }
        let whole = Span::new(acquired, op.whole().until);
        if stops.touches(whole) {
            let stops: Vec<Span> = stops.iter().collect();
            if let Some(stop) = wrong_after_stop(op, &stops) {
                finding.violation(run, || {
                    let what = "believed in its hold after a stop longer than its lease".to_owned();
                    Violation::of(run, &[op], stop, what)
                });
            }
        }
        let Some(told) = told(op) else {
            if untold(op) && !stops.touches(whole) {
                finding.violation(run, || {
                    let what = "the body ended long after its validity, and nobody was told";
                    Violation::of(run, &[op], whole, what.to_owned())
                });
            }
            continue;
        };
        // A guard that was over when its caller got it: nobody believed.
        let Some(until) = op.safe_until().map(|until| until.min(told)) else {
            continue;
        };
        // The time in which it should have been told.
        let telling = Span::new(until, told);
        finding.checked += 1;
        let suspends = run.faults.suspends_of(op.id.worker);
        if stops.touches(telling)
            || told < until + TICK && suspends.touches(telling.widened(TICK, 0))
        {
            continue;
        }
        if told > until {
            latencies.push((told - until, op));
        }
        let late = truth.lock(op.key, token).filter(|lock| {
            lock.end == End::Expired
                && lock.span.until < told
                && !run.faults.at(op.key).lossy_within(telling, memory)
        });
        if let Some(lock) = late {
            finding.violation(run, || {
                let what = "told after the server had let go".to_owned();
                Violation::of(run, &[op], Span::new(lock.span.until, told), what)
            });
        }
    }
    judge(run, &mut finding, &latencies);
    finding
}

fn judge(run: &Run, finding: &mut Finding, latencies: &[(Nanos, &Op)]) {
    if latencies.is_empty() {
        finding.note = "nothing was lost by running out".to_owned();
        return;
    }
    let spread = Spread::of_millis(latencies.iter().map(|(l, _)| Duration::from_nanos(*l)));
    let p99 = spread.percentile(99.0);
    finding.note = format!(
        "after validity: p50 {:.1} ms, p99 {p99:.1} ms, max {:.1} ms",
        spread.percentile(50.0),
        spread.max()
    );
    if p99 > BOUND as f64 / MILLI as f64 {
        for (latency, op) in latencies.iter().filter(|(l, _)| *l > BOUND) {
            finding.violation(run, || {
                let until = op.safe_until().unwrap_or(0);
                let what = format!("told {} ms after its validity", latency / MILLI);
                Violation::of(run, &[op], Span::new(until, until + latency), what)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};
    use crate::history::Outcome;

    fn found(history: &History, server: Server) -> u64 {
        let (run, truth) = history.build_with(server);
        check(&run, &truth).violations
    }

    fn lost(told: u64) -> Story {
        Story::new(1, 1, "k", 0)
            .acquired(10, 7, 990)
            .lost(told)
            .ended(told, false, false)
            .returned(told + 1, Outcome::Lost)
    }

    #[test]
    fn lost_stays_lost() {
        for (remaining, expected) in [(0, 0), (500, 1)] {
            let mut history = History::default();
            let story = Story::new(1, 1, "k", 0)
                .acquired(10, 7, 990)
                .sampled(900, 0);
            let story = story.lost(901).sampled(950, remaining);
            history.call(story.ended(960, false, false).returned(970, Outcome::Lost));
            let mut server = Server::default();
            server.take(10, "k", "a:1", 7, 1250);
            assert_eq!(found(&history, server), expected, "{remaining}");
        }
    }

    #[test]
    fn in_time_or_early() {
        let mut history = History::default();
        history.call(lost(1049));
        assert_eq!(found(&history, Server::default()), 0);
        history.stories = vec![lost(300)];
        assert_eq!(found(&history, Server::default()), 0);
    }

    #[test]
    fn late() {
        let mut history = History::default();
        history.call(lost(1051));
        assert_eq!(found(&history, Server::default()), 1);
        // A process that was stopped meanwhile could not be told.
        history.fault(900, 1040, "worker_stop", Some(1), true);
        assert_eq!(found(&history, Server::default()), 0);
    }

    #[test]
    fn late_after_a_suspend() {
        for (kind, told, expected) in [
            ("client_suspend_stop", 1_240, 0),
            ("client_suspend_stop", 1_260, 1),
            ("client_stop", 1_240, 1),
        ] {
            let mut history = History::default();
            history.call(lost(told));
            history.fault(700, 990, kind, Some(1), true);
            let found = found(&history, Server::default());
            assert_eq!(found, expected, "{kind} {told}");
        }
    }

    #[test]
    fn a_few_late_ones_are_within_the_bound() {
        let mut history = History::default();
        for op in 0..200 {
            let at = 10_000 * op;
            let told = at + if op == 0 { 1300 } else { 1010 };
            history.call(
                Story::new(1, op, "k", at)
                    .acquired(at + 10, op + 1, 990)
                    .lost(told)
                    .ended(told, false, false)
                    .returned(told, Outcome::Lost),
            );
        }
        assert_eq!(found(&history, Server::default()), 0);
        for op in [50, 100] {
            let at = 10_000 * op as u64;
            history.stories[op] = Story::new(1, op as u64, "k", at)
                .acquired(at + 10, op as u64 + 1, 990)
                .lost(at + 1300)
                .returned(at + 1300, Outcome::Lost);
        }
        assert_eq!(found(&history, Server::default()), 3);
    }

    #[test]
    fn after_the_server_let_go() {
        let mut history = History::default();
        history.call(lost(1040));
        let mut server = Server::default();
        server.take(5, "k", "a:1", 7, 1030);
        server.look(2000, "a");
        assert_eq!(found(&history, server.clone()), 1);
        let mut later = Server::default();
        later.take(5, "k", "a:1", 7, 1250);
        later.look(2000, "a");
        assert_eq!(found(&history, later), 0);
        history.fault(500, 500, "clock_forward", None, false);
        assert_eq!(found(&history, server), 0);
    }

    #[test]
    fn nobody_was_told() {
        let mut history = History::default();
        let story = |ended| {
            Story::new(1, 1, "k", 0)
                .acquired(10, 7, 990)
                .ended(ended, true, false)
                .returned(2000, Outcome::LostCompleted)
        };
        history.call(story(1100));
        assert_eq!(found(&history, Server::default()), 0);
        history.stories = vec![story(1300)];
        assert_eq!(found(&history, Server::default()), 1);
    }

    #[test]
    fn after_a_stop_the_first_word_is_that_it_is_over() {
        let stopped = |story: Story| {
            let mut history = History::default();
            history.call(story);
            history.fault(100, 1200, "worker_stop", Some(1), true);
            found(&history, Server::default())
        };
        let story = || Story::new(1, 1, "k", 0).acquired(10, 7, 990);
        assert_eq!(stopped(story().sampled(1201, 0)), 0);
        assert_eq!(stopped(story().ended(1201, false, false)), 0);
        // Read before the stop, written after it.
        assert_eq!(stopped(story().sampled(99, 900).sampled(1201, 0)), 0);
        assert_eq!(stopped(story().sampled(1201, 500).sampled(1202, 0)), 1);
        assert_eq!(stopped(story().ended(1201, true, true)), 1);
    }

    #[test]
    fn after_a_short_stop_it_may_still_be_held() {
        let mut history = History::default();
        history.call(
            Story::new(1, 1, "k", 0)
                .acquired(10, 7, 990)
                .sampled(700, 300),
        );
        history.fault(100, 690, "worker_stop", Some(1), true);
        assert_eq!(found(&history, Server::default()), 0);
    }
}
