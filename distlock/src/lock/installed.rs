//! The default manager of annotated functions.

use std::sync::{PoisonError, RwLock};

use crate::error::Error;
use crate::manager::LockManager;

static INSTALLED: RwLock<Option<LockManager>> = RwLock::new(None);

/// Installs the default manager of this process, which annotated functions use. Once it is shut
/// down, another one can be installed in its place.
///
/// ```
/// use distlock::{Error, LockManager};
/// distlock::install(LockManager::in_memory())?;
/// assert!(matches!(distlock::install(LockManager::in_memory()), Err(Error::AlreadyInstalled)));
/// # Ok::<(), distlock::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::AlreadyInstalled`] if the process has an installed manager that was not shut down.
pub fn install(manager: LockManager) -> Result<(), Error> {
    let mut installed = INSTALLED.write().unwrap_or_else(PoisonError::into_inner);
    if installed.as_ref().is_some_and(|it| !it.is_shut_down()) {
        return Err(Error::AlreadyInstalled);
    }
    let previous = installed.replace(manager);
    drop(installed);
    // Dropped outside the lock, because its observers may call `installed`.
    drop(previous);
    Ok(())
}

/// Returns the default manager of this process, if one was [installed](install).
///
/// ```
/// assert!(distlock::installed().is_none());
/// distlock::install(distlock::LockManager::in_memory())?;
/// assert!(distlock::installed().is_some());
/// # Ok::<(), distlock::Error>(())
/// ```
#[must_use]
pub fn installed() -> Option<LockManager> {
    let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner);
    installed.clone()
}

/// Shuts down the installed manager, see [`LockManager::shutdown`]. Does nothing without one.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::in_memory();
/// distlock::install(locks.clone())?;
/// let guard = locks.lock("report").acquire().await?;
///
/// distlock::shutdown().await;
/// assert!(!guard.is_held());
/// distlock::install(LockManager::in_memory())?; // another one in its place
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// Dropping the future does not stop the shutdown.
pub async fn shutdown() {
    if let Some(manager) = installed() {
        manager.shutdown().await;
    }
}
