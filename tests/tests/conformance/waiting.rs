//! How long calls wait, and what they return.

use std::time::{Duration, Instant, SystemTime};

use distlock::{Error, LockManager};
use distlock_tests::{eventually_async, within};

use crate::fixture::{LATE, PATIENCE, ms};

pub(crate) async fn refusal(manager: &LockManager, wait: Duration) -> (Error, Duration) {
    let started = Instant::now();
    let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
    (error, started.elapsed())
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
        assert!(message.contains("(this process"), "{message}");
        let [holder] = error.holders() else { panic!("{error:?}") };
        let Error::Busy { key, waited, .. } = &error else { panic!("{error:?}") };
        assert_eq!(key, "k");
        assert!(*waited >= ms(2_000) && *waited <= elapsed, "{waited:?}");
        assert_eq!(holder.client, "holder-7");
        assert!(holder.this_process);
        assert!(holder.held_since > before && holder.held_since < SystemTime::now() + ms(1_000));
        for wait in [1, 5, 30, 60] {
            let (error, elapsed) = refusal(&store.manager().await, ms(wait)).await;
            assert!(error.is_busy() || error.is_unavailable(), "{error:?}");
            assert!(elapsed >= ms(wait) && elapsed < ms(wait) + LATE, "after {elapsed:?}");
        }
        store.until_waiting("k", 0).await;
    }

    async fn a_try_and_a_wait_of_zero_take_a_free_lock_and_never_queue(store) {
        let (first, second) = (store.named("trier").await, store.manager().await);
        let guard = first.lock("k").try_acquire().await.unwrap().expect("it is free");
        let started = Instant::now();
        assert!(second.lock("k").try_acquire().await.unwrap().is_none());
        assert!(first.lock("k").try_acquire().await.unwrap().is_none(), "not even its own manager");
        let (error, _) = refusal(&second, Duration::ZERO).await;
        assert!(error.is_busy(), "{error:?}");
        assert!(started.elapsed() < 3 * LATE);
        assert_eq!(store.inspect("k").await.queue_length, 0, "a try left an entry");
        guard.release().await.unwrap();
        let guard = first.lock("k").wait(Duration::ZERO).acquire().await.unwrap();
        assert_eq!(store.inspect("k").await.holders[0].client, "trier");
        guard.release().await.unwrap();
        let again = second.lock("k").try_acquire().await.unwrap();
        assert!(again.is_some_and(|guard| guard.is_held()));
    }
}

for_redis! {
    async fn a_holder_of_another_process_is_named(fixture) {
        fixture.hold_elsewhere("k", "shop-2:4711", PATIENCE);
        let (error, _) = refusal(&fixture.manager().await, ms(50)).await;
        assert!(!error.to_string().contains("(this process"), "{error}");
        let [holder] = error.holders() else { panic!("{error:?}") };
        assert_eq!((holder.client.as_str(), holder.this_process), ("shop-2:4711", false));
    }

    /// One or both keys of a queue are deleted or evicted, and the waiter queues again.
    async fn a_waiter_comes_back_when_its_queue_is_lost(fixture) {
        let holder = fixture.hold("k").await;
        let waiter = fixture.waiter("k").await;
        let mut raw = fixture.raw();
        let (queue, entries) = (fixture.name("queue", "k"), fixture.name("entry", "k"));
        for command in [&["DEL", &queue, &entries][..], &["DEL", &queue]] {
            raw.cmd(command);
            // A queue check, twice a second, finds the loss.
            let back = async || fixture.inspect("k").await.queue_length == 1;
            eventually_async(ms(1_000) + LATE, back).await;
        }
        holder.release().await.unwrap();
        let guard = within(ms(1_000) + LATE, waiter.0).await.unwrap();
        guard.unwrap().release().await.unwrap();
    }

    /// The next waiter writes the lost entries key again, with a TTL.
    async fn lost_entries_are_written_again(fixture) {
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
            assert!(fixture.raw().pttl(&entries) > 0, "it never expires");
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
