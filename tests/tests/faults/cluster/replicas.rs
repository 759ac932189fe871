//! Locks that count once a replica of their shard has them.

use distlock::{LockManager, Outage};
use distlock_tests::{RedisCluster, eventually_async, within};

use super::{queued, until_all_clean, until_renewed};
use crate::support::{HELD, LONG, acquire_later, lock_key, ms, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_stops_the_locks_of_its_shard_alone() {
    let cluster = RedisCluster::with_replicas(3);
    let builder = LockManager::builder().min_replicas(1);
    let first = builder.clone().connect(&cluster.url()).await.unwrap();
    let second = builder.connect(&cluster.url()).await.unwrap();
    let keys = cluster.key_on_each("k");
    // Each lock is acquired, renewed and handed off, and its replica receives every step.
    let nodes = cluster.primaries.iter().zip(&cluster.replicas);
    for (key, (node, replica)) in keys.iter().zip(nodes) {
        let lock = first.lock(key).lease(HELD).wait(LONG);
        let guard = lock.acquire().await.unwrap();
        let waiting = acquire_later(&second, key, HELD, LONG);
        eventually_async(LONG, async || queued(&mut node.client(), key) == 1).await;
        let mut copy = replica.client();
        copy.cmd(&["READONLY"]);
        until_renewed(&mut copy, key).await;
        assert!(guard.is_held(), "{:?}", guard.lost().await);
        guard.release().await.unwrap();
        let guard = within(LONG, waiting).await.unwrap().0.unwrap();
        let token = guard.fencing_token().to_string();
        let value = copy.get(&lock_key(key));
        assert!(value.is_some_and(|value| value.contains(&token)), "{key}");
        guard.release().await.unwrap();
    }
    // The hold is renewed where its key is, also while its slot migrates.
    let lock = first.lock(&keys[1]).lease(HELD);
    let guard = lock.acquire().await.unwrap();
    let (slot, to) = (cluster.slot(&keys[1]), &cluster.primaries[2]);
    let from = cluster.begin_migration(slot, to);
    while cluster.migrate_keys(slot, from, to) > 0 {}
    until_renewed(&mut to.client(), &keys[1]).await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    cluster.end_migration(slot, from, to);
    guard.release().await.unwrap();
    cluster.replicas[0].stop_process();
    let lock = first.lock(&keys[0]).wait(ms(1_000));
    let refused = lock.acquire().await.unwrap_err();
    let few = Outage::TooFewReplicas;
    assert_eq!(refused.outage(), Some(few), "{refused:?}");
    let taken = async |key| take(first.lock(key).wait(LONG)).await;
    taken(&keys[1]).await;
    taken(&keys[2]).await;
    cluster.replicas[0].cont_process();
    taken(&keys[0]).await;
    first.shutdown().await;
    second.shutdown().await;
    until_all_clean(&cluster).await;
}
