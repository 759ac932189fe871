//! A valid hold is in the store; some holders read the store to check this.

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::{Audit, Op, Run};

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Audits);
    for op in &run.ops {
        finding.checked += op.audits.len() as u64;
        for audit in &op.audits {
            if audit.found == Some(audit.token) {
                continue;
            }
            let found = audit.found.map_or_else(
                || "no lock".to_owned(),
                |token| format!("the lock of token {token}"),
            );
            let what = format!("believed in its hold while the server had {found}");
            let violation = Violation::of(run, &[op], audit.span, what);
            finding.unless(excused(run, op, audit), run, violation);
        }
    }
    finding
}

fn excused(run: &Run, op: &Op, audit: &Audit) -> bool {
    let site = run.faults.at(op.key);
    // The answer may be from a primary that is being replaced and does not know it.
    site.replacing.touches(audit.span)
        || site.lossy_within(audit.span, op.memory())
        || run.stepped_since_stop(op, audit.span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Call, History};
    use crate::kind::Kind;

    /// The faults with their worker, and the verdict on a hold that is not in the store at 2020 ms.
    fn judged(faults: &[(u64, u64, Kind, Option<u32>)], found: Option<u64>) -> (u64, u64) {
        let mut history = History::default();
        for &(from, until, kind, worker) in faults {
            history.fault(from, until, kind, worker, kind.is_lossless());
        }
        let call = Call::new(1, 1, "k", 2000).acquired(2010, 7, 900);
        history.call(call.audited(2020, 7, found));
        let finding = check(&history.build());
        (finding.violations, finding.excused)
    }

    #[test]
    fn only_a_data_loss_explains_a_missing_lock() {
        let step = |from| (from, 300, Kind::ClockStep, None);
        let stopped = |kind| (250, 2_005, kind, Some(1));
        for (faults, found, expected) in [
            (vec![], Some(7), (0, 0)),
            (vec![], None, (1, 0)),
            (vec![], Some(8), (1, 0)),
            (vec![(1_000, 1_000, Kind::FlushAll, None)], None, (0, 1)),
            (vec![step(100), stopped(Kind::ClientSuspend)], None, (0, 1)),
            (vec![step(100), stopped(Kind::ClientKill)], None, (1, 0)),
            // Two servers may be asked during a failover.
            (
                vec![(2_000, 2_025, Kind::FailoverAgreed, None)],
                None,
                (0, 1),
            ),
            (
                vec![(2_000, 2_015, Kind::FailoverAgreed, None)],
                None,
                (1, 0),
            ),
        ] {
            assert_eq!(judged(&faults, found), expected, "{faults:?} {found:?}");
        }
    }
}
