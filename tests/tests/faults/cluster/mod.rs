//! A cluster: each lock is where its slot is, while slots move and nodes die.

use std::collections::HashSet;

use distlock_tests::{RedisCluster, Reply, Resp, eventually_async};

use crate::kit::{LONG, lock_key, queue_key, until_clean};

mod access;
pub(crate) mod callers;
mod connections;
pub(crate) mod credentials;
mod disagreeing;
mod failing;
mod handing_on;
mod moving;
mod redirects;
mod replicas;
mod wrong;

/// Waits until nothing but fences is left on any node that lives.
async fn until_all_clean(cluster: &RedisCluster) {
    let masters = cluster.nodes().filter(|node| node.is_running());
    for node in masters {
        until_clean(&mut node.client(), LONG).await;
    }
}

/// The channels in the slot of a key that somebody is subscribed to at a node: those who wait, and
/// maybe a connection that tries out there what it may do.
fn channels(cluster: &RedisCluster, raw: &mut Resp, key: &str) -> HashSet<String> {
    let slot = cluster.slot(key);
    let channels = raw.cmd(&["PUBSUB", "SHARDCHANNELS"]);
    let channels = channels.array().iter().filter_map(Reply::text);
    let of_it = channels.filter(|channel| cluster.slot(channel) == slot);
    of_it.map(str::to_owned).collect()
}

/// How many wait for a key at a node, whichever node has the slot.
fn queued(raw: &mut Resp, key: &str) -> i64 {
    raw.cmd(&["ASKING"]);
    match raw.cmd(&["ZCARD", &queue_key(key)]) {
        Reply::Int(count) => count,
        _ => 0,
    }
}

/// Waits until a lock that is at this node is renewed there, whichever node has the slot.
async fn until_renewed(raw: &mut Resp, key: &str) {
    let mut expires = || {
        raw.cmd(&["ASKING"]);
        match raw.cmd(&["PEXPIRETIME", &lock_key(key)]) {
            Reply::Int(when) => when,
            _ => 0,
        }
    };
    eventually_async(LONG, async || expires() > 0).await;
    let before = expires();
    eventually_async(LONG, async || expires() > before).await;
}
