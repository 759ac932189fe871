//! Locks in all nodes of a cluster that nothing happens to.

use std::sync::Arc;

use distlock_tests::within;

use crate::cluster::turns::in_turn;
use crate::cluster::until_all_clean;
use crate::kit::{
    Exclusion, LONG, acquire_later, calls, connect, give_back, lock_key, ms, until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lock_is_in_the_node_that_has_its_slot() {
    let cluster = in_turn().await;
    let manager = connect(&cluster.url()).await;
    let keys = cluster.key_on_each("k");
    let mut guards = Vec::new();
    for (key, node) in keys.iter().zip(&cluster.masters) {
        guards.push(manager.lock(key).acquire().await.unwrap());
        assert!(node.client().exists(&lock_key(key)));
    }
    for (guard, key) in guards.iter().zip(&keys) {
        let inspection = manager.inspect(key).await.unwrap();
        assert!(!inspection.holders().is_empty(), "{inspection:?}");
        assert!(guard.is_held());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_handed_on_in_order_and_only_one_runs() {
    const CLIENTS: u64 = 4;
    const TURNS: u64 = 25;
    let cluster = in_turn().await;
    let keys = cluster.key_on_each("k");
    let all: Vec<_> = keys.iter().map(|_| Exclusion::new()).collect();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let manager = connect(&cluster.url()).await;
        for (key, exclusion) in keys.iter().zip(&all) {
            let (manager, key) = (manager.clone(), key.clone());
            let exclusion = Arc::clone(exclusion);
            clients.push(tokio::spawn(async move {
                for _ in 0..TURNS {
                    let lock = manager.lock(&key).lease(ms(3_000)).wait(LONG * 3);
                    let guard = lock.acquire().await.unwrap();
                    let inside = exclusion.enter(guard.fencing_token());
                    tokio::task::yield_now().await;
                    drop(inside);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for client in clients {
        within(LONG * 4, client).await.unwrap();
    }
    for exclusion in all {
        assert_eq!(exclusion.turns(), CLIENTS * TURNS);
    }
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served_across_managers() {
    let cluster = in_turn().await;
    let key = &cluster.key_on_each("k")[1];
    let mut raw = cluster.masters[1].client();
    let holder = connect(&cluster.url()).await;
    let guard = holder.lock(key).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=5 {
        let manager = connect(&cluster.url()).await;
        waiting.push(tokio::spawn(give_back(acquire_later(
            &manager,
            key,
            ms(3_000),
            LONG,
        ))));
        until_queued(&mut raw, key, count).await;
    }
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let mut last = guard.fencing_token();
    guard.release().await.unwrap();
    let mut before = None;
    for waiting in waiting {
        let (token, acquired) = within(LONG, waiting).await.unwrap();
        assert!(token > last, "{token} after {last}");
        assert!(before.is_none_or(|before| before < acquired));
        (last, before) = (token, Some(acquired));
    }
    // Nobody was passed over and had to ask again.
    assert_eq!(calls(&mut raw, "spublish"), 5);
    until_all_clean(&cluster).await;
}

/// What is handed on is pushed: nobody has to look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_pushed_in_the_slot() {
    const TURNS: u64 = 20;
    let cluster = in_turn().await;
    let key = &cluster.key_on_each("k")[2];
    let mut raw = cluster.masters[2].client();
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let (first, second) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for _ in 0..TURNS {
        let guard = first.lock(key).acquire().await.unwrap();
        let waiting = acquire_later(&second, key, ms(3_000), LONG);
        until_queued(&mut raw, key, 1).await;
        guard.release().await.unwrap();
        give_back(waiting).await;
    }
    assert_eq!(calls(&mut raw, "spublish"), TURNS);
    until_all_clean(&cluster).await;
}

/// A call on a free lock is one command, and subscribes to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_command_and_no_subscription() {
    const TURNS: u64 = 100;
    let cluster = in_turn().await;
    let manager = connect(&cluster.url()).await;
    let keys = cluster.key_on_each("k");
    let turn = async |key: &String| {
        let guard = manager.lock(key).wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    };
    for key in &keys {
        turn(key).await;
    }
    for (key, node) in keys.iter().zip(&cluster.masters) {
        let mut raw = node.client();
        raw.cmd(&["CONFIG", "RESETSTAT"]);
        for _ in 0..TURNS {
            turn(key).await;
        }
        assert_eq!(calls(&mut raw, "evalsha"), 2 * TURNS);
        assert_eq!(calls(&mut raw, "ssubscribe"), 0);
    }
}
