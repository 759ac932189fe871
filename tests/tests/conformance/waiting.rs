//! How long calls wait, what they are told, and who may pass whom.

use std::time::{Duration, Instant, SystemTime};

use distlock::{Error, LockGuard, LockManager};
use distlock_tests::{eventually_async, within};

use crate::fixture::{LATE, PATIENCE, ms};

async fn refusal(manager: &LockManager, wait: Duration) -> (Error, Duration) {
    let started = Instant::now();
    let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
    (error, started.elapsed())
}

/// A busy machine may be late; a lock that is too slow is late each time.
async fn once_within(limit: Duration, acquire: impl AsyncFn() -> LockGuard) {
    let mut late = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let guard = acquire().await;
        let took = started.elapsed();
        guard.release().await.unwrap();
        if took < limit {
            return;
        }
        late.push(took);
    }
    panic!("never within {limit:?}: {late:?}");
}

for_each_store! {
    async fn a_wait_ends_in_busy_neither_early_nor_late(store) {
        let before = SystemTime::now() - ms(1_000);
        let holder = store.named("holder-7").await;
        let _guard = holder.lock("k").acquire().await.unwrap();
        let (error, elapsed) = refusal(&store.manager().await, ms(2_000)).await;
        assert!(elapsed >= ms(2_000), "after {elapsed:?}");
        assert!(elapsed < ms(2_000) + LATE, "after {elapsed:?}");
        assert!(error.is_busy() && error.is_retryable() && !error.is_lost());
        let message = error.to_string();
        assert!(message.contains("`k`") && message.contains("holder-7"), "{message}");
        assert!(message.contains("this very process"), "{message}");
        let [holder] = error.holders() else { panic!("{error:?}") };
        let Error::Busy { key, waited, .. } = &error else { panic!("{error:?}") };
        assert_eq!(key, "k");
        assert!(*waited >= ms(2_000) && *waited <= elapsed, "{waited:?}");
        assert_eq!(holder.client, "holder-7");
        assert!(holder.this_process);
        assert!(holder.held_since > before && holder.held_since < SystemTime::now() + ms(1_000));
        store.until_waiting("k", 0).await;
    }

    async fn a_short_wait_is_kept_too(store) {
        let _guard = store.hold("k").await;
        let manager = store.manager().await;
        for wait in [1, 5, 30, 60] {
            let (error, elapsed) = refusal(&manager, ms(wait)).await;
            assert!(error.is_busy() || error.is_unavailable(), "{error:?}");
            assert!(elapsed >= ms(wait) && elapsed < ms(wait) + LATE, "after {elapsed:?}");
        }
        store.until_waiting("k", 0).await;
    }

    async fn a_wait_of_zero_tries_once_and_never_queues(store) {
        let guard = store.hold("k").await;
        let manager = store.named("trier").await;
        let (error, elapsed) = refusal(&manager, Duration::ZERO).await;
        assert!(error.is_busy(), "{error:?}");
        assert!(elapsed < LATE, "after {elapsed:?}");
        assert_eq!(store.seen("k").await.waiters, 0);
        guard.release().await.unwrap();
        let guard = manager.lock("k").wait(Duration::ZERO).acquire().await.unwrap();
        assert_eq!(store.seen("k").await.holders()[0].client, "trier");
        guard.release().await.unwrap();
    }

    async fn trying_takes_a_free_lock_and_no_other(store) {
        let (first, second) = (store.manager().await, store.manager().await);
        let guard = first.lock("k").try_acquire().await.unwrap().expect("it is free");
        let started = Instant::now();
        assert!(second.lock("k").try_acquire().await.unwrap().is_none());
        assert!(first.lock("k").try_acquire().await.unwrap().is_none(), "not even its own manager");
        assert!(started.elapsed() < 2 * LATE);
        assert_eq!(store.seen("k").await.waiters, 0, "a try left an entry");
        guard.release().await.unwrap();
        let again = second.lock("k").try_acquire().await.unwrap();
        assert!(again.is_some_and(|guard| guard.is_held()));
    }

    /// The lock is free for a moment, for its holder has vanished, and somebody waits for it.
    async fn trying_never_passes_a_queue(store) {
        let (waiter, hasty) = (store.manager().await, store.manager().await);
        store.vanished_holder("k", ms(3_000)).await;
        let waiting = tokio::spawn(async move {
            waiter.lock("k").wait(PATIENCE).acquire().await.unwrap()
        });
        store.until_waiting("k", 1).await;
        let lock = hasty.lock("k");
        let mut tries = 0;
        let guard = within(PATIENCE, async {
            while !waiting.is_finished() {
                let passed = store.tried(&lock).await;
                assert!(passed.is_none(), "it passed the queue");
                tries += 1;
            }
            waiting.await.unwrap()
        })
        .await;
        assert!(guard.is_held() && tries > 0);
        guard.release().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_some());
    }

    /// Also an ask that would wait stands at the end, though the lock is free when it comes.
    async fn a_newcomer_never_passes_a_queue(store) {
        let (waiter, newcomer) = (store.manager().await, store.manager().await);
        store.vanished_holder("k", ms(3_000)).await;
        let waiting = tokio::spawn(async move {
            waiter.lock("k").wait(PATIENCE).acquire().await.unwrap()
        });
        store.until_waiting("k", 1).await;
        let lock = newcomer.lock("k").wait(ms(20));
        within(PATIENCE, async {
            while !waiting.is_finished() {
                assert!(lock.acquire().await.is_err(), "it passed the queue");
            }
        })
        .await;
        waiting.await.unwrap().release().await.unwrap();
    }

    async fn a_full_queue_refuses_at_once(store) {
        let _guard = store.hold("k").await;
        let small = store.builder().max_waiters(2).connect().await.unwrap();
        let mut waiting = Vec::new();
        for number in 1..=2 {
            let lock = small.lock("k").wait(PATIENCE);
            waiting.push(tokio::spawn(async move { lock.acquire().await }));
            store.until_waiting("k", number).await;
        }
        let (error, elapsed) = refusal(&small, PATIENCE).await;
        assert!(error.is_busy(), "{error:?}");
        assert!(elapsed < LATE, "after {elapsed:?}");
        let message = error.to_string();
        for part in ["its queue is full", "raise `max_waiters`"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(!message.contains("longer wait"), "{message}");
        // Another key has a queue of its own.
        assert!(small.lock("other").acquire().await.is_ok());
        // A place that becomes free can be taken.
        waiting.pop().unwrap().abort();
        store.until_waiting("k", 1).await;
        let lock = small.lock("k").wait(PATIENCE);
        let third = tokio::spawn(async move { lock.acquire().await });
        store.until_waiting("k", 2).await;
        third.abort();
        waiting.pop().unwrap().abort();
    }

    /// Nobody says that the lock is free; whoever waits finds out.
    async fn a_waiter_gets_the_lock_of_a_holder_that_vanished(store) {
        let manager = store.manager().await;
        // It expires, and is looked at twice a second.
        once_within(ms(600) + ms(500) + LATE, async || {
            store.vanished_holder("k", ms(600)).await;
            manager.lock("k").wait(PATIENCE).acquire().await.unwrap()
        })
        .await;
    }

    /// A lock that expires while nobody looks is free for the next who comes.
    async fn a_vanished_holder_leaves_a_free_lock(store) {
        store.vanished_holder("k", ms(300)).await;
        store.until_free("k", ms(300) + LATE).await;
        assert!(store.tried(&store.manager().await.lock("k")).await.is_some());
    }

    /// Whoever was handed the lock does not wait for it any more.
    async fn a_new_holder_is_no_waiter(store) {
        let manager = store.named("next").await;
        let lock = manager.lock("k").wait(PATIENCE);
        for _ in 0..5 {
            let first = store.hold("k").await;
            let waiting = lock.clone();
            let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            store.until_waiting("k", 1).await;
            first.release().await.unwrap();
            let guard = waiting.await.unwrap();
            let seen = store.seen("k").await;
            assert_eq!(seen.holders()[0].client, "next");
            assert_eq!(seen.waiters, 0);
            guard.release().await.unwrap();
        }
    }

    async fn inspecting_shows_holder_queue_and_token(store) {
        let nothing = store.seen("k").await;
        assert_eq!((nothing.holders(), nothing.waiters, nothing.last_token), (&[][..], 0, None));
        let holder = store.named("me").await;
        let guard = holder.lock("k").acquire().await.unwrap();
        let lock = store.manager().await.lock("k").wait(PATIENCE);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        store.until_waiting("k", 1).await;
        let seen = store.seen("k").await;
        assert_eq!(seen.holders()[0].client, "me");
        assert_eq!(seen.last_token, Some(guard.fencing_token()));
        waiting.abort();
        store.until_waiting("k", 0).await;
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        let after = store.seen("k").await;
        assert_eq!((after.holders(), after.last_token), (&[][..], Some(token)));
    }
}

for_redis! {
    async fn a_holder_of_another_process_is_named(fixture) {
        fixture.hold_elsewhere("k", "shop-2:4711", PATIENCE);
        let (error, _) = refusal(&fixture.manager().await, ms(50)).await;
        assert!(!error.to_string().contains("this very process"), "{error}");
        let [holder] = error.holders() else { panic!("{error:?}") };
        assert_eq!((holder.client.as_str(), holder.this_process), ("shop-2:4711", false));
    }

    /// The lock's key expires; nobody released it.
    async fn a_waiter_gets_a_lock_that_expires(fixture) {
        let lock = fixture.manager().await.lock("k").wait(PATIENCE);
        once_within(ms(600) + ms(500) + LATE, async || {
            fixture.hold_elsewhere("k", "gone", ms(600));
            lock.acquire().await.unwrap()
        })
        .await;
    }

    /// Somebody deletes the lock by hand while others wait for it.
    async fn a_waiter_gets_a_lock_that_is_deleted(fixture) {
        fixture.hold_elsewhere("k", "gone", PATIENCE);
        let lock = fixture.manager().await.lock("k").wait(PATIENCE);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        fixture.until_waiting("k", 1).await;
        fixture.raw().cmd(&["DEL", &fixture.name("lock", "k")]);
        let guard = within(ms(500) + LATE, waiting).await.unwrap();
        guard.release().await.unwrap();
    }

    /// One of its keys is gone (deleted, or evicted): whoever waits stands in the queue again.
    async fn a_waiter_comes_back_when_its_queue_is_lost(fixture) {
        let holder = fixture.hold("k").await;
        let lock = fixture.manager().await.lock("k").wait(PATIENCE);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        fixture.until_waiting("k", 1).await;
        let mut raw = fixture.raw();
        let (queue, entries) = (fixture.name("queue", "k"), fixture.name("entry", "k"));
        for command in [&["DEL", &queue, &entries][..], &["DEL", &queue]] {
            raw.cmd(command);
            // A look finds out, twice a second.
            let back = async || fixture.seen("k").await.waiters == 1;
            eventually_async(ms(1_000) + LATE, back).await;
        }
        holder.release().await.unwrap();
        within(ms(1_000) + LATE, waiting).await.unwrap().release().await.unwrap();
    }

    /// What is lost is written again by the next who comes, and lives no longer than it should.
    async fn entries_that_are_lost_are_written_again(fixture) {
        let holder = fixture.hold("k").await;
        let manager = fixture.manager().await;
        let entries = fixture.name("entry", "k");
        let mut tasks = Vec::new();
        for (number, wait) in [PATIENCE, PATIENCE / 2].into_iter().enumerate() {
            let lock = manager.lock("k").wait(wait);
            tasks.push(tokio::spawn(async move {
                lock.acquire().await.unwrap().release().await.unwrap();
            }));
            fixture.until_waiting("k", number as u64 + 1).await;
            assert!(fixture.raw().pttl(&entries) > 0, "it lives for ever");
            if number == 0 {
                assert_eq!(fixture.raw().cmd(&["DEL", &entries]).int(), 1);
            }
        }
        holder.release().await.unwrap();
        for task in tasks {
            within(ms(1_000) + LATE, task).await.unwrap();
        }
        assert_eq!(fixture.left_over(), Vec::<String>::new());
    }
}
