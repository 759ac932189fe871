//! A primary and its replica, monitored by three sentinels.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use distlock_tests::sentinel::Sentinels;
use distlock_tests::{RedisServer, RedisServerBuilder};

use super::server::ServerFaults;
use super::user::{self, PASSWORD, USER};
use super::{POLL_INTERVAL, Target, connections, last_lines, query};
use crate::kind::Kind;
use crate::plan::Planned;

/// Longer than one second. For that long, a sentinel that has just tried to reach the old primary
/// may not connect to the new one, and would take this for silence.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);
/// Upper limit for the sentinels to agree on another primary, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Upper limit for all sentinels to refuse a command.
const OBEYING: Duration = Duration::from_secs(10);
/// Upper limit for running workers to stay connected to a former primary; stopped ones stay longer.
const LEAVING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Watched {
    group: Sentinels,
    /// The index of the primary when all was last in order; frozen sentinels cannot report it.
    primary: usize,
    /// Set if a lock counts only once the replica has it.
    acknowledged: bool,
    faults: ServerFaults,
    stage: Option<(Instant, Stage)>,
}

/// The progress of a fault.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A replica is away, or sentinels are.
    Away,
    /// Since this time, no other primary exists.
    Without(Instant),
    /// Since this time, the old primary runs next to the new one and does not know of it.
    Both(Instant),
    /// Since this time, the old primary follows the new one.
    Followed(Instant),
    /// A replica exists again, but does not have all data yet.
    Copying,
}

impl Watched {
    pub(super) fn start(server: RedisServerBuilder, acknowledged: bool, keys: u32) -> Self {
        // The replica syncs without delay; otherwise no second failover is possible for a while.
        let server = server.arg("--repl-diskless-sync-delay", "0");
        let sentinel = user::at_sentinel(RedisServer::builder().sentinel());
        let group = Sentinels::of(&server, &sentinel);
        group.set_down_after(DOWN_AFTER);
        Watched {
            group,
            primary: 0,
            acknowledged,
            faults: ServerFaults::new(keys),
            stage: None,
        }
    }

    fn primary(&self) -> &RedisServer {
        &self.group.servers[self.primary]
    }

    fn replicas(&self) -> impl Iterator<Item = &RedisServer> {
        let primary = self.primary().port();
        let servers = self.group.servers.iter();
        servers.filter(move |server| server.port() != primary)
    }

    /// Fails if a server ended, or the primary was replaced, without a fault that does that.
    fn stayed(&self) -> anyhow::Result<()> {
        let mut all = self.group.servers.iter().chain(&self.group.sentinels);
        ensure!(
            !all.any(RedisServer::has_ended),
            "a server or sentinel has ended by itself:\n{}",
            self.last_words()
        );
        let named = self.group.primary().map(RedisServer::port);
        ensure!(
            named.is_none_or(|port| port == self.primary().port()),
            "the sentinels replaced a primary that had no fault, so the run has no verdict; on a \
             machine that is too loaded they do that:\n{}",
            self.last_words()
        );
        Ok(())
    }

    /// Acts on a stage that is due. Returns the next stage, or `None` after the last.
    fn next(&mut self, stage: Stage, fault: &Planned) -> anyhow::Result<Option<Stage>> {
        Ok(match stage {
            Stage::Away if fault.kind == Kind::SentinelsStop => {
                let stopped = self.some_sentinels(fault);
                stopped.for_each(RedisServer::cont_process);
                None
            }
            Stage::Away => {
                for replica in self.replicas() {
                    if fault.kind == Kind::ReplicaKill {
                        replica.restart();
                        follow(replica, self.primary())?;
                    } else {
                        replica.cont_process();
                    }
                }
                Some(Stage::Copying)
            }
            Stage::Without(since) => match self.group.another(self.primary()) {
                Some(_) => {
                    // The old primary does not know of the new one.
                    match fault.kind {
                        Kind::FailoverKill | Kind::FailoverBehind => self.primary().restart(),
                        Kind::FailoverStop => self.primary().cont_process(),
                        _ => {}
                    }
                    Some(Stage::Both(Instant::now()))
                }
                // The sentinels accepted the command, but gave up the failover or reverted it.
                None if fault.kind == Kind::FailoverCommand && since.elapsed() > OBEYING => {
                    self.command()?;
                    Some(Stage::Without(Instant::now()))
                }
                None => Some(stage),
            },
            Stage::Both(since) if since.elapsed() >= fault.by => {
                match self.group.another(self.primary()) {
                    Some(successor) => {
                        follow(self.primary(), successor)?;
                        let port = successor.port();
                        let mut ports = self.group.servers.iter().map(RedisServer::port);
                        let index = ports.position(|of| of == port);
                        self.primary = index.expect("the successor is one of them");
                        Some(Stage::Followed(Instant::now()))
                    }
                    None => Some(stage),
                }
            }
            Stage::Followed(since) if self.is_left()? || since.elapsed() > LEAVING => {
                self.acknowledged.then_some(Stage::Copying)
            }
            Stage::Copying if self.group.has_replicas(self.primary()) => None,
            _ => Some(stage),
        })
    }

    /// Returns true if no worker is still connected to the old primary.
    fn is_left(&self) -> anyhow::Result<bool> {
        for old in self.replicas() {
            if connections(old)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Orders a sentinel to replace the primary. Retries, because a sentinel that has not heard
    /// from the replica for a moment refuses.
    fn command(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + OBEYING;
        loop {
            let mut refusals = Vec::new();
            for sentinel in &self.group.sentinels {
                match query(sentinel, &["SENTINEL", "FAILOVER", Sentinels::SERVICE]) {
                    Err(refusal) => refusals.push(refusal.to_string()),
                    Ok(_) => return Ok(()),
                }
            }
            ensure!(
                Instant::now() < deadline,
                "no sentinel obeys: {}",
                refusals.join("; ")
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns one or two of the three sentinels.
    fn some_sentinels(&self, fault: &Planned) -> impl Iterator<Item = &RedisServer> {
        let few = if fault.flag { 1 } else { 2 };
        self.group.sentinels.iter().take(few)
    }
}

impl Target for Watched {
    fn url(&self, _: &[u16]) -> String {
        let beginning = format!("redis+sentinel://{USER}:{PASSWORD}@");
        self.group.url_of(&beginning, Sentinels::SERVICE)
    }

    fn own_url(&self) -> String {
        self.primary().url()
    }

    fn primaries(&self) -> Vec<&RedisServer> {
        vec![self.primary()]
    }

    fn servers(&self) -> Vec<&RedisServer> {
        self.group.servers.iter().collect()
    }

    fn sentinels(&self) -> &[RedisServer] {
        &self.group.sentinels
    }

    fn is_ready(&mut self, fault: &Planned, _: &[Kind]) -> anyhow::Result<bool> {
        self.stayed()?;
        Ok(!is_own(fault.kind) || self.group.is_complete())
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        if !is_own(fault.kind) {
            let primary = &self.group.servers[self.primary];
            return self.faults.begin(primary, fault);
        }
        let now = Instant::now();
        let stage = match fault.kind {
            kind if kind.is_failover() => Stage::Without(now),
            _ => Stage::Away,
        };
        self.stage = Some((now, stage));
        match fault.kind {
            Kind::FailoverKill => self.primary().kill(),
            Kind::FailoverStop => self.primary().stop_process(),
            Kind::FailoverCommand => self.command()?,
            Kind::FailoverBehind | Kind::ReplicaCut => {
                self.replicas().for_each(RedisServer::stop_process);
                query(self.primary(), &["CLIENT", "KILL", "TYPE", "replica"])?;
            }
            Kind::ReplicaKill => self.replicas().for_each(RedisServer::kill),
            Kind::ReplicaStop => self.replicas().for_each(RedisServer::stop_process),
            Kind::SentinelsStop => {
                let some = self.some_sentinels(fault);
                some.for_each(RedisServer::stop_process);
            }
            kind => bail!("{kind:?} is not a fault of watched servers"),
        }
        Ok(())
    }

    /// Leaves only the replica that was cut off.
    fn middle(&mut self, _: &Planned) -> anyhow::Result<()> {
        self.primary().kill();
        self.replicas().for_each(RedisServer::cont_process);
        Ok(())
    }

    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let Some((began, stage)) = self.stage else {
            let primary = &self.group.servers[self.primary];
            self.faults.end(primary, fault)?;
            return Ok(true);
        };
        ensure!(
            began.elapsed() < PATIENCE,
            "the servers are not in order {PATIENCE:?} after {:?}:\n{}",
            fault.kind,
            self.last_words()
        );
        self.stage = self.next(stage, fault)?.map(|stage| (began, stage));
        Ok(self.stage.is_none())
    }

    fn is_in_order(&mut self) -> anyhow::Result<bool> {
        self.stayed()?;
        Ok(self.group.is_complete())
    }

    fn last_words(&self) -> String {
        last_lines(self.group.servers.iter().chain(&self.group.sentinels))
    }
}

fn is_own(kind: Kind) -> bool {
    kind.is_failover() || kind.is_of_replica() || kind == Kind::SentinelsStop
}

fn follow(replica: &RedisServer, primary: &RedisServer) -> anyhow::Result<()> {
    let port = primary.port().to_string();
    query(replica, &["REPLICAOF", "127.0.0.1", &port]).map(drop)
}
