//! A lock over independent servers, while some of them are away, slow, or have forgotten everything.

mod degraded;
pub(crate) mod members;
mod minority;
mod phases;
mod restart;
mod stage;
mod trust;
mod turns;

use std::time::Duration;

use distlock::{LockManager, LockManagerBuilder, Quorum};
use distlock_tests::{RedisQuorum, equal, eventually_async};

use crate::kit::{
    HELD, LONG, acquire_later, connect_patiently, give_back, leftovers, queue_key,
    until_renewed_twice,
};

/// Three servers that have been running for long.
fn three() -> RedisQuorum {
    let quorum = RedisQuorum::start(3);
    quorum.vote("distlock");
    quorum
}

async fn connect(quorum: &RedisQuorum) -> LockManager {
    connect_patiently(quorum.url()).await.unwrap()
}

/// A manager that takes no longer leases.
fn with_leases_up_to(longest: Duration, url: String) -> LockManagerBuilder {
    let terms = Quorum::default().max_lease(longest);
    LockManager::builder().url(url).quorum(terms)
}

/// Waits until no server that runs has anything but fences and its epoch.
async fn until_clean(quorum: &RedisQuorum) {
    for place in 0..3 {
        if quorum.server(place).is_running() {
            until_clean_at(quorum, place).await;
        }
    }
}

/// The same for one of them.
async fn until_clean_at(quorum: &RedisQuorum, place: usize) {
    let mut raw = quorum.server(place).client();
    eventually_async(LONG, async || {
        let mut left = leftovers(&mut raw);
        left.retain(|key| key != "distlock:epoch");
        equal(left, Vec::<String>::new())
    })
    .await;
}

/// Waits until so many stand in the queue of one server.
async fn until_queued_at(quorum: &RedisQuorum, place: usize, key: &str, count: i64) {
    let mut raw = quorum.server(place).client();
    let queue = queue_key(key);
    eventually_async(LONG, async || {
        equal(raw.cmd(&["ZCARD", &queue]).int(), count)
    })
    .await;
}

/// Held, renewed and handed on.
pub(crate) async fn works(quorum: &RedisQuorum, first: &LockManager, second: &LockManager) {
    let lease = HELD;
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(second, "k", lease, LONG);
    until_queued_at(quorum, 0, "k", 1).await;
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
    give_back(waiting).await;
    until_clean(quorum).await;
}
