//! The description of a lock, and the calls that acquire it.

pub(crate) mod forward;
pub(crate) mod guard;
pub(crate) mod guards;
pub(crate) mod held;
pub(crate) mod installed;
pub(crate) mod multi;
pub(crate) mod multi_guard;
pub(crate) mod nesting;
pub(crate) mod outcome;
pub(crate) mod permit;
pub(crate) mod run;
pub(crate) mod rw_guards;
pub(crate) mod rw_lock;
pub(crate) mod scope;
pub(crate) mod semaphore;
#[cfg(feature = "postgres")]
pub(crate) mod transaction;

use std::borrow::Cow;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::Error;
use crate::key::LockKey;
use crate::lock::guard::LockGuard;
use crate::lock::guards::Guards;
use crate::lock::held::HeldLock;
use crate::lock::outcome::{RunOutcome, SkipReason};
use crate::manager::LockManager;
use crate::manager::engine::acquire;
use crate::manager::telemetry::logging;
use crate::manager::telemetry::span::{self, RunSpan, TracedLock};
use crate::protocol::kind::Kind;
use crate::protocol::request::Request;
use crate::protocol::rules::rule;

/// A description of a lock: a key, and how to hold it. [`LockManager::lock`] creates it. It is
/// cheap to clone and reusable, and holds nothing by itself.
///
/// The setters check nothing. A call that acquires fails with [`Error::Config`], before it sends a
/// command, if an option is outside of its range.
///
/// ```
/// # use distlock::{LockManager, Error};
/// # use std::time::Duration;
/// # async fn f() -> Result<(), Error> {
/// let manager = LockManager::in_memory();
/// let lock = manager
///     .lock("report:daily")
///     .lease(Duration::from_secs(15)) // how long it outlives a crash of this process
///     .wait(Duration::from_secs(5))
///     .max_hold(Duration::from_secs(3_600)) // then the body is stopped
///     .metadata("the report of today");
///
/// let guard = lock.acquire().await?;
/// // ... exclusive work; pass `guard.fencing_token()` to the resource ...
/// guard.release().await?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a `Lock` is only a description; call `acquire`, `try_acquire` or `run`"]
pub struct Lock {
    pub(crate) manager: LockManager,
    pub(crate) key: String,
    pub(crate) kind: Kind,
    pub(crate) options: Options,
}

impl LockManager {
    /// Creates the description of a lock. Performs no validation and no I/O until it is acquired.
    ///
    /// A key has 1 to 512 bytes, no control characters, and at most one non-empty `{...}`, which is
    /// a Redis Cluster hash tag. Pass untrusted values through [`escape`](crate::escape).
    ///
    /// ```
    /// # let locks = distlock::LockManager::in_memory();
    /// let from_a_form = "7 or 8";
    /// let lock = locks.lock(format!("inventory:{}", distlock::escape(from_a_form)));
    /// assert_eq!(lock.key(), "inventory:7%20or%208");
    /// ```
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock {
            manager: self.clone(),
            key: key.into(),
            kind: Kind::Mutex,
            options: Options::of(self.defaults()),
        }
    }
}

impl Lock {
    /// Sets how long the lock outlives its last renewal: 50 ms to 24 h. Default: the setting of the
    /// manager ([`LockManagerBuilder::lease`](crate::LockManagerBuilder::lease)), 30 s unless set.
    ///
    /// The lease does not limit the work, because the watchdog renews the lock for as long as it is
    /// held. The lease is how long other callers wait when this process dies, and how long the lock
    /// survives an outage of the store. A shorter lease frees the lock of a crashed process sooner,
    /// and is lost sooner.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// Sets how long to wait for the lock: at most 24 h, zero for one attempt. Default: the setting
    /// of the manager ([`LockManagerBuilder::wait`](crate::LockManagerBuilder::wait)), 10 s unless
    /// set.
    ///
    /// The limit covers everything, including outages of the store.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Sets the longest time for which the lock may be held; more than zero, by default without a
    /// limit. It must not be shorter than [`min_hold`](Lock::min_hold).
    ///
    /// At the limit, renewals stop, a body under [`run`](Lock::run) is stopped with
    /// [`Error::MaxHoldExceeded`], and a guard is no longer held.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.options.max_hold = Some(limit);
        self
    }

    /// Sets how long the key stays taken after the acquisition, even if the work succeeds sooner:
    /// at most 24 h, by default not at all. This keeps a job from running twice within a period
    /// when several replicas start it a moment apart.
    ///
    /// A success is a guard that is [released](LockGuard::release), or a body that returned `Ok`.
    /// After an `Err`, a dropped guard, a panic or a loss the key is free at once. While only
    /// `min_hold` keeps the key, [`Holder::kept_until`](crate::Holder::kept_until) is the time at
    /// which it is freed. A [`wait`](Lock::wait) that was set, for the lock or its manager, and is
    /// not shorter than `min_hold` is rejected with [`Error::Config`]. Such a call would get the
    /// key at the end of that time, and run the job a second time.
    pub fn min_hold(mut self, shortest: Duration) -> Self {
        self.options.min_hold = Some(shortest);
        self
    }

    /// Records at most one success per period, over all processes: a call within the period of the
    /// last success does not run its body. It is a skip of [`try_run`](Lock::try_run), and
    /// [`Error::AlreadyRan`] of [`run`](Lock::run). 1 s to 366 days.
    ///
    /// A success is a body that returned `Ok` under a hold that was valid to its end. It is
    /// recorded together with the release. If the body fails or panics, the lock is lost, or the
    /// process dies before its release is applied, nothing is recorded, and the next call runs the
    /// body. So the *work* may run twice, but no second success is recorded.
    ///
    /// The period counts from the acquisition of the successful run, by the server's clock. It is
    /// shorter by a tenth, at most by a minute, so that a timer that fires a little early is not
    /// skipped. A failover, an eviction or a restart of the server may lose the record. The work
    /// then runs again.
    ///
    /// A guard cannot know whether its work succeeded, so [`acquire`](Lock::acquire) and
    /// [`try_acquire`](Lock::try_acquire) are [`Error::Config`] with this option. So are
    /// [`min_hold`](Lock::min_hold), a call inside a hold of the same key, and a quorum.
    ///
    /// ```
    /// # use distlock::{LockManager, RunOutcome};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::builder().in_memory_on_current_runtime()?;
    /// let hour = Duration::from_secs(60 * 60);
    /// let job = locks.lock("jobs:invoices").once_per(hour);
    /// let first = job.try_run(async |_| Ok::<_, distlock::Error>(())).await?;
    /// assert_eq!(first, RunOutcome::Completed(()));
    ///
    /// // Another replica starts the job a moment later.
    /// let second = job.try_run(async |_| Ok::<_, distlock::Error>(())).await?;
    /// assert!(matches!(second, RunOutcome::Skipped(_)));
    ///
    /// tokio::time::sleep(hour).await;
    /// let next = job.try_run(async |_| Ok::<_, distlock::Error>(())).await?;
    /// assert_eq!(next, RunOutcome::Completed(()));
    /// # Ok(()) }
    /// ```
    pub fn once_per(mut self, period: Duration) -> Self {
        self.options.once_per = Some(period);
        self
    }

    /// Records at most one success for a value, such as a fire time, a date or the id of a webhook.
    /// A call for a value that is done is a skip or an error, as with
    /// [`once_per`](Lock::once_per), which says what a success is and what protects its record.
    ///
    /// The success is remembered for [`record_ttl`](Lock::record_ttl). Calls for other values of
    /// the same key wait for each other, but all run. The value has 1 to 128 bytes; a call with
    /// another fails with [`Error::InvalidValue`]. If its `Display` returns an error, the call
    /// fails with [`Error::InvalidKey`].
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let handle = async |event: &str| {
    ///     let lock = locks.lock("webhooks:payments").once_for(event);
    ///     lock.run(async |_| { /* book the payment */ Ok::<_, Error>(()) }).await
    /// };
    /// handle("evt_1").await?;
    /// assert!(matches!(handle("evt_1").await, Err(Error::AlreadyRan { .. })));
    /// handle("evt_2").await?;
    /// # Ok(()) }
    /// ```
    pub fn once_for(mut self, value: impl fmt::Display) -> Self {
        self.options.set_once_for(&value);
        self
    }

    /// Sets for how long [`once_for`](Lock::once_for) remembers a success: 1 s to 366 days, default
    /// 7 days. The server needs about 260 bytes for each remembered value, plus its
    /// [`metadata`](Lock::metadata).
    pub fn record_ttl(mut self, ttl: Duration) -> Self {
        self.options.record_ttl = Some(ttl);
        self
    }

    /// Sets how many replicas of the server must have acknowledged the lock before it counts as
    /// held, and each of its renewals before it counts. Default: the setting of the manager
    /// ([`LockManagerBuilder::min_replicas`](crate::LockManagerBuilder::min_replicas)), 0 unless
    /// set.
    ///
    /// Redis replicates after it has replied, so a primary that fails may lose a lock that it had
    /// granted. With this option, the holder waits for the replicas (`WAIT`), for at most one
    /// [command timeout](LockGuard::release). If too few have acknowledged by then, the call
    /// retries for as long as its `wait`, and then fails with
    /// [`Outage::TooFewReplicas`](crate::Outage::TooFewReplicas). If renewals are not acknowledged,
    /// the hold is lost at its safe deadline. The option costs one round trip to the server and one
    /// from there to its replicas. Concurrent calls with the same requirement take turns.
    ///
    /// It does not make a failover safe: a replica that has *not* acknowledged the lock may be
    /// promoted nevertheless. Set `n` to the number of replicas that can be promoted, and protect
    /// the data with the [fencing token](LockGuard::fencing_token). In PostgreSQL the option is an
    /// [`Error::Config`](crate::Error::Config), because `synchronous_standby_names` of the server
    /// has the same effect for all locks.
    pub fn min_replicas(mut self, n: u32) -> Self {
        self.options.min_replicas = Some(n);
        self
    }

    /// Sets whether the lock, and each of its renewals, counts only once it is on the disk of the
    /// server and of its [`min_replicas`](Lock::min_replicas). Default: the setting of the manager,
    /// `false` unless set.
    ///
    /// A restarted server then still has the lock, and so do the replicas that acknowledged it. The
    /// option requires a server with `WAITAOF` (Redis 7.2, Valkey 8) and `appendonly yes`;
    /// otherwise calls fail at once with [`Outage::Unsupported`](crate::Outage::Unsupported). It
    /// also requires `appendfsync always`, on these replicas as well. With `everysec`, a write may
    /// take a second, which is longer than a command may take, and calls fail with
    /// [`Outage::TooFewReplicas`](crate::Outage::TooFewReplicas). In PostgreSQL the option is an
    /// [`Error::Config`](crate::Error::Config), because `synchronous_commit` is on by default.
    pub fn fsync(mut self, on: bool) -> Self {
        self.options.fsync = Some(on);
        self
    }

    /// Sets the name of this lock in logs and metrics; default `unlabeled`. Use the template of the
    /// key, such as `inventory:<item_id>`, so that there is one name instead of one per key. An
    /// annotated function is named after its template, which is its key if it has no placeholder.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.options.label = Some(label.into());
        self
    }

    /// Sets a text about this call that other clients see while it holds the lock, such as the name
    /// and the id of a job. It is in [`Holder::metadata`](crate::Holder::metadata), and so in the
    /// message of [`Error::Busy`], in [`inspect`](LockManager::inspect), in
    /// [`list`](LockManager::list), and in log lines about long waits. It is stored with the lock,
    /// so it must not contain a secret.
    ///
    /// A longer text is cut to 256 bytes. Control characters, and characters that end a line or set
    /// the direction of text, become blanks. By default, and if it is empty, there is none. On
    /// re-entry, that of the outer hold remains.
    pub fn metadata(mut self, text: impl Into<String>) -> Self {
        self.options.set_metadata(&text.into());
        self
    }

    /// Returns the key as it was passed.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Acquires the lock, waiting in its queue for at most `wait`.
    ///
    /// First come, first served, across all processes, except over a
    /// [quorum](crate::Quorum). If the caller's own call tree already holds the lock, the call
    /// re-enters it without accessing the store. The options of the outer hold then apply, and only
    /// `wait` is taken from this call. Sibling branches of one body exclude each other.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("report");
    /// let first = lock.acquire().await?;
    /// let next = tokio::spawn(async move { lock.acquire().await });
    ///
    /// let token = first.fencing_token();
    /// first.release().await?;
    /// let next = next.await.expect("no panic")?;
    /// assert!(next.fencing_token() > token);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if other calls held the lock or were ahead in its queue for all of `wait`.
    /// [`Error::QueueFull`] if too many calls wait for it. [`Error::Unavailable`] if the store
    /// could not be used. [`Error::Lost`], [`Error::MaxHoldExceeded`] or [`Error::Released`] if the
    /// hold to re-enter had ended. [`Error::ShutDown`] after a shutdown. [`Error::InvalidValue`] if
    /// a value of this call cannot be used. On misuse: [`Error::InvalidKey`], [`Error::Config`],
    /// [`Error::KeyConflict`], and [`Error::WrongKind`] if the key is in use as another kind of
    /// lock.
    ///
    /// # Panics
    ///
    /// With a manager created by
    /// [`in_memory_on_current_runtime`](crate::LockManagerBuilder::in_memory_on_current_runtime),
    /// if the call has to wait in a tokio runtime that was built without its time driver
    /// (`enable_time`).
    ///
    /// # Paused time
    ///
    /// A manager created by
    /// [`in_memory_on_current_runtime`](crate::LockManagerBuilder::in_memory_on_current_runtime)
    /// takes part in `tokio::time::pause`. Other managers run on their own thread: their leases and
    /// waits take real time, and a timeout around a call may end at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, at any await, leaves neither a lock nor a queue entry behind.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.check_guard()?;
        self.acquire_traced(None).await
    }

    /// Acquires the lock like [`acquire`](Lock::acquire), also with `once_per` or `once_for`. For
    /// the command line, which releases a lost lock only after its command has ended.
    #[doc(hidden)]
    pub async fn __acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_traced(None).await
    }

    /// Acquires the lock if it is free and no other call waits for it. The call never waits for
    /// another holder and never overtakes the queue; it takes the time of one command, at most
    /// about one [command timeout](LockGuard::release).
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("cache:warm-up");
    /// let Some(guard) = lock.try_acquire().await? else {
    ///     return Ok(()); // another replica is at it
    /// };
    /// assert!(lock.try_acquire().await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Lock::acquire), except [`Error::Busy`] and [`Error::QueueFull`],
    /// for which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](Lock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        self.check_guard()?;
        match self.acquire_traced(Some(Duration::ZERO)).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_busy() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock, runs `body` under the watchdog, and releases the lock.
    ///
    /// If the lock is lost, or reaches its `max_hold`, the body is dropped at its next await. If
    /// the body ends after its hold, the call returns an error with `BodyState::Completed`, never
    /// the body's result. Inside, [`current`](crate::current) returns this hold. An `Err` of the
    /// body is a failure, for which `min_hold` does not keep the lock.
    ///
    /// ```
    /// # use distlock::{LockManager, Error};
    /// # async fn f() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("report");
    /// let rows = lock.run(async |held| {
    ///     let rows: u64 = "7".parse()?;
    ///     held.check()?;
    ///     Ok::<_, Box<dyn std::error::Error>>(rows)
    /// }).await;
    /// assert!(rows.is_ok_and(|rows| rows == 7));
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body. Also, converted with `E::from`: the errors of
    /// [`acquire`](Lock::acquire), [`Error::Lost`], [`Error::MaxHoldExceeded`], and
    /// [`Error::AlreadyRan`] with [`once_per`](Lock::once_per) or [`once_for`](Lock::once_for).
    ///
    /// # Panics
    ///
    /// If the body panics; the lock is then released in the background. Also like
    /// [`acquire`](Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(HeldLock) -> Result<T, E>,
    ) -> Result<T, E> {
        let (guards, span) = self.acquire_for_run().await?;
        let body = body(guards.first().held());
        run::run_body(guards, span, body).await
    }

    /// Runs `body` under the lock like [`run`](Lock::run), or skips it if the lock is busy, or if
    /// its work has already succeeded ([`once_per`](Lock::once_per)).
    ///
    /// Without an explicit [`wait`](Lock::wait), the call tries once. A skip is no failure: it is
    /// counted and logged as a skip. A busy lock that the body acquires is the body's own error.
    ///
    /// ```
    /// # use distlock::{Error, LockManager, RunOutcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("jobs:nightly-report");
    /// let outcome = lock.try_run(async |_| { /* the report */ Ok::<_, Error>(12) }).await?;
    /// match outcome {
    ///     RunOutcome::Completed(pages) => assert_eq!(pages, 12),
    ///     RunOutcome::Skipped(reason) => println!("another replica is at it: {reason:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Lock::run), except [`Error::Busy`] and [`Error::AlreadyRan`] of this
    /// lock. A full queue ([`Error::QueueFull`]) remains an error.
    ///
    /// # Panics
    ///
    /// Like [`run`](Lock::run).
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`run`](Lock::run).
    pub async fn try_run<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(HeldLock) -> Result<T, E>,
    ) -> Result<RunOutcome<T>, E> {
        let mut lock = self.clone();
        lock.options.skip_busy();
        let (guards, span) = match lock.acquire_for_run().await {
            Ok(acquired) => acquired,
            Err(Error::Busy { holders, .. }) => {
                return Ok(RunOutcome::Skipped(SkipReason::Busy { holders }));
            }
            Err(Error::AlreadyRan {
                last_success, next, ..
            }) => {
                return Ok(RunOutcome::Skipped(SkipReason::AlreadyRan {
                    last_success,
                    next,
                }));
            }
            Err(error) => return Err(error.into()),
        };
        let body = body(guards.first().held());
        let output = run::run_body(guards, span, body).await?;
        Ok(RunOutcome::Completed(output))
    }

    /// Rejects options that need the result of the work.
    fn check_guard(&self) -> Result<(), Error> {
        if self.options.is_once() {
            return Err(Error::config(format!(
                "lock `{}`: once_per or once_for is set, but a guard does not know whether the work succeeded; use \
                 `try_run` or `run`",
                self.key
            )));
        }
        Ok(())
    }

    /// Returns the description of another kind of lock with this key and these options.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Lock {
            kind,
            ..self.clone()
        }
    }

    /// Acquires the lock for a body, in a span that covers both.
    pub(crate) async fn acquire_for_run(&self) -> Result<(Guards, RunSpan), Error> {
        let acquiring = pin!(self.acquire_traced(None));
        run::acquire_in_span(self.manager.core(), &self.subject(), acquiring).await
    }

    fn subject(&self) -> TracedLock<'_> {
        TracedLock {
            key: &self.key,
            kind: self.kind,
            options: &self.options,
        }
    }

    /// Acquires the lock, within `wait` if that is set.
    pub(crate) async fn acquire_traced(&self, wait: Option<Duration>) -> Result<LockGuard, Error> {
        let core = self.manager.core();
        core.check_process()?;
        let acquiring = pin!(self.acquire_inner(wait));
        let outcome = |guard: &LockGuard| (guard.path(), guard.held.public_token());
        let acquired = span::trace_acquire(core, &self.subject(), acquiring, outcome).await;
        acquired.map_err(|error| {
            let error = match self.kind {
                Kind::Mutex => {
                    let store = self.manager.store_identity();
                    error.with_held_keys(|key| scope::other_held_keys(store, key))
                }
                _ => error,
            };
            logging::not_acquired(core, &self.options, &error);
            error
        })
    }

    async fn acquire_inner(&self, wait: Option<Duration>) -> Result<LockGuard, Error> {
        let (key, options) = self.check(wait)?;
        let core = self.manager.core();
        let started = core.clock.now();
        if let Some(frame) = nesting::find_hold(&self.manager, &key, self.kind)? {
            if options.is_once() && rule!(once_outermost) {
                return Err(Error::config(format!(
                    "lock `{key}`: this call tree already holds the lock, so once_per or once_for could not be checked; \
                     make this the outermost call for the key, or use another key"
                )));
            }
            let request = Request::new(key, self.kind, options, started);
            return nesting::reenter(&self.manager, &frame, request).await;
        }
        let held = acquire::acquire(core, Request::new(key, self.kind, options, started)).await?;
        logging::acquired(
            &held,
            held.hold.origin.path,
            core.clock.now().since(started),
        );
        Ok(LockGuard::new(self.manager.clone(), held))
    }

    /// Checks the key and the options, and returns them.
    pub(crate) fn check(&self, wait: Option<Duration>) -> Result<(LockKey, Options), Error> {
        let mut options = self.options.clone();
        // A wait that the caller set is checked even if this call only tries.
        options.wait = options.wait.or(wait);
        options.check(&self.key)?;
        options.wait = wait.or(options.wait);
        let key = LockKey::new(&self.key)?;
        self.manager.check_alive()?;
        let capabilities = &self.manager.core().capabilities;
        self.kind.check(key.as_str())?;
        let checked = capabilities.check(self.kind.lock_kind(), &options);
        checked.map_err(|reason| Error::config(format!("lock `{key}`: {reason}")))?;
        Ok((key, options))
    }
}
