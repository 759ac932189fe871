//! What all locks of a manager need beside the server's word.

use crate::config::limits::Limits;
use crate::error::Error;
use crate::manager::builder::LockManagerBuilder;

impl LockManagerBuilder {
    /// How many replicas of the server must have acknowledged a lock before it counts as held, and
    /// each of its renewals; default 0. It is the default of all locks of this manager, see
    /// [`Lock::min_replicas`](crate::Lock::min_replicas) for what it gives, and what it does not.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// let builder = LockManager::builder().min_replicas(1);
    /// let locks = builder.clone().url("redis://127.0.0.1:6379").connect_lazy()?;
    /// assert!(builder.memory().is_err(), "the memory store has no replicas");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn min_replicas(mut self, n: u32) -> Self {
        self.durability.replicas = n;
        self
    }

    /// Whether a lock counts as held only once it is on the server's disk, and on those of its
    /// [`min_replicas`](LockManagerBuilder::min_replicas); default `false`. It is the default of
    /// all locks of this manager, see [`Lock::fsync`](crate::Lock::fsync).
    ///
    /// ```
    /// # use distlock::LockManager;
    /// let builder = LockManager::builder().fsync(true);
    /// let locks = builder.clone().url("redis://127.0.0.1:6379").connect_lazy()?;
    /// let quorum = builder.url("redis+quorum://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003");
    /// assert!(quorum.connect_lazy().is_err(), "its servers are set up each by itself");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn fsync(mut self, on: bool) -> Self {
        self.durability.fsync = on;
        self
    }

    /// Whether it can be made without a server.
    pub(crate) fn check_in_memory(&self) -> Result<(), Error> {
        self.check()?;
        let checked = Limits::MEMORY.check_durability(self.durability);
        checked.map_err(|detail| Error::Config { detail })
    }
}
