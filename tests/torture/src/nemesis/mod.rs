//! Carries out the plan.

mod link;
mod server;
mod sharded;
mod stall;
mod voters;
mod watched;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::history::{SupervisorEvent, now};
use crate::plan::{Kind, Planned};
use crate::server_log::ServerLog;
use crate::supervisor::{Crew, Setup};
use server::Server;
use sharded::Shards;
use stall::Stall;
use voters::Voters;
use watched::Failovers;

/// How often it is looked whether what takes its own time is done.
const LOOK: Duration = Duration::from_millis(20);

/// Causes faults, and takes them back.
#[derive(Debug)]
pub(crate) struct Nemesis<'a, 'b> {
    setup: &'a Setup,
    crew: &'b mut Crew<'a>,
    server: Server<'a>,
    failovers: Option<Failovers<'a>>,
    shards: Option<Shards<'a>>,
    voters: Option<Voters<'a>>,
    /// Since when processes are suspended.
    stopped: HashMap<u32, Instant>,
    stall: Stall,
}

/// What is done about one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    // Ends come first: one target's next fault may begin at the same moment.
    End,
    Middle,
    Begin,
}

impl<'a, 'b> Nemesis<'a, 'b> {
    /// `logs`: of the server that has the locks, or of each shard or node.
    pub(crate) fn new(setup: &'a Setup, crew: &'b mut Crew<'a>, logs: &'a [ServerLog]) -> Self {
        Nemesis {
            setup,
            crew,
            server: Server::new(setup, logs),
            failovers: Failovers::new(setup, &logs[0]),
            shards: Shards::new(setup, logs),
            voters: Voters::new(setup),
            stopped: HashMap::new(),
            stall: Stall::default(),
        }
    }

    /// Does all that is planned, at its time.
    pub(crate) fn carry_out(
        &mut self,
        planned: Vec<Planned>,
        began: Instant,
        chaos: Duration,
    ) -> anyhow::Result<()> {
        let mut steps = BinaryHeap::new();
        for (number, fault) in planned.iter().enumerate() {
            steps.push(Reverse((fault.at, Step::Begin, number)));
        }
        while let Some(Reverse((at, step, number))) = steps.pop() {
            let due = began + at;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let fault = &planned[number];
            match step {
                Step::Begin if !self.is_possible(fault)? => {
                    self.stall.postponed(fault, began.elapsed());
                    self.go_on(began.elapsed())?;
                    // Whatever it waits for, there is no point in it after the chaos.
                    let next = began.elapsed() + LOOK;
                    if next + fault.length < chaos {
                        steps.push(Reverse((next, Step::Begin, number)));
                    }
                }
                Step::Begin => {
                    self.stall.began(fault);
                    let late = began.elapsed().saturating_sub(fault.at);
                    self.record_begin(number, fault);
                    self.begin(fault)?;
                    if fault.kind.is_instant() {
                        continue;
                    }
                    // As long as planned, also when it began late.
                    let end = fault.end() + late;
                    if let Some(after) = fault.kind.second_part() {
                        steps.push(Reverse((fault.at + late + after, Step::Middle, number)));
                    }
                    steps.push(Reverse((end, Step::End, number)));
                }
                Step::Middle => self.middle(fault)?,
                Step::End if !self.end(fault)? => {
                    steps.push(Reverse((began.elapsed() + LOOK, Step::End, number)));
                }
                Step::End => {
                    self.setup.log.record(&SupervisorEvent::Healed {
                        at: now(),
                        number: number as u64,
                    });
                }
            }
        }
        Ok(())
    }

    /// Ends a run whose servers can have no more faults, because it would test nothing.
    fn go_on(&self, elapsed: Duration) -> anyhow::Result<()> {
        let Some(stalled) = self.stall.describe(elapsed) else {
            return Ok(());
        };
        let shards = self.shards.as_ref().map(Shards::last_words);
        let servers = shards.or_else(|| self.failovers.as_ref().map(Failovers::last_words));
        bail!("{stalled}\n{}", servers.unwrap_or_default())
    }

    /// Ends whatever is left of any fault.
    pub(crate) fn heal(&mut self) -> anyhow::Result<()> {
        for link in &self.setup.field.links {
            link.heal();
            link.release_held();
        }
        self.failovers.as_ref().map_or(Ok(()), Failovers::settle)?;
        self.shards.as_mut().map_or(Ok(()), Shards::settle)
    }

    fn record_begin(&self, number: usize, fault: &Planned) {
        let mut detail = format!("for {:?}", fault.length);
        if !fault.by.is_zero() {
            detail += &format!(", by {:?}", fault.by);
        }
        if fault.kind == Kind::ServerStopAndKill {
            detail += &format!(", worker {}", self.victim(fault));
        }
        if let Some(more) = self.server.detail(fault) {
            detail += &format!(", {more}");
        }
        let (mut keys, mut place) = (None, None);
        if let Some(shards) = &self.shards
            && fault.worker.is_none()
        {
            (keys, place) = (Some(shards.keys(fault)), Some(shards.place(fault)));
        }
        if let Some(place) = place {
            detail += &format!(", {place}");
        }
        if let Some(node) = fault.node {
            detail += &format!(", node {node}");
        }
        let Setup {
            topology, profile, ..
        } = self.setup;
        self.setup.log.record(&SupervisorEvent::Fault {
            at: now(),
            number: number as u64,
            kind: fault.kind.name().to_owned(),
            worker: fault.worker,
            node: fault.node,
            lossless: topology.keeps_locks(fault.kind, profile),
            keys,
            detail,
        });
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let Some(worker) = fault.worker else {
            if let Some(shards) = &mut self.shards
                && shards.begin(fault)?
            {
                return Ok(());
            }
            if let Some(voters) = &mut self.voters {
                voters.begin(fault);
            }
            return match &mut self.failovers {
                Some(failovers) if fault.kind.is_of_watched() => failovers.begin(fault),
                _ => self.server.begin(fault),
            };
        };
        match fault.kind {
            Kind::ClientStop | Kind::ClientStopLong | Kind::ClientStopOver => {
                self.crew.stop_process(worker)
            }
            Kind::ClientSuspend => {
                self.crew.stop_process(worker);
                self.stopped.insert(worker, Instant::now());
            }
            Kind::ClientKill => self.crew.kill(worker),
            _ => link::begin(self.link(worker, fault), fault),
        }
        Ok(())
    }

    /// Whether a fault can begin now: servers that have just been replaced are not yet ready to be.
    fn is_possible(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        if let (None, Some(voters)) = (fault.worker, &self.voters) {
            return voters.are_ready_for(fault);
        }
        match (fault.worker, &mut self.failovers, &mut self.shards) {
            (None, Some(failovers), _) => failovers.are_ready_for(fault),
            (None, None, Some(shards)) => shards.are_ready_for(fault),
            (None, None, None) => Ok(self.server.is_ready()),
            (Some(_), ..) => Ok(true),
        }
    }

    fn middle(&mut self, fault: &Planned) -> anyhow::Result<()> {
        match (fault.worker, &mut self.failovers, &mut self.shards) {
            (Some(worker), ..) => drop(self.link(worker, fault).reset_clients()),
            (None, Some(failovers), _) => failovers.middle(),
            (None, None, Some(shards)) => shards.middle(fault)?,
            (None, None, None) => self.crew.kill(self.victim(fault)),
        }
        Ok(())
    }

    /// The worker that dies while the server stands still.
    fn victim(&self, fault: &Planned) -> u32 {
        let hit = self.setup.workers.saturating_sub(self.setup.profile.spared);
        u32::try_from(fault.choice % u64::from(hit.max(1))).unwrap_or(0)
    }

    /// Whether it is over.
    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let Some(worker) = fault.worker else {
            if let Some(shards) = &mut self.shards
                && let Some(is_over) = shards.end(fault)?
            {
                return Ok(is_over);
            }
            if let Some(failovers) = &mut self.failovers
                && fault.kind.is_of_watched()
            {
                return failovers.end(fault);
            }
            self.server.end(fault)?;
            if let Some(voters) = &mut self.voters {
                voters.end(fault);
            }
            if fault.kind == Kind::ServerStopAndKill {
                self.crew.spawn(self.victim(fault))?;
            }
            return Ok(true);
        };
        match fault.kind {
            Kind::ClientStop | Kind::ClientStopLong | Kind::ClientStopOver => {
                self.crew.cont_process(worker)
            }
            Kind::ClientSuspend => {
                let since = self.stopped.remove(&worker);
                let stopped = since.map_or(Duration::ZERO, |since| since.elapsed());
                self.crew.resume(worker, stopped)?;
            }
            Kind::ClientKill => self.crew.spawn(worker)?,
            _ => link::end(self.link(worker, fault), fault),
        }
        Ok(true)
    }

    fn link(&self, worker: u32, fault: &Planned) -> &'a distlock_tests::Proxy {
        self.setup.field.link(worker, fault.node)
    }
}
