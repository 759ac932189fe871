//! Faults of a cluster: shards get other masters, and slots other shards.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use distlock_tests::RedisServer;

use crate::plan::{Kind, Planned};
use crate::server_log::ServerLog;
use crate::supervisor::Setup;
use crate::topology::{Removal, Sharded, ask, begin_move, connections, move_keys};

/// How long a replica may take to become the master, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a replica tries to do what it was told, before it has to be told again.
const TELL_AGAIN: Duration = Duration::from_secs(6);
/// How long running workers may keep connections to a node that is a replica now. Stopped ones keep them for longer.
const LEAVING: Duration = Duration::from_secs(2);
/// For how long a slot that has arrived is left in peace before its node is: until nobody has older news of it.
const SPREADING: Duration = Duration::from_secs(1);
/// Who was ready a moment ago to replace a node, waits for slots to arrive. Those of others stay so long.
const WAITING: Duration = Duration::from_millis(200);
/// How long the cluster may take to agree on its slots by itself, before they are repaired.
const REPAIR_AFTER: Duration = Duration::from_secs(5);
/// How many lines of its log are shown of each node.
const LAST_LINES: usize = 25;

/// How masters are replaced, and slots moved.
#[derive(Debug)]
pub(super) struct Shards<'a> {
    sharded: &'a Sharded,
    logs: &'a [ServerLog],
    failover: Option<Failover>,
    moving: Option<Removal>,
    /// When slots arrived last.
    arrived: Option<Instant>,
    /// When it was last found that a failover waits for that.
    waited: Option<Instant>,
    /// What else is in force.
    busy: Option<Kind>,
    /// Since when the nodes disagree, or when their slots were last repaired.
    disagree: Option<Instant>,
}

/// How far a failover has come.
#[derive(Clone, Copy, Debug)]
struct Failover {
    began: Instant,
    told: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The shard has no other master.
    Bereft,
    /// The old one runs, and has not heard of it yet.
    Both,
    /// Since then the old one follows the new one.
    Followed(Instant),
    /// The shard has its new master, and not all masters agree about all slots yet.
    Agreeing,
}

impl<'a> Shards<'a> {
    /// `None` where there are none. `logs`: of each shard.
    pub(super) fn new(setup: &'a Setup, logs: &'a [ServerLog]) -> Option<Self> {
        Some(Shards {
            sharded: setup.field.sharded()?,
            logs,
            failover: None,
            moving: None,
            arrived: None,
            waited: None,
            busy: None,
            disagree: None,
        })
    }

    /// The keys that a fault concerns.
    pub(super) fn keys(&self, fault: &Planned) -> Vec<String> {
        match fault.kind {
            Kind::SlotsMove => self.sharded.removal(fault.choice).keys,
            _ => self.sharded.keys(self.sharded.shard(fault.choice)),
        }
    }

    /// Where it happens, in words.
    pub(super) fn place(&self, fault: &Planned) -> String {
        match fault.kind {
            Kind::SlotsMove => {
                let Removal {
                    from,
                    to,
                    slots,
                    keys,
                } = self.sharded.removal(fault.choice);
                let keys = keys.join(" ");
                format!("{keys} in slots {slots:?} from shard {from} to shard {to}")
            }
            _ => format!("shard {}", self.sharded.shard(fault.choice)),
        }
    }

    /// Whether the nodes have got over the fault before, and no other one is in its way.
    pub(super) fn are_ready_for(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        if fault.kind == Kind::SlotsMove {
            // A master that stands still gives nothing away, and cannot be asked how it is.
            let is_stalled = self.busy.is_some_and(Kind::stalls);
            let is_waited_for = self.waited.is_some_and(|at| at.elapsed() < WAITING);
            let is_possible = !is_stalled && !is_waited_for && self.moving.is_none();
            return Ok(is_possible && (self.sharded.masters_agree() || self.repaired(false)));
        }
        if self.busy.is_some() {
            return Ok(false);
        }
        let is_spreading = self.arrived.is_some_and(|at| at.elapsed() < SPREADING);
        if fault.kind.stalls() && self.moving.is_some() || fault.kind.is_failover() && is_spreading
        {
            self.waited = Some(Instant::now());
            return Ok(false);
        }
        self.stayed()?;
        let is_of_nodes = fault.kind.is_failover() || fault.kind == Kind::ReplicaStop;
        Ok(!is_of_nodes || self.repaired(self.sharded.is_in_order()))
    }

    /// Returns whether the nodes agree. Where they have not for a while, it repairs the slots as an operator would.
    fn repaired(&mut self, agree: bool) -> bool {
        if agree {
            self.disagree = None;
            return true;
        }
        let since = *self.disagree.get_or_insert_with(Instant::now);
        // A move keeps slots open on purpose.
        if since.elapsed() > REPAIR_AFTER && self.moving.is_none() {
            match self.sharded.repair() {
                Ok(sent) if sent.is_empty() => {}
                Ok(sent) => eprintln!("repaired the cluster's slots: {}", sent.join(", ")),
                Err(error) => eprintln!("cannot repair the cluster's slots: {error:#}"),
            }
            self.disagree = Some(Instant::now());
        }
        false
    }

    /// After the last fault.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while !self.repaired(self.sharded.is_in_order()) {
            self.stayed()?;
            ensure!(
                began.elapsed() < PATIENCE,
                "the cluster was not in order {PATIENCE:?} after the last fault:\n{}",
                self.last_words()
            );
            std::thread::sleep(super::LOOK);
        }
        self.stayed()
    }

    /// That nobody was replaced whom nobody had touched.
    fn stayed(&self) -> anyhow::Result<()> {
        let is_master = |node| self.sharded.cluster.is_master(node);
        if self.sharded.masters().all(is_master) {
            return Ok(());
        }
        bail!(
            "the cluster replaced a master that nobody had touched, so nothing can be said of this run; a machine that \
             is too loaded does that:\n{}",
            self.last_words()
        )
    }

    pub(super) fn last_words(&self) -> String {
        let places = self.sharded.ports();
        let last = |node: &RedisServer| {
            let log = node.log();
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            let wrong = places.iter();
            let wrong = wrong.filter(|place| !self.sharded.cluster.knows(node, &[**place]));
            let wrong: Vec<_> = wrong.collect();
            let port = node.port();
            format!("{port} does not know that these slots are at these ports: {wrong:?}\n{last}")
        };
        let each: Vec<_> = self.sharded.cluster.nodes().map(last).collect();
        each.join("\n\n")
    }

    /// Whether it is one of its own.
    pub(super) fn begin(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        if fault.kind != Kind::SlotsMove && !fault.kind.is_instant() {
            self.busy = Some(fault.kind);
        }
        let shard = self.sharded.shard(fault.choice);
        if fault.kind.is_failover() {
            // What the old master may still execute is not to be told from what counts.
            self.logs[shard].leave(Some(self.sharded.keys(shard)));
            let now = Instant::now();
            self.failover = Some(Failover {
                began: now,
                told: now,
                stage: Stage::Bereft,
            });
        }
        let (master, replica) = (self.sharded.master(shard), self.sharded.replica(shard));
        match fault.kind {
            Kind::FailoverKill => master.kill(),
            Kind::FailoverStop => master.stop_process(),
            Kind::FailoverAgreed => drop(ask(replica, &["CLUSTER", "FAILOVER"])?),
            Kind::FailoverBehind => {
                replica.stop_process();
                ask(master, &["CLIENT", "KILL", "TYPE", "replica"])?;
            }
            Kind::ReplicaStop => replica.stop_process(),
            Kind::SlotsMove => {
                let removal = self.sharded.removal(fault.choice);
                let (from, to) = self.ends(&removal);
                for slot in &removal.slots {
                    begin_move(*slot, from, to)?;
                }
                self.moving = Some(removal);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ends(&self, removal: &Removal) -> (&'a RedisServer, &'a RedisServer) {
        let Removal { from, to, .. } = removal;
        (self.sharded.master(*from), self.sharded.master(*to))
    }

    /// The replica that was cut off is the only one left; or some of a slot has arrived, and the rest comes later.
    pub(super) fn middle(&mut self, fault: &Planned) -> anyhow::Result<()> {
        if let Some(removal) = &self.moving
            && fault.kind == Kind::SlotsMove
        {
            let (from, to) = self.ends(removal);
            for (index, slot) in removal.slots.iter().enumerate() {
                if move_keys(*slot, from, to, 1 + index).is_err() {
                    // The rest of the move makes up for it, unless a node was replaced.
                    self.stayed()?;
                }
            }
        }
        if fault.kind == Kind::FailoverBehind {
            let shard = self.sharded.shard(fault.choice);
            self.sharded.master(shard).kill();
            self.sharded.replica(shard).cont_process();
        }
        Ok(())
    }

    /// Goes on with what ends a fault; whether it is over. `None`: it is none of its own.
    pub(super) fn end(&mut self, fault: &Planned) -> anyhow::Result<Option<bool>> {
        let shard = self.sharded.shard(fault.choice);
        if fault.kind == Kind::SlotsMove {
            return self.arrive().map(Some);
        }
        let is_over = match fault.kind {
            kind if kind.is_failover() => Some(self.go_on(fault, shard)?),
            Kind::ReplicaStop => {
                self.sharded.replica(shard).cont_process();
                Some(true)
            }
            _ => None,
        };
        if is_over != Some(false) {
            self.busy = None;
        }
        Ok(is_over)
    }

    /// Moves the rest of the slots; returns whether they have arrived.
    fn arrive(&mut self) -> anyhow::Result<bool> {
        let Some(removal) = &self.moving else {
            return Ok(true);
        };
        self.sharded.has_moved(removal);
        for slot in &removal.slots {
            if let Err(error) = self.sharded.assign(*slot, removal.to) {
                self.stayed()?;
                let since = *self.disagree.get_or_insert_with(Instant::now);
                ensure!(
                    since.elapsed() < PATIENCE,
                    "slot {slot} has not arrived within {PATIENCE:?}: {error:#}"
                );
                return Ok(false);
            }
        }
        self.disagree = None;
        self.moving = None;
        self.arrived = Some(Instant::now());
        Ok(true)
    }

    fn go_on(&mut self, fault: &Planned, shard: usize) -> anyhow::Result<bool> {
        let Some(mut failover) = self.failover else {
            return Ok(true);
        };
        let (master, replica) = (self.sharded.master(shard), self.sharded.replica(shard));
        let cluster = &self.sharded.cluster;
        if failover.began.elapsed() > PATIENCE {
            let kind = fault.kind.name();
            bail!(
                "no failover within {PATIENCE:?} after {kind}:\n{}",
                self.last_words()
            );
        }
        match failover.stage {
            Stage::Bereft if cluster.is_master(replica) => {
                match fault.kind {
                    Kind::FailoverKill | Kind::FailoverBehind => master.restart(),
                    Kind::FailoverStop => master.cont_process(),
                    _ => {}
                }
                failover.stage = Stage::Both;
            }
            Stage::Bereft => {
                if fault.kind == Kind::FailoverAgreed && failover.told.elapsed() > TELL_AGAIN {
                    failover.told = Instant::now();
                    ask(replica, &["CLUSTER", "FAILOVER"])?;
                }
            }
            Stage::Both => {
                if !cluster.is_master(master) {
                    failover.stage = Stage::Followed(Instant::now());
                }
            }
            Stage::Followed(since) => {
                if connections(master)? == 0 || since.elapsed() > LEAVING {
                    self.logs[shard].follow(replica.addr());
                    self.sharded.turn(shard);
                    failover.stage = Stage::Agreeing;
                }
            }
            Stage::Agreeing => {
                if self.repaired(self.sharded.masters_agree()) {
                    self.failover = None;
                    return Ok(true);
                }
            }
        }
        self.failover = Some(failover);
        Ok(false)
    }
}
