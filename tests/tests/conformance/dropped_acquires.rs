//! A call that is dropped at any await leaves neither a lock nor a queue entry.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{Lock, LockManager};
use distlock_tests::eventually_async;

use crate::fixture::{Fixture, PATIENCE, SOON, ms};

/// Grant lease (at most 1 s) + grace (250 ms) + 1 s.
const CLEAN: Duration = SOON;

/// Polls a future up to `times` times, each time that it is woken, and drops it.
pub(crate) async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The obstacle that the dropped call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Nothing,
    /// Another client holds the lock all the time.
    Holder,
    /// Another client holds the lock, and releases it once the call is queued.
    Release,
}

/// Drops a call after `polls` polls, and returns whether it had completed.
async fn drop_after(
    fixture: &Fixture,
    manager: &LockManager,
    obstacle: Obstacle,
    series: usize,
    polls: usize,
) -> bool {
    let key = format!("{obstacle:?}-{series}-{polls}");
    let holder = match obstacle {
        Obstacle::Nothing => None,
        _ => Some(fixture.hold(&key).await),
    };
    let lock = manager.lock(&key).wait(ms(300));
    let call = async {
        match poll_times(lock.acquire(), polls).await {
            Some(result) => {
                drop(result);
                true
            }
            None => false,
        }
    };
    let ended = if obstacle == Obstacle::Release {
        let release = async {
            // The call may be dropped before it is queued.
            let _ = tokio::time::timeout(ms(100), fixture.until_waiting(&key, 1)).await;
            if let Some(holder) = holder {
                holder.release().await.unwrap();
            }
        };
        tokio::join!(call, release).0
    } else {
        let ended = call.await;
        if let Some(holder) = holder {
            // The queue must become empty although the lock is still held.
            fixture.until_waiting(&key, 0).await;
            holder.release().await.unwrap();
        }
        ended
    };
    fixture.until_free(&key, CLEAN).await;
    ended
}

/// Drops a call after one poll, another after two, and so on, until one completes. On a busy
/// machine, the first poll may already find the reply. The series then starts again, because no
/// call was dropped.
async fn drop_after_every_poll(fixture: &Fixture, obstacle: Obstacle) {
    let manager = fixture.manager().await;
    for series in 0..100 {
        let mut polls = 1;
        while !drop_after(fixture, &manager, obstacle, series, polls).await {
            polls += 1;
            assert!(polls < 50, "it never finished");
        }
        if polls > 1 {
            return nothing_left(fixture).await;
        }
    }
    let in_place = fixture.is_memory() && matches!(obstacle, Obstacle::Nothing);
    assert!(
        in_place,
        "each call finished in its first poll: nothing was tested"
    );
}

async fn nothing_left(fixture: &Fixture) {
    if fixture.is_redis() || fixture.is_quorum() {
        eventually_async(CLEAN, async || fixture.left_over().is_empty()).await;
    }
}

/// Waits for a time between zero and `most`. The time differs at each call, and is finer than the
/// milliseconds of timers, so that calls are dropped in every state.
async fn some_time(most: Duration) {
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let mut x = STATE.load(Ordering::Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    STATE.store(x, Ordering::Relaxed);
    let until = Instant::now() + most * u32::try_from(x % 1_000).unwrap_or(0) / 1_000;
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
    async fn dropped_after_any_number_of_polls_while_free(store) {
        drop_after_every_poll(store, Obstacle::Nothing).await;
    }

    async fn dropped_after_any_number_of_polls_while_held(store) {
        drop_after_every_poll(store, Obstacle::Holder).await;
    }

    async fn dropped_after_any_number_of_polls_while_handed_off(store) {
        drop_after_every_poll(store, Obstacle::Release).await;
    }

    async fn dropped_after_any_time_while_free(store) {
        let manager = store.manager().await;
        let mut came = 0;
        for round in 0..200 {
            let lock = manager.lock(format!("k{round}"));
            came += u32::from(wants_for_some_time(&lock, ms(1)).await);
        }
        // A free lock in this process is acquired in the first poll.
        assert!(came < 200 || store.is_memory(), "none was dropped in flight");
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
            let _ = poll_times(guard.release(), 1).await;
            store.until_free(&key, CLEAN).await;
        }
    }
}
