//! Callers of one lock, with all servers or with one missing.

use distlock::{Error, LockManager, LossReason, RevokeOutcome};
use distlock_tests::{Directions, RedisQuorum, RedisServer, eventually_async};
use futures::future::join_all;

use crate::cluster::callers::Crowd;
use crate::quorum::stage::{Fault, Stage};
use crate::quorum::{connect, taken_at, three, until_clean, until_clean_at, until_held_at};
use crate::support::{LONG, acquire_later, connect_patiently, fence_key, give_back, hold, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_the_state_of_each_server() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let guard = hold(&manager, "k", LONG).await;
    until_held_at(&quorum, 0..3, &guard).await;
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
        let token = is_there.then(|| guard.fencing_token());
        assert_eq!(server.last_fencing_token, token, "{server:?}");
    }
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

/// No call waits for more than a minute and a half, also when a server fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_no_call_starves_and_no_two_share() {
    let quorum = three();
    let crowd = Crowd::start(&quorum.url(), &["k".to_owned()], 16, LONG, Result::unwrap).await;
    eventually_async(LONG * 2, async || crowd.turns() > 5).await;
    quorum.server(1).kill();
    let _managers = crowd.end().await;
    until_clean(&quorum).await;
}

/// Each of several calls may get a part of the servers. If all of them gave up, none would do the
/// work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_the_calls_that_try_a_free_lock_gets_it() {
    const ROUNDS: usize = 200;
    let quorum = three();
    let managers = join_all((0..8).map(|_| connect(&quorum))).await;
    let mut not_won = 0;
    for _ in 0..ROUNDS {
        let tries = managers.iter().map(|manager| {
            let lock = manager.lock("k");
            tokio::spawn(async move { lock.try_acquire().await })
        });
        let tried = join_all(tries).await.into_iter().map(Result::unwrap);
        let won: Vec<_> = tried
            .filter_map(|tried| tried.unwrap_or_default())
            .collect();
        assert!(won.len() <= 1, "two holders at once");
        not_won += usize::from(won.is_empty());
        for guard in won {
            guard.release().await.unwrap();
        }
    }
    println!("{not_won} of {ROUNDS} rounds were won by none of the calls");
    assert_eq!(not_won, 0);
    until_clean(&quorum).await;
}

/// A server that does not answer may have given the lock nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_is_released_on_every_server() {
    let stage = Stage::new(Fault::RepliesLost, &[2]).await;
    let lock = |key| stage.subject.lock(key).lease(ms(60_000));
    for (key, strikes) in [("answered", false), ("unanswered", true)] {
        for place in [0, 1] {
            taken_at(&stage.quorum, place, key);
        }
        if strikes {
            stage.strike();
        }
        let tried = lock(key).try_acquire().await;
        assert!(matches!(tried, Ok(None)), "{tried:?}");
        let mut raw = stage.quorum.server(2).client();
        eventually_async(LONG, async || raw.exists(&fence_key(key))).await;
        stage.stop();
        until_clean_at(&stage.quorum, 2).await;
    }
}

/// The first client reaches only a server whose clock is ahead, where its command arrives after the
/// token that it proposes. The second client reaches only a server that knows neither. The server
/// that both reach must know the token of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_majorities_with_different_clocks() {
    let fast = RedisServer::builder().own_clock().start();
    fast.step_clock(true, ms(60_000));
    let quorum = RedisQuorum::of([RedisServer::start(), fast, RedisServer::start()]);
    quorum.vote("distlock");
    let [to_both, to_fast, to_slow, to_none] =
        [0, 1, 2, 0].map(|place| quorum.server(place).proxy());
    to_fast.delay(Directions::ToServer, ms(300));
    to_none.refuse_connections(true);
    let managers = [&to_fast, &to_slow].map(|own| {
        let url = RedisQuorum::url_at([&to_both, own, &to_none].map(|proxy| proxy.port()));
        LockManager::connect_lazy(&url).unwrap()
    });
    let mut last = None;
    for _ in 0..5 {
        for manager in &managers {
            let guard = hold(manager, "k", LONG).await;
            let next = Some(guard.fencing_token());
            assert!(next > last, "{next:?} after {last:?}");
            last = next;
            guard.release().await.unwrap();
        }
    }
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

/// The calls of a client take turns. A task that keeps its guard although its hold has ended does
/// not keep the turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_outlives_its_hold_delays_no_call_of_its_client() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let kept = hold(&manager, "k", ms(1_000)).await;
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    let revoked = connect(&quorum).await.revoke("k").await.unwrap();
    assert_ne!(revoked.outcome, RevokeOutcome::NotHeld);
    give_back(waiting).await;
    drop(kept);
    until_clean(&quorum).await;
}
