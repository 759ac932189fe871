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
use distlock_tests::{RedisQuorum, eventually_async};

use crate::kit::{LONG, acquire_later, give_back, leftovers, ms, queue_key};

/// Three servers that have been running for long.
fn three() -> RedisQuorum {
    let quorum = RedisQuorum::start(3);
    quorum.vote("distlock");
    quorum
}

async fn connect(quorum: &RedisQuorum) -> LockManager {
    LockManager::connect(quorum.url()).await.unwrap()
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
    let is_epoch = |key: &String| key.as_str() == "distlock:epoch";
    eventually_async(LONG, async || leftovers(&mut raw).iter().all(is_epoch)).await;
}

/// Waits until so many stand in the queue of one server.
async fn until_queued_at(quorum: &RedisQuorum, place: usize, key: &str, count: i64) {
    let mut raw = quorum.server(place).client();
    let queue = queue_key(key);
    eventually_async(LONG, async || raw.cmd(&["ZCARD", &queue]).int() == count).await;
}

/// Held, renewed and handed on.
pub(crate) async fn works(quorum: &RedisQuorum, first: &LockManager, second: &LockManager) {
    let lease = ms(750);
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(second, "k", lease, LONG);
    until_queued_at(quorum, 0, "k", 1).await;
    tokio::select! {
        error = guard.lost() => panic!("{error}"),
        () = tokio::time::sleep(lease * 2) => {}
    }
    guard.release().await.unwrap();
    give_back(waiting).await;
    until_clean(quorum).await;
}
