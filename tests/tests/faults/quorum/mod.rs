//! Quorum locks while some servers are down, slow, or have lost everything.

mod degraded;
mod late;
mod minority;
pub(crate) mod nodes;
mod phases;
mod restart;
mod stage;
mod trust;
mod turns;

use std::ops::Range;
use std::time::Duration;

use distlock::{LockGuard, LockManager, LockManagerBuilder, Quorum};
use distlock_tests::{RedisQuorum, equal, eventually_async};

use crate::support::{
    HELD, LONG, acquire_later, connect_patiently, give_back, leftovers, lock_key, take,
    until_renewed_twice,
};

/// Starts three servers that count as having run for long.
fn three() -> RedisQuorum {
    let quorum = RedisQuorum::start(3);
    quorum.vote("distlock");
    quorum
}

async fn connect(quorum: &RedisQuorum) -> LockManager {
    connect_patiently(quorum.url()).await.unwrap()
}

/// Builds a manager that accepts no longer leases.
fn with_leases_up_to(longest: Duration) -> LockManagerBuilder {
    LockManager::builder().quorum(Quorum::new().max_lease(longest))
}

/// Waits until every running server has only fences and its epoch.
async fn until_clean(quorum: &RedisQuorum) {
    for place in 0..3 {
        if quorum.server(place).is_running() {
            until_clean_at(quorum, place).await;
        }
    }
}

/// Waits until one server has only fences and its epoch.
async fn until_clean_at(quorum: &RedisQuorum, place: usize) {
    let mut raw = quorum.server(place).client();
    eventually_async(LONG, async || {
        let mut left = leftovers(&mut raw);
        left.retain(|key| key != "distlock:epoch");
        equal(left, Vec::<String>::new())
    })
    .await;
}

/// Waits until these servers have the hold. Two make it; the third gets it as well.
async fn until_held_at(quorum: &RedisQuorum, places: Range<usize>, guard: &LockGuard) {
    let token = guard.fencing_token().to_string();
    for place in places {
        let (mut raw, lock) = (quorum.server(place).client(), lock_key(guard.key()));
        eventually_async(LONG, async || {
            let value = raw.get(&lock).unwrap_or_default();
            equal(value.split(' ').nth(2), Some(&*token))
        })
        .await;
    }
}

/// Lets another client's hold be at one server.
fn taken_at(quorum: &RedisQuorum, place: usize, key: &str) {
    let value = format!("3 {:032x}:1 7 60000 7 another", 7);
    let mut raw = quorum.server(place).client();
    raw.cmd(&["SET", &lock_key(key), &value, "PX", "60000"]);
}

/// Acquires the lock within a long wait, and releases it.
async fn serves(manager: &LockManager) {
    take(manager.lock("k").wait(LONG)).await;
}

/// Checks that the lock is held, renewed and given to a waiter.
pub(crate) async fn works(quorum: &RedisQuorum, first: &LockManager, second: &LockManager) {
    let guard = first.lock("k").lease(HELD).acquire().await.unwrap();
    let waiting = acquire_later(second, "k", HELD, LONG);
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
    give_back(waiting).await;
    until_clean(quorum).await;
}
