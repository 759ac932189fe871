//! The manager: one client of one store.
//!
//! `core` is what all of its work shares, `table` its claims. Who drives them: `acquire`, `watch`,
//! `look`, `release`, `shutdown`, and `events` for what the store tells unasked. `builder` and
//! `assembly` make it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::options::Durability;
use crate::error::{Error, Holder};
use crate::manager::engine::core::{Core, Phase, shut_down_error};
use crate::manager::engine::executor::IoThread;
use crate::manager::engine::shutdown;
use crate::protocol::words::wall;

pub(crate) mod admin;
pub(crate) mod builder;
pub(crate) mod engine;
pub(crate) mod telemetry;

/// A client of a lock store: it owns the connections, the watchdog, and the calls that wait.
///
/// Cheap to clone; all clones are the same client. A process usually has one, made at start-up and
/// given to [`install`](crate::install). All its background work runs on a thread of its own, so it
/// serves any number of runtimes, and code that blocks its own runtime does not delay renewals.
///
/// When the last clone and the last guard are gone it finishes the releases under way (for at most
/// 2 s) and ends; the end of the process does not wait for that, but
/// [`shutdown`](LockManager::shutdown) does.
///
/// A child process made with `fork` must not use the manager of its parent, nor a guard of it:
/// connect after `fork`.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::connect("memory:").await?;
/// let of_a_handler = locks.clone();
/// let _held = locks.lock("report").acquire().await?;
/// assert!(of_a_handler.lock("report").try_acquire().await?.is_none());
///
/// locks.shutdown().await;
/// assert!(of_a_handler.lock("report").try_acquire().await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    client_name: String,
    /// What its locks need, unless they say otherwise.
    durability: Durability,
    /// Kept to be dropped: then the thread drains and ends.
    io: Option<IoThread>,
}

impl LockManager {
    pub(crate) fn new(
        core: Arc<Core>,
        client_name: String,
        durability: Durability,
        io: Option<IoThread>,
    ) -> Self {
        LockManager {
            inner: Arc::new(Inner {
                core,
                client_name,
                durability,
                io,
            }),
        }
    }

    /// Ends this manager, for all its clones: calls that wait get [`Error::ShutDown`], bodies are
    /// stopped with [`Error::Lost`], everything held is released, and connections are closed. A
    /// body that does not await keeps its lock until it ends, for at most its lease.
    ///
    /// Await it before the process exits, so that no key stays behind.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
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
        let core = self.core().clone();
        let (done, finished) = oneshot::channel();
        self.core().executor.spawn_later(async move {
            shutdown::shut_down(core).await;
            // The caller may have gone.
            let _ = done.send(());
        });
        // An error means that there is nothing left to shut down.
        let _ = finished.await;
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    pub(crate) fn store_identity(&self) -> &Arc<str> {
        &self.core().identity
    }

    /// The server, for a store that has one.
    pub(crate) fn address(&self) -> Option<&str> {
        self.core().address()
    }

    /// What its locks need, unless they say otherwise.
    pub(crate) fn durability(&self) -> Durability {
        self.inner.durability
    }

    /// An error at once, instead of a wait for a thread that has ended.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.core().phase() != Phase::Running {
            return Err(shut_down_error());
        }
        Ok(())
    }

    /// This process, as the holder of a lock.
    pub(crate) fn as_holder(&self, held_for: Duration) -> Holder {
        Holder {
            client: self.inner.client_name.clone(),
            held_since: wall(self.core().clock.wall_micros()) - held_for,
            kept_until: None,
            this_process: true,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A thread drains by itself when it is dropped; on the caller's runtime releases are done
        // in place.
        if self.io.is_none() {
            shutdown::abandon(&self.core);
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockManager");
        shown
            .field("store", self.store_identity())
            .field("client", &self.inner.client_name);
        let (held, waiting) = self.core().claims.count();
        let releasing = self.core().releases.count();
        shown
            .field("phase", &self.core().phase())
            .field("held", &held)
            .field("waiting", &waiting)
            .field("releasing", &releasing)
            .finish()
    }
}
