//! Registers, sets and jobs, and the log of all accesses to them.

use std::collections::HashMap;

use super::fence::Fence;
use super::protocol::{Access, Answer, Request};
use crate::history::{Recorder, ResourceEvent, now};

/// What belongs to one key. Each fenced thing has a fence of its own.
#[derive(Debug, Default)]
struct Things {
    fenced: u64,
    unfenced: u64,
    set: Vec<u64>,
    next_job: u64,
    register_fence: Fence,
    set_fence: Fence,
    job_fence: Fence,
}

/// All things.
#[derive(Debug)]
pub(crate) struct Store {
    things: HashMap<String, Things>,
    log: Recorder,
    /// Off: reads are not checked and do not raise the highest token (a saboteur).
    fence_reads: bool,
}

impl Store {
    pub(crate) fn new(log: Recorder, fence_reads: bool) -> Self {
        Store {
            things: HashMap::new(),
            log,
            fence_reads,
        }
    }

    /// Does what is asked and logs it. Whoever calls has the whole store, so the log is in order.
    pub(crate) fn serve(&mut self, request: Request) -> Answer {
        let things = self.things.entry(request.key.clone()).or_default();
        let checked = request.access.is_fenced() && (self.fence_reads || !request.access.is_read());
        let accepted = !checked || things.fence(&request.access).admit(request.caller());
        let answer = if accepted {
            things.access(&request.access)
        } else {
            Answer::Stale
        };
        if let Some(event) = things.event(request, accepted) {
            self.log.record(&event);
        }
        answer
    }
}

impl Things {
    fn fence(&mut self, access: &Access) -> &mut Fence {
        match access {
            Access::Read { .. } | Access::Write { .. } => &mut self.register_fence,
            Access::ReadSet | Access::WriteSet { .. } => &mut self.set_fence,
            Access::NextJob | Access::ExecuteJob { .. } => &mut self.job_fence,
        }
    }

    fn register(&mut self, fenced: bool) -> &mut u64 {
        if fenced {
            &mut self.fenced
        } else {
            &mut self.unfenced
        }
    }

    fn access(&mut self, access: &Access) -> Answer {
        match access {
            Access::Read { fenced } => return Answer::Value(*self.register(*fenced)),
            Access::ReadSet => return Answer::Elements(self.set.clone()),
            Access::NextJob => return Answer::Value(self.next_job),
            Access::Write { fenced, value } => *self.register(*fenced) = *value,
            Access::WriteSet { elements } => self.set.clone_from(elements),
            // Executed as often as it is asked for: that it is once only is the lock's duty.
            Access::ExecuteJob { job } => self.next_job = self.next_job.max(job + 1),
        }
        Answer::Done
    }

    fn event(&mut self, request: Request, accepted: bool) -> Option<ResourceEvent> {
        let at = now();
        let Request {
            key,
            worker,
            generation,
            op,
            token,
            access,
        } = request;
        let write = !access.is_read();
        Some(match access {
            Access::Read { fenced } | Access::Write { fenced, .. } => ResourceEvent::Access {
                at,
                key,
                fenced,
                write,
                worker,
                generation,
                op,
                token,
                value: match access {
                    Access::Write { value, .. } => value,
                    _ => *self.register(fenced),
                },
                accepted,
            },
            Access::ReadSet | Access::WriteSet { .. } => ResourceEvent::Set {
                at,
                key,
                write,
                worker,
                generation,
                op,
                token,
                element: match access {
                    Access::WriteSet { elements } => elements.last().copied().unwrap_or(0),
                    _ => 0,
                },
                size: self.set.len() as u64,
                accepted,
            },
            Access::ExecuteJob { job } => ResourceEvent::Job {
                at,
                key,
                job,
                worker,
                generation,
                op,
                token,
                accepted,
            },
            Access::NextJob => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(fence_reads: bool) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let log = Recorder::create(&dir.path().join("resource.jsonl")).unwrap();
        (dir, Store::new(log, fence_reads))
    }

    fn ask(store: &mut Store, token: u64, access: Access) -> Answer {
        store.serve(Request {
            key: "k".into(),
            worker: 0,
            generation: 0,
            op: token,
            token,
            access,
        })
    }

    const READ: Access = Access::Read { fenced: true };

    fn write(value: u64) -> Access {
        Access::Write {
            fenced: true,
            value,
        }
    }

    /// A(1) reads, B(2) reads, A writes, B writes: without the check of reads, A's write is lost.
    #[test]
    fn a_read_of_a_newer_holder_shuts_the_older_one_out() {
        let (_dir, mut honest) = store(true);
        assert_eq!(ask(&mut honest, 1, READ), Answer::Value(0));
        assert_eq!(ask(&mut honest, 2, READ), Answer::Value(0));
        assert_eq!(ask(&mut honest, 1, write(1)), Answer::Stale);
        assert_eq!(ask(&mut honest, 2, write(1)), Answer::Done);
        assert_eq!(ask(&mut honest, 1, READ), Answer::Stale);

        let (_dir, mut sabotaged) = store(false);
        assert_eq!(ask(&mut sabotaged, 1, READ), Answer::Value(0));
        assert_eq!(ask(&mut sabotaged, 2, READ), Answer::Value(0));
        assert_eq!(ask(&mut sabotaged, 1, write(1)), Answer::Done);
        assert_eq!(ask(&mut sabotaged, 2, write(1)), Answer::Done);
        assert_eq!(ask(&mut sabotaged, 1, write(2)), Answer::Stale);
    }

    #[test]
    fn the_unfenced_copy_takes_everything() {
        let (_dir, mut store) = store(true);
        let unfenced = |value| Access::Write {
            fenced: false,
            value,
        };
        assert_eq!(ask(&mut store, 2, unfenced(7)), Answer::Done);
        assert_eq!(ask(&mut store, 1, unfenced(3)), Answer::Done);
        let read = Access::Read { fenced: false };
        assert_eq!(ask(&mut store, 0, read), Answer::Value(3));
        assert_eq!(ask(&mut store, 3, READ), Answer::Value(0));
    }

    #[test]
    fn accesses_are_logged_in_their_order_with_their_fate() {
        let (dir, mut store) = store(true);
        ask(&mut store, 2, Access::ReadSet);
        ask(&mut store, 2, Access::WriteSet { elements: vec![9] });
        ask(&mut store, 1, Access::WriteSet { elements: vec![8] });
        assert_eq!(ask(&mut store, 2, Access::NextJob), Answer::Value(0));
        ask(&mut store, 2, Access::ExecuteJob { job: 0 });
        assert_eq!(ask(&mut store, 2, Access::NextJob), Answer::Value(1));
        let events: Vec<ResourceEvent> =
            crate::history::read(&dir.path().join("resource.jsonl")).unwrap();
        let shown: Vec<_> = events
            .iter()
            .map(|event| match event {
                ResourceEvent::Set {
                    write,
                    element,
                    size,
                    accepted,
                    ..
                } => format!("set {write} {element} {size} {accepted}"),
                ResourceEvent::Job { job, accepted, .. } => format!("job {job} {accepted}"),
                ResourceEvent::Access { .. } => "register".into(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "set false 0 0 true",
                "set true 9 1 true",
                "set true 8 1 false",
                "job 0 true"
            ]
        );
    }
}
