//! Nodes that die or freeze, with a replica that takes their place or without one.

use std::time::Instant;

use distlock::{Error, LockManager};
use distlock_tests::{RedisCluster, RedisServer, Reply, eventually_async, within};

use crate::cluster::{queued, until_all_clean, until_renewed};
use crate::kit::{HELD, LONG, acquire_later, connect, give_back, lock_key, ms, until_queued};

/// Waits until a replica has what stands at a lock's key.
async fn until_copied(replica: &RedisServer, key: &str) {
    let mut raw = replica.client();
    raw.cmd(&["READONLY"]);
    let lock = lock_key(key);
    eventually_async(LONG, async || {
        matches!(raw.cmd(&["GET", &lock]), Reply::Bulk(_))
    })
    .await;
}

/// A master is lost while its locks are held, waited for and asked for, and its replica takes its place.
async fn is_survived(lose: impl FnOnce(&RedisServer)) -> (RedisCluster, String) {
    let cluster = RedisCluster::with_replicas(3);
    let keys = cluster.key_on_each("k");
    let (key, elsewhere) = (&keys[1], &keys[0]);
    let fresh = format!("fresh{{{key}}}");
    let slot = cluster.slot(key);
    let (holder, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    // It outlasts the failover, and is renewed soon after it.
    let lease = ms(20_000);
    let guard = holder.lock(key).lease(lease).acquire().await.unwrap();
    let unconcerned = holder.lock(elsewhere).lease(HELD).acquire().await;
    let unconcerned = unconcerned.unwrap();
    let waiting = acquire_later(&other, key, lease, LONG * 3);
    until_queued(&mut cluster.masters[1].client(), key, 1).await;
    until_copied(&cluster.replicas[1], key).await;
    lose(&cluster.masters[1]);
    let asked = Instant::now();
    let asking = acquire_later(&other, &fresh, lease, LONG * 3);
    cluster.until_promoted(&cluster.replicas[1], slot);
    println!("promoted after {:?}", asked.elapsed());
    // Who asked meanwhile is answered, what is held is renewed, and who waits stands in the queue.
    let (_, answered) = within(LONG, tokio::spawn(give_back(asking))).await.unwrap();
    println!("answered after {:?}", answered - asked);
    let mut raw = cluster.replicas[1].client();
    until_renewed(&mut raw, key).await;
    assert!(guard.is_held() && unconcerned.is_held());
    eventually_async(LONG, async || queued(&mut raw, key) == 1).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let (next, _) = within(LONG, tokio::spawn(give_back(waiting)))
        .await
        .unwrap();
    assert!(next > token, "{next} after {token}");
    unconcerned.release().await.unwrap();
    (cluster, fresh)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_left_for_its_replica() {
    let (cluster, _) = is_survived(RedisServer::kill).await;
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_left_for_its_replica() {
    let (cluster, key) = is_survived(RedisServer::stop_process).await;
    // It wakes up, and is a replica from then on: what it believed to have counts for nobody.
    let manager = connect(&cluster.url()).await;
    cluster.masters[1].cont_process();
    let guard = manager.lock(&key).acquire().await.unwrap();
    let mut raw = cluster.replicas[1].client();
    assert!(raw.exists(&format!("distlock:lock:{key}")));
    guard.release().await.unwrap();
}

/// A lease that is shorter than the failover: its holder is told, and the next one has a greater token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_renewed_is_told() {
    let cluster = RedisCluster::with_replicas(3);
    let key = &cluster.key_on_each("k")[2];
    let (holder, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let guard = holder.lock(key).lease(ms(700)).acquire().await.unwrap();
    until_copied(&cluster.replicas[2], key).await;
    let waiting = acquire_later(&other, key, ms(5_000), LONG * 3);
    until_queued(&mut cluster.masters[2].client(), key, 1).await;
    cluster.masters[2].kill();
    let error = within(LONG, guard.lost()).await;
    assert!(error.is_lost(), "{error:?}");
    let token = guard.fencing_token();
    drop(guard);
    let (next, _) = within(LONG, tokio::spawn(give_back(waiting)))
        .await
        .unwrap();
    assert!(next > token, "{next} after {token}");
    until_all_clean(&cluster).await;
}

/// Nobody takes the place of a master without a replica: its locks are away, and only those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_leaves_the_locks_of_others_alone() {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    let manager = connect(&cluster.url()).await;
    let mut guards = Vec::new();
    for key in &keys {
        let lock = manager.lock(key).lease(HELD);
        guards.push(lock.acquire().await.unwrap());
    }
    let dead = &cluster.masters[2];
    dead.kill();
    let waiting = acquire_later(&manager, &keys[2], HELD, ms(1_000));
    let error = within(LONG, guards.pop().unwrap().lost()).await;
    assert!(error.is_lost(), "{error:?}");
    for (key, node) in keys.iter().zip(&cluster.masters).take(2) {
        until_renewed(&mut node.client(), key).await;
        let guard = guards.remove(0);
        assert!(guard.is_held());
        let waiting = acquire_later(&manager, key, ms(3_000), LONG);
        until_queued(&mut node.client(), key, 1).await;
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
    // It comes back, with all that it knew of the cluster and nothing of the locks.
    dead.restart();
    let guard = manager.lock(&keys[2]).wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Any node that lives says where the slots are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_connects_while_a_master_is_away() {
    let cluster = RedisCluster::with_replicas(3);
    let keys = cluster.key_on_each("k");
    let lazy = LockManager::connect_lazy(cluster.url()).unwrap();
    cluster.masters[0].kill();
    let manager = LockManager::builder().url(cluster.url());
    let manager = manager.connect_timeout(LONG).connect().await.unwrap();
    for manager in [&manager, &lazy] {
        let guard = manager.lock(&keys[1]).wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
        let guard = manager.lock(&keys[0]).wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}
