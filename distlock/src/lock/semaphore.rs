//! The description of a semaphore, and the calls that acquire its permits.

use crate::error::Error;
use crate::lock::Lock;
use crate::lock::forward::forward_lock;
use crate::lock::permit::{HeldPermit, SemaphorePermit};
use crate::lock::run;
use crate::manager::LockManager;
use crate::protocol::kind::Kind;

/// A description of a semaphore: a key, a number of permits, and how to hold them.
/// [`LockManager::semaphore`] creates it. It is cheap to clone and reusable, and holds nothing by
/// itself.
///
/// At most `permits` permits are held at a time, by all processes together. Each acquisition has
/// its own lease, which the watchdog renews. The permits of a process that dies are free once its
/// lease and grace period have expired. Waiters form one queue: a call for many permits is served
/// in its turn, and no later call for fewer permits passes it.
///
/// Permits have no fencing token, because they do not exclude each other.
///
/// ```
/// # use distlock::{Error, LockManager};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let locks = LockManager::in_memory();
/// let mails = locks.semaphore("smtp", 3); // three connections for all processes together
/// mails.run(async |_| {
///     // ... send a mail ...
///     Ok(())
/// }).await
/// # }
/// ```
///
/// # The number of permits
///
/// A call is granted while the permits that are held and its own fit into the number that it
/// passes. So while calls for a key pass different numbers, as in a deployment that changes the
/// number, up to the largest may be held. The queue keeps its order: a first waiter that does not
/// fit blocks the others. While the key is in use as another kind of lock, a call fails with
/// [`Error::WrongKind`].
///
/// # Nesting
///
/// A nested call acquires further permits. It fails with [`Error::Config`] if its call tree would
/// then hold more permits than there are. Call trees that hold permits while they wait for more can
/// wait for each other; both then fail with [`Error::Busy`] after their `wait`. Acquire all
/// permits in one call instead.
#[derive(Clone, Debug)]
#[must_use = "a `Semaphore` is only a description; call `acquire`, `try_acquire` or `run`"]
pub struct Semaphore {
    lock: Lock,
    permits: u32,
}

forward_lock!(Semaphore);

impl LockManager {
    /// Creates the description of a semaphore with 1 to 1,000 permits. Performs no validation and
    /// no I/O until a permit is acquired.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let semaphore = locks.semaphore("smtp", 2);
    /// let (_first, _second) = (semaphore.acquire().await?, semaphore.acquire().await?);
    /// assert!(semaphore.try_acquire().await?.is_none());
    ///
    /// let refused = locks.semaphore("smtp", 0).acquire().await;
    /// assert!(matches!(refused, Err(Error::Config { .. })));
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, key: impl Into<String>, permits: u32) -> Semaphore {
        let lock = self.lock(key);
        Semaphore { lock, permits }
    }
}

impl Semaphore {
    /// Returns the number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Acquires a permit, waiting in the queue for at most `wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`]. [`Error::Config`] if the number of permits is out of range,
    /// if the call tree already holds all of them, or over a quorum. [`Error::WrongKind`] if the
    /// key is in use as another kind of lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, at any await, leaves neither a permit nor a queue entry behind.
    pub async fn acquire(&self) -> Result<SemaphorePermit, Error> {
        self.acquire_many(1).await
    }

    /// Acquires a permit if one is free and no other call waits. The call never waits for other
    /// holders and never overtakes the queue; it takes the time of one command.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Semaphore::acquire), except [`Error::Busy`] and
    /// [`Error::QueueFull`], for which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](Semaphore::acquire).
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires `weight` permits together, waiting in the queue for at most `wait`. They have one
    /// lease, and are lost and released together.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let memory = locks.semaphore("gpu:0:gigabytes", 24);
    /// let job = memory.acquire_many(16).await?;
    /// assert!(memory.try_acquire_many(16).await?.is_none());
    ///
    /// let refused = memory.acquire_many(25).await;
    /// assert!(matches!(refused, Err(Error::InvalidValue { .. })));
    /// job.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Semaphore::acquire). [`Error::InvalidValue`] if `weight` is 0 or
    /// above the number of permits.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](Semaphore::acquire).
    pub async fn acquire_many(&self, weight: u32) -> Result<SemaphorePermit, Error> {
        let guard = self.weighing(weight).acquire().await?;
        Ok(SemaphorePermit(guard))
    }

    /// Acquires `weight` permits if they are free and no other call waits, like
    /// [`try_acquire`](Semaphore::try_acquire).
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_many`](Semaphore::acquire_many), except [`Error::Busy`] and
    /// [`Error::QueueFull`], for which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](Semaphore::acquire).
    pub async fn try_acquire_many(&self, weight: u32) -> Result<Option<SemaphorePermit>, Error> {
        let guard = self.weighing(weight).try_acquire().await?;
        Ok(guard.map(SemaphorePermit))
    }

    /// Acquires a permit, runs `body` under the watchdog, and releases the permit. If the permit is
    /// lost, or reaches its `max_hold`, the body is dropped at its next await. See
    /// [`Lock::run`].
    ///
    /// # Errors
    ///
    /// The error of the body. Also, converted with `E::from`: the errors of
    /// [`acquire`](Semaphore::acquire), [`Error::Lost`] and [`Error::MaxHoldExceeded`].
    ///
    /// # Panics
    ///
    /// If the body panics; the permit is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the permit in the background.
    pub async fn run<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(HeldPermit) -> Result<T, E>,
    ) -> Result<T, E> {
        let (guards, span) = self.weighing(1).acquire_for_run().await?;
        let body = body(HeldPermit(guards.first().held()));
        run::run_body(guards, span, body).await
    }

    fn weighing(&self, weight: u32) -> Lock {
        let permits = self.permits;
        self.lock.of_kind(Kind::Permits { permits, weight })
    }
}
