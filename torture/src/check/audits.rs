//! I11: who believes in its hold has the lock on the server.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::Run;

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I11);
    let memory = run.memory();
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
            if run.faults.lossy_within(audit.span, memory) {
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
    use super::*;
    use crate::check::testing::{History, Story};

    fn found(history: &History) -> (u64, u64) {
        let finding = check(&history.build().0);
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
}
