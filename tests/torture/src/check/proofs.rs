//! I15: no belief beyond its proof.
//!
//! What the server promised a holder ends at least a grace after the holder's belief, whatever the reply
//! took. A reply that is believed from its arrival breaks this long before two holders meet.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{MILLI, Run};
use crate::check::spans::Span;
use crate::check::truth::Truth;
use crate::history::Nanos;

/// The shortest that there is.
const GRACE: Nanos = 250 * MILLI;
/// The server counts in milliseconds.
const ROUNDING: Nanos = 2 * MILLI;

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I15);
    let memory = run.memory();
    let mut narrowest: Option<Nanos> = None;
    for op in &run.ops {
        let (Some((acquired, token)), Some(until)) = (op.acquired, op.safe_until()) else {
            continue;
        };
        let Some(lock) = truth.lock(op.key, token) else {
            continue;
        };
        let span = Span::new(acquired.min(lock.span.from), until);
        // A renewal may have been overlooked.
        if truth.gaps_at(op.key).touches(span) {
            continue;
        }
        finding.checked += 1;
        let margin = lock.promised.saturating_sub(until);
        narrowest = Some(narrowest.map_or(margin, |known| known.min(margin)));
        if until + GRACE > lock.promised + ROUNDING {
            let violation = || {
                let what = format!(
                    "believed until {} ms before the server may let go, with a grace of 250 ms",
                    margin / MILLI
                );
                Violation::of(run, &[op], span, what)
            };
            // The age of a pushed grant is told by the server's clock, and this one stepped; so is the TTL that a
            // script writes.
            if (lock.pushed || lock.stepped) && run.faults.at(op.key).lossy_within(span, memory) {
                finding.report(run, violation);
            } else {
                finding.violation(run, violation);
            }
        }
    }
    if let Some(narrowest) = narrowest {
        finding.note = format!(
            "beliefs end at least {} ms before the server lets go",
            narrowest / MILLI
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};

    fn violations(remaining: u64, gap: Option<(u64, u64)>) -> u64 {
        let mut history = History::default();
        let story = Story::new(1, 1, "k", 0).acquired(10, 7, remaining);
        history.call(story.ended(20, true, true));
        let mut server = Server::default();
        server.take(10, "k", "a:1", 7, 1250);
        server.extend(400, "k", "renew", "a:1 7", 1250);
        if let Some((from, until)) = gap {
            server.gap(from, until);
        }
        let (run, truth) = history.build_with(server);
        check(&run, &truth).violations
    }

    #[test]
    fn a_belief_ends_a_grace_before_the_servers_promise() {
        assert_eq!(violations(990, None), 0);
        // The last renewal counts.
        assert_eq!(violations(1390, None), 0);
        assert_eq!(violations(1395, None), 1);
    }

    #[test]
    fn what_was_renewed_in_a_gap_is_not_judged() {
        assert_eq!(violations(1900, Some((900, 910))), 0);
        assert_eq!(violations(1900, Some((2900, 2910))), 1);
    }

    #[test]
    fn a_clock_that_steps_in_the_script_is_reported() {
        for (step, expected) in [(0, 1), (1_000, 0)] {
            let mut history = History::default();
            let story = Story::new(1, 1, "k", 0).acquired(10, 7, 1_400);
            history.call(story.ended(20, true, true));
            history.fault(5, 9, "clock_step", None, false);
            let mut server = Server::default();
            server.script(10, "ask", "a:1");
            server.ahead_ms = step;
            server.set(10, "k", "a:1", 7, false, 250);
            let (run, truth) = history.build_with(server);
            assert_eq!(check(&run, &truth).violations, expected, "{step}");
        }
    }
}
