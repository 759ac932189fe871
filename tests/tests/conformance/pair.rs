//! Two clients of one store, in paused time. CONTRIBUTING.md shows the first test.

use std::time::Duration;

use distlock::__inside::Pair;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_released_lock_is_handed_to_the_waiter_at_once() {
    let pair = Pair::default();
    let held = pair.a.lock("k").acquire().await.unwrap();
    let waiting = pair.queue(pair.b.lock("k")).await;
    let released = Instant::now();
    held.release().await.unwrap();
    let handed_on = waiting.await.unwrap().unwrap();
    assert!(handed_on.is_held() && released.elapsed() == Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_live_client_keeps_its_lock_for_hours() {
    let pair = Pair::default();
    let held = pair.a.lock("k").acquire().await.unwrap();
    let other = pair.b.lock("k").wait(10 * HOUR);
    assert!(other.acquire().await.unwrap_err().is_busy());
    held.release().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_some());
}

/// After the lease and its grace period, the next queue check finds the lock free.
#[tokio::test(start_paused = true)]
async fn the_lock_of_a_crashed_client_expires() {
    let pair = Pair::default();
    let held = pair.a.lock("k").lease(HOUR).acquire().await.unwrap();
    pair.crash_a();
    let crashed = Instant::now();
    let next = pair.b.lock("k").wait(2 * HOUR).acquire().await;
    let free_after = crashed.elapsed() - HOUR;
    assert!(next.is_ok() && !held.is_held());
    assert!((10..12).contains(&free_after.as_secs()), "{free_after:?}");
}

/// A call that is served too early keeps the lock, so that the one before it gives up.
#[tokio::test(start_paused = true)]
async fn waiters_of_both_clients_are_served_in_order() {
    let pair = Pair::default();
    let held = pair.a.lock("k").acquire().await.unwrap();
    let mut calls = Vec::new();
    for client in [&pair.b, &pair.a, &pair.b] {
        calls.push(pair.queue(client.lock("k")).await);
    }
    held.release().await.unwrap();
    for call in calls {
        let served = call.await.unwrap().unwrap();
        served.release().await.unwrap();
    }
}
