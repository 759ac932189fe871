//! Locks that count once a replica of their shard has them.

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisCluster, eventually_async, within};

use super::{queued, until_all_clean};
use crate::kit::{LONG, acquire_later, lock_key, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_stops_the_locks_of_its_shard_alone() {
    let cluster = RedisCluster::with_replicas(3);
    let builder = LockManager::builder().url(cluster.url()).min_replicas(1);
    let (first, second) = (
        builder.clone().connect().await.unwrap(),
        builder.connect().await.unwrap(),
    );
    let keys = cluster.key_on_each("k");
    for (key, replica) in keys.iter().zip(&cluster.replicas) {
        // Taken, renewed and handed on: its replica has heard of each.
        let guard = first
            .lock(key)
            .lease(ms(1_500))
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        let waiting = acquire_later(&second, key, ms(1_500), LONG);
        eventually_async(LONG, async || {
            queued(&mut cluster.owner_of(key).client(), key) == 1
        })
        .await;
        tokio::time::sleep(ms(2_000)).await;
        assert!(guard.is_held(), "{:?}", guard.lost().await);
        guard.release().await.unwrap();
        let guard = within(LONG, waiting).await.unwrap().0.unwrap();
        let token = guard.fencing_token().to_string();
        let mut copy = replica.client();
        copy.cmd(&["READONLY"]);
        let value = copy.get(&lock_key(key));
        assert!(value.is_some_and(|value| value.contains(&token)), "{key}");
        guard.release().await.unwrap();
    }
    cluster.replicas[0].stop_process();
    let refused = first
        .lock(&keys[0])
        .wait(ms(1_000))
        .acquire()
        .await
        .unwrap_err();
    let Error::Unavailable {
        outage: Outage::TooFewReplicas,
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    for key in &keys[1..] {
        let lock = first.lock(key).wait(LONG);
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    cluster.replicas[0].cont_process();
    let lock = first.lock(&keys[0]).wait(LONG);
    lock.acquire().await.unwrap().release().await.unwrap();
    first.shutdown().await;
    second.shutdown().await;
    until_all_clean(&cluster).await;
}
