//! Faults of servers that sentinels watch: failovers above all.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use distlock_tests::{RedisServer, Reply};

use crate::plan::{Kind, Planned};
use crate::server_log::ServerLog;
use crate::supervisor::Setup;
use crate::topology::{Watched, connections};

/// How long the sentinels may take to agree on another master, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long running workers may keep connections to a server that is a replica now. Stopped ones keep them for longer.
const LEAVING: Duration = Duration::from_secs(2);

/// How servers are replaced.
#[derive(Debug)]
pub(super) struct Failovers<'a> {
    watched: &'a Watched,
    log: &'a ServerLog,
    under_way: Option<UnderWay>,
}

/// How far a failover has come.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    began: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// There is no other master.
    Bereft,
    /// Since then the old one runs beside the new one, and nobody has told it.
    Both(Instant),
    /// Since then the old one follows the new one.
    Followed(Instant),
}

impl<'a> Failovers<'a> {
    /// `None` where nobody watches.
    pub(super) fn new(setup: &'a Setup, log: &'a ServerLog) -> Option<Self> {
        Some(Failovers {
            watched: setup.field.watched()?,
            log,
            under_way: None,
        })
    }

    /// Whether the servers have got over the fault before.
    pub(super) fn are_ready_for(&self, fault: &Planned) -> anyhow::Result<bool> {
        if self.under_way.is_some() {
            return Ok(false);
        }
        self.stayed()?;
        Ok(!fault.kind.is_of_watched() || self.watched.is_in_order())
    }

    /// After the last fault.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        self.watched.until_in_order();
        self.stayed()
    }

    fn stayed(&self) -> anyhow::Result<()> {
        match self.watched.moved() {
            None => Ok(()),
            Some(logs) => bail!(
                "the sentinels replaced a master that nobody had touched, so nothing can be said of this run; \
                 a machine that is too loaded does that:\n{logs}"
            ),
        }
    }

    pub(super) fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        if fault.kind.is_failover() {
            // What the old master may still execute is not to be told from what counts.
            self.log.leave();
            self.under_way = Some(UnderWay {
                began: Instant::now(),
                stage: Stage::Bereft,
            });
        }
        let master = self.watched.master();
        match fault.kind {
            Kind::FailoverKill => master.kill(),
            Kind::FailoverStop => master.stop_process(),
            Kind::FailoverCommand => self.command()?,
            Kind::FailoverBehind => {
                self.watched.replicas().for_each(RedisServer::stop_process);
                let cut = master.client().cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
                ensure!(!cut.is_error(), "CLIENT KILL TYPE replica: {cut:?}");
            }
            Kind::ReplicaStop => self.watched.replicas().for_each(RedisServer::stop_process),
            Kind::SentinelsStop => self
                .some_sentinels(fault)
                .for_each(RedisServer::stop_process),
            kind => bail!("{kind:?} is not a fault of watched servers"),
        }
        Ok(())
    }

    /// The replica that was cut off is the only one left.
    pub(super) fn middle(&mut self) {
        self.watched.master().kill();
        self.watched.replicas().for_each(RedisServer::cont_process);
    }

    /// Goes on with what ends a fault; whether it is over.
    pub(super) fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        match fault.kind {
            Kind::ReplicaStop => self.watched.replicas().for_each(RedisServer::cont_process),
            Kind::SentinelsStop => self
                .some_sentinels(fault)
                .for_each(RedisServer::cont_process),
            _ => return self.go_on(fault),
        }
        Ok(true)
    }

    fn go_on(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let Some(under_way) = &mut self.under_way else {
            return Ok(true);
        };
        ensure!(
            under_way.began.elapsed() < PATIENCE,
            "no failover within {PATIENCE:?} after {}",
            fault.kind.name()
        );
        match under_way.stage {
            Stage::Bereft => {
                if self.watched.successor().is_some() {
                    revive(self.watched.master(), fault.kind);
                    under_way.stage = Stage::Both(Instant::now());
                }
            }
            Stage::Both(since) => {
                if since.elapsed() >= fault.by
                    && let Some(successor) = self.watched.successor()
                {
                    self.watched.succeed(successor);
                    under_way.stage = Stage::Followed(Instant::now());
                }
            }
            Stage::Followed(since) => {
                let left = self.watched.replicas().all(|old| connections(old) == 0);
                if left || since.elapsed() > LEAVING {
                    self.log.follow(self.watched.master().addr());
                    self.under_way = None;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn command(&self) -> anyhow::Result<()> {
        let mut refusals = Vec::new();
        for sentinel in self.watched.sentinels() {
            let command = ["SENTINEL", "FAILOVER", Watched::SERVICE];
            match sentinel.client().cmd(&command) {
                Reply::Error(error) => refusals.push(error),
                _ => return Ok(()),
            }
        }
        bail!("SENTINEL FAILOVER: {refusals:?}")
    }

    /// One of them or most of them.
    fn some_sentinels(&self, fault: &Planned) -> impl Iterator<Item = &'a RedisServer> {
        let few = if fault.flag { 1 } else { 2 };
        self.watched.sentinels().iter().take(few)
    }
}

/// The old master runs again, and has not heard of the new one.
fn revive(master: &RedisServer, kind: Kind) {
    match kind {
        Kind::FailoverKill | Kind::FailoverBehind => master.restart(),
        Kind::FailoverStop => master.cont_process(),
        _ => {}
    }
}
