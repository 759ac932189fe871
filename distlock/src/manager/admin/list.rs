//! Listing of all held locks.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use crate::error::Error;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::admin::inspect::{INSPECT_TIMEOUT, LockState, inspect};
use crate::manager::core::Core;
use crate::observer::event::Operation;
use crate::protocol::messages::List;

/// Upper limit of concurrent inspections.
const MAX_CONCURRENT_INSPECTIONS: usize = 64;

impl LockManager {
    /// Returns the held locks of this manager's namespace with keys that begin with `prefix`,
    /// sorted by key. An empty prefix lists all. Waiters are counted, but only
    /// [`inspect`](LockManager::inspect) names them.
    ///
    /// It scans all keys of the server (`SCAN`, in a cluster on every primary), a thousand at a
    /// time, so that other clients are not delayed. It then inspects every lock. A lock that is
    /// held throughout is always listed, unless its slot is migrated meanwhile. A lock that is
    /// acquired or released meanwhile may be missing. The user needs permission for `SCAN`. Behind
    /// a proxy `list` fails, because proxies do not list keys.
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// let manager = distlock::LockManager::in_memory();
    /// let _guard = manager.lock("report:daily").acquire().await?;
    /// for lock in manager.list("report:").await? {
    ///     println!("{} is held by {}", lock.key, lock.holders[0].client);
    /// }
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if one of the servers does not reply to a command within a second (in
    /// a quorum: too many of them), [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Listing changes nothing, no matter when the future is dropped.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>, Error> {
        let prefix = prefix.to_owned();
        self.on_io_thread(|core| async move { list(core, &prefix).await })
            .await
    }
}

async fn list(core: Arc<Core>, prefix: &str) -> Result<Vec<LockState>, Error> {
    let list = List { prefix };
    let listing = core.store.list(&list, INSPECT_TIMEOUT);
    let listed = core.run_command(Operation::List, listing).await;
    let listed = listed.map_err(|error| error.into_error(None, INSPECT_TIMEOUT))?;
    // A scan may return a key twice, and so may two servers between which its slot migrates.
    let keys: BTreeSet<LockKey> = listed.into_iter().collect();
    let inspections = stream::iter(keys).map(|key| inspect(&core, key, 0));
    let mut inspections = pin!(inspections.buffer_unordered(MAX_CONCURRENT_INSPECTIONS));
    let mut locks = Vec::new();
    while let Some(inspected) = inspections.next().await {
        match inspected {
            Ok(state) if state.holders.is_empty() => {}
            Ok(state) => locks.push(state),
            // The key has the name of a lock, but holds another value.
            Err(Error::KeyConflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    locks.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(locks)
}
