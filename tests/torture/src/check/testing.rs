//! Hand-made runs, in milliseconds.

use crate::check::resource::{Resource, Visit};
use crate::check::run::{Ended, MILLI, Run};
use crate::history::{
    self, Body, Fault, Header, Invocation, OnLost, Outcome, Step, SupervisorEvent, WorkerEvent,
};
use crate::kind::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Call {
    worker: u32,
    op: u64,
    steps: Vec<(u64, Step)>,
}

impl Call {
    /// Creates a call with a lease of 1 s and a wait of 1 s.
    pub(crate) fn new(worker: u32, op: u64, key: &str, invoked: u64) -> Call {
        let invocation = Invocation {
            call: history::Call::Run,
            key: key.into(),
            other_key: None,
            lease_ms: 1000,
            wait_ms: 1000,
            on_lost: OnLost::Cancel,
            body: Body {
                micros: 1000,
                blocking: false,
            },
            weight: 1,
        };
        Call {
            worker,
            op,
            steps: vec![(invoked, Step::Invoked(invocation))],
        }
    }

    fn with(mut self, change: impl Fn(&mut Invocation)) -> Call {
        if let Some((_, Step::Invoked(invocation))) = self.steps.first_mut() {
            change(invocation);
        }
        self
    }

    pub(crate) fn invoked_as(self, call: history::Call, lease: u64, wait: u64) -> Call {
        self.with(|invocation| {
            (invocation.call, invocation.lease_ms, invocation.wait_ms) = (call, lease, wait)
        })
    }

    /// Makes it one part of a call for two keys.
    pub(crate) fn with_key(self, other: &str) -> Call {
        self.with(|invocation| {
            (invocation.call, invocation.other_key) = (history::Call::Several, Some(other.into()));
        })
    }

    pub(crate) fn weighing(self, weight: u32) -> Call {
        self.with(|invocation| invocation.weight = weight)
    }

    pub(crate) fn blocking(self) -> Call {
        self.with(|invocation| invocation.body.blocking = true)
    }

    fn then(mut self, at: u64, step: Step) -> Call {
        self.steps.push((at, step));
        self
    }

    pub(crate) fn acquired(self, at: u64, token: u64, remaining: u64) -> Call {
        let remaining_us = remaining * 1000;
        let acquired = Step::Acquired {
            token,
            remaining_us,
        };
        self.then(at, acquired)
    }

    pub(crate) fn sampled(self, at: u64, remaining: u64) -> Call {
        let remaining_us = remaining * 1000;
        self.then(at, Step::Sampled { remaining_us })
    }

    pub(crate) fn audited(self, at: u64, token: u64, found: Option<u64>) -> Call {
        let audited = Step::Audited {
            believed_after: at * MILLI,
            token,
            found,
        };
        self.then(at, audited)
    }

    pub(crate) fn lost(self, at: u64) -> Call {
        self.then(at, Step::LossSeen)
    }

    pub(crate) fn ended(self, at: u64, completed: bool, believed: bool) -> Call {
        let ended = Step::BodyEnded {
            completed,
            believed,
        };
        self.then(at, ended)
    }

    pub(crate) fn releasing(self, at: u64) -> Call {
        self.then(at, Step::Releasing)
    }

    pub(crate) fn returned(self, at: u64, outcome: Outcome) -> Call {
        let detail = None;
        self.then(at, Step::Returned { outcome, detail })
    }

    /// Adds an acquisition at `from`, and the end of the body and the release at `until`.
    pub(crate) fn held(self, from: u64, until: u64, token: u64) -> Call {
        self.acquired(from, token, 990)
            .ended(until, true, true)
            .returned(until + 1, Outcome::Ok)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = WorkerEvent> + '_ {
        self.steps.iter().map(|(at, step)| WorkerEvent::Call {
            at: at * MILLI,
            op: self.op,
            step: step.clone(),
        })
    }
}

/// A run with workers 1 and 2.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) supervisor: Vec<SupervisorEvent>,
    pub(crate) calls: Vec<Call>,
    faults: u64,
}

impl Default for History {
    fn default() -> Self {
        History::of("standalone")
    }
}

impl History {
    pub(crate) fn of(topology: &str) -> Self {
        let header = Header {
            seconds: 60,
            profile: "all".into(),
            topology: topology.into(),
            ..Header::default()
        };
        let started = |worker| SupervisorEvent::WorkerStarted {
            at: 0,
            worker,
            generation: 0,
            pid: 100 + worker,
        };
        let run = SupervisorEvent::Run { at: 0, header };
        History {
            supervisor: vec![run, started(1), started(2)],
            calls: Vec::new(),
            faults: 0,
        }
    }

    pub(crate) fn call(&mut self, call: Call) -> &mut Self {
        self.calls.push(call);
        self
    }

    pub(crate) fn fault(
        &mut self,
        from: u64,
        until: u64,
        kind: Kind,
        worker: Option<u32>,
        lossless: bool,
    ) -> &mut Self {
        self.faults += 1;
        let number = self.faults;
        self.supervisor.push(SupervisorEvent::Fault(Fault {
            at: from * MILLI,
            number,
            kind,
            worker,
            node: None,
            lossless,
            keys: None,
            detail: String::new(),
        }));
        let at = until * MILLI;
        self.supervisor.push(SupervisorEvent::Healed { at, number });
        self
    }

    /// Changes the fault that was added last.
    pub(crate) fn with_fault(&mut self, change: impl Fn(&mut Fault)) {
        let mut events = self.supervisor.iter_mut().rev();
        if let Some(SupervisorEvent::Fault(fault)) =
            events.find(|event| matches!(event, SupervisorEvent::Fault(_)))
        {
            change(fault);
        }
    }

    /// Adds a fault at a server of a quorum, or at a worker's link to it.
    pub(crate) fn fault_at(
        &mut self,
        node: u32,
        from: u64,
        until: u64,
        kind: Kind,
        worker: Option<u32>,
    ) {
        self.fault(from, until, kind, worker, true);
        self.with_fault(|fault| fault.node = Some(node));
    }

    pub(crate) fn done(&mut self, at: u64) -> &mut Self {
        let at = at * MILLI;
        self.supervisor.push(SupervisorEvent::Done { at });
        self
    }

    pub(crate) fn build(&self) -> Run {
        let mut run = Run::default();
        run.supervise(&self.supervisor);
        for call in &self.calls {
            for event in call.events() {
                run.work(call.worker, 0, event);
            }
        }
        run.complete();
        run
    }

    /// Returns what a resource saw of the bodies. Those that completed have written.
    pub(crate) fn resource(&self) -> Resource {
        let run = self.build();
        let seen = run.ops.iter().filter_map(|op| {
            let (at, _) = op.acquired?;
            let is_done = |ended: &Ended| ended.completed || op.call == history::Call::Permits;
            let done = op.ended.filter(is_done).map(|ended| ended.at);
            Some((op.id, Visit { at, done, value: 0 }))
        });
        let mut resource = Resource::default();
        resource.visits.extend(seen);
        resource
    }

    /// Returns the events of one worker.
    pub(crate) fn of_worker(&self, worker: u32) -> impl Iterator<Item = WorkerEvent> + '_ {
        let calls = self.calls.iter().filter(move |call| call.worker == worker);
        calls.flat_map(Call::events)
    }
}
