//! Execution of the fault plan.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::history::{Fault, SupervisorEvent, now};
use crate::kind::Kind;
use crate::link;
use crate::plan::Planned;
use crate::servers::POLL_INTERVAL;
use crate::supervisor::{Crew, Setup};

/// Longest time without a possible server fault; after it the run ends with an error.
const STALLED: Duration = Duration::from_secs(60);

/// Longest time for the servers to recover from the last fault.
const SETTLING: Duration = Duration::from_secs(60);

/// Begins and ends the planned faults.
#[derive(Debug)]
pub(crate) struct Nemesis<'a> {
    setup: &'a mut Setup,
    crew: &'a mut Crew,
    /// Server faults in force: at most one per server of a quorum, otherwise at most one in all.
    in_force: Vec<(Option<u32>, Kind)>,
    /// The suspended workers, and when each was suspended.
    stopped: HashMap<u32, Instant>,
    /// The time since which no server fault has been possible, and the first postponed kind.
    postponed: Option<(Duration, Kind)>,
}

/// An action of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    // Ends sort first, because the next fault of a target may begin at the same moment.
    End,
    Middle,
    Begin,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(setup: &'a mut Setup, crew: &'a mut Crew) -> Self {
        Nemesis {
            setup,
            crew,
            in_force: Vec::new(),
            stopped: HashMap::new(),
            postponed: None,
        }
    }

    /// Executes all planned faults on time. Skips a fault that could not end within `length`.
    pub(crate) fn carry_out(
        &mut self,
        planned: &[Planned],
        began: Instant,
        length: Duration,
    ) -> anyhow::Result<()> {
        let mut acts = BinaryHeap::new();
        for (number, fault) in planned.iter().enumerate() {
            acts.push(Reverse((fault.at, Act::Begin, number)));
        }
        while let Some(Reverse((at, act, number))) = acts.pop() {
            let due = began + at;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let fault = &planned[number];
            let now = began.elapsed();
            match act {
                Act::Begin if !self.is_possible(fault)? => {
                    self.postpone(fault, now)?;
                    let next = now + POLL_INTERVAL;
                    if next + fault.length < length {
                        acts.push(Reverse((next, Act::Begin, number)));
                    }
                }
                Act::Begin => {
                    self.record_begin(number, fault);
                    self.begin(fault)?;
                    if fault.kind.is_instant() {
                        continue;
                    }
                    // A fault lasts as long as planned even if it began late.
                    if let Some(after) = fault.kind.second_part() {
                        acts.push(Reverse((now + after, Act::Middle, number)));
                    }
                    acts.push(Reverse((now + fault.length, Act::End, number)));
                }
                Act::Middle => self.middle(fault)?,
                Act::End if !self.end(fault)? => {
                    acts.push(Reverse((began.elapsed() + POLL_INTERVAL, Act::End, number)));
                }
                Act::End => self.record_end(number, fault),
            }
        }
        Ok(())
    }

    /// Ends all remaining faults, and waits until the servers are in order.
    pub(crate) fn heal(&mut self) -> anyhow::Result<()> {
        for link in &self.setup.links {
            link.heal();
            link.release_held();
        }
        let began = Instant::now();
        while !self.setup.target.is_in_order()? {
            ensure!(
                began.elapsed() < SETTLING,
                "the servers are not in order {SETTLING:?} after the last fault:\n{}",
                self.setup.target.last_words()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns true if a fault can begin now. A server fault requires that the servers have
    /// recovered from the previous one.
    fn is_possible(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        if fault.worker.is_some() {
            return Ok(true);
        }
        if self.in_force.iter().any(|(node, _)| *node == fault.node) {
            return Ok(false);
        }
        let in_force: Vec<_> = self.in_force.iter().map(|(_, kind)| *kind).collect();
        self.setup.target.is_ready(fault, &in_force)
    }

    /// Fails the run once no server fault has been possible for `STALLED`: it tests nothing.
    fn postpone(&mut self, fault: &Planned, now: Duration) -> anyhow::Result<()> {
        let (since, kind) = *self.postponed.get_or_insert((now, fault.kind));
        ensure!(
            now < since + STALLED,
            "faults of the servers stopped {:.1} s after the first: {kind:?} has been impossible \
             for {STALLED:?}, because the servers have not recovered from the fault before\n{}",
            since.as_secs_f64(),
            self.setup.target.last_words()
        );
        Ok(())
    }

    fn record_begin(&mut self, number: usize, fault: &Planned) {
        let setup = &*self.setup;
        let is_of_servers = fault.worker.is_none();
        setup.log.record(&SupervisorEvent::Fault(Fault {
            at: now(),
            number: number as u64,
            kind: fault.kind,
            worker: fault.worker,
            node: fault.node,
            lossless: setup.options.topology.keeps_locks(fault.kind),
            keys: is_of_servers.then(|| setup.target.keys(fault)).flatten(),
            detail: format!("{fault:?}"),
        }));
        if is_of_servers {
            self.postponed = None;
            if !fault.kind.is_instant() {
                self.in_force.push((fault.node, fault.kind));
            }
        }
    }

    fn record_end(&mut self, number: usize, fault: &Planned) {
        if fault.worker.is_none() {
            self.in_force.retain(|(node, _)| *node != fault.node);
        }
        self.setup.log.record(&SupervisorEvent::Healed {
            at: now(),
            number: number as u64,
        });
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let Some(worker) = fault.worker else {
            return self.setup.target.begin(fault);
        };
        match fault.kind {
            Kind::ClientStop => self.crew.stop_process(worker),
            Kind::ClientSuspend => {
                self.crew.stop_process(worker);
                self.stopped.insert(worker, Instant::now());
            }
            Kind::ClientKill => self.crew.kill(self.setup, worker),
            _ => link::begin(self.setup.link(worker, fault.node), fault),
        }
        Ok(())
    }

    fn middle(&mut self, fault: &Planned) -> anyhow::Result<()> {
        match fault.worker {
            Some(worker) => drop(self.setup.link(worker, fault.node).reset_clients()),
            None => self.setup.target.middle(fault)?,
        }
        Ok(())
    }

    /// Continues to end a fault. Returns true once the fault has ended.
    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let Some(worker) = fault.worker else {
            return self.setup.target.end(fault);
        };
        match fault.kind {
            Kind::ClientStop => self.crew.cont_process(worker),
            Kind::ClientSuspend => {
                let since = self.stopped.remove(&worker);
                let stopped = since.map_or(Duration::ZERO, |since| since.elapsed());
                self.crew.resume(worker, stopped)?;
            }
            Kind::ClientKill => self.crew.spawn(self.setup, worker)?,
            _ => link::end(self.setup.link(worker, fault.node), fault),
        }
        Ok(true)
    }
}
