//! When the machine was too busy to run what it should.
//!
//! Some invariants bound times. On a machine with more to do than it can, a process may wait for a processor for longer
//! than such a bound, which says nothing about the lock. The kernel counts these waits (`crate::starvation`).

use std::collections::BTreeMap;

use crate::check::evidence::{Id, Violation};
use crate::check::spans::{Span, Spans};
use crate::history::SupervisorEvent;

/// When which processes waited for a processor.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    /// Of workers, by number and generation.
    workers: BTreeMap<(u32, u32), Spans>,
    /// Of the servers, of the links between, and of the resource: these delay every worker.
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

    /// Returns true if a violation of an invariant about time happened while a process that it is about was starved.
    pub(crate) fn explains(&self, id: Id, violation: &Violation) -> bool {
        let is_of_time = matches!(id, Id::I6 | Id::I7 | Id::I9 | Id::I13 | Id::I14 | Id::I16);
        let concerns = |process: &(u32, u32)| {
            let mut ops = violation.ops.iter();
            violation.ops.is_empty() || ops.any(|op| (op.worker, op.generation) == *process)
        };
        let mut concerned = self.workers.iter().filter(|(of, _)| concerns(of));
        is_of_time
            && (self.shared.touches(violation.span)
                || concerned.any(|(_, spans)| spans.touches(violation.span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::calm;
    use crate::check::run::MILLI;
    use crate::check::testing::{History, Story};
    use crate::history::Nanos;

    /// Violations of I13, and what is only reported, of a worker that lost its lock between 5010 and 5100 ms.
    fn found(pid: u32, from: Nanos, until: Nanos) -> (u64, u64) {
        let mut history = History::default();
        for worker in [1, 2] {
            history.supervisor.push(SupervisorEvent::WorkerStarted {
                at: 0,
                worker,
                generation: 0,
                pid: 100 + worker,
            });
        }
        history.supervisor.push(SupervisorEvent::Starved {
            from: from * MILLI,
            until: until * MILLI,
            pid,
        });
        let story = Story::new(1, 2, "k", 5000).acquired(5010, 2, 990);
        history.call(story.lost(5100));
        let finding = calm::check(&history.build().0);
        (finding.violations, finding.reported)
    }

    #[test]
    fn only_the_starvation_of_that_worker_or_of_a_server_explains_a_loss() {
        assert_eq!(found(101, 5050, 5150), (0, 1));
        assert_eq!(found(99, 5050, 5150), (0, 1));
        assert_eq!(found(102, 5050, 5150), (1, 0));
        assert_eq!(found(101, 4900, 5000), (1, 0));
        assert_eq!(found(101, 5101, 5200), (1, 0));
    }

    #[test]
    fn starvation_explains_no_overlap() {
        let event = SupervisorEvent::Starved {
            from: 0,
            until: 10,
            pid: 1,
        };
        let starvation = Starvation::of(&[event]);
        let violation = Violation {
            key: String::new(),
            span: Span::new(0, 10),
            ops: Vec::new(),
            tokens: Vec::new(),
            what: String::new(),
        };
        assert!(starvation.explains(Id::I13, &violation));
        for id in [
            Id::I1,
            Id::I2,
            Id::I3,
            Id::I4,
            Id::I5,
            Id::I8,
            Id::I11,
            Id::I15,
        ] {
            assert!(!starvation.explains(id, &violation), "{id}");
        }
    }
}
