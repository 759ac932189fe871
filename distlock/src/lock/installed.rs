//! The default manager of annotated functions.

use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::manager::LockManager;

static INSTALLED: OnceCell<LockManager> = OnceCell::new();

/// Installs the default manager of this process, which annotated functions use.
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
/// [`Error::AlreadyInstalled`] on every further call, even after [`shutdown`].
pub fn install(manager: LockManager) -> Result<(), Error> {
    INSTALLED.set(manager).map_err(|_| Error::AlreadyInstalled)
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
    INSTALLED.get().cloned()
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
