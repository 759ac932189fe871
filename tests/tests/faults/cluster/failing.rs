//! Nodes that die or freeze, with or without a replica that takes their place.

use distlock::{Error, LockManager};
use distlock_tests::{RedisCluster, RedisServer, eventually_async, within};

use futures::future::join_all;

use crate::cluster::callers::{Queue, served};
use crate::cluster::{queued, until_all_clean, until_renewed};
use crate::support::{
    HELD, LONG, acquire_later, connect, give_back, lock_key, ms, take, until_queued,
};

/// Waits until a replica has the key of a lock.
async fn until_copied(replica: &RedisServer, lock: &str) {
    let mut raw = replica.client();
    raw.cmd(&["READONLY"]);
    eventually_async(LONG, async || raw.exists(lock)).await;
}

/// Loses a primary while its locks are held, waited for and requested. Its replica takes its place.
async fn is_survived(lose: impl FnOnce(&RedisServer)) -> (RedisCluster, String) {
    let cluster = RedisCluster::with_replicas(3);
    let keys = cluster.key_on_each("k");
    let (key, url) = (&keys[1], cluster.url());
    let (primary, replica) = (&cluster.primaries[1], &cluster.replicas[1]);
    // The lease outlasts the failover, and is renewed soon after it.
    let queue = Queue::start(&url, primary, key, ms(20_000), 1).await;
    let other = connect(&url).await;
    let elsewhere = other.lock(&keys[0]).lease(HELD);
    let unconcerned = elsewhere.acquire().await.unwrap();
    // This lease ends before the failover, and its holder learns of the loss.
    let short = format!("short{{{key}}}");
    let lost = Queue::start(&url, primary, &short, ms(700), 0).await.guard;
    let next = acquire_later(&other, &short, LONG, LONG * 3);
    until_copied(replica, &lock_key(key)).await;
    until_copied(replica, &format!("distlock:lock:{short}")).await;
    lose(primary);
    // Every live node reports the slots.
    let fresh = format!("fresh{{{key}}}");
    let lazy = LockManager::connect_lazy(&url).unwrap();
    let newcomers = [connect(&url).await, lazy];
    let acquiring = newcomers.map(|manager| acquire_later(&manager, &fresh, LONG, LONG * 3));
    let error = within(LONG, lost.lost()).await;
    assert!(error.is_lost(), "{error:?}");
    cluster.until_promoted(replica, cluster.slot(key));
    // The calls made meanwhile succeed, the hold is renewed, and the waiter is in the queue.
    within(LONG, join_all(acquiring.map(give_back))).await;
    let mut raw = replica.client();
    until_renewed(&mut raw, key).await;
    assert!(queue.guard.is_held() && unconcerned.is_held());
    eventually_async(LONG, async || queued(&mut raw, key) == 1).await;
    let _managers = queue.serve().await;
    served(lost.fencing_token(), next).await;
    unconcerned.release().await.unwrap();
    (cluster, fresh)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_a_killed_primary_for_its_replica() {
    let (cluster, _) = is_survived(RedisServer::kill).await;
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_a_frozen_primary_for_its_replica() {
    let (cluster, key) = is_survived(RedisServer::stop_process).await;
    // The old primary wakes up and becomes a replica. The locks that it had count for no client.
    let manager = connect(&cluster.url()).await;
    cluster.primaries[1].cont_process();
    let guard = manager.lock(&key).acquire().await.unwrap();
    let mut raw = cluster.replicas[1].client();
    assert!(raw.exists(&format!("distlock:lock:{key}")));
    guard.release().await.unwrap();
}

/// A primary without a replica is not replaced. Its locks are unavailable, and only those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_leaves_the_locks_of_others_alone() {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    let manager = connect(&cluster.url()).await;
    let mut guards = Vec::new();
    for key in &keys {
        let lock = manager.lock(key).lease(HELD);
        guards.push(lock.acquire().await.unwrap());
    }
    let dead = &cluster.primaries[2];
    dead.kill();
    let waiting = acquire_later(&manager, &keys[2], HELD, ms(1_000));
    let error = within(LONG, guards.pop().unwrap().lost()).await;
    assert!(error.is_lost(), "{error:?}");
    for (guard, node) in guards.into_iter().zip(&cluster.primaries) {
        until_renewed(&mut node.client(), guard.key()).await;
        assert!(guard.is_held());
        let waiting = acquire_later(&manager, guard.key(), LONG, LONG);
        until_queued(&mut node.client(), guard.key(), 1).await;
        guard.release().await.unwrap();
        give_back(waiting).await;
    }
    for error in [
        within(LONG, waiting).await.unwrap().0.unwrap_err(),
        manager.lock(&keys[2]).try_acquire().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let name = format!("redis://127.0.0.1:{}", dead.port());
        assert!(error.to_string().contains(&name), "{error}");
    }
    // The node returns with all it knew of the cluster, and without the locks.
    dead.restart();
    take(manager.lock(&keys[2]).wait(LONG)).await;
}
