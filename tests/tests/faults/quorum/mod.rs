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
use std::vec::IntoIter;

use distlock::{FencingToken, LockGuard, LockManager, LockManagerBuilder, Quorum};
use distlock_tests::{RedisQuorum, equal, eventually_async, within};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::kit::{
    Acquiring, HELD, LONG, acquire_later, connect_patiently, give_back, leftovers, lock_key, ms,
    queue_key, until_renewed_twice,
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

/// The same for all three.
async fn until_queued_everywhere(quorum: &RedisQuorum, key: &str, count: i64) {
    for place in 0..3 {
        until_queued_at(quorum, place, key, count).await;
    }
}

/// The lock is taken within a long wait, and released.
async fn serves(manager: &LockManager) {
    let lock = manager.lock("k").wait(LONG);
    lock.run(async |_| ()).await.unwrap();
}

/// Calls of two managers that wait in the queues of all three servers.
struct Waiters {
    calls: FuturesUnordered<Acquiring>,
    /// In the order of their tickets. A ticket is the servers' time as its client estimates it, so
    /// two clients that ask at nearly the same time can have theirs in the other order.
    owners: IntoIter<String>,
    /// The token of the last holder.
    last: FencingToken,
}

impl Waiters {
    async fn queue(quorum: &RedisQuorum, managers: &[LockManager; 2], holder: &LockGuard) -> Self {
        let calls = FuturesUnordered::new();
        for number in 0..4 {
            calls.push(acquire_later(&managers[number % 2], "k", ms(5_000), LONG));
            until_queued_everywhere(quorum, "k", number as i64 + 1).await;
        }
        let queue = quorum
            .server(2)
            .client()
            .cmd(&["ZRANGE", &queue_key("k"), "0", "-1"]);
        let owners = queue.array().iter().filter_map(|owner| owner.text());
        let owners: Vec<_> = owners.map(str::to_owned).collect();
        Waiters {
            calls,
            owners: owners.into_iter(),
            last: holder.fencing_token(),
        }
    }

    /// The next in the queue gets the lock, with a higher token, and releases it. Returns `false`
    /// if no call waits.
    async fn serve_next(&mut self, quorum: &RedisQuorum) -> bool {
        let Some(call) = within(LONG, self.calls.next()).await else {
            return false;
        };
        let guard = call.unwrap().0.unwrap();
        let (token, last) = (guard.fencing_token(), self.last);
        assert!(token > last, "{token} after {last}");
        self.last = token;
        let owner = self.owners.next();
        let mut raw = quorum.server(2).client();
        eventually_async(LONG, async || {
            let lock = raw.get(&lock_key("k")).unwrap_or_default();
            equal(lock.split(' ').nth(2), owner.as_deref())
        })
        .await;
        guard.release().await.unwrap();
        true
    }
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
