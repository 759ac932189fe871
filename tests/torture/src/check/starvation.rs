//! The times when the machine was too busy to run a process.
//!
//! Some invariants bound times. On a busy machine, a process may wait for a processor for longer,
//! which says nothing about the lock. The kernel counts these waits (`crate::starvation`).

use std::collections::BTreeMap;

use crate::check::evidence::Violation;
use crate::check::spans::{Span, Spans};
use crate::history::SupervisorEvent;

/// The times when each process waited for a processor.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    /// By number and generation of the worker.
    workers: BTreeMap<(u32, u32), Spans>,
    /// For the servers, the links and the resource, which delay every worker.
    shared: Spans,
}

impl Starvation {
    pub(crate) fn of(events: &[SupervisorEvent]) -> Starvation {
        let mut by_pid: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut workers: BTreeMap<(u32, u32), Vec<Span>> = BTreeMap::new();
        let mut shared = Vec::new();
        for event in events {
            match event {
                SupervisorEvent::WorkerStarted {
                    worker,
                    generation,
                    pid,
                    ..
                } => drop(by_pid.insert(*pid, (*worker, *generation))),
                SupervisorEvent::Starved { from, until, pid } => {
                    let spans = match by_pid.get(pid) {
                        Some(process) => workers.entry(*process).or_default(),
                        None => &mut shared,
                    };
                    spans.push(Span::new(*from, *until));
                }
                _ => {}
            }
        }
        let workers = workers.into_iter();
        Starvation {
            workers: workers.map(|(of, spans)| (of, Spans::of(spans))).collect(),
            shared: Spans::of(shared),
        }
    }

    /// Returns true if a process involved in a violation was starved meanwhile.
    pub(crate) fn explains(&self, violation: &Violation) -> bool {
        let concerns = |process: &(u32, u32)| {
            let mut ops = violation.ops.iter();
            violation.ops.is_empty() || ops.any(|op| (op.worker, op.generation) == *process)
        };
        let mut concerned = self.workers.iter().filter(|(of, _)| concerns(of));
        self.shared.touches(violation.span)
            || concerned.any(|(_, spans)| spans.touches(violation.span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::run::MILLI;
    use crate::check::testing::{Call, History};
    use crate::check::{calm, overlaps};

    /// Worker 1 loses its lock between 5010 and 5100 ms, and worker 2 has it at the same time.
    #[test]
    fn starvation_of_worker_or_server_explains_a_loss_but_no_overlap() {
        for (pid, from, until, explained) in [
            (101, 5_050, 5_150, true),
            (99, 5_050, 5_150, true),
            (102, 5_050, 5_150, false),
            (101, 4_900, 5_000, false),
            (101, 5_101, 5_200, false),
        ] {
            let mut history = History::default();
            history.supervisor.push(SupervisorEvent::Starved {
                from: from * MILLI,
                until: until * MILLI,
                pid,
            });
            let lost = Call::new(1, 1, "k", 5_000).acquired(5_010, 1, 990);
            history.call(lost.lost(5_100));
            let other = Call::new(2, 1, "k", 5_000).held(5_050, 5_060, 2);
            history.call(other).done(9_000);
            let run = history.build();
            let (calm, overlaps) = (
                calm::check(&run),
                overlaps::check(&run, &history.resource()),
            );
            assert_eq!(calm.violations, u64::from(!explained), "{pid} {from}");
            assert_eq!(calm.excused, u64::from(explained), "{pid} {from}");
            assert_eq!(overlaps.violations, 1);
        }
    }
}
