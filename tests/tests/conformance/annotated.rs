//! Annotated functions: the same locks, written as an attribute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock::{Error, FencingToken, LockManager, LossReason, distributed_lock, with_manager};

use crate::exclusion::Room;
use crate::fixture::{Fixture, PATIENCE, SOON, ms};
use crate::holding::Dropped;

/// A service with a manager of its own, as most have.
struct Shop {
    locks: LockManager,
    room: Room,
    tenant: String,
}

impl Shop {
    async fn new(fixture: &Fixture) -> Arc<Self> {
        Arc::new(Shop {
            locks: fixture.manager().await,
            room: Room::default(),
            tenant: "blue".into(),
        })
    }

    #[distributed_lock(key = "stock:<item_id>", wait = "20s", locks = self.locks)]
    async fn reduce(&self, item_id: u64, by: u64) -> Result<u64, Error> {
        assert_eq!(distlock::current().key(), format!("stock:{item_id}"));
        self.room.visit().await;
        Ok(by)
    }

    #[distributed_lock(key = "{tenant:<self.tenant>}:<name>", wait = "0s", locks = &self.locks)]
    async fn key_of(&self, name: &str) -> Result<String, Error> {
        let _ = name;
        Ok(distlock::current().key().to_owned())
    }

    /// Calls itself: a call that no proxy or aspect can overlook.
    #[distributed_lock(key = "depth", wait = "1s", locks = self.locks)]
    async fn descend(&self, left: u32) -> Result<FencingToken, Error> {
        if left == 0 {
            return Ok(distlock::current().fencing_token());
        }
        let below = Box::pin(self.descend(left - 1)).await?;
        assert_eq!(below, distlock::current().fencing_token());
        Ok(below)
    }

    #[distributed_lock(key = "job", wait = "0s", min_hold = "20s", locks = self.locks)]
    async fn job(&self, outcome: Result<u32, Error>) -> Result<u32, Error> {
        outcome
    }

    #[distributed_lock(key = "limited", max_hold = "200ms", locks = self.locks)]
    async fn too_long(&self, dropped: &AtomicBool) -> Result<(), Error> {
        let _flag = Dropped(dropped);
        std::future::pending().await
    }

    #[distributed_lock(
        key = "answer",
        wait = "0s",
        locks = self.locks,
        on_fail = |error| if error.is_busy() { 409 } else { 500 },
    )]
    async fn answer(&self) -> u16 {
        200
    }

    #[distributed_lock(key = "panics", locks = self.locks)]
    async fn panics(&self) -> Result<(), Error> {
        panic!("on purpose")
    }
}

#[distributed_lock(key = "token", wait = "1s")]
async fn token() -> Result<FencingToken, Error> {
    Ok(distlock::current().fencing_token())
}

#[distributed_lock(key = "outer", wait = "1s")]
async fn outer() -> Result<(FencingToken, FencingToken), Error> {
    let first = distlock::current().fencing_token();
    // Another function with another key, and the same key through another function.
    assert!(token().await? != first);
    Ok((first, inner().await?))
}

#[distributed_lock(key = "outer", wait = "1s")]
async fn inner() -> Result<FencingToken, Error> {
    Ok(distlock::current().fencing_token())
}

#[distributed_lock(key = "value:<value>", wait = "0s")]
async fn with_value(value: &str) -> Result<String, Error> {
    let _ = value;
    Ok(distlock::current().key().to_owned())
}

for_each_store! {
    async fn calls_of_many_instances_exclude_each_other(store) {
        let shop = Shop::new(store).await;
        let mut tasks = Vec::new();
        for locks in store.managers(4).await {
            for _ in 0..3 {
                let (locks, shop) = (locks.clone(), shop.clone());
                tasks.push(tokio::spawn(async move {
                    for by in 0..10 {
                        // The attribute's own manager rules; this one is a decoy.
                        let call = with_manager(locks.clone(), shop.reduce(7, by));
                        assert_eq!(call.await.unwrap(), by);
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(shop.room.visits(), 4 * 3 * 10);
        store.until_free("stock:7", SOON).await;
    }

    async fn a_lock_by_hand_is_the_same_lock(store) {
        let shop = Shop::new(store).await;
        let guard = store.hold("{tenant:blue}:books").await;
        let error = shop.key_of("books").await.unwrap_err();
        assert!(error.is_busy());
        assert_eq!(error.key(), Some("{tenant:blue}:books"));
        guard.release().await.unwrap();
        assert_eq!(shop.key_of("books").await.unwrap(), "{tenant:blue}:books");
        assert_eq!(shop.key_of("a:b c").await.unwrap(), "{tenant:blue}:a%3Ab%20c");
    }

    async fn nested_calls_re_enter(store) {
        let shop = Shop::new(store).await;
        shop.descend(4).await.unwrap();
        store.until_free("depth", SOON).await;
        let (first, second) = with_manager(store.manager().await, outer()).await.unwrap();
        assert_eq!(first, second);
        store.until_free("outer", SOON).await;
    }

    async fn joined_calls_inside_take_turns(store) {
        let shop = Shop::new(store).await;
        let lock = shop.locks.lock("stock:7");
        let body = lock.run(async |_| {
            let calls = tokio::join!(shop.reduce(7, 1), shop.reduce(7, 2), shop.reduce(7, 3));
            (calls.0.unwrap(), calls.1.unwrap(), calls.2.unwrap())
        });
        assert_eq!(body.await.unwrap(), (1, 2, 3));
        assert_eq!(shop.room.visits(), 3);
    }

    async fn with_manager_is_for_one_future_and_all_it_awaits(store) {
        let (first, second) = (store.manager().await, LockManager::memory());
        let guard = first.lock("token").acquire().await.unwrap();
        // The innermost decides.
        let nested = with_manager(first.clone(), with_manager(second.clone(), token()));
        nested.await.unwrap();
        let through_first = with_manager(first.clone(), async {
            let inside = with_manager(second.clone(), token()).await;
            (inside.is_ok(), token().await)
        });
        let (inside, after) = through_first.await;
        assert!(inside, "the inner one did not rule");
        assert!(after.unwrap_err().is_busy(), "the outer one did not come back");
        // A spawned task is outside.
        let spawned = with_manager(first.clone(), async { tokio::spawn(token()).await.unwrap() });
        assert!(matches!(spawned.await, Err(Error::NotInstalled)));
        assert!(matches!(token().await, Err(Error::NotInstalled)), "it leaked");
        // Tasks next to each other have one each.
        let (one, two) = tokio::join!(with_manager(first, token()), with_manager(second, token()));
        assert!(one.unwrap_err().is_busy());
        two.unwrap();
        guard.release().await.unwrap();
    }

    async fn a_failed_job_may_be_repeated_and_a_done_one_stays(store) {
        let shop = Shop::new(store).await;
        let failed = shop.job(Err(Error::NotInstalled)).await;
        assert!(matches!(failed, Err(Error::NotInstalled)), "the body's own error: {failed:?}");
        store.until_free("job", SOON).await;
        assert_eq!(shop.job(Ok(1)).await.unwrap(), 1);
        assert!(store.seen("job").await.holders().len() == 1);
        assert!(shop.job(Ok(2)).await.unwrap_err().is_busy(), "it ran twice");
    }

    async fn a_body_is_stopped_at_its_limit(store) {
        let shop = Shop::new(store).await;
        let dropped = AtomicBool::new(false);
        let error = shop.too_long(&dropped).await.unwrap_err();
        assert!(matches!(error, Error::HoldLimit { completed: false, .. }), "{error:?}");
        assert!(dropped.load(Ordering::SeqCst));
        store.until_free("limited", SOON).await;
    }

    async fn a_failure_may_become_any_value(store) {
        let shop = Shop::new(store).await;
        assert_eq!(shop.answer().await, 200);
        let guard = store.hold("answer").await;
        assert_eq!(shop.answer().await, 409);
        guard.release().await.unwrap();
        shop.locks.shutdown().await;
        assert_eq!(shop.answer().await, 500);
    }

    async fn a_panic_releases_and_goes_on(store) {
        let shop = Shop::new(store).await;
        let panicked = tokio::spawn(async move { shop.panics().await }).await;
        assert!(panicked.unwrap_err().is_panic());
        store.until_free("panics", SOON).await;
    }

    async fn a_call_that_is_dropped_releases(store) {
        let shop = Shop::new(store).await;
        let never = AtomicBool::new(false);
        let _ = tokio::time::timeout(ms(50), shop.too_long(&never)).await;
        store.until_free("limited", SOON).await;
    }

    async fn an_empty_value_locks_nothing(store) {
        let manager = store.manager().await;
        let error = with_manager(manager.clone(), with_value("")).await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains("<value>") && message.contains("value:<value>"), "{message}");
        assert_eq!(with_manager(manager.clone(), with_value(" ")).await.unwrap(), "value:%20");
        let long = "x".repeat(600);
        let error = with_manager(manager.clone(), with_value(&long)).await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
        assert!(error.to_string().contains("at most 512"), "{error}");
    }
}

/// Runs until it is told to end, whether the lock is there or not.
#[distributed_lock(key = "k", lease = "6s", on_lost = "finish", locks = locks)]
async fn finishes(locks: &LockManager, rounds: &AtomicU64) -> Result<bool, Error> {
    let held = distlock::current();
    rounds.fetch_add(1, Ordering::SeqCst);
    let error = distlock_tests::within(PATIENCE, held.lost()).await;
    assert!(
        matches!(
            error,
            Error::Lost {
                reason: LossReason::Gone,
                ..
            }
        ),
        "{error:?}"
    );
    for _ in 0..10 {
        rounds.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(ms(1)).await;
    }
    Ok(held.is_held())
}

#[distributed_lock(key = "k", lease = "6s", locks = locks)]
async fn stops(
    locks: &LockManager,
    started: &AtomicBool,
    dropped: &AtomicBool,
) -> Result<(), Error> {
    let _flag = Dropped(dropped);
    started.store(true, Ordering::SeqCst);
    std::future::pending().await
}

async fn delete_when(fixture: &Fixture, started: impl Fn() -> bool) {
    distlock_tests::eventually_async(PATIENCE, async || started()).await;
    fixture.raw().cmd(&["DEL", &fixture.name("lock", "k")]);
}

for_redis! {
    async fn on_lost_finish_returns_the_bodys_result(fixture) {
        let manager = fixture.manager().await;
        let rounds = AtomicU64::new(0);
        let started = || rounds.load(Ordering::SeqCst) == 1;
        let (result, ()) = tokio::join!(finishes(&manager, &rounds), delete_when(fixture, started));
        assert!(!result.unwrap(), "is_held() tells");
        assert_eq!(rounds.load(Ordering::SeqCst), 11, "it was stopped");
    }

    async fn on_lost_cancel_stops_the_body(fixture) {
        let manager = fixture.manager().await;
        let (flag, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        let started = || flag.load(Ordering::SeqCst);
        let call = stops(&manager, &flag, &dropped);
        let (result, ()) = tokio::join!(call, delete_when(fixture, started));
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Lost { completed: false, reason: LossReason::Gone, .. }),
            "{error:?}"
        );
        assert!(dropped.load(Ordering::SeqCst));
    }
}
