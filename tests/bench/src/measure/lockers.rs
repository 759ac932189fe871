//! Locks that are put under a [`crate::load`] here: ours, and the simplest that waits.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Lock, LockGuard};

use crate::baseline::Bare;
use crate::load::Locker;

/// Between two looks at a key that is taken.
const POLL: Duration = Duration::from_millis(2);

#[derive(Clone)]
pub(super) struct Ours(pub(super) Lock);

impl Locker for Ours {
    type Guard = LockGuard;

    async fn acquire(&self) -> anyhow::Result<Self::Guard> {
        Ok(self.0.acquire().await?)
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

/// `SET NX PX` until it succeeds, and compare-and-delete.
#[derive(Clone)]
pub(super) struct Polling {
    pub(super) bare: Bare,
    pub(super) key: Arc<str>,
    pub(super) owner: Arc<str>,
}

impl Locker for Polling {
    type Guard = ();

    async fn acquire(&self) -> anyhow::Result<()> {
        loop {
            let (key, owner) = (self.key.clone(), self.owner.clone());
            if self.bare.clone().try_set(key, owner).await? {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn release(&self, (): ()) -> anyhow::Result<()> {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        self.bare.clone().delete(key, owner).await
    }
}
