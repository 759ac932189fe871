//! The manager that annotated functions use when nothing else was said.

use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::manager::LockManager;

static INSTALLED: OnceCell<LockManager> = OnceCell::new();

/// Makes a manager the default of this process: the one that annotated functions use.
///
/// ```
/// # async fn f() -> Result<(), distlock::Error> {
/// distlock::install(distlock::LockManager::memory())?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
///
/// # Errors
///
/// [`Error::AlreadyInstalled`] the second time, also after [`shutdown`].
pub fn install(manager: LockManager) -> Result<(), Error> {
    INSTALLED.set(manager).map_err(|_| Error::AlreadyInstalled)
}

/// The default manager of this process, if one was [installed](install).
#[must_use]
pub fn installed() -> Option<LockManager> {
    INSTALLED.get().cloned()
}

/// Shuts the installed manager down, see [`LockManager::shutdown`]; does nothing without one.
///
/// # Cancel safety
///
/// Dropping the future does not stop the shutdown.
pub async fn shutdown() {
    if let Some(manager) = installed() {
        manager.shutdown().await;
    }
}
