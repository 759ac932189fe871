//! I10: threads, descriptors, tasks and connections are as many after as before.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::Run;
use crate::check::spans::Span;
use crate::history::When;

pub(crate) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Id::I10);
    for ((worker, generation), process) in &run.processes {
        let (Some(before), Some(after)) = (process.before, process.after) else {
            continue;
        };
        for (what, before, after) in [
            ("threads", before.threads, after.threads),
            ("descriptors", before.fds, after.fds),
            ("tasks", before.tasks, after.tasks),
        ] {
            finding.checked += 1;
            if after > before {
                let at = process.ended.unwrap_or(process.started);
                let what = format!(
                    "worker {worker}.{generation} had {before} {what} before and {after} after"
                );
                leaked(run, &mut finding, at, what);
            }
        }
    }
    let count = |when| run.connections.iter().rev().find(|(w, _)| *w == when);
    if let (Some((_, before)), Some((_, after))) = (count(When::Before), count(When::After)) {
        finding.checked += 1;
        if after > before {
            let what = format!("the server had {before} connections before and {after} after");
            leaked(run, &mut finding, run.span().until, what);
        }
    }
    finding
}

fn leaked(run: &Run, finding: &mut Finding, at: u64, what: String) {
    finding.violation(run, || Violation {
        key: String::new(),
        span: Span::new(at, at),
        ops: Vec::new(),
        tokens: Vec::new(),
        what,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::History;
    use crate::history::{SupervisorEvent, WorkerEvent};

    fn census(when: When, threads: u32, fds: u32, tasks: u32) -> WorkerEvent {
        WorkerEvent::Census {
            at: 1,
            when,
            threads,
            fds,
            tasks,
        }
    }

    fn found(after: WorkerEvent, connections: u32) -> u64 {
        let mut history = History::default();
        for (when, count) in [(When::Before, 1), (When::After, connections)] {
            history
                .supervisor
                .push(SupervisorEvent::Connections { at: 1, when, count });
        }
        let (mut run, _) = history.build();
        run.work(1, 0, [census(When::Before, 4, 9, 1), after]);
        check(&run).violations
    }

    #[test]
    fn as_many_as_before() {
        assert_eq!(found(census(When::After, 4, 9, 1), 1), 0);
        assert_eq!(found(census(When::After, 3, 8, 0), 0), 0);
    }

    #[test]
    fn each_leak_is_found() {
        assert_eq!(found(census(When::After, 5, 9, 1), 1), 1);
        assert_eq!(found(census(When::After, 4, 10, 1), 1), 1);
        assert_eq!(found(census(When::After, 4, 9, 2), 1), 1);
        assert_eq!(found(census(When::After, 4, 9, 1), 2), 1);
    }
}
