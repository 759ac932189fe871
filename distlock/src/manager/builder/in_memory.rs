//! How a manager is made whose store is inside this process.

use std::sync::Arc;

use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::builder::assembly::{Assembly, Parts};
use crate::manager::engine::executor::Executor;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::memory::server::MemoryServer;
use crate::store::{EventSink, Opened};
use crate::util::clock::{BootClock, TokioClock};
use crate::util::random::SystemRandom;

impl LockManagerBuilder {
    /// An in-process store without a thread: everything runs on the current runtime and takes all
    /// time from `tokio::time`, so that tests can pause and advance it.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().memory_on_current_runtime()?;
    /// let _held = locks.lock("report").acquire().await?;
    ///
    /// // Ten seconds of a clock that stands still pass at once.
    /// let began = tokio::time::Instant::now();
    /// assert!(locks.lock("report").acquire().await.is_err_and(|error| error.is_busy()));
    /// assert!(began.elapsed() >= Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] outside of a tokio runtime.
    pub fn memory_on_current_runtime(self) -> Result<LockManager, Error> {
        self.memory_behind(|store, _| store.into_opened())
    }

    /// The same with something in front of the store, which is told where a store's events go.
    pub(crate) fn memory_behind(
        self,
        front: impl FnOnce(MemoryStore, EventSink) -> Opened,
    ) -> Result<LockManager, Error> {
        self.check_in_memory()?;
        let executor = Executor::current()?;
        let parts = Parts {
            clock: Arc::new(TokioClock::new()),
            ..self.parts()
        };
        let server = MemoryServer::new(parts.clock.clone());
        let assembly = Assembly::on(executor, parts);
        Ok(self.finish_in_memory(assembly, server, front))
    }

    /// An in-process store of its own, with the real clock: for development and tests.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// let locks = LockManager::builder().client_name("a test").memory()?;
    /// let refused = LockManager::builder().client_name("").memory();
    /// assert!(matches!(refused, Err(Error::Config { .. })));
    /// # Ok::<(), distlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an option that cannot work, and when the system refuses to start a
    /// thread.
    pub fn memory(self) -> Result<LockManager, Error> {
        self.in_memory(MemoryServer::new(Arc::new(BootClock)))
    }

    pub(crate) fn in_memory(self, server: MemoryServer) -> Result<LockManager, Error> {
        self.check_in_memory()?;
        let assembly = Assembly::on_io_thread(self.parts())?;
        Ok(self.finish_in_memory(assembly, server, |store, _| store.into_opened()))
    }

    fn finish_in_memory(
        self,
        assembly: Assembly,
        server: MemoryServer,
        front: impl FnOnce(MemoryStore, EventSink) -> Opened,
    ) -> LockManager {
        let client = ClientId::new(&SystemRandom);
        let events = assembly.mailbox.sink();
        let store = MemoryStore::new(server, client, self.settings(), events.clone());
        assembly.finish(front(store, events), self.name(), self.durability)
    }
}
