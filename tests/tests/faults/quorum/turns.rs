//! The order of callers, with all servers or with one missing.

use std::time::Instant;

use distlock::{Error, LockManager, LossReason, RevokeOutcome};
use distlock_tests::{Directions, Proxy, RedisQuorum, eventually_async};

use crate::cluster::callers::{Crowd, Queue};
use crate::quorum::{
    connect, three, until_clean, until_held_at, until_queued_at, until_queued_everywhere,
};
use crate::support::{self, LONG, acquire_later, connect_patiently, give_back, lock_key, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_the_state_of_each_server() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let queue = Queue::start(&quorum.url(), quorum.server(0), "k", LONG, 1).await;
    until_held_at(&quorum, 0..3, &queue.guard).await;
    until_queued_everywhere(&quorum, "k", 1).await;
    quorum.server(1).kill();
    let seen = async || manager.inspect("k").await.unwrap();
    eventually_async(LONG, async || seen().await.servers[1].error.is_some()).await;
    let seen = seen().await;
    assert_eq!((seen.holders.len(), seen.servers.len()), (1, 3));
    for (place, server) in seen.servers.iter().enumerate() {
        let port = quorum.server(place).port().to_string();
        assert!(server.address.ends_with(&port), "{server:?}");
        let is_there = place != 1;
        assert_eq!(server.error.is_none(), is_there, "{server:?}");
        assert_eq!(server.holder.is_some(), is_there, "{server:?}");
        assert_eq!(server.queue_length, u64::from(is_there), "{server:?}");
        let token = is_there.then(|| queue.guard.fencing_token());
        assert_eq!(server.last_fencing_token, token, "{server:?}");
    }
    let _managers = queue.serve().await;
    until_clean(&quorum).await;
}

/// This holds when a server fails, too. With two left, callers that have one vote each make no
/// progress unless one of them yields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_no_call_starves_and_no_two_share() {
    let quorum = three();
    let crowd = Crowd::start(&quorum.url(), &["k".to_owned()], 4, LONG, Result::unwrap).await;
    eventually_async(LONG, async || crowd.turns() > 5).await;
    quorum.server(1).kill();
    let _managers = crowd.end().await;
    until_clean(&quorum).await;
}

/// Connects a manager to the third server by this proxy, and to the others directly.
async fn connect_by(quorum: &RedisQuorum, proxy: &Proxy) -> LockManager {
    let [one, two] = [0, 1].map(|place| quorum.server(place).port());
    support::connect(&RedisQuorum::url_at([one, two, proxy.port()])).await
}

/// The second caller may reach a server first, and gets the lock there at once. The holder, which
/// could not acquire there, gets it in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_for_a_waiter_is_yielded_to_the_holder() {
    let quorum = three();
    let proxy = quorum.server(2).proxy();
    let holder = connect_by(&quorum, &proxy).await;
    // Held at two servers; no command arrives at the third.
    proxy.drop_data(Directions::ToServer, true);
    let lock = holder.lock("k").lease(ms(3_000));
    let guard = lock.acquire().await.unwrap();
    // The waiter's lease there would outlast the test.
    let waiting = acquire_later(&connect(&quorum).await, "k", ms(30_000), LONG);
    let mut raw = quorum.server(2).client();
    eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
    proxy.heal();
    until_held_at(&quorum, 2..3, &guard).await;
    until_queued_at(&quorum, 2, "k", 1).await;
    guard.release().await.unwrap();
    give_back(waiting).await;
    until_clean(&quorum).await;
}

/// Without a confirmation the grant would expire after a second, before the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_during_an_acquire_lasts_for_the_whole_lease() {
    let quorum = three();
    let holder = connect(&quorum).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    until_held_at(&quorum, 0..3, &guard).await;
    let proxy = quorum.server(2).proxy();
    let waiter = connect_by(&quorum, &proxy).await;
    // One server has not answered the acquire yet when the others hand off.
    proxy.stop_reading(Directions::ToClient, true);
    let waiting = acquire_later(&waiter, "k", ms(20_000), LONG);
    for place in 0..2 {
        until_queued_at(&quorum, place, "k", 1).await;
    }
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().0.unwrap();
    proxy.stop_reading(Directions::ToClient, false);
    let (began, mut raw) = (Instant::now(), quorum.server(0).client());
    while began.elapsed() < ms(2_000) {
        assert!(guard.is_held() && raw.exists(&lock_key("k")));
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

/// The first server that marks the lock as revoked notifies the holder. Its release reaches the
/// other servers before the operator's command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_all_servers_mark_the_revocation_is_no_error() {
    let quorum = three();
    let lock = connect(&quorum).await.lock("k");
    let guard = lock.acquire().await.unwrap();
    let running = tokio::spawn(async move { (guard.lost().await, guard.release().await) });
    let proxies = quorum.proxies();
    let url = RedisQuorum::url_at(proxies.iter().map(|proxy| proxy.port()));
    let operator = connect_patiently(url).await.unwrap();
    for proxy in &proxies[1..] {
        proxy.delay(Directions::ToServer, ms(300));
    }
    let unlocked = operator.revoke("k").wait(LONG).await.unwrap();
    assert_eq!(unlocked.outcome, RevokeOutcome::Released);
    let (error, _) = running.await.unwrap();
    let is_revoked = |reason: &LossReason| matches!(reason, LossReason::Revoked { .. });
    let is_reported = matches!(&error, Error::Lost { reason, .. } if is_revoked(reason));
    assert!(is_reported, "{error:?}");
    until_clean(&quorum).await;
}
