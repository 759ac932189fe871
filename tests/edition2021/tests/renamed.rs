//! A crate that renames distlock, and has another item with the original name.

#![deny(warnings, clippy::all, clippy::pedantic)]

use distlock_renamed::{distributed_lock, Error, LockManager};

/// A module with the crate's original name.
mod distlock {
    pub(crate) fn current() -> &'static str {
        "another"
    }
}

struct Shop {
    name: String,
    locks: LockManager,
}

impl Shop {
    #[distributed_lock(
        key = "renamed:<self.name>:<n>",
        lease = "15s",
        wait = "0s",
        max_hold = "2h",
        min_hold = "1h",
        manager = self.locks,
        on_lost = "finish",
        crate = ::distlock_renamed
    )]
    async fn with_all_arguments(&self, n: u8) -> Result<String, Error> {
        let held = distlock_renamed::current();
        Ok(format!("{n} {} {}", held.key(), distlock::current()))
    }

    #[distributed_lock(key = "renamed:<self.name>", manager = self.locks, crate = ::distlock_renamed)]
    async fn with_little(&self) -> Result<bool, Error> {
        let key = distlock_renamed::current().key().to_owned();
        let locks = self.locks.clone();
        // In its own task, because this one would re-enter the lock.
        let other = tokio::spawn(async move { locks.lock(key).try_acquire().await });
        Ok(other.await.expect("no panic")?.is_none())
    }

    #[distributed_lock(
        key = "renamed:once",
        once_for = self.name,
        record_ttl = "1h",
        on_busy = "skip",
        manager = self.locks,
        crate = ::distlock_renamed
    )]
    async fn once(&self) -> Result<Option<u8>, Error> {
        Ok(Some(1))
    }

    #[distributed_lock(
        key = "renamed:<self.name>:on-error",
        manager = self.locks,
        on_error = |error: Error| error.is_retryable(),
        min_hold = "1ms",
        crate = ::distlock_renamed
    )]
    async fn with_on_error(&self) -> bool {
        distlock_renamed::current().is_held()
    }
}

#[tokio::test]
async fn the_crate_is_found_at_the_path_in_the_attribute() -> Result<(), Error> {
    let shop = Shop {
        name: "shop".to_owned(),
        locks: LockManager::in_memory(),
    };
    let first = shop.with_all_arguments(7).await?;
    assert_eq!(first, "7 renamed:shop:7 another");
    let again = shop.with_all_arguments(7).await;
    assert!(again.is_err_and(|error| error.is_busy()), "not held");
    assert!(shop.with_little().await?, "another client got the lock");
    assert!(shop.with_on_error().await);
    assert_eq!(shop.once().await?, Some(1));
    assert_eq!(shop.once().await?, None);
    shop.locks.shutdown().await;
    assert!(!shop.with_on_error().await);
    Ok(())
}
