//! A cluster: each lock is on the node of its slot, while slots move and nodes die.

use std::collections::HashSet;

use distlock_tests::{RedisCluster, Reply, Resp, eventually_async};

use crate::support::{LONG, lock_key, queue_key, until_clean};

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

/// Waits until every live node has only fences left.
async fn until_all_clean(cluster: &RedisCluster) {
    let primaries = cluster.nodes().filter(|node| node.is_running());
    for node in primaries {
        until_clean(&mut node.client(), LONG).await;
    }
}

/// Returns the subscribed channels in a key's slot at a node. They belong to the waiters, and maybe
/// to a connection that checks its permissions there.
fn channels(cluster: &RedisCluster, raw: &mut Resp, key: &str) -> HashSet<String> {
    let slot = cluster.slot(key);
    let channels = raw.cmd(&["PUBSUB", "SHARDCHANNELS"]);
    let channels = channels.array().iter().filter_map(Reply::text);
    let of_it = channels.filter(|channel| cluster.slot(channel) == slot);
    of_it.map(str::to_owned).collect()
}

/// Returns how many calls wait for a key at a node, whichever node has the slot.
fn queued(raw: &mut Resp, key: &str) -> i64 {
    raw.cmd(&["ASKING"]);
    match raw.cmd(&["ZCARD", &queue_key(key)]) {
        Reply::Int(count) => count,
        _ => 0,
    }
}

/// Waits until a lock on this node is renewed there, whichever node has the slot.
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
