//! A call that is dropped at any time leaves neither a lock nor a queue entry.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Lock;
use distlock_tests::{SplitMix, eventually_async};
use futures::FutureExt as _;

use crate::fixture::{Fixture, PATIENCE, SOON, ms};

/// Grant lease (at most 1 s) + grace (250 ms) + 1 s.
const CLEAN: Duration = SOON;

async fn nothing_left(fixture: &Fixture) {
    if fixture.is_redis() {
        eventually_async(CLEAN, async || fixture.left_over().is_empty()).await;
    }
}

/// Waits for a time between zero and `most`. The time differs at each call, and is finer than the
/// milliseconds of timers, so that calls are dropped in every state.
async fn some_time(most: Duration) {
    static STATE: AtomicU64 = AtomicU64::new(SplitMix::STEP);
    let drawn = SplitMix::mixed(STATE.fetch_add(SplitMix::STEP, Ordering::Relaxed));
    let until = Instant::now() + most * u32::try_from(drawn % 1_000).unwrap_or(0) / 1_000;
    while Instant::now() < until {
        tokio::task::yield_now().await;
    }
}

/// Waits for a lock for some time, and drops it at once if acquired. Returns true if it was.
async fn wants_for_some_time(lock: &Lock, most: Duration) -> bool {
    tokio::select! {
        biased;
        () = some_time(most) => false,
        result = lock.acquire() => result.is_ok(),
    }
}

for_each_store! {
    async fn dropped_after_any_time_while_free(store) {
        let manager = store.manager().await;
        let mut came = 0;
        for round in 0..200 {
            let lock = manager.lock(format!("k{round}"));
            came += u32::from(wants_for_some_time(&lock, ms(1)).await);
        }
        assert!(came < 200, "none was dropped in flight");
        for round in 0..200 {
            store.until_free(&format!("k{round}"), CLEAN).await;
        }
        nothing_left(store).await;
    }

    /// The lock is released at about the time at which the next waiter gives up.
    async fn dropped_after_any_time_while_handed_off(store) {
        let (holder, waiter) = (store.manager().await, store.manager().await);
        let (held, wanted) = (holder.lock("k"), waiter.lock("k").wait(PATIENCE));
        let mut came = 0;
        for _ in 0..200 {
            let guard = held.acquire().await.unwrap();
            let releasing = async {
                some_time(ms(1)).await;
                guard.release().await.unwrap();
            };
            let wanting = wants_for_some_time(&wanted, ms(2));
            came += u32::from(tokio::join!(releasing, wanting).1);
        }
        assert!(came < 200, "none was dropped in flight");
        store.until_free("k", CLEAN).await;
        nothing_left(store).await;
    }

    /// The same with more waiters. Their tasks are aborted.
    async fn aborted_waiters_leave_the_queue(store) {
        let managers = store.managers(3).await;
        let holder = store.hold("k").await;
        let mut waiters = Vec::new();
        for number in 0..30_usize {
            waiters.push(store.queued(managers[number % 3].lock("k")).await);
        }
        for waiter in &waiters {
            waiter.0.abort();
        }
        store.until_waiting("k", 0).await;
        assert!(store.inspect("k").await.holders.len() == 1);
        holder.release().await.unwrap();
        store.until_free("k", CLEAN).await;
        nothing_left(store).await;
    }

    /// A release continues after its future is dropped.
    async fn a_dropped_release_is_completed(store) {
        let manager = store.manager().await;
        for round in 0..20 {
            let key = format!("k{round}");
            let guard = manager.lock(&key).acquire().await.unwrap();
            // Dropped after its first poll.
            let _ = guard.release().now_or_never();
            store.until_free(&key, CLEAN).await;
        }
    }
}
