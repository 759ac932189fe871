//! I11: who believes in its hold has the lock on the server.
//!
//! Some holders look there themselves; and every token that anybody believed in was written.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Op, Run};
use crate::check::spans::Span;
use crate::check::truth::Truth;

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = looked(run);
    for op in &run.ops {
        if let (Some((acquired, token)), true) = (op.acquired, truth.scripts > 0) {
            let asking = Span::new(op.invoked, acquired);
            finding.checked += 1;
            if truth.lock(op.key, token).is_none() && !truth.gaps_at(op.key).touches(asking) {
                finding.violation(run, || {
                    let what = "believed in a token that was never written".to_owned();
                    Violation::of(run, &[op], asking, what)
                });
            }
        }
    }
    finding
}

/// What holders saw who looked.
pub(crate) fn looked(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I11);
    for op in &run.ops {
        for audit in &op.audits {
            finding.checked += 1;
            if audit.found == Some(audit.token) {
                continue;
            }
            let violation = || {
                let found = audit.found.map_or_else(
                    || "no lock".to_owned(),
                    |token| format!("the lock of token {token}"),
                );
                let what = format!("believed in its hold while the server had {found}");
                Violation::of(run, &[op], audit.span, what)
            };
            // A master that is being replaced may have answered, and not know it, whether its data is lost or not.
            let site = run.faults.at(op.key);
            if site.replacing.touches(audit.span)
                || site.lossy_within(audit.span, op.memory())
                || stepped_meanwhile(run, op, audit.span)
            {
                finding.report(run, violation);
            } else {
                finding.violation(run, violation);
            }
        }
    }
    finding
}

/// Returns true if the server's clock stepped since the worker was stopped: what the worker knows of that clock is older.
fn stepped_meanwhile(run: &Run, op: &Op, span: Span) -> bool {
    let before = span.widened(op.memory(), 0);
    let mut stops = run.faults.stops_of(op.id.worker).iter();
    let Some(stop) = stops.find(|stop| before.from <= stop.until && stop.from <= span.until) else {
        return false;
    };
    let since = Span::new(stop.from, span.until).widened(op.memory(), 0);
    let mut steps = run.faults.list.iter().filter(|f| f.kind == "clock_step");
    steps.any(|step| step.span.from <= since.until && since.from <= step.span.until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};

    fn found(history: &History) -> (u64, u64) {
        let (run, truth) = history.build();
        let finding = check(&run, &truth);
        (finding.violations, finding.reported)
    }

    fn audited(found: Option<u64>) -> History {
        let mut history = History::default();
        history.call(
            Story::new(1, 1, "k", 2000)
                .acquired(2010, 7, 900)
                .audited(2020, 7, found),
        );
        history
    }

    #[test]
    fn it_is_there() {
        assert_eq!(found(&audited(Some(7))), (0, 0));
    }

    #[test]
    fn it_is_gone_or_anothers() {
        assert_eq!(found(&audited(None)), (1, 0));
        assert_eq!(found(&audited(Some(8))), (1, 0));
    }

    #[test]
    fn a_lossy_fault_explains_it() {
        let mut history = audited(None);
        history.fault(1000, 1000, "flush_all", None, false);
        assert_eq!(found(&history), (0, 1));
    }

    #[test]
    fn a_step_of_the_clock_before_a_stop_explains_it_and_other_losses_do_not() {
        for (kind, stopped, expected) in [
            ("clock_step", "client_suspend_stop", (0, 1)),
            ("clock_step", "client_kill", (1, 0)),
            ("flush_all", "client_suspend_stop", (1, 0)),
        ] {
            let mut history = audited(None);
            history.fault(100, 300, kind, None, false);
            history.fault(250, 2_005, stopped, Some(1), true);
            assert_eq!(found(&history), expected, "{kind} {stopped}");
        }
    }

    #[test]
    fn a_failover_explains_it_while_two_may_be_asked() {
        for (until, expected) in [(2_025, (0, 1)), (2_015, (1, 0))] {
            let mut history = audited(None);
            history.fault(2_000, until, "failover_kill", None, true);
            assert_eq!(found(&history), expected, "{until}");
        }
    }

    #[test]
    fn a_token_that_nobody_wrote() {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 5).held(12, 20, 7));
        for (token, gap, expected) in [(7, None, 0), (8, None, 1), (8, Some((8, 9)), 0)] {
            let mut server = Server::default();
            if let Some((from, until)) = gap {
                server.gap(from, until);
            }
            server.take(10, "k", "a:1", token, 1250);
            let (run, truth) = history.build_with(server);
            assert_eq!(check(&run, &truth).violations, expected, "{token} {gap:?}");
        }
    }
}
