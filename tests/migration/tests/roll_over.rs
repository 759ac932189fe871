//! Migration while replicas of both releases run: a holder of both locks excludes both.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{RedisServer, eventually_async, within};

const KEY: &str = "stock:7";
const LEASE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(30);

async fn managers(server: &RedisServer) -> (rslock::LockManager, LockManager) {
    let new = LockManager::connect(&server.url()).await;
    (
        rslock::LockManager::new(vec![server.url()]),
        new.expect("the server is up"),
    )
}

/// Returns true if the old lock is held, according to Redis.
fn old_is_held(server: &RedisServer) -> bool {
    server.client().cmd(&["EXISTS", KEY]).int() == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_locks_key_is_the_name_alone() {
    let server = RedisServer::start();
    let url = server.url();

    let (rslock, _) = managers(&server).await;
    let guard = rslock.acquire(KEY, LEASE).await.expect("it is free");
    assert!(old_is_held(&server), "rslock");
    guard.release().await;

    let locker = async_redis_lock::Locker::from_redis_url(&url).await;
    let locker = locker.expect("the server is up");
    let guard = locker.acquire(KEY).await.expect("it is free");
    assert!(old_is_held(&server), "async-redis-lock");
    guard.release().await.expect("it was held");

    let rlock = rlock::async_lock::RLock::new(&*url).await;
    let rlock = rlock.expect("the server is up");
    let mut guard = rlock.acquire_mutex(KEY).await.expect("it is free");
    assert!(old_is_held(&server), "rlock");
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_both_waits_for_the_old_release() {
    let server = RedisServer::start();
    let (old, new) = managers(&server).await;
    let old_release = old.acquire(KEY, LEASE).await.expect("it is free");

    let this_release = tokio::spawn(distlock::with_manager(new.clone(), {
        let old = old.clone();
        async move { migration::both::reduce(&old, 7).await }
    }));
    let held = async || {
        let state = new.inspect(KEY).await.expect("the server is up");
        !state.holders.is_empty()
    };
    eventually_async(LIMIT, held).await;
    assert!(!this_release.is_finished(), "the old lock is held");
    let next_release = new.lock(KEY).try_acquire().await.expect("the server is up");
    assert!(next_release.is_none(), "the new lock is held, too");

    old_release.release().await;
    let reduced = within(LIMIT, this_release).await.expect("no panic");
    reduced.expect("both were free in the end");
    assert!(!old_is_held(&server));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_both_waits_for_the_new_release() {
    let server = RedisServer::start();
    let (old, new) = managers(&server).await;
    let next_release = new.lock(KEY).acquire().await.expect("it is free");

    let this_release = tokio::spawn(distlock::with_manager(new.clone(), async move {
        migration::both::reduce(&old, 7).await
    }));
    let waits = async || new.inspect(KEY).await.expect("the server is up").queue_length == 1;
    eventually_async(LIMIT, waits).await;
    assert!(
        !old_is_held(&server),
        "the holder of the new lock takes it, so that no deadlock occurs"
    );

    next_release.release().await.expect("the server is up");
    let reduced = within(LIMIT, this_release).await.expect("no panic");
    reduced.expect("both were free in the end");
}
