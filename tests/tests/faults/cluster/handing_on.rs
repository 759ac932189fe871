//! Locks on all nodes of an undisturbed cluster.

use distlock_tests::RedisCluster;

use crate::cluster::callers::Queue;
use crate::cluster::until_all_clean;
use crate::support::{LONG, calls, connect, lock_key, taken_once};

/// Hand-offs are pushed in the slot, so no waiter needs a queue check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served_across_managers() {
    let cluster = RedisCluster::start(3);
    let (key, node) = (&cluster.key_on_each("k")[1], &cluster.primaries[1]);
    let queue = Queue::start(&cluster.url(), node, key, LONG, 5).await;
    let mut raw = node.client();
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let _managers = queue.serve().await;
    // No waiter was skipped and had to acquire again.
    assert_eq!(calls(&mut raw, "spublish"), 5);
    until_all_clean(&cluster).await;
}

/// Each lock is on the node that has its slot. A call on a free lock is one command, and subscribes
/// to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_command_and_no_subscription() {
    const TURNS: u64 = 100;
    let cluster = RedisCluster::start(3);
    let manager = connect(&cluster.url()).await;
    for (key, node) in cluster.key_on_each("k").iter().zip(&cluster.primaries) {
        let guard = manager.lock(key).acquire().await.unwrap();
        let mut raw = node.client();
        assert!(raw.exists(&lock_key(key)), "{key}");
        guard.release().await.unwrap();
        raw.cmd(&["CONFIG", "RESETSTAT"]);
        for _ in 0..TURNS {
            taken_once(&manager, key).await;
        }
        assert_eq!(calls(&mut raw, "evalsha"), 2 * TURNS, "{key}");
        assert_eq!(calls(&mut raw, "ssubscribe"), 0, "{key}");
    }
    until_all_clean(&cluster).await;
}
