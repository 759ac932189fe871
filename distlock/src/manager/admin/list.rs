//! All locks that are held, for those who ask.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use crate::error::Error;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::admin::inspect::{INSPECT_WITHIN, KeyState, inspect};
use crate::manager::engine::core::Core;
use crate::store::command::List;

/// Inspections that are under way together.
const AT_ONCE: usize = 64;

impl LockManager {
    /// The locks of this manager's namespace that are held and whose keys begin with `prefix`, in
    /// the order of their keys. Their waiters are counted and not named:
    /// [`inspect`](LockManager::inspect) does that.
    ///
    /// It looks at all keys of the server a thousand at a time (`SCAN`; in a cluster at those of
    /// every primary), so that others are not kept, and then at each lock: none that is held
    /// throughout is missing (unless its slot is moved meanwhile), and one that comes or goes may
    /// be. The user needs the right to `SCAN`, and a proxy does not have it.
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// let manager = distlock::LockManager::memory();
    /// let _guard = manager.lock("report:daily").acquire().await?;
    /// for lock in manager.list("report:").await? {
    ///     println!("{} is held by {}", lock.key, lock.holders()[0].client);
    /// }
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if one of the servers cannot be asked (of a quorum: too many of
    /// them), [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, whenever the future is dropped.
    pub async fn list(&self, prefix: impl Into<String>) -> Result<Vec<KeyState>, Error> {
        let prefix = prefix.into();
        self.at_home(|core| async move { list(core, &prefix).await })
            .await
    }
}

async fn list(core: Arc<Core>, prefix: &str) -> Result<Vec<KeyState>, Error> {
    let keys = core.call(List { prefix }, INSPECT_WITHIN).await;
    let keys = keys.map_err(|trouble| trouble.into_error(None, INSPECT_WITHIN))?;
    // A scan may tell of a key twice, and so may servers between which it moves.
    let keys: BTreeSet<LockKey> = keys.into_iter().collect();
    let inspections = stream::iter(keys).map(|key| inspect(&core, key, 0));
    let mut inspections = pin!(inspections.buffer_unordered(AT_ONCE));
    let mut locks = Vec::new();
    while let Some(seen) = inspections.next().await {
        match seen {
            Ok(seen) if seen.holders().is_empty() => {}
            Ok(seen) => locks.push(seen),
            // Not a lock, though it is called like one.
            Err(Error::KeyConflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    locks.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(locks)
}
