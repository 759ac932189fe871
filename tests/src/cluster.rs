//! A real Redis Cluster for one test.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::client::{self, Reply, Resp};
use crate::ports::free_port;
use crate::sentinel::{info, role};
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::eventually;

/// Upper limit of the time until nodes find each other, or agree on the owner of every slot.
const DEADLINE: Duration = Duration::from_secs(120);

/// Number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// Time that nodes get for a handshake before `CLUSTER MEET` is repeated.
const MEET_INTERVAL: Duration = Duration::from_secs(5);

/// Milliseconds of silence after which other nodes consider a node dead, unless set otherwise.
const NODE_TIMEOUT: &str = "2500";

/// A cluster of primaries that share the slots evenly, each with a replica if wanted.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes that started as primaries.
    pub primaries: Vec<RedisServer>,
    /// The replica of every primary, in the same order.
    pub replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster of primaries without replicas.
    ///
    /// # Panics
    ///
    /// Panics if the nodes do not start, or do not find each other.
    #[track_caller]
    pub fn start(primaries: u16) -> Self {
        Self::of(&RedisServer::builder(), primaries, false)
    }

    /// Starts a cluster of primaries with one replica each.
    ///
    /// # Panics
    ///
    /// Panics like [`RedisCluster::start`].
    #[track_caller]
    pub fn with_replicas(primaries: u16) -> Self {
        Self::of(&RedisServer::builder(), primaries, true)
    }

    /// Starts a cluster of nodes with options.
    ///
    /// # Panics
    ///
    /// Panics like [`RedisCluster::start`].
    #[track_caller]
    pub fn of(node: &RedisServerBuilder, primaries: u16, with_replicas: bool) -> Self {
        let started = || (0..primaries).map(|_| start(node)).collect();
        let cluster = RedisCluster {
            primaries: started(),
            replicas: if with_replicas { started() } else { Vec::new() },
        };
        cluster.share_slots();
        meet(&cluster.nodes().collect::<Vec<_>>());
        for (primary, replica) in cluster.primaries.iter().zip(&cluster.replicas) {
            does(replica, &["CLUSTER", "REPLICATE", &id(primary)]);
        }
        eventually(DEADLINE, || {
            cluster.nodes().all(|node| cluster.is_ready(node))
        });
        cluster
    }

    /// Adds a node without slots.
    ///
    /// # Panics
    ///
    /// Panics if it does not start, or the other nodes do not find it.
    #[track_caller]
    pub fn join(&self) -> RedisServer {
        let new = start(&RedisServer::builder());
        meet(&self.nodes().chain([&new]).collect::<Vec<_>>());
        eventually(DEADLINE, || self.is_ready(&new));
        new
    }

    /// Returns true if the test servers support sharded channels (Redis 7.0 and later, and Valkey).
    pub fn is_possible() -> bool {
        static POSSIBLE: OnceLock<bool> = OnceLock::new();
        *POSSIBLE.get_or_init(|| {
            let known = RedisServer::start();
            let known = known.client().cmd(&["COMMAND", "INFO", "SSUBSCRIBE"]);
            matches!(&known.array()[0], Reply::Array(_))
        })
    }

    fn share_slots(&self) {
        let count = u16::try_from(self.primaries.len()).expect("a few primaries");
        for (index, primary) in (0..).zip(&self.primaries) {
            // The product exceeds `u16`.
            let bound = |index: u16| u32::from(SLOTS) * u32::from(index) / u32::from(count);
            let (first, last) = (bound(index).to_string(), (bound(index + 1) - 1).to_string());
            does(primary, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            let epoch = (index + 1).to_string();
            does(primary, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
    }

    /// Returns all nodes, including dead ones.
    pub fn nodes(&self) -> impl Iterator<Item = &RedisServer> {
        self.primaries.iter().chain(&self.replicas)
    }

    /// Returns `redis+cluster://...` with the nodes that started as primaries.
    pub fn url(&self) -> String {
        self.url_of("redis+cluster://")
    }

    /// Like [`url`](RedisCluster::url), with another beginning, which may have user and password.
    pub fn url_of(&self, beginning: &str) -> String {
        let hosts = self.primaries.iter();
        let hosts = hosts.map(|node| format!("127.0.0.1:{}", node.port()));
        format!("{beginning}{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Returns the slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self
            .alive()
            .client()
            .cmd(&["CLUSTER", "KEYSLOT", key])
            .int();
        u16::try_from(slot).expect("there are no more")
    }

    /// Returns the owner of a slot, according to a node that is alive.
    ///
    /// # Panics
    ///
    /// Panics if no node owns the slot.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> &RedisServer {
        self.owner_by(self.alive(), slot)
            .expect("the slot is served")
    }

    fn owner_by(&self, node: &RedisServer, slot: u16) -> Option<&RedisServer> {
        let (_, port) = ranges(node)?
            .into_iter()
            .find(|(slots, _)| slots.contains(&slot))?;
        self.nodes().find(|node| node.port() == port)
    }

    /// Returns the owner of a key.
    #[track_caller]
    pub fn owner_of(&self, key: &str) -> &RedisServer {
        self.owner(self.slot(key))
    }

    /// Returns one key for every primary, each beginning with `name`.
    pub fn key_on_each(&self, name: &str) -> Vec<String> {
        let key_on = |primary: &RedisServer| {
            let keys = (0..).map(|number| format!("{name}{number}"));
            keys.into_iter()
                .find(|key| self.owner_of(key).port() == primary.port())
                .expect("there are keys in all slots")
        };
        self.primaries.iter().map(key_on).collect()
    }

    fn alive(&self) -> &RedisServer {
        let alive = |node: &&RedisServer| {
            let mut client = node.try_client().ok()?;
            client.set_timeout(Duration::from_millis(500));
            client.try_cmd(&["PING"]).ok()
        };
        let node = self.nodes().find(|node| alive(node).is_some());
        node.expect("a node is alive")
    }

    /// Moves a slot with all its keys, in the steps of a resharding.
    ///
    /// # Panics
    ///
    /// Panics if a node refuses.
    #[track_caller]
    pub fn migrate(&self, slot: u16, to: &RedisServer) {
        let from = self.begin_migration(slot, to);
        while self.migrate_keys(slot, from, to) > 0 {}
        self.end_migration(slot, from, to);
    }

    /// Begins the migration of a slot and returns its current owner.
    #[track_caller]
    pub fn begin_migration(&self, slot: u16, to: &RedisServer) -> &RedisServer {
        let from = self.owner(slot);
        let slot = slot.to_string();
        does(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        does(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        from
    }

    /// Moves some keys of a migrating slot and returns how many.
    #[track_caller]
    pub fn migrate_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> usize {
        let (slot, port) = (slot.to_string(), to.port().to_string());
        let mut raw = from.client();
        let keys = raw.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        let keys: Vec<_> = keys.array().iter().filter_map(Reply::text).collect();
        if !keys.is_empty() {
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            if let Some(password) = to.password() {
                words.extend(["AUTH", password]);
            }
            words.push("KEYS");
            words.extend(&keys);
            raw.must(&words);
        }
        keys.len()
    }

    /// Ends the migration of a slot, and waits until all running nodes know the new owner.
    #[track_caller]
    pub fn end_migration(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        self.end_migration_at(slot, to, &[from]);
        eventually(DEADLINE, || {
            let knows = |node| self.owner_by(node, slot).map(RedisServer::port) == Some(to.port());
            self.nodes().filter(|node| node.is_running()).all(knows)
        });
    }

    /// Informs the new owner of a slot, and the `others`, that the migration has ended.
    #[track_caller]
    pub fn end_migration_at(&self, slot: u16, to: &RedisServer, others: &[&RedisServer]) {
        let (slot, new) = (slot.to_string(), id(to));
        for node in std::iter::once(&to).chain(others) {
            does(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &new]);
        }
    }

    /// Returns true if a node considers itself a primary.
    pub fn is_primary(&self, node: &RedisServer) -> bool {
        role(node).as_deref() == Some("master")
    }

    /// Returns true if a node knows which ports serve these slots.
    pub fn knows(&self, node: &RedisServer, places: &[(u16, u16)]) -> bool {
        let Some(ranges) = ranges(node) else {
            return false;
        };
        let of = |slot: u16| {
            let range = ranges.iter().find(|(slots, _)| slots.contains(&slot));
            range.map(|(_, port)| *port)
        };
        places.iter().all(|(slot, port)| of(*slot) == Some(*port))
    }

    /// Returns true if there are as many primaries as at the start, and every node is settled.
    pub fn is_complete(&self) -> bool {
        let primaries = self.nodes().filter(|node| self.is_primary(node)).count();
        primaries == self.primaries.len() && self.nodes().all(is_settled)
    }

    /// Returns the id of a node in the cluster.
    pub fn name_of(&self, node: &RedisServer) -> String {
        id(node)
    }

    /// Makes a node stop serving a slot, without notifying the other nodes.
    ///
    /// # Panics
    ///
    /// Panics if the node refuses.
    #[track_caller]
    pub fn abandon(&self, node: &RedisServer, slot: u16) {
        does(node, &["CLUSTER", "DELSLOTS", &slot.to_string()]);
    }

    /// Waits until a replica considers itself the owner of `slot`, which its primary owned.
    ///
    /// # Panics
    ///
    /// Panics if the replica is not promoted.
    #[track_caller]
    pub fn until_promoted(&self, replica: &RedisServer, slot: u16) {
        let port = Some(replica.port());
        eventually(DEADLINE, || {
            self.owner_by(replica, slot).map(RedisServer::port) == port
        });
    }

    fn is_ready(&self, node: &RedisServer) -> bool {
        let is_replica = self.replicas.iter().any(|one| one.port() == node.port());
        let is_synced = || node.client().info_field("master_link_status") == "up";
        let sees_replicas = || {
            let nodes = node.client().cmd(&["CLUSTER", "NODES"]);
            let roles = nodes.text().unwrap_or_default().matches("slave").count();
            roles == self.replicas.len()
        };
        field(node, "cluster_state").as_deref() == Some("ok")
            && (!is_replica || is_synced())
            && sees_replicas()
    }
}

fn start(node: &RedisServerBuilder) -> RedisServer {
    let bus = free_port().to_string();
    let node = node.clone();
    node.arg("--cluster-enabled", "yes")
        .arg("--cluster-port", &bus)
        .arg_by_default("--cluster-node-timeout", NODE_TIMEOUT)
        .arg("--cluster-replica-validity-factor", "0")
        .arg("--cluster-require-full-coverage", "no")
        .arg("--repl-diskless-sync-delay", "0")
        .start()
}

/// Lets all nodes meet the first one, and waits until they know each other.
#[track_caller]
fn meet(nodes: &[&RedisServer]) {
    let ids: Vec<_> = nodes.iter().map(|node| id(node)).collect();
    let mut met: Option<Instant> = None;
    eventually(DEADLINE, || {
        // Nodes abandon a handshake that takes longer than their timeout.
        if met.is_none_or(|met| met.elapsed() > MEET_INTERVAL) {
            for node in &nodes[1..] {
                let (port, bus) = (node.port().to_string(), bus_port(node));
                does(nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
            met = Some(Instant::now());
        }
        nodes.iter().all(|node| {
            let known = node.client().cmd(&["CLUSTER", "NODES"]);
            let known = known.text().unwrap_or_default();
            ids.iter().all(|id| known.contains(id.as_str()))
        })
    });
}

fn id(node: &RedisServer) -> String {
    let id = node.client().cmd(&["CLUSTER", "MYID"]);
    id.text().expect("a node has an id").to_owned()
}

fn bus_port(node: &RedisServer) -> String {
    let port = node.client().cmd(&["CONFIG", "GET", "cluster-port"]);
    port.array()[1].text().expect("a port").to_owned()
}

/// Returns which ports serve which slots, according to a node.
fn ranges(node: &RedisServer) -> Option<Vec<(RangeInclusive<u16>, u16)>> {
    let mut client = node.try_client().ok()?;
    let Reply::Array(ranges) = client.try_cmd(&["CLUSTER", "SLOTS"]).ok()? else {
        return None;
    };
    let number = |reply: &Reply| u16::try_from(reply.int()).expect("a slot or a port");
    let read = |range: &Reply| {
        let range = range.array();
        let slots = number(&range[0])..=number(&range[1]);
        (slots, number(&range[2].array()[1]))
    };
    Some(ranges.iter().map(read).collect())
}

/// Returns true if a node sees all slots served, and follows its primary or has a replica online.
fn is_settled(node: &RedisServer) -> bool {
    let all = SLOTS.to_string();
    let serves = field(node, "cluster_state").as_deref() == Some("ok")
        && field(node, "cluster_slots_ok") == Some(all);
    let replication = info(node, "replication");
    let is_replicated = replication.contains("master_link_status:up")
        || replication.contains("role:master") && replication.contains("state=online");
    serves && is_replicated
}

#[track_caller]
fn does(node: &RedisServer, words: &[&str]) {
    node.client().must(words);
}

/// Returns a field of `CLUSTER INFO`.
fn field(node: &RedisServer, name: &str) -> Option<String> {
    let mut client: Resp = node.try_client().ok()?;
    let info = client.try_cmd(&["CLUSTER", "INFO"]).ok()?;
    client::field(info.text()?, name).map(str::to_owned)
}
