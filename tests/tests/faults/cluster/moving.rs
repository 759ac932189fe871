//! Slots that move from one node to another while their locks are held and waited for.

use std::time::Instant;

use distlock::{LockGuard, Outage};
use distlock_tests::{RedisCluster, Resp, eventually_async, within};

use crate::cluster::callers::{Crowd, Queue, served_in_order};
use crate::cluster::{channels, queued, until_all_clean, until_renewed};
use crate::support::{
    HELD, LONG, acquire_later, connect, give_back, lock_key, ms, rejected, taken_once, until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_queues_move_with_their_slot() {
    const WAITERS: i64 = 4;
    let cluster = RedisCluster::start(3);
    let key = &cluster.key_on_each("along")[0];
    let (from, to) = (&cluster.primaries[0], &cluster.primaries[2]);
    let queue = Queue::start(&cluster.url(), from, key, HELD, WAITERS).await;
    let before = channels(&cluster, &mut from.client(), key);
    assert!(before.len() as i64 >= WAITERS, "{before:?}");
    cluster.migrate(cluster.slot(key), to);
    let mut raw = to.client();
    // All waiters are still in the queue, and subscribe at the new node.
    assert_eq!(queued(&mut raw, key), WAITERS);
    eventually_async(LONG, async || {
        channels(&cluster, &mut raw, key).is_superset(&before)
    })
    .await;
    // The hold is renewed at the new node, with the token that it had.
    until_renewed(&mut raw, key).await;
    assert!(queue.guard.is_held());
    assert_has(&mut raw, &queue.guard);
    let _managers = queue.serve().await;
    until_all_clean(&cluster).await;
}

/// Panics unless a node has the lock of a guard, with its token.
#[track_caller]
fn assert_has(raw: &mut Resp, guard: &LockGuard) {
    let value = raw.get(&lock_key(guard.key())).unwrap();
    let token = value.split(' ').nth(2).unwrap();
    assert_eq!(token, guard.fencing_token().to_string(), "{guard:?}");
}

/// A waiter has time to subscribe at the new node of the slot. An earlier release would take the
/// waiter for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_gives_waiters_time_to_subscribe_where_the_slot_is() {
    let cluster = RedisCluster::start(3);
    let key = &cluster.key_on_each("time")[0];
    let (slot, to) = (cluster.slot(key), &cluster.primaries[1]);
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

/// The lock is renewed where its key is, and no other client gets it. No subscription counts at the
/// target of a migration, so an acquire or a release there would take all waiters for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_a_migrating_slot_stays_held() {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("way");
    let (key, from, to) = (&keys[1], &cluster.primaries[1], &cluster.primaries[0]);
    let queue = Queue::start(&cluster.url(), from, key, HELD, 2).await;
    let (guard, mut waiting) = (queue.guard, queue.waiting);
    let slot = cluster.slot(key);
    cluster.begin_migration(slot, to);
    until_renewed(&mut from.client(), key).await;
    while cluster.migrate_keys(slot, from, to) > 0 {}
    let mut there = to.client();
    until_renewed(&mut there, key).await;
    assert!(guard.is_held());
    let other = connect(&cluster.url()).await;
    let error = other.lock(key).try_acquire().await.unwrap_err();
    assert_eq!(error.outage(), Some(Outage::NotReady), "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    let name = from.port().to_string();
    assert!(error.to_string().contains(&name), "{error}");
    // Other slots are not affected.
    taken_once(&other, &keys[2]).await;
    waiting.push(acquire_later(&other, key, HELD, LONG * 3));
    let mut raw = from.client();
    let before = rejected(&mut raw, "evalsha");
    let token = guard.fencing_token();
    let releasing = tokio::spawn(guard.release());
    // Both are retried at the node that still has the slot.
    eventually_async(LONG, async || rejected(&mut raw, "evalsha") > before + 5).await;
    assert_eq!(queued(&mut there, key), 2);
    there.cmd(&["ASKING"]);
    assert!(there.exists(&lock_key(key)), "it was released");
    cluster.end_migration(slot, from, to);
    // The release reports whether it had to be repeated.
    let _ = within(LONG, releasing).await.unwrap();
    served_in_order(token, waiting).await;
    until_all_clean(&cluster).await;
}

/// The first slot of a node that has just joined is in migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_migrating_to_a_node_without_slots_stays_held() {
    let cluster = RedisCluster::start(3);
    let new = cluster.join();
    let manager = connect(&cluster.url()).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    let slot = cluster.slot("k");
    let from = cluster.begin_migration(slot, &new);
    while cluster.migrate_keys(slot, from, &new) > 0 {}
    until_renewed(&mut new.client(), "k").await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    cluster.end_migration_at(slot, &new, &[from]);
    guard.release().await.unwrap();
    taken_once(&manager, "k").await;
    assert!(new.client().keys("distlock:lock:*").is_empty());
    assert!(new.client().exists("distlock:fence:{k}"));
}

/// A node that gives a slot away sends a push that looks like a reply, while commands are in
/// flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_subscription_is_no_reply() {
    const ROUNDS: usize = 5;
    const ASKED: usize = 20;
    let cluster = RedisCluster::start(3);
    let (from, to) = (&cluster.primaries[0], &cluster.primaries[1]);
    let id = cluster.name_of(to);
    let is_there = |key: &String| cluster.owner_of(key).port() == from.port();
    let mut keys = (0..)
        .map(|number| format!("answer{number}"))
        .filter(is_there);
    let waited: Vec<_> = keys.by_ref().take(ROUNDS).collect();
    let requested_keys: Vec<_> = keys.take(ASKED).collect();
    let (holder, client) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for key in &waited {
        let guard = holder.lock(key).acquire().await.unwrap();
        let waiting = acquire_later(&client, key, LONG, LONG);
        until_queued(&mut from.client(), key, 1).await;
        let slot = cluster.slot(key);
        cluster.begin_migration(slot, to);
        while cluster.migrate_keys(slot, from, to) > 0 {}
        // When the node resumes, it first finds that the slot is gone, and then the commands.
        let mut raw = from.client();
        from.stop_process();
        let text = slot.to_string();
        raw.send(&["CLUSTER", "SETSLOT", &text, "NODE", &id])
            .unwrap();
        let acquiring = requested_keys.iter().map(|key| {
            let lock = client.lock(key).lease(ms(5_000)).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        });
        let acquiring: Vec<_> = acquiring.collect();
        tokio::time::sleep(ms(40)).await;
        from.cont_process();
        let reply = raw.read_reply(LONG).unwrap();
        assert!(!reply.is_error(), "{reply:?}");
        cluster.end_migration(slot, from, to);
        for acquiring in acquiring {
            let guard = within(LONG, acquiring).await.unwrap();
            assert_has(&mut raw, &guard);
            guard.release().await.unwrap();
        }
        guard.release().await.unwrap();
        within(LONG, give_back(waiting)).await;
    }
    until_all_clean(&cluster).await;
}

/// Slots move back and forth while commands are in flight, and every reply reaches its caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_held_lock_is_granted() {
    const ROUNDS: usize = 12;
    let cluster = RedisCluster::start(3);
    let moved = cluster.key_on_each("load");
    // Two keys of each moving slot.
    let others = moved.iter().map(|key| format!("other{{{key}}}"));
    let keys: Vec<_> = moved.iter().cloned().chain(others).collect();
    // A hand-off that the move has interrupted is repeated, and then reports that.
    let crowd = Crowd::start(&cluster.url(), &keys, 3, HELD, drop).await;
    for round in 0..ROUNDS {
        for (index, key) in moved.iter().enumerate() {
            let to = &cluster.primaries[(index + round + 1) % 3];
            cluster.migrate(cluster.slot(key), to);
        }
    }
    // The calls still succeed.
    let _managers = crowd.end().await;
    until_all_clean(&cluster).await;
}
