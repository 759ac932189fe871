//! Connections to the nodes, which are killed while locks are handed off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::__inside::{clock_ahead, running_on};
use distlock::LockManager;
use distlock_tests::{RedisCluster, eventually_async, within};

use crate::cluster::callers::{Crowd, Queue};
use crate::cluster::{channels, until_all_clean};
use crate::credentials::{Vault, add_user};
use crate::support::{LONG, acquire_later, connections, ms, taken_once, until_queued};

/// Connections of one type are killed repeatedly while several clients work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_are_replaced() {
    let cluster = RedisCluster::start(3);
    for kind in ["pubsub", "normal"] {
        let keys = cluster.key_on_each(kind);
        let crowd = Crowd::start(&cluster.url(), &keys, 2, LONG, Result::unwrap).await;
        let kills = async {
            while crowd.turns() < 15 {
                for node in &cluster.primaries {
                    node.client().cmd(&["CLIENT", "KILL", "TYPE", kind]);
                }
                tokio::time::sleep(ms(50)).await;
            }
        };
        println!("connections of type {kind} are killed");
        within(LONG * 2, kills).await;
        let _managers = crowd.end().await;
        until_all_clean(&cluster).await;
    }
}

/// A new connection subscribes in every slot that has a waiter before it counts as up, so that it
/// receives the hand-offs from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_subscribes_where_a_call_waits() {
    let cluster = RedisCluster::start(3);
    let key = &cluster.key_on_each("listened")[0];
    let node = &cluster.primaries[0];
    let mut raw = node.client();
    let queue = Queue::start(&cluster.url(), node, key, LONG, 1).await;
    let before = channels(&cluster, &mut raw, key);
    let channel = before.iter().next().expect("the waiter listens").as_str();
    let mut monitor = node.monitor();
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually_async(LONG, async || {
        channels(&cluster, &mut raw, key).is_superset(&before)
    })
    .await;
    until_queued(&mut raw, key, 1).await;
    let _managers = queue.serve().await;
    let lines = monitor.lines();
    let listens = |line: &&String| line.contains("\"SSUBSCRIBE\"") && line.contains(channel);
    let subscribed = lines.iter().find(listens).expect("it was seen above");
    let address = subscribed.split(['[', ']']).nth(1).unwrap();
    let of_it: Vec<_> = lines.iter().filter(|line| line.contains(address)).collect();
    let is_script = |line: &&String| line.contains("\"EVAL");
    let before_scripts = of_it.iter().take_while(|line| !is_script(line));
    assert!(
        before_scripts.copied().any(|line| listens(&line)),
        "a script ran before it listened: {of_it:#?}"
    );
    until_all_clean(&cluster).await;
}

/// A node that was not needed for a minute is disconnected, and the others are not. Its connections
/// are opened again when it is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_is_disconnected_and_reconnected_on_demand() {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    let ahead = Arc::new(AtomicU64::new(0));
    let builder = LockManager::builder();
    let manager = clock_ahead(builder, ahead.clone())
        .connect(&cluster.url())
        .await
        .unwrap();
    for key in &keys {
        taken_once(&manager, key).await;
    }
    let of_manager = || {
        let nodes = cluster.primaries.iter();
        let others = nodes.map(|node| connections(&mut node.client()) - 1);
        others.collect::<Vec<_>>()
    };
    eventually_async(LONG, async || of_manager() == [2, 2, 2]).await;
    ahead.store(61_000, Ordering::Relaxed);
    taken_once(&manager, &keys[0]).await;
    // An unserved slot makes the manager ask for the slots, otherwise done every half minute.
    cluster.abandon(&cluster.primaries[0], cluster.slot(&keys[0]));
    let doubting = acquire_later(&manager, &keys[0], LONG, ms(100));
    eventually_async(LONG, async || of_manager() == [2, 0, 0]).await;
    assert!(doubting.await.unwrap().0.is_err());
    taken_once(&manager, &keys[1]).await;
    eventually_async(LONG, async || of_manager() == [2, 2, 0]).await;
}

/// After a shutdown nothing works for a node, although the manager and guards still exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_leaves_no_connection_and_no_task() {
    let cluster = RedisCluster::start(2);
    for node in cluster.nodes() {
        add_user(&mut node.client(), "app", "hunter2");
    }
    let vault = Vault::new("app", "hunter2");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let builder = running_on(vault.builder(), runtime.handle().clone());
    let manager = builder.connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for key in &cluster.key_on_each("k") {
        held.push(manager.lock(key).acquire().await.unwrap());
        waiting.push(acquire_later(&manager, key, LONG, LONG));
    }
    manager.shutdown().await;
    let tasks = || runtime.metrics().num_alive_tasks();
    eventually_async(LONG, async || tasks() == 0).await;
    for node in &cluster.primaries {
        let mut raw = node.client();
        eventually_async(LONG, async || connections(&mut raw) == 1).await;
    }
    for turn in waiting {
        assert!(within(LONG, turn).await.unwrap().0.is_err());
    }
    drop((held, manager));
    runtime.shutdown_background();
}
