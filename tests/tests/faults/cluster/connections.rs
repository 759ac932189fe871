//! Connections to the nodes that are killed while locks are handed on.

use distlock_tests::{RedisCluster, eventually_async, within};

use crate::cluster::until_all_clean;
use crate::kit::{Exclusion, LONG, acquire_later, connect, ms, until_queued};

/// Kills connections of a kind, again and again, while several clients work.
async fn are_survived(kind: &str) {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    let mut tasks = Vec::new();
    let mut all = Vec::new();
    for key in &keys {
        let exclusion = Exclusion::new();
        all.push(exclusion.clone());
        for _ in 0..3 {
            let manager = connect(&cluster.url()).await;
            let (key, exclusion) = (key.clone(), exclusion.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let lock = manager.lock(&key).lease(ms(5_000)).wait(LONG * 2);
                    let guard = lock.acquire().await.unwrap();
                    let inside = exclusion.enter(guard.fencing_token());
                    tokio::time::sleep(ms(2)).await;
                    drop(inside);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    while !tasks.iter().all(|task| task.is_finished()) {
        for node in &cluster.masters {
            node.client().cmd(&["CLIENT", "KILL", "TYPE", kind]);
        }
        tokio::time::sleep(ms(50)).await;
    }
    for task in tasks {
        within(LONG, task).await.unwrap();
    }
    for exclusion in all {
        assert_eq!(exclusion.turns(), 60);
    }
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_listen_are_replaced() {
    are_survived("pubsub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_do_not_listen_are_replaced() {
    are_survived("normal").await;
}

/// A new connection listens in every slot in which somebody waits before it counts as up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_listens_where_somebody_waits() {
    let cluster = RedisCluster::start(2);
    let key = &cluster.key_on_each("k")[0];
    let node = &cluster.masters[0];
    let mut raw = node.client();
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let guard = holder.lock(key).acquire().await.unwrap();
    let waiting = acquire_later(&waiter, key, ms(3_000), LONG);
    until_queued(&mut raw, key, 1).await;
    let before = crate::cluster::channels(&mut raw);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually_async(LONG, async || {
        let after = crate::cluster::channels(&mut raw);
        before.iter().all(|channel| after.contains(channel))
    })
    .await;
    guard.release().await.unwrap();
    within(LONG, waiting)
        .await
        .unwrap()
        .0
        .unwrap()
        .release()
        .await
        .unwrap();
    until_all_clean(&cluster).await;
}
