//! The manager that annotated functions use when nothing else was said.

use once_cell::sync::OnceCell;

use crate::error::Error;
use crate::manager::LockManager;

static INSTALLED: Installed = Installed(OnceCell::new());

/// The manager of one process, and in its forked children the one of theirs: what the parent installed is
/// of no use to them.
struct Installed(OnceCell<(LockManager, Box<Installed>)>);

impl Installed {
    fn install(&self, manager: LockManager) -> Result<(), Error> {
        match self.0.get() {
            Some((installed, of_child)) if !installed.is_of_this_process() => {
                of_child.install(manager)
            }
            _ => {
                let of_child = Box::new(Installed(OnceCell::new()));
                let installed = self.0.set((manager, of_child));
                installed.map_err(|_| Error::AlreadyInstalled)
            }
        }
    }

    /// The one of this process, or else the nearest parent's, which says why it does not work.
    fn get(&self) -> Option<&LockManager> {
        let (installed, of_child) = self.0.get()?;
        if installed.is_of_this_process() {
            return Some(installed);
        }
        of_child.get().or(Some(installed))
    }
}

/// Makes a manager the default of this process: the one that annotated functions use.
///
/// ```
/// use distlock::{Error, LockManager};
/// distlock::install(LockManager::memory())?;
/// assert!(matches!(distlock::install(LockManager::memory()), Err(Error::AlreadyInstalled)));
/// # Ok::<(), distlock::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::AlreadyInstalled`] the second time, also after [`shutdown`]. A forked child may install its
/// own, for its parent's does not work there.
pub fn install(manager: LockManager) -> Result<(), Error> {
    INSTALLED.install(manager)
}

/// The default manager of this process, if one was [installed](install).
///
/// ```
/// assert!(distlock::installed().is_none());
/// distlock::install(distlock::LockManager::memory())?;
/// assert!(distlock::installed().is_some());
/// # Ok::<(), distlock::Error>(())
/// ```
#[must_use]
pub fn installed() -> Option<LockManager> {
    INSTALLED.get().cloned()
}

/// Shuts the installed manager down, see [`LockManager::shutdown`]; does nothing without one.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::memory();
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
