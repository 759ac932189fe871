//! The same locks, acquired by the attribute.

use std::sync::Arc;

use distlock::{Error, FencingToken, LockManager, distributed_lock, with_manager};

use crate::exclusion::Room;
use crate::fixture::{Fixture, SOON};

/// A service that contains its manager, as most services do.
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

    #[distributed_lock(key = "stock:<item_id>", wait = "20s", manager = self.locks)]
    async fn reduce(&self, item_id: u64, by: u64) -> Result<u64, Error> {
        assert_eq!(distlock::current().key(), format!("stock:{item_id}"));
        self.room.visit().await;
        Ok(by)
    }

    #[distributed_lock(key = "{tenant:<self.tenant>}:<name>", wait = "0s", manager = &self.locks)]
    async fn key_of(&self, name: &str) -> Result<String, Error> {
        let _ = name;
        Ok(distlock::current().key().to_owned())
    }

    /// Calls itself. A proxy or an aspect would miss such a call.
    #[distributed_lock(key = "depth", wait = "1s", manager = self.locks)]
    async fn descend(&self, left: u32) -> Result<FencingToken, Error> {
        if left == 0 {
            return Ok(distlock::current().fencing_token());
        }
        let below = Box::pin(self.descend(left - 1)).await?;
        assert_eq!(below, distlock::current().fencing_token());
        Ok(below)
    }
}

#[distributed_lock(key = "token", wait = "1s")]
async fn token() -> Result<FencingToken, Error> {
    Ok(distlock::current().fencing_token())
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
                        // The attribute names its manager, so the one installed here is not used.
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
    }

    async fn with_manager_is_for_one_future_and_all_it_awaits(store) {
        let (first, second) = (store.manager().await, LockManager::in_memory());
        let guard = first.lock("token").acquire().await.unwrap();
        // The innermost manager applies.
        let nested = with_manager(first.clone(), with_manager(second.clone(), token()));
        nested.await.unwrap();
        let through_first = with_manager(first.clone(), async {
            let inside = with_manager(second.clone(), token()).await;
            (inside.is_ok(), token().await)
        });
        let (inside, after) = through_first.await;
        assert!(inside, "the inner one did not rule");
        assert!(after.unwrap_err().is_busy(), "the outer one did not come back");
        // A spawned task does not inherit the manager.
        let spawned = with_manager(first.clone(), async { tokio::spawn(token()).await.unwrap() });
        assert!(matches!(spawned.await, Err(Error::NotInstalled)));
        assert!(matches!(token().await, Err(Error::NotInstalled)), "it leaked");
        // Concurrent futures of one task each have their own manager.
        let (one, two) = tokio::join!(with_manager(first, token()), with_manager(second, token()));
        assert!(one.unwrap_err().is_busy());
        two.unwrap();
        guard.release().await.unwrap();
    }
}
