//! The manager: one client of one store.
//!
//! `core` is its state, `telemetry` reports what happens, `engine` runs its locks, `admin` serves
//! operators, and `builder` creates it. Each imports only those before it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::config::options::Defaults;
use crate::error::{Error, Holder};
use crate::manager::core::executor::IoThread;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::{Core, Phase, shut_down_error};
use crate::manager::engine::shutdown;
use crate::util::clock::ServerTime;

pub(crate) mod admin;
pub(crate) mod builder;
pub(crate) mod core;
pub(crate) mod engine;
pub(crate) mod telemetry;

/// A client of a lock store. It owns the connections, the watchdog, and the waiting calls.
///
/// Clones are cheap, and all clones are the same client. A process usually creates one manager at
/// start-up and passes it to [`install`](crate::install). All its background work runs on a thread
/// of its own, which is started when the manager is created. It therefore serves any number of
/// runtimes, and code that blocks its own runtime does not delay renewals.
///
/// Once the last clone and the last guard are dropped, the manager finishes its releases, for at
/// most 2 s, and ends. The exit of the process does not wait for that, but
/// [`shutdown`](LockManager::shutdown) does.
///
/// After `fork`, the child process cannot use the managers and guards of its parent: every call
/// fails at once with [`Error::Config`], [`shutdown`](LockManager::shutdown) does nothing, and a
/// dropped guard releases nothing. The parent keeps its locks. Connect after `fork`.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::connect("memory:").await?;
/// let handler_locks = locks.clone();
/// let _held = locks.lock("report").acquire().await?;
/// assert!(handler_locks.lock("report").try_acquire().await?.is_none());
///
/// locks.shutdown().await;
/// assert!(handler_locks.lock("report").try_acquire().await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    inner: Arc<ManagerInner>,
}

struct ManagerInner {
    core: Arc<Core>,
    client_name: String,
    defaults: Defaults,
    /// Its last work drains the manager.
    io_thread: Option<IoThread>,
}

impl LockManager {
    pub(crate) fn new(
        core: Arc<Core>,
        client_name: String,
        defaults: Defaults,
        io_thread: Option<IoThread>,
    ) -> Self {
        LockManager {
            inner: Arc::new(ManagerInner {
                core,
                client_name,
                defaults,
                io_thread,
            }),
        }
    }

    /// Shuts down this manager and all its clones.
    ///
    /// Waiting calls and new calls fail with [`Error::ShutDown`]. Every hold is lost, with
    /// [`LossReason::ShutDown`](crate::LossReason::ShutDown):
    ///
    /// - A body is dropped at its next await, and its call fails with [`Error::Lost`]. A body with
    ///   `on_lost = "finish"`, and code inside of [`LockGuard::scope`](crate::LockGuard::scope),
    ///   continues. The lock is released once its body or scope has ended, at the latest after its
    ///   lease.
    /// - The lock of any other guard is released at once. Code that uses the guard continues
    ///   without the lock; [`check`](crate::LockGuard::check) returns an error.
    ///
    /// The shutdown waits for bodies and scopes that are still running, all at the same time, and
    /// for each at most the lease of its lock. It then waits up to 2 s until everything is
    /// released, also for the second release that follows an acquire without a reply, unless the
    /// store is a quorum. It logs the releases that it gives up, closes the connections, and waits
    /// up to 2 s until observers have received their events. A lock whose release got no reply by
    /// then may stay until its lease and grace period have ended. A second call waits for the
    /// first.
    ///
    /// Await this before the process exits, so that no lock is left behind. [Let the work end
    /// first.](https://github.com/distlock/distlock/blob/main/docs/guide/cancellation.md#shutdown)
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("report");
    /// let guard = lock.acquire().await?;
    /// let waits = tokio::spawn(async move { lock.acquire().await });
    ///
    /// locks.shutdown().await;
    /// assert!(matches!(waits.await.expect("no panic"), Err(Error::ShutDown { .. })));
    /// assert!(guard.check().is_err_and(|error| error.is_lost()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown.
    pub async fn shutdown(&self) {
        if self.core().is_inherited() {
            return;
        }
        let core = self.core().clone();
        let (done, finished) = oneshot::channel();
        self.core().executor.spawn(async move {
            shutdown::shut_down(core).await;
            // The caller may have dropped its future.
            let _ = done.send(());
        });
        // An error means that nothing is left to shut down.
        let _ = finished.await;
    }

    /// Returns true if the manager was shut down, or belongs to the parent of this process. Its
    /// locks can then no longer be acquired.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::in_memory();
    /// assert!(!locks.is_shut_down());
    /// locks.shutdown().await;
    /// assert!(locks.is_shut_down());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core().is_inherited() || self.core().phase() != Phase::Running
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    pub(crate) fn store_identity(&self) -> &Arc<str> {
        &self.core().identity
    }

    /// Returns the address of the server; `None` for a store without one.
    pub(crate) fn address(&self) -> Option<&str> {
        self.core().address()
    }

    /// Returns the defaults of the manager's locks.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.inner.defaults
    }

    /// Fails after a shutdown, so that a call does not wait for a thread that has ended.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.core().phase() != Phase::Running {
            return Err(shut_down_error());
        }
        Ok(())
    }

    /// Returns this process as the holder of a lock.
    pub(crate) fn as_holder(&self, held: &HoldHandle) -> Holder {
        let now = ServerTime(self.core().clock.wall_micros());
        Holder {
            client: self.inner.client_name.clone(),
            metadata: held.options().metadata().map(str::to_owned),
            kind: held.kind().hold_kind(),
            weight: held.kind().permits_held(),
            fencing_token: held.public_token(),
            held_since: now.to_system_time() - held.age(),
            kept_until: None,
            this_process: true,
        }
    }
}

impl Drop for ManagerInner {
    fn drop(&mut self) {
        match self.io_thread.take() {
            // Its drop would wake the parent.
            Some(io_thread) if self.core.is_inherited() => std::mem::forget(io_thread),
            Some(io_thread) => io_thread.stop_after(shutdown::drain(self.core.clone())),
            None if self.core.is_inherited() => {}
            // On the caller's runtime, releases run in place.
            None => shutdown::close(&self.core),
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("LockManager");
        debug
            .field("store", self.store_identity())
            .field("client", &self.inner.client_name);
        let (held, waiting) = self.core().registry.count();
        let releasing = self.core().registry.releasing();
        debug
            .field("phase", &self.core().phase())
            .field("held", &held)
            .field("waiting", &waiting)
            .field("releasing", &releasing)
            .finish()
    }
}
