//! A cluster: shards of a master and its replica each, between which slots move.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use distlock_tests::{RedisCluster, RedisServer, RedisServerBuilder};

use super::repair;
use super::user::{PASSWORD, USER};

/// With fewer masters nobody could agree that one of them is dead.
const SHARDS: u16 = 3;

/// After how many milliseconds of silence a node is taken for dead: more than a loaded machine makes of a frozen moment.
const NODE_TIMEOUT: &str = "1500";

/// So many keys of each run are wanted more than the others: those that come first.
const BUSY: usize = 5;

/// At most so many slots are moved together.
const TOGETHER: u64 = 4;

/// A shard that has fewer slots with keys of the run gives none away.
const LEAST: usize = 10;

/// The nodes, and which of them has what.
#[derive(Debug)]
pub(crate) struct Sharded {
    pub(crate) cluster: RedisCluster,
    /// For each shard, whether the node that began as its replica is its master.
    turned: Vec<AtomicBool>,
    /// Where the slots are in which the run has keys, those with busy keys first.
    places: Mutex<Vec<Place>>,
}

#[derive(Debug)]
struct Place {
    slot: u16,
    keys: Vec<String>,
    shard: usize,
    is_busy: bool,
}

/// Slots that are to go from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) slots: Vec<u16>,
    pub(crate) keys: Vec<String>,
}

impl Sharded {
    /// `keys`: of the run, those first that are wanted most.
    pub(super) fn start(node: RedisServerBuilder, keys: Vec<String>) -> Self {
        let node = node.arg("--cluster-node-timeout", NODE_TIMEOUT);
        let cluster = RedisCluster::of(&node, SHARDS, true);
        let mut slots: BTreeMap<u16, (usize, Vec<String>)> = BTreeMap::new();
        for (index, key) in keys.into_iter().enumerate() {
            let of_slot = slots.entry(cluster.slot(&key)).or_default();
            of_slot.0 = if of_slot.1.is_empty() {
                index
            } else {
                of_slot.0
            };
            of_slot.1.push(key);
        }
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_by_key(|(_, (index, _))| *index);
        let shard_of = |slot| {
            let owner = cluster.owner(slot).port();
            let mut masters = cluster.masters.iter().map(RedisServer::port);
            masters.position(|port| port == owner).expect("one of ours")
        };
        let places = slots.into_iter().map(|(slot, (index, keys))| Place {
            slot,
            keys,
            shard: shard_of(slot),
            is_busy: index < BUSY,
        });
        let places = Mutex::new(places.collect());
        Sharded {
            turned: (0..SHARDS).map(|_| AtomicBool::new(false)).collect(),
            cluster,
            places,
        }
    }

    /// `redis+cluster://...` for the workers.
    pub(super) fn url(&self) -> String {
        let beginning = format!("redis+cluster://{USER}:{PASSWORD}@");
        self.cluster.url_of(&beginning)
    }

    pub(crate) fn shards(&self) -> std::ops::Range<usize> {
        0..self.turned.len()
    }

    /// The shard that a number chooses.
    pub(crate) fn shard(&self, choice: u64) -> usize {
        let count = self.turned.len() as u64;
        usize::try_from(choice % count).unwrap_or(0)
    }

    fn pair(&self, shard: usize) -> [&RedisServer; 2] {
        let pair = [&self.cluster.masters[shard], &self.cluster.replicas[shard]];
        match self.turned[shard].load(Ordering::Acquire) {
            false => pair,
            true => [pair[1], pair[0]],
        }
    }

    /// The master of a shard when everything was last in order.
    pub(crate) fn master(&self, shard: usize) -> &RedisServer {
        self.pair(shard)[0]
    }

    pub(crate) fn replica(&self, shard: usize) -> &RedisServer {
        self.pair(shard)[1]
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = &RedisServer> {
        self.shards().map(|shard| self.master(shard))
    }

    /// The replica of a shard has become its master.
    pub(crate) fn turn(&self, shard: usize) {
        self.turned[shard].fetch_xor(true, Ordering::AcqRel);
    }

    /// The keys of the run in a shard.
    pub(crate) fn keys(&self, shard: usize) -> Vec<String> {
        let places = self.places();
        let there = places.iter().filter(|place| place.shard == shard);
        there.flat_map(|place| place.keys.clone()).collect()
    }

    /// The slots that a number chooses to move: a busy one among them, if there is one.
    pub(crate) fn removal(&self, choice: u64) -> Removal {
        let places = self.places();
        let of = |shard: usize| places.iter().filter(move |place| place.shard == shard);
        let chosen = self.shard(choice);
        let richest = self.shards().max_by_key(|shard| of(*shard).count());
        let from = if of(chosen).count() < LEAST {
            richest.unwrap_or(chosen)
        } else {
            chosen
        };
        let mut rest = choice / self.turned.len() as u64;
        let mut draw = |below: u64| {
            let drawn = rest % below;
            rest /= below;
            usize::try_from(drawn).unwrap_or(0)
        };
        let to = (from + 1 + draw(self.turned.len() as u64 - 1)) % self.turned.len();
        let count = 2 + draw(TOGETHER - 1);
        let busy: Vec<_> = of(from).filter(|place| place.is_busy).collect();
        let others: Vec<_> = of(from).filter(|place| !place.is_busy).collect();
        let mut moving = Vec::new();
        if !busy.is_empty() {
            moving.push(busy[draw(busy.len() as u64)]);
        }
        let first = draw(others.len().max(1) as u64);
        let around = others.iter().cycle().skip(first).take(others.len());
        moving.extend(around.take(count - moving.len()));
        Removal {
            from,
            to,
            slots: moving.iter().map(|place| place.slot).collect(),
            keys: moving.iter().flat_map(|place| place.keys.clone()).collect(),
        }
    }

    /// The slots have arrived.
    pub(crate) fn has_moved(&self, removal: &Removal) {
        for place in self.places().iter_mut() {
            if removal.slots.contains(&place.slot) {
                place.shard = removal.to;
            }
        }
    }

    /// Makes a shard serve a slot, with all its keys. Returns the commands that were sent.
    pub(crate) fn assign(&self, slot: u16, shard: usize) -> anyhow::Result<Vec<String>> {
        let masters: Vec<_> = self.masters().collect();
        repair::assign(slot, self.master(shard), &masters)
    }

    /// Makes each slot belong to its shard again. Returns the commands that were sent.
    pub(crate) fn repair(&self) -> anyhow::Result<Vec<String>> {
        let places = self.places();
        let places: Vec<_> = places
            .iter()
            .map(|place| (place.slot, place.shard))
            .collect();
        let mut sent = Vec::new();
        for (slot, shard) in places {
            let commands = self.assign(slot, shard)?;
            sent.extend(
                commands
                    .iter()
                    .map(|command| format!("slot {slot}: {command}")),
            );
        }
        Ok(sent)
    }

    /// Whether all masters know where the slots are.
    pub(crate) fn masters_agree(&self) -> bool {
        let ports = self.ports();
        self.masters().all(|node| self.cluster.knows(node, &ports))
    }

    /// Whether nothing of what was done before is left to be done.
    pub(crate) fn is_in_order(&self) -> bool {
        let ports = self.ports();
        self.cluster.is_complete()
            && (self.cluster.nodes()).all(|node| self.cluster.knows(node, &ports))
    }

    /// The slots, and the port of who has each.
    pub(crate) fn ports(&self) -> Vec<(u16, u16)> {
        let places = self.places();
        let port = |place: &Place| (place.slot, self.master(place.shard).port());
        places.iter().map(port).collect()
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock_tests::eventually;

    use super::*;
    use crate::topology::begin_move;
    use crate::worker::all_keys;

    #[test]
    fn a_slot_that_lost_its_owner_in_a_move_gets_an_owner_and_its_keys_back() {
        let sharded = Sharded::start(RedisServer::builder(), all_keys(64).collect());
        for has_moved in [false, true] {
            let removal = sharded.removal(0);
            let (from, to) = (sharded.master(removal.from), sharded.master(removal.to));
            let (slot, key) = (removal.slots[0], removal.keys[0].as_str());
            from.client().cmd(&["SET", key, "value"]);
            begin_move(slot, from, to).unwrap();
            for master in sharded.masters() {
                sharded.cluster.abandon(master, slot);
            }
            assert!(!sharded.masters_agree());
            if has_moved {
                sharded.has_moved(&removal);
            }
            assert!(!sharded.repair().unwrap().is_empty());
            eventually(Duration::from_secs(60), || sharded.is_in_order());
            let owner = if has_moved { to } else { from };
            assert_eq!(owner.client().get(key).as_deref(), Some("value"));
            assert!(sharded.repair().unwrap().is_empty());
        }
    }

    #[test]
    fn what_is_to_move_is_where_it_is_to_be_taken_from() {
        let sharded = Sharded::start(RedisServer::builder(), all_keys(64).collect());
        let held: Vec<_> = sharded.shards().map(|shard| sharded.keys(shard)).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 65);
        assert!(held.iter().all(|keys| keys.len() > LEAST), "{held:?}");
        for choice in (0..1_000).map(|number| number * 7_919) {
            let removal = sharded.removal(choice);
            assert_eq!(removal, sharded.removal(choice));
            assert_ne!(removal.from, removal.to);
            assert!((2..=4).contains(&removal.slots.len()), "{removal:?}");
            let keys = sharded.keys(removal.from);
            assert!(removal.keys.iter().all(|key| keys.contains(key)));
            sharded.has_moved(&removal);
            let keys = sharded.keys(removal.to);
            assert!(removal.keys.iter().all(|key| keys.contains(key)));
        }
        assert!(
            sharded
                .shards()
                .all(|shard| !sharded.keys(shard).is_empty())
        );
    }
}
