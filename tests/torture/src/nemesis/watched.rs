//! Faults of servers that sentinels watch: failovers above all.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use distlock_tests::RedisServer;

use super::LOOK;
use crate::plan::{Kind, Planned};
use crate::server_log::ServerLog;
use crate::supervisor::Setup;
use crate::topology::{Watched, ask, connections};

/// How long the sentinels may take to agree on another master, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long all of them may refuse to do what they are told.
const OBEYING: Duration = Duration::from_secs(10);
/// How long running workers may keep connections to a server that is a replica now. Stopped ones keep them for longer.
const LEAVING: Duration = Duration::from_secs(2);

/// How servers are replaced, and replicas lost.
#[derive(Debug)]
pub(super) struct Failovers<'a> {
    watched: &'a Watched,
    log: &'a ServerLog,
    under_way: Option<UnderWay>,
}

/// How far a fault has come.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    began: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A replica is away, or sentinels are.
    Away,
    /// There is no other master, at least since then.
    Bereft(Instant),
    /// Since then the old one runs beside the new one, and nobody has told it.
    Both(Instant),
    /// Since then the old one follows the new one.
    Followed(Instant),
    /// There is a replica again, and it does not have everything yet.
    Copying,
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
        let began = Instant::now();
        while !self.watched.is_in_order() {
            ensure!(
                began.elapsed() < PATIENCE,
                "the servers are not in order {PATIENCE:?} after the last fault:\n{}",
                self.last_words()
            );
            std::thread::sleep(LOOK);
        }
        self.stayed()
    }

    pub(super) fn last_words(&self) -> String {
        self.watched.last_words()
    }

    fn stayed(&self) -> anyhow::Result<()> {
        if let Some(logs) = self.watched.ended() {
            bail!("a server or sentinel has ended by itself:\n{logs}");
        }
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
            self.log.leave(None);
        }
        self.under_way = Some(UnderWay {
            began: Instant::now(),
            stage: if fault.kind.is_failover() {
                Stage::Bereft(Instant::now())
            } else {
                Stage::Away
            },
        });
        let master = self.watched.master();
        match fault.kind {
            Kind::FailoverKill => master.kill(),
            Kind::FailoverStop => master.stop_process(),
            Kind::FailoverCommand => self.command()?,
            Kind::FailoverBehind | Kind::ReplicaCut => {
                self.watched.replicas().for_each(RedisServer::stop_process);
                ask(master, &["CLIENT", "KILL", "TYPE", "replica"])?;
            }
            Kind::ReplicaKill => self.watched.replicas().for_each(RedisServer::kill),
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
        let Some(UnderWay { began, stage }) = self.under_way else {
            return Ok(true);
        };
        ensure!(
            began.elapsed() < PATIENCE,
            "the servers are not in order {PATIENCE:?} after {}",
            fault.kind.name()
        );
        let next = self.next(stage, fault)?;
        self.under_way = next.map(|stage| UnderWay { began, stage });
        Ok(next.is_none())
    }

    /// The stage that follows; `None` if it was the last.
    fn next(&self, stage: Stage, fault: &Planned) -> anyhow::Result<Option<Stage>> {
        let watched = self.watched;
        Ok(match stage {
            Stage::Away if fault.kind == Kind::SentinelsStop => {
                let stopped = self.some_sentinels(fault);
                stopped.for_each(RedisServer::cont_process);
                None
            }
            Stage::Away => {
                if fault.kind == Kind::ReplicaKill {
                    watched.restart_replicas()?;
                } else {
                    watched.replicas().for_each(RedisServer::cont_process);
                }
                Some(Stage::Copying)
            }
            Stage::Bereft(since) => match watched.successor() {
                Some(successor) => {
                    if watched.acknowledged {
                        // The old one has no replica any more, so nothing counts there.
                        self.log.follow(successor.addr());
                    }
                    revive(watched.master(), fault.kind);
                    Some(Stage::Both(Instant::now()))
                }
                // They obeyed and thought better of it, or went back at once.
                None if fault.kind == Kind::FailoverCommand && since.elapsed() > OBEYING => {
                    self.command()?;
                    Some(Stage::Bereft(Instant::now()))
                }
                None => Some(stage),
            },
            Stage::Both(since) if since.elapsed() >= fault.by => match watched.successor() {
                Some(successor) => {
                    watched.succeed(successor)?;
                    Some(Stage::Followed(Instant::now()))
                }
                None => Some(stage),
            },
            Stage::Followed(since) if self.is_left()? || since.elapsed() > LEAVING => {
                if !watched.acknowledged {
                    self.log.follow(watched.master().addr());
                }
                watched.acknowledged.then_some(Stage::Copying)
            }
            Stage::Copying if watched.has_replicas() => None,
            _ => Some(stage),
        })
    }

    /// Whether nobody is connected to the old master any more.
    fn is_left(&self) -> anyhow::Result<bool> {
        for old in self.watched.replicas() {
            if connections(old)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells a sentinel to replace the master. One that has not heard of the replica for a moment refuses.
    fn command(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + OBEYING;
        loop {
            let mut refusals = Vec::new();
            for sentinel in self.watched.sentinels() {
                let command = ["SENTINEL", "FAILOVER", Watched::SERVICE];
                match ask(sentinel, &command) {
                    Err(refusal) => refusals.push(refusal.to_string()),
                    Ok(_) => return Ok(()),
                }
            }
            ensure!(
                Instant::now() < deadline,
                "no sentinel obeys: {}",
                refusals.join("; ")
            );
            std::thread::sleep(LOOK);
        }
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
