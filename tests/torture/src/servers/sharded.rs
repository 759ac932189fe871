//! A cluster: three primaries with a replica each, between which slots move.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock_tests::{RedisCluster, RedisServer, RedisServerBuilder, Reply};

use super::server::ServerFaults;
use super::user::{PASSWORD, USER};
use super::{Target, connections, last_lines, query};
use crate::kind::Kind;
use crate::plan::Planned;

/// With fewer primaries, no majority could agree that one of them is dead.
const SHARDS: u16 = 3;
/// Milliseconds of silence until a node counts as dead; longer than a loaded machine freezes one.
const NODE_TIMEOUT: &str = "1500";
/// If a chosen shard has fewer slots with keys, the slots of the shard with the most move.
const LEAST: usize = 10;
/// Upper limit for a replica to become the primary, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a replica tries to obey; after that the command must be repeated.
const ASK_AGAIN: Duration = Duration::from_secs(6);
/// Upper limit for running workers to stay connected to a former primary; stopped ones stay longer.
const LEAVING: Duration = Duration::from_secs(2);
/// The time without failovers after a slot has moved, until every node knows of the move.
const SPREADING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Sharded {
    cluster: RedisCluster,
    /// For each shard, whether its initial replica is now its primary.
    turned: Vec<bool>,
    /// The slots that contain keys of the run, sorted by their busiest key.
    slots: Vec<Slot>,
    faults: ServerFaults,
    failover: Option<Failover>,
    /// When a slot last moved.
    moved: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    number: u16,
    keys: Vec<String>,
    shard: usize,
}

/// The progress of a failover.
#[derive(Clone, Copy, Debug)]
struct Failover {
    began: Instant,
    requested_at: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The shard has no other primary.
    Without,
    /// The old primary runs, but does not know of the new one yet.
    Both,
    /// Since this time, the old primary follows the new one.
    Followed(Instant),
    /// The shard has a new primary, but not all nodes agree on all slots yet.
    Agreeing,
}

impl Sharded {
    /// Starts the cluster. `keys` are the keys of the run, the busiest first.
    pub(super) fn start(node: RedisServerBuilder, keys: Vec<String>) -> Self {
        let node = node.arg("--cluster-node-timeout", NODE_TIMEOUT);
        let cluster = RedisCluster::of(&node, SHARDS, true);
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let mut by_slot: BTreeMap<u16, (usize, Vec<String>)> = BTreeMap::new();
        for (index, key) in keys.into_iter().enumerate() {
            let slot = by_slot.entry(cluster.slot(&key)).or_insert((index, vec![]));
            slot.1.push(key);
        }
        let mut by_slot: Vec<_> = by_slot.into_iter().collect();
        by_slot.sort_by_key(|(_, (first, _))| *first);
        let shard_of = |slot| {
            let owner = cluster.owner(slot).port();
            let mut primaries = cluster.primaries.iter().map(RedisServer::port);
            primaries
                .position(|port| port == owner)
                .expect("one of ours")
        };
        let slots = by_slot.into_iter().map(|(number, (_, keys))| Slot {
            number,
            keys,
            shard: shard_of(number),
        });
        Sharded {
            turned: vec![false; SHARDS.into()],
            slots: slots.collect(),
            cluster,
            faults: ServerFaults::new(count),
            failover: None,
            moved: None,
        }
    }

    fn pair(&self, shard: usize) -> (&RedisServer, &RedisServer) {
        pair(&self.cluster, &self.turned, shard)
    }

    /// Returns the shard that a fault concerns.
    fn shard(&self, fault: &Planned) -> usize {
        let chosen = choose(fault.choice, self.turned.len());
        let of = |shard: usize| self.slots.iter().filter(move |slot| slot.shard == shard);
        if fault.kind == Kind::SlotsMove && of(chosen).count() < LEAST {
            let richest = (0..self.turned.len()).max_by_key(|shard| of(*shard).count());
            return richest.unwrap_or(chosen);
        }
        chosen
    }

    /// Returns the indexes of the slots that a fault concerns: all slots of a shard, or the slots
    /// that move. The latter include the busiest slot of the shard.
    fn concerned(&self, fault: &Planned) -> Vec<usize> {
        let shard = self.shard(fault);
        let of_shard = (0..self.slots.len()).filter(|place| self.slots[*place].shard == shard);
        let mut places: Vec<_> = of_shard.collect();
        if fault.kind == Kind::SlotsMove {
            let rest = places.split_off(places.len().min(1));
            let count = 1 + choose(fault.choice / 7, 3);
            let first = choose(fault.choice / 11, rest.len().max(1));
            places.extend(rest.iter().cycle().skip(first).take(count.min(rest.len())));
        }
        places
    }

    /// Returns the shard to which the slots of a fault move.
    fn destination(&self, fault: &Planned) -> usize {
        let others = self.turned.len() - 1;
        (self.shard(fault) + 1 + choose(fault.choice / 3, others)) % self.turned.len()
    }

    /// Returns each slot and the port of its primary.
    fn ports(&self) -> Vec<(u16, u16)> {
        let port = |slot: &Slot| (slot.number, self.pair(slot.shard).0.port());
        self.slots.iter().map(port).collect()
    }

    /// Fails if a primary was replaced without a fault that does that.
    fn stayed(&self) -> anyhow::Result<()> {
        let mut primaries = (0..self.turned.len()).map(|shard| self.pair(shard).0);
        ensure!(
            primaries.all(|node| self.cluster.is_primary(node)),
            "the cluster replaced a primary that had no fault, so the run has no verdict; on a \
             machine that is too loaded it does that:\n{}",
            self.last_words()
        );
        Ok(())
    }

    fn begin_move(&self, fault: &Planned) -> anyhow::Result<()> {
        let from = self.pair(self.shard(fault)).0;
        let to = self.pair(self.destination(fault)).0;
        let (from_id, to_id) = (self.cluster.name_of(from), self.cluster.name_of(to));
        for place in self.concerned(fault) {
            let slot = self.slots[place].number.to_string();
            query(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
            query(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        }
        Ok(())
    }

    fn end_move(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let to = self.destination(fault);
        let (old, new) = (self.pair(self.shard(fault)).0, self.pair(to).0);
        let places = self.concerned(fault);
        for place in &places {
            let slot = self.slots[*place].number;
            while move_keys(slot, old, new, 100)? > 0 {}
            self.cluster.end_migration(slot, old, new);
        }
        for place in places {
            self.slots[place].shard = to;
        }
        self.moved = Some(Instant::now());
        Ok(())
    }

    /// Continues a failover. Returns true once it has completed.
    fn go_on(&mut self, mut failover: Failover, fault: &Planned) -> anyhow::Result<bool> {
        let shard = self.shard(fault);
        let (primary, replica) = self.pair(shard);
        ensure!(
            failover.began.elapsed() < PATIENCE,
            "no failover within {PATIENCE:?} after {:?}:\n{}",
            fault.kind,
            self.last_words()
        );
        match failover.stage {
            Stage::Without if self.cluster.is_primary(replica) => {
                match fault.kind {
                    Kind::FailoverKill | Kind::FailoverBehind => primary.restart(),
                    Kind::FailoverStop => primary.cont_process(),
                    _ => {}
                }
                failover.stage = Stage::Both;
            }
            Stage::Without => {
                if fault.kind == Kind::FailoverAgreed && failover.requested_at.elapsed() > ASK_AGAIN
                {
                    failover.requested_at = Instant::now();
                    query(replica, &["CLUSTER", "FAILOVER"])?;
                }
            }
            Stage::Both => {
                if !self.cluster.is_primary(primary) {
                    failover.stage = Stage::Followed(Instant::now());
                }
            }
            Stage::Followed(since) => {
                if connections(primary)? == 0 || since.elapsed() > LEAVING {
                    self.turned[shard] ^= true;
                    failover.stage = Stage::Agreeing;
                }
            }
            Stage::Agreeing => {
                let ports = self.ports();
                let mut primaries = (0..self.turned.len()).map(|shard| self.pair(shard).0);
                if primaries.all(|node| self.cluster.knows(node, &ports)) {
                    self.failover = None;
                    return Ok(true);
                }
            }
        }
        self.failover = Some(failover);
        Ok(false)
    }
}

impl Target for Sharded {
    fn url(&self, _: &[u16]) -> String {
        let beginning = format!("redis+cluster://{USER}:{PASSWORD}@");
        self.cluster.url_of(&beginning)
    }

    fn own_url(&self) -> String {
        self.cluster.url()
    }

    fn primaries(&self) -> Vec<&RedisServer> {
        let shards = 0..self.turned.len();
        shards.map(|shard| self.pair(shard).0).collect()
    }

    fn servers(&self) -> Vec<&RedisServer> {
        self.cluster.nodes().collect()
    }

    fn keys(&self, fault: &Planned) -> Option<Vec<String>> {
        let places = self.concerned(fault).into_iter();
        Some(
            places
                .flat_map(|place| self.slots[place].keys.clone())
                .collect(),
        )
    }

    fn is_ready(&mut self, fault: &Planned, _: &[Kind]) -> anyhow::Result<bool> {
        self.stayed()?;
        let is_spreading = self.moved.is_some_and(|at| at.elapsed() < SPREADING);
        if fault.kind.is_failover() && is_spreading {
            return Ok(false);
        }
        let is_own =
            fault.kind.is_failover() || matches!(fault.kind, Kind::SlotsMove | Kind::ReplicaStop);
        Ok(!is_own || self.is_in_order()?)
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let shard = self.shard(fault);
        if fault.kind.is_failover() {
            let now = Instant::now();
            self.failover = Some(Failover {
                began: now,
                requested_at: now,
                stage: Stage::Without,
            });
        }
        let (primary, replica) = pair(&self.cluster, &self.turned, shard);
        match fault.kind {
            Kind::FailoverKill => primary.kill(),
            Kind::FailoverStop => primary.stop_process(),
            Kind::FailoverAgreed => drop(query(replica, &["CLUSTER", "FAILOVER"])?),
            Kind::FailoverBehind => {
                replica.stop_process();
                query(primary, &["CLIENT", "KILL", "TYPE", "replica"])?;
            }
            Kind::ReplicaStop => replica.stop_process(),
            Kind::SlotsMove => self.begin_move(fault)?,
            _ => self.faults.begin(primary, fault)?,
        }
        Ok(())
    }

    /// Leaves only the replica that was cut off, or moves one key of each slot.
    fn middle(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let (primary, replica) = self.pair(self.shard(fault));
        if fault.kind == Kind::SlotsMove {
            let to = self.pair(self.destination(fault)).0;
            for place in self.concerned(fault) {
                move_keys(self.slots[place].number, primary, to, 1)?;
            }
        } else {
            primary.kill();
            replica.cont_process();
        }
        Ok(())
    }

    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let shard = self.shard(fault);
        if let Some(failover) = self.failover {
            return self.go_on(failover, fault);
        }
        let (primary, replica) = pair(&self.cluster, &self.turned, shard);
        match fault.kind {
            Kind::SlotsMove => self.end_move(fault)?,
            Kind::ReplicaStop => replica.cont_process(),
            _ => self.faults.end(primary, fault)?,
        }
        Ok(true)
    }

    fn is_in_order(&mut self) -> anyhow::Result<bool> {
        self.stayed()?;
        let ports = self.ports();
        let mut nodes = self.cluster.nodes();
        Ok(self.cluster.is_complete() && nodes.all(|node| self.cluster.knows(node, &ports)))
    }

    fn last_words(&self) -> String {
        last_lines(self.cluster.nodes())
    }
}

/// Returns the primary of a shard when everything was last in order, and its replica.
fn pair<'a>(
    cluster: &'a RedisCluster,
    turned: &[bool],
    shard: usize,
) -> (&'a RedisServer, &'a RedisServer) {
    let (first, second) = (&cluster.primaries[shard], &cluster.replicas[shard]);
    match turned[shard] {
        false => (first, second),
        true => (second, first),
    }
}

/// Maps a number to an index below `of`.
fn choose(number: u64, of: usize) -> usize {
    usize::try_from(number % of as u64).unwrap_or(0)
}

/// Moves up to `count` keys of a slot. Returns how many were moved.
fn move_keys(slot: u16, from: &RedisServer, to: &RedisServer, count: u32) -> anyhow::Result<usize> {
    let (slot, count) = (slot.to_string(), count.to_string());
    let keys = query(from, &["CLUSTER", "GETKEYSINSLOT", &slot, &count])?;
    let keys: Vec<_> = keys.array().iter().filter_map(Reply::text).collect();
    if !keys.is_empty() {
        let port = to.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(&keys);
        query(from, &words)?;
    }
    Ok(keys.len())
}
