//! Nothing is left behind: at the end there are no more threads, descriptors, tasks and connections
//! than before, and no key remains in the store.

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::Run;
use crate::history::When;

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Leaks);
    let end = run.span.until;
    let mut compare = |of: &str, what: &str, before: u32, after: u32| {
        finding.checked += 1;
        if after > before {
            let what = format!("{of} had {before} {what} before and {after} after");
            finding.violation(run, Violation::at(end, "", what));
        }
    };
    for ((worker, generation), process) in &run.processes {
        if let (Some(before), Some(after)) = (process.before, process.after) {
            let of = format!("worker {worker}.{generation}");
            compare(&of, "threads", before.threads, after.threads);
            compare(&of, "descriptors", before.fds, after.fds);
            compare(&of, "tasks", before.tasks, after.tasks);
        }
    }
    let count = |when| run.connections.iter().rev().find(|(w, _)| *w == when);
    if let (Some((_, before)), Some((_, after))) = (count(When::Before), count(When::After)) {
        compare("the servers", "connections", *before, *after);
    }
    if let Some((at, keys)) = &run.leftovers {
        finding.checked += 1;
        for key in keys {
            let what = "left in the store after all workers had gone".to_owned();
            finding.violation(run, Violation::at(*at, key, what));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::History;
    use crate::history::{Census, SupervisorEvent, WorkerEvent};

    #[test]
    fn each_leak_is_found() {
        for ((threads, fds, tasks), connections, keys, expected) in [
            ((4, 9, 1), 1, vec![], 0),
            ((3, 8, 0), 1, vec![], 0),
            ((5, 9, 1), 1, vec![], 1),
            ((4, 10, 1), 1, vec![], 1),
            ((4, 9, 2), 1, vec![], 1),
            ((4, 9, 1), 2, vec![], 1),
            ((4, 9, 1), 1, vec!["distlock:lock:{k}".to_owned()], 1),
        ] {
            let mut history = History::default();
            for (when, count) in [(When::Before, 1), (When::After, connections)] {
                let counted = SupervisorEvent::Connections { when, count };
                history.supervisor.push(counted);
            }
            let leftovers = SupervisorEvent::Leftovers { at: 1, keys };
            history.supervisor.push(leftovers);
            let mut run = history.build();
            for (when, threads, fds, tasks) in
                [(When::Before, 4, 9, 1), (When::After, threads, fds, tasks)]
            {
                let census = Census {
                    threads,
                    fds,
                    tasks,
                };
                run.work(1, 0, WorkerEvent::Census { when, census });
            }
            assert_eq!(check(&run).violations, expected);
        }
    }
}
