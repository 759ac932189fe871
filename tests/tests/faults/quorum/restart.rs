//! Servers that have forgotten what they knew, or may have.

use std::time::Duration;

use distlock::{Error, Outage};
use distlock_tests::{RedisQuorum, eventually_async};

use crate::kit::{LONG, lock_key, ms};
use crate::quorum::{connect, three, until_clean};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_does_not_vote_until_it_is_safe() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let lease = ms(1_500);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    quorum.server(0).kill();
    quorum.server(0).restart();
    let mut raw = quorum.server(0).client();
    // Somebody asks, and it knows from when it votes.
    let other = connect(&quorum).await;
    let busy = other.lock("k").try_acquire().await.unwrap();
    assert!(busy.is_none());
    eventually_async(LONG, async || raw.exists("distlock:epoch")).await;
    assert!(!raw.exists(&lock_key("k")));
    // The others are enough to go on.
    tokio::time::sleep(lease * 2).await;
    assert!(guard.is_held());
    // And it is repaired as soon as it votes.
    quorum.vote_at(0, "distlock");
    eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_have_just_started_say_how_long_they_do_not_vote() {
    let quorum = RedisQuorum::start(3);
    let manager = connect(&quorum).await;
    let lock = manager.lock("k").wait(Duration::ZERO);
    let error = lock.acquire().await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("votes in "), "{told}");
    match error {
        Error::Unavailable { outage, .. } => assert_eq!(outage, Outage::NotReady),
        other => panic!("{other}"),
    }
    until_clean(&quorum).await;
}
