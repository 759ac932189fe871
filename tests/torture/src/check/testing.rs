//! Histories made by hand, in milliseconds.

use crate::check::run::{MILLI, Names, Run};
use crate::check::truth::{Replay, Truth};
use crate::history::{
    Body, Call, OnLost, Outcome, Phase, ServerEvent, SupervisorEvent, WorkerEvent, Workload,
};

/// What a server did. Its clock begins `ahead_ms` ahead of the history's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) events: Vec<ServerEvent>,
    pub(crate) ahead_ms: i64,
    pub(crate) serial: u64,
}

impl Server {
    fn wall(&self, at: u64) -> u64 {
        (at as i64 + self.ahead_ms) as u64 * 1000
    }

    pub(crate) fn script(&mut self, at: u64, verb: &str, owner: &str) {
        self.serial += 1;
        self.events.push(ServerEvent::Script {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            verb: verb.into(),
            owner: Some(owner.into()),
        });
    }

    pub(crate) fn set(
        &mut self,
        at: u64,
        key: &str,
        owner: &str,
        token: u64,
        kept: bool,
        ttl: u64,
    ) {
        self.events.push(ServerEvent::Set {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            key: key.into(),
            owner: owner.into(),
            token,
            kept,
            vote: false,
            until_us: self.wall(at) + ttl * 1000,
        });
    }

    pub(crate) fn delete(&mut self, at: u64, key: &str) {
        self.events.push(ServerEvent::Delete {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            key: key.into(),
        });
    }

    fn entry(&mut self, at: u64, key: &str, owner: &str, added: bool) {
        self.events.push(ServerEvent::Queue {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            key: key.into(),
            owner: owner.into(),
            added,
            ticket: None,
        });
    }

    #[expect(clippy::too_many_arguments, reason = "a lock's fields")]
    pub(crate) fn set_by(
        &mut self,
        at: u64,
        key: &str,
        verb: &str,
        by: &str,
        owner: &str,
        token: u64,
        ttl: u64,
    ) {
        self.script(at, verb, by);
        self.set(at, key, owner, token, false, ttl);
    }

    pub(crate) fn take(&mut self, at: u64, key: &str, owner: &str, token: u64, ttl: u64) {
        self.set_by(at, key, "ask", owner, owner, token, ttl);
    }

    /// A node of a quorum gives its vote, which is not confirmed.
    pub(crate) fn vote(&mut self, at: u64, key: &str, owner: &str, token: u64, ttl: u64) {
        self.take(at, key, owner, token, ttl);
        if let Some(ServerEvent::Set { vote, .. }) = self.events.last_mut() {
            *vote = true;
        }
    }

    /// Its queue is ordered by tickets.
    pub(crate) fn queue_with(&mut self, at: u64, key: &str, owner: &str, its: u64) {
        self.queue(at, key, owner);
        if let Some(ServerEvent::Queue { ticket, .. }) = self.events.last_mut() {
            *ticket = Some(its);
        }
    }

    pub(crate) fn look(&mut self, at: u64, client: &str) {
        self.script(at, "look", client);
    }

    pub(crate) fn queue(&mut self, at: u64, key: &str, owner: &str) {
        self.script(at, "ask", owner);
        self.entry(at, key, owner, true);
    }

    pub(crate) fn leave(&mut self, at: u64, key: &str, owner: &str) {
        self.script(at, "release", owner);
        self.entry(at, key, owner, false);
    }

    pub(crate) fn release(&mut self, at: u64, key: &str, owner: &str) {
        self.script(at, "release", owner);
        self.delete(at, key);
    }

    /// A release that serves the next one.
    pub(crate) fn hand_over(
        &mut self,
        at: u64,
        key: &str,
        from: &str,
        to: &str,
        token: u64,
        ttl: u64,
    ) {
        self.release(at, key, from);
        self.delete(at, key);
        self.set(at, key, to, token, false, ttl);
        self.events.push(ServerEvent::Publish {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            key: key.into(),
            owner: to.into(),
            token,
        });
    }

    pub(crate) fn confirm(&mut self, at: u64, key: &str, owner: &str, ttl: u64) {
        self.extend(at, key, "confirm", owner, ttl);
        self.entry(at, key, owner, false);
    }

    pub(crate) fn extend(&mut self, at: u64, key: &str, verb: &str, by: &str, ttl: u64) {
        self.script(at, verb, by);
        self.events.push(ServerEvent::Extend {
            at: at * MILLI,
            wall_us: self.wall(at),
            serial: self.serial,
            key: key.into(),
            until_us: self.wall(at) + ttl * 1000,
        });
    }

    /// A release that `min_hold` keeps taken.
    pub(crate) fn keep(&mut self, at: u64, key: &str, owner: &str, token: u64, ttl: u64) {
        self.release(at, key, owner);
        self.set(at, key, owner, token, true, ttl);
    }

    pub(crate) fn amnesia(&mut self, at: u64) {
        self.events.push(ServerEvent::Amnesia { at: at * MILLI });
    }

    pub(crate) fn gap(&mut self, from: u64, until: u64) {
        self.events.push(ServerEvent::Gap {
            from: from * MILLI,
            until: until * MILLI,
            keys: None,
        });
    }

    /// A gap for one key.
    pub(crate) fn gap_at(&mut self, from: u64, until: u64, key: &str) {
        self.events.push(ServerEvent::Gap {
            from: from * MILLI,
            until: until * MILLI,
            keys: Some(vec![key.to_owned()]),
        });
    }

    pub(crate) fn replay(self) -> (Truth, Names) {
        let mut keys = Names::default();
        let truth = self.replay_with(&mut keys);
        (truth, keys)
    }

    pub(crate) fn replay_with(self, keys: &mut Names) -> Truth {
        let mut replay = Replay::new(keys, 60_000 * MILLI);
        for event in self.events {
            replay.push(event);
        }
        replay.finish()
    }
}

/// One call; nothing of it is recorded until `History::call` takes it.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) worker: u32,
    op: u64,
    pub(crate) events: Vec<WorkerEvent>,
}

impl Story {
    /// A call of `lease` 1 s and `wait` 1 s.
    pub(crate) fn new(worker: u32, op: u64, key: &str, invoked: u64) -> Story {
        Story {
            worker,
            op,
            events: vec![WorkerEvent::Invoked {
                at: invoked * MILLI,
                op,
                workload: Workload::Counter,
                call: Call::Run,
                key: key.into(),
                lease_ms: 1000,
                wait_ms: 1000,
                on_lost: OnLost::Cancel,
                body: Body {
                    micros: 1000,
                    blocking: false,
                },
            }],
        }
    }

    pub(crate) fn asked(mut self, of: Call, lease: u64, wait: u64) -> Story {
        if let Some(WorkerEvent::Invoked {
            call,
            lease_ms,
            wait_ms,
            ..
        }) = self.events.first_mut()
        {
            (*call, *lease_ms, *wait_ms) = (of, lease, wait);
        }
        self
    }

    pub(crate) fn blocking(mut self) -> Story {
        if let Some(WorkerEvent::Invoked { body, .. }) = self.events.first_mut() {
            body.blocking = true;
        }
        self
    }

    pub(crate) fn acquired(mut self, at: u64, token: u64, remaining: u64) -> Story {
        self.events.push(WorkerEvent::Acquired {
            at: at * MILLI,
            op: self.op,
            token,
            remaining_us: remaining * 1000,
        });
        self
    }

    pub(crate) fn sampled(mut self, at: u64, remaining: u64) -> Story {
        self.events.push(WorkerEvent::Sampled {
            at: at * MILLI,
            op: self.op,
            remaining_us: remaining * 1000,
        });
        self
    }

    pub(crate) fn audited(mut self, at: u64, token: u64, found: Option<u64>) -> Story {
        self.events.push(WorkerEvent::Audited {
            at: at * MILLI,
            believed_after: at * MILLI,
            op: self.op,
            token,
            found,
        });
        self
    }

    pub(crate) fn lost(mut self, at: u64) -> Story {
        self.events.push(WorkerEvent::LossSeen {
            at: at * MILLI,
            op: self.op,
        });
        self
    }

    pub(crate) fn ended(mut self, at: u64, completed: bool, believed: bool) -> Story {
        self.events.push(WorkerEvent::BodyEnded {
            at: at * MILLI,
            op: self.op,
            completed,
            believed,
        });
        self
    }

    pub(crate) fn releasing(mut self, at: u64) -> Story {
        self.events.push(WorkerEvent::Releasing {
            at: at * MILLI,
            op: self.op,
        });
        self
    }

    pub(crate) fn returned(mut self, at: u64, outcome: Outcome) -> Story {
        self.events.push(WorkerEvent::Returned {
            at: at * MILLI,
            op: self.op,
            outcome,
            detail: None,
        });
        self
    }

    /// Acquired at `from`, over and released at `until`.
    pub(crate) fn held(self, from: u64, until: u64, token: u64) -> Story {
        self.acquired(from, token, 990)
            .ended(until, true, true)
            .returned(until + 1, Outcome::Ok)
    }
}

/// A run made by hand.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) supervisor: Vec<SupervisorEvent>,
    pub(crate) stories: Vec<Story>,
    faults: u64,
}

impl Default for History {
    fn default() -> Self {
        History {
            supervisor: vec![
                SupervisorEvent::Run {
                    at: 0,
                    seed: 1,
                    seconds: 60,
                    profile: "all".into(),
                    topology: "standalone".into(),
                    workers: 2,
                    keys: 1,
                    sabotage: None,
                    redis_version: "7.0.15".into(),
                    commit: "abc".into(),
                },
                SupervisorEvent::Phase {
                    at: 0,
                    phase: Phase::Chaos,
                },
            ],
            stories: Vec::new(),
            faults: 0,
        }
    }
}

impl History {
    pub(crate) fn call(&mut self, story: Story) -> &mut Self {
        self.stories.push(story);
        self
    }

    pub(crate) fn fault(
        &mut self,
        from: u64,
        until: u64,
        kind: &str,
        worker: Option<u32>,
        lossless: bool,
    ) -> &mut Self {
        self.has_fault(None, (from, until), kind, worker, lossless)
    }

    /// At a node of a quorum, or at a worker's link to it.
    pub(crate) fn fault_at(
        &mut self,
        node: u32,
        from: u64,
        until: u64,
        kind: &str,
        worker: Option<u32>,
    ) -> &mut Self {
        self.has_fault(Some(node), (from, until), kind, worker, true)
    }

    fn has_fault(
        &mut self,
        node: Option<u32>,
        (from, until): (u64, u64),
        kind: &str,
        worker: Option<u32>,
        lossless: bool,
    ) -> &mut Self {
        self.faults += 1;
        self.supervisor.push(SupervisorEvent::Fault {
            at: from * MILLI,
            number: self.faults,
            kind: kind.into(),
            worker,
            node,
            lossless,
            keys: None,
            detail: String::new(),
        });
        self.supervisor.push(SupervisorEvent::Healed {
            at: until * MILLI,
            number: self.faults,
        });
        self
    }

    pub(crate) fn phase(&mut self, at: u64, phase: Phase) -> &mut Self {
        self.supervisor.push(SupervisorEvent::Phase {
            at: at * MILLI,
            phase,
        });
        self
    }

    /// The run, and what nobody did on the server.
    pub(crate) fn build(&self) -> (Run, Truth) {
        self.build_with(Server::default())
    }

    pub(crate) fn build_with(&self, server: Server) -> (Run, Truth) {
        let mut run = Run::default();
        run.supervise(&self.supervisor);
        let mut workers: Vec<u32> = self.stories.iter().map(|s| s.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let events = self
                .stories
                .iter()
                .filter(|s| s.worker == worker)
                .flat_map(|s| s.events.clone());
            run.work(worker, 0, events);
        }
        run.complete();
        let truth = server.replay_with(&mut run.keys);
        (run, truth)
    }
}
