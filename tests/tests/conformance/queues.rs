//! The queue of a lock: its order, its limit, and its view. A quorum has no queues.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use distlock::{Error, HeldLock, LockState};
use distlock_tests::within;

use crate::fixture::{LATE, PATIENCE, SOON, ms};
use crate::waiting::refusal;

for_each_queueing_store! {
    /// Waiters are served in order, also those behind a waiter that left.
    async fn the_first_caller_is_served_first(store) {
        const WAITERS: usize = 12;
        const LEAVING: [usize; 2] = [0, 5];
        let managers = store.managers(3).await;
        let holder = store.hold("k").await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for place in 0..WAITERS {
            let lock = managers[place * 7 % 3].lock("k").wait(PATIENCE);
            let order = order.clone();
            tasks.push(tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                order.lock().unwrap().push(place);
                // A later waiter must not pass even if it is faster.
                tokio::task::yield_now().await;
                guard.release().await.unwrap();
            }));
            store.until_waiting("k", place as u64 + 1).await;
        }
        for place in LEAVING {
            tasks[place].abort();
        }
        store.until_waiting("k", (WAITERS - LEAVING.len()) as u64).await;
        holder.release().await.unwrap();
        for (place, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.is_ok(), !LEAVING.contains(&place), "{place}");
        }
        let order = order.lock().unwrap().clone();
        let expected = (0..WAITERS).filter(|place| !LEAVING.contains(place));
        assert_eq!(order, expected.collect::<Vec<_>>());
    }

    /// The holder has vanished, the lock expires, and a queued call waits for its grant. Neither a
    /// try nor a newcomer passes it.
    async fn no_call_overtakes_a_queue(store) {
        let (hasty, newcomer) = (store.manager().await, store.manager().await);
        store.vanished_holder("k", ms(3_000)).await;
        let waiter = store.waiter("k").await;
        let (lock, short) = (hasty.lock("k"), newcomer.lock("k").wait(ms(20)));
        let mut tries = 0;
        // Concurrently, because successive tries hit the moment at which the lock is free.
        let trying = async {
            while !waiter.0.is_finished() {
                assert!(store.tried(&lock).await.is_none(), "a try passed");
                tries += 1;
            }
        };
        let coming = async {
            while !waiter.0.is_finished() {
                assert!(short.acquire().await.is_err(), "a newcomer passed the queue");
            }
        };
        within(PATIENCE, async { tokio::join!(trying, coming) }).await;
        let guard = waiter.guard().await;
        assert!(guard.is_held() && tries > 0);
        guard.release().await.unwrap();
        // The last newcomer may still be leaving the queue.
        store.until_free("k", SOON).await;
        assert!(store.tried(&lock).await.is_some());
    }

    async fn a_full_queue_refuses_at_once(store) {
        let _guard = store.hold("k").await;
        let small = store.connect(store.builder().max_waiters(2)).await;
        let first = store.queued(small.lock("k")).await;
        let second = store.queued(small.lock("k")).await;
        let (error, elapsed) = refusal(&small, PATIENCE).await;
        assert!(error.is_busy(), "{error:?}");
        assert!(elapsed < LATE, "after {elapsed:?}");
        let message = error.to_string();
        for part in ["its queue is full", "raise `max_waiters`"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(!message.contains("longer wait"), "{message}");
        let nothing = async |_: HeldLock| Ok::<_, Error>(());
        let tried = small.lock("k").wait(PATIENCE).try_run(nothing).await;
        assert!(matches!(tried, Err(Error::QueueFull { .. })), "no skip: {tried:?}");
        // Another key has its own queue.
        assert!(small.lock("other").acquire().await.is_ok());
        // A place that becomes free can be taken.
        second.0.abort();
        store.until_waiting("k", 1).await;
        let third = store.queued(small.lock("k")).await;
        third.0.abort();
        first.0.abort();
    }

    async fn waiters_are_named_in_their_order(store) {
        let began = SystemTime::now();
        let guard = store.hold("k").await;
        let mut calls = Vec::new();
        for name in ["first", "second client", "third"] {
            calls.push(store.queued(store.named(name).await.lock("k")).await);
        }
        let state = store.inspect("k").await;
        let names: Vec<_> = state.waiters.iter().map(|waiter| waiter.client.clone()).collect();
        assert_eq!(names, ["first", "second client", "third"]);
        for waiter in &state.waiters {
            // The servers share this machine's clock.
            let since = waiter.waiting_since.duration_since(began - ms(1_000));
            assert!(since.unwrap() < Duration::from_secs(300), "{waiter:?}");
            assert!(waiter.this_process);
        }
        assert!(state.waiters.is_sorted_by_key(|waiter| waiter.waiting_since));
        assert_eq!(state.holders[0].fencing_token, Some(guard.fencing_token()));
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<LockState>(&json).unwrap(), state, "{json}");
        guard.release().await.unwrap();
        for call in calls {
            call.guard().await.release().await.unwrap();
        }
        let state = store.inspect("k").await;
        assert_eq!((state.expires_in, state.waiters), (None, vec![]));
    }
}
