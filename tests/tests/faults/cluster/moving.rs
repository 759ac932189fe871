//! Slots that move from one node to another while their locks are held and waited for.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Error, Outage};
use distlock_tests::{RedisCluster, eventually_async, within};

use crate::cluster::turns::in_turn;
use crate::cluster::{channels, expires, queued, until_all_clean, until_renewed};
use crate::kit::{
    Exclusion, HELD, LONG, acquire_later, connect, give_back, lock_key, ms, taken_once,
    until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_and_waited_for_goes_along() {
    const WAITERS: i64 = 4;
    let cluster = in_turn().await;
    let key = &cluster.key_on_each("along")[0];
    let (from, to) = (&cluster.masters[0], &cluster.masters[2]);
    let holder = connect(&cluster.url()).await;
    let lease = HELD;
    let guard = holder.lock(key).lease(lease).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=WAITERS {
        let manager = connect(&cluster.url()).await;
        let later = acquire_later(&manager, key, lease, LONG * 2);
        waiting.push(tokio::spawn(give_back(later)));
        until_queued(&mut from.client(), key, count).await;
    }
    let before = channels(&cluster, &mut from.client(), key);
    assert!(before.len() as i64 >= WAITERS, "{before:?}");
    cluster.migrate(cluster.slot(key), to);
    let mut raw = to.client();
    // Renewed where it is now, with the token that it had.
    until_renewed(&mut raw, key).await;
    assert!(guard.is_held());
    let value = raw.get(&lock_key(key)).unwrap();
    let token = value.split(' ').nth(2).unwrap();
    assert_eq!(token, guard.fencing_token().to_string());
    // All are still in the queue, and listen where it is now.
    assert_eq!(queued(&mut raw, key), WAITERS);
    eventually_async(LONG, async || {
        channels(&cluster, &mut raw, key).is_superset(&before)
    })
    .await;
    let mut last = guard.fencing_token();
    guard.release().await.unwrap();
    let mut before = None;
    for waiting in waiting {
        let (token, acquired) = within(LONG, waiting).await.unwrap();
        assert!(token > last, "{token} after {last}");
        assert!(before.is_none_or(|before| before < acquired), "out of turn");
        (last, before) = (token, Some(acquired));
    }
    until_all_clean(&cluster).await;
}

/// The subscription that a node ends is found at once, and not at the next look: nobody is passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_subscription_is_begun_again_where_the_slot_is() {
    let cluster = in_turn().await;
    let keys = cluster.key_on_each("again");
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for (index, key) in keys.iter().enumerate().take(2) {
        let (from, to) = (&cluster.masters[index], &cluster.masters[1 - index]);
        let guard = holder.lock(key).acquire().await.unwrap();
        let waiting = acquire_later(&waiter, key, ms(3_000), LONG);
        until_queued(&mut from.client(), key, 1).await;
        let before = channels(&cluster, &mut from.client(), key);
        assert!(!before.is_empty());
        cluster.migrate(cluster.slot(key), to);
        let mut raw = to.client();
        let mut took = Instant::now();
        eventually_async(LONG, async || {
            channels(&cluster, &mut raw, key).is_superset(&before)
        })
        .await;
        println!("subscribed after {:?}", took.elapsed());
        took = Instant::now();
        guard.release().await.unwrap();
        let (guard, acquired) = within(LONG, waiting).await.unwrap();
        println!("handed on after {:?}", acquired - took);
        guard.unwrap().release().await.unwrap();
    }
    until_all_clean(&cluster).await;
}

/// A waiter has time to subscribe at the node that has the slot now. A release that came before it would take the waiter for
/// dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_gives_waiters_time_to_subscribe_where_the_slot_is() {
    let cluster = in_turn().await;
    let key = &cluster.key_on_each("time")[0];
    let (slot, to) = (cluster.slot(key), &cluster.masters[1]);
    let manager = connect(&cluster.url()).await;
    let guard = manager.lock(key).lease(LONG).acquire().await.unwrap();
    let from = cluster.begin_migration(slot, to);
    while cluster.migrate_keys(slot, from, to) > 0 {}
    let moves = Instant::now();
    cluster.end_migration_at(slot, to, &[from]);
    guard.release().await.unwrap();
    let released = moves.elapsed();
    assert!(
        released >= ms(250),
        "released {released:?} after the slot moved"
    );
    cluster.end_migration(slot, from, to);
    until_all_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_a_slot_that_is_on_its_way_is_held_on() {
    let cluster = in_turn().await;
    let keys = cluster.key_on_each("way");
    let (key, to) = (&keys[1], &cluster.masters[0]);
    let (holder, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let lease = HELD;
    let guard = holder.lock(key).lease(lease).acquire().await.unwrap();
    let slot = cluster.slot(key);
    let from = cluster.begin_migration(slot, to);
    until_renewed(&mut from.client(), key).await;
    let waiting = acquire_later(&other, key, lease, LONG);
    while cluster.migrate_keys(slot, from, to) > 0 {}
    // Half of it is there: it is renewed where its key is, and nobody else gets it.
    until_renewed(&mut to.client(), key).await;
    assert!(guard.is_held());
    let error = other.lock(key).try_acquire().await.unwrap_err();
    let is_told = matches!(
        &error,
        Error::Unavailable {
            outage: Outage::NotReady,
            ..
        }
    );
    assert!(is_told && error.is_retryable(), "{error:?}");
    let name = from.port().to_string();
    assert!(error.to_string().contains(&name), "{error}");
    // Others are not concerned.
    let elsewhere = other.lock(&keys[2]).acquire().await.unwrap();
    elsewhere.release().await.unwrap();
    cluster.end_migration(slot, from, to);
    assert!(expires(&mut to.client(), key) > 0);
    until_queued(&mut to.client(), key, 1).await;
    guard.release().await.unwrap();
    let (guard, _) = within(LONG, waiting).await.unwrap();
    guard.unwrap().release().await.unwrap();
    until_all_clean(&cluster).await;
}

/// To a node that has come just now the first slot is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_its_way_to_a_node_without_slots_is_held_on() {
    let cluster = RedisCluster::start(3);
    let new = cluster.join();
    let manager = connect(&cluster.url()).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    let slot = cluster.slot("k");
    let from = cluster.begin_migration(slot, &new);
    while cluster.migrate_keys(slot, from, &new) > 0 {}
    until_renewed(&mut new.client(), "k").await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    let (text, name) = (slot.to_string(), cluster.name_of(&new));
    for node in [&new, from] {
        let said = node
            .client()
            .cmd(&["CLUSTER", "SETSLOT", &text, "NODE", &name]);
        assert!(!said.is_error(), "{said:?}");
    }
    guard.release().await.unwrap();
    taken_once(&manager, "k").await;
    assert!(new.client().keys("distlock:lock:*").is_empty());
    assert!(new.client().exists("distlock:fence:{k}"));
}

/// A node that gives a slot away says so with a push that looks like an answer, while commands are under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_subscription_is_nobodys_answer() {
    const ROUNDS: usize = 5;
    const ASKED: usize = 20;
    let cluster = in_turn().await;
    let (from, to) = (&cluster.masters[0], &cluster.masters[1]);
    let id = to.client().cmd(&["CLUSTER", "MYID"]);
    let id = id.text().unwrap();
    let is_there = |key: &String| cluster.owner_of(key).port() == from.port();
    let mut keys = (0..)
        .map(|number| format!("answer{number}"))
        .filter(is_there);
    let waited: Vec<_> = keys.by_ref().take(ROUNDS).collect();
    let asked: Vec<_> = keys.take(ASKED).collect();
    let (holder, client) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for key in &waited {
        let guard = holder.lock(key).acquire().await.unwrap();
        let waiting = acquire_later(&client, key, ms(5_000), LONG);
        until_queued(&mut from.client(), key, 1).await;
        let slot = cluster.slot(key);
        cluster.begin_migration(slot, to);
        while cluster.migrate_keys(slot, from, to) > 0 {}
        // It finds both when it goes on: that the slot is gone, and then what was asked.
        let mut raw = from.client();
        from.stop_process();
        let text = slot.to_string();
        raw.send(&["CLUSTER", "SETSLOT", &text, "NODE", id])
            .unwrap();
        let asking = asked.iter().map(|key| {
            let lock = client.lock(key).lease(ms(5_000)).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        });
        let asking: Vec<_> = asking.collect();
        tokio::time::sleep(ms(40)).await;
        from.cont_process();
        let said = raw.read_reply(LONG).unwrap();
        assert!(!said.is_error(), "{said:?}");
        cluster.end_migration(slot, from, to);
        for asking in asking {
            let guard = within(LONG, asking).await.unwrap();
            let value = raw.get(&lock_key(guard.key())).unwrap();
            let token = value.split(' ').nth(2).unwrap();
            assert_eq!(token, guard.fencing_token().to_string(), "{guard:?}");
            guard.release().await.unwrap();
        }
        guard.release().await.unwrap();
        within(LONG, tokio::spawn(give_back(waiting)))
            .await
            .unwrap();
    }
    until_all_clean(&cluster).await;
}

/// Slots go to and fro while all work, commands under way and all: each answer reaches who asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_nobody_gets_a_lock_that_another_has() {
    const CLIENTS: usize = 3;
    const ROUNDS: usize = 12;
    let cluster = in_turn().await;
    let keys = cluster.key_on_each("load");
    // Two keys of each slot that moves.
    let keys: Vec<_> = keys
        .iter()
        .flat_map(|key| [key.clone(), format!("other{{{key}}}")])
        .collect();
    let all: Vec<_> = keys.iter().map(|_| Exclusion::new()).collect();
    let ends = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let manager = connect(&cluster.url()).await;
        for (key, exclusion) in keys.iter().zip(&all) {
            for _ in 0..2 {
                let lock = manager.lock(key).lease(ms(5_000)).wait(LONG * 3);
                let (exclusion, ends) = (exclusion.clone(), ends.clone());
                tasks.push(tokio::spawn(async move {
                    let mut turns = 0_u64;
                    while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                        let guard = lock.acquire().await.unwrap();
                        let inside = exclusion.enter(guard.fencing_token());
                        tokio::time::sleep(ms(1)).await;
                        assert!(guard.is_held());
                        drop(inside);
                        // A hand-off that the move has interrupted is repeated, and then says so.
                        let _ = guard.release().await;
                        turns += 1;
                    }
                    turns
                }));
            }
        }
    }
    let slots: Vec<_> = keys
        .iter()
        .step_by(2)
        .map(|key| cluster.slot(key))
        .collect();
    for round in 0..ROUNDS {
        for (index, slot) in slots.iter().enumerate() {
            cluster.migrate(*slot, &cluster.masters[(index + round + 1) % 3]);
        }
    }
    let moved: Vec<_> = all.iter().map(|exclusion| exclusion.turns()).collect();
    // They still work.
    for (exclusion, before) in all.iter().zip(&moved) {
        eventually_async(LONG, async || exclusion.turns() > before + 10).await;
    }
    ends.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut turns = 0;
    for task in tasks {
        turns += within(LONG * 2, task).await.unwrap();
    }
    println!("{turns} turns, {moved:?} while slots moved");
    until_all_clean(&cluster).await;
}
