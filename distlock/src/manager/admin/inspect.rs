//! Inspection of a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::error::{Error, Holder, LockKind};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::core::{Core, shut_down_error};
use crate::manager::telemetry::hold_events;
use crate::observer::event::Operation;
use crate::protocol::messages::{Inspect, Inspection, QueuedWaiter, ServerInspection};
use crate::protocol::once::Record;
use crate::store::client_id;

/// Timeout of each command that inspects, lists or revokes locks.
pub(crate) const INSPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Upper limit of the waiters that an inspection names.
const MAX_NAMED_WAITERS: usize = 1_000;

/// The state of a lock, see [`LockManager::inspect`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let free = locks.inspect("report").await?;
/// assert!(free.holders.is_empty() && free.expires_in.is_none());
///
/// let guard = locks.lock("report").acquire().await?;
/// let held = locks.inspect("report").await?;
/// assert_eq!(held.holders[0].fencing_token, Some(guard.fencing_token()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockState {
    /// The key. [`list`](LockManager::list) omits braces that enclose the whole key.
    pub key: String,
    /// The kind of the lock; `None` if it has neither holders nor waiters.
    pub kind: Option<LockKind>,
    /// The holders; empty if the lock is free.
    pub holders: Vec<Holder>,
    /// The time until the last of the holds has expired, if they are neither renewed nor released;
    /// `None` if the lock is free.
    pub expires_in: Option<Duration>,
    /// The number of waiters in the queue; zero over a quorum, which has none.
    pub queue_length: u64,
    /// The waiters in the order in which they are served, at most the first 1,000. Empty in a
    /// [`list`](LockManager::list).
    pub waiters: Vec<Waiter>,
    /// The last fencing token. The store keeps it for the
    /// [`fence_ttl`](crate::LockManagerBuilder::fence_ttl) after its acquisition.
    pub last_fencing_token: Option<FencingToken>,
    /// The last success of a call with [`once_per`](crate::Lock::once_per), while it is recorded.
    pub last_success: Option<SuccessRecord>,
    /// Describes the value in the place of that record if distlock did not write it, or if it is
    /// dated ten years ahead. Calls with `once_per` then fail with [`Error::KeyConflict`].
    pub record_conflict: Option<String>,
    /// The lock's state on each server of a quorum, in the order of the URL; empty without a
    /// quorum.
    pub servers: Vec<ServerState>,
}

/// A waiter in the queue of a lock, see [`LockState::waiters`].
///
/// ```
/// # use distlock::LockManager;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let lock = locks.lock("report");
/// let _held = lock.acquire().await?;
/// let _next = tokio::spawn(async move { lock.acquire().await });
///
/// let longest = loop {
///     if let Some(waiter) = locks.inspect("report").await?.waiters.into_iter().next() {
///         break waiter;
///     }
///     tokio::time::sleep(Duration::from_millis(10)).await;
/// };
/// assert!(longest.this_process, "a call of {}", longest.client);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Waiter {
    /// The client's name: `host:pid`, unless the builder's `client_name` sets another.
    pub client: String,
    /// When the waiter joined the queue, by the store's clock.
    pub waiting_since: SystemTime,
    /// True if the waiter is a call of this process.
    pub this_process: bool,
}

/// The record of a successful run, see [`Lock::once_per`](crate::Lock::once_per).
///
/// ```
/// # use distlock::LockManager;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let job = locks.lock("jobs:invoices").once_per(Duration::from_secs(60 * 60));
/// job.run(async |_| Ok::<_, distlock::Error>(())).await?;
///
/// let success = locks.inspect("jobs:invoices").await?.last_success.expect("it is recorded");
/// assert!(success.started <= success.finished && success.finished < success.next);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SuccessRecord {
    /// When the run acquired the lock, by the store's clock.
    pub started: SystemTime,
    /// When the run released the lock, by the same clock.
    pub finished: SystemTime,
    /// When the work may run again, for a call with the period of that run.
    pub next: SystemTime,
    /// The name of the client that ran it.
    pub client: String,
    /// The [`metadata`](crate::Lock::metadata) of the run.
    pub metadata: Option<String>,
    /// The fencing token of the run.
    pub fencing_token: FencingToken,
}

impl SuccessRecord {
    pub(crate) fn of(record: Record) -> Self {
        let (client, metadata) = client_id::split_name(&record.holder_name);
        SuccessRecord {
            started: record.last_success(),
            finished: record.finished.to_system_time(),
            next: record.next(record.gap),
            client,
            metadata,
            fencing_token: record.token,
        }
    }
}

/// The state of a lock on one server of a quorum, see [`LockState::servers`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// for server in locks.inspect("report").await?.servers {
///     match server.error {
///         None => println!("{}: token {:?}", server.address, server.last_fencing_token),
///         Some(error) => println!("{}: {error}", server.address),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ServerState {
    /// The server's host and port.
    pub address: String,
    /// The lock's holder on this server. One server alone does not make a hold: it may be part of
    /// an attempt that fails.
    pub holder: Option<Holder>,
    /// The last fencing token that this server knows.
    pub last_fencing_token: Option<FencingToken>,
    /// Why the server could not be inspected; `None` if it was inspected.
    pub error: Option<String>,
}

impl ServerState {
    fn of(server: ServerInspection) -> Self {
        let (inspection, error) = match server.inspection {
            Ok(inspection) => (Some(inspection), None),
            Err(error) => (None, Some(error.detail)),
        };
        let inspected = inspection.as_ref();
        let holder = inspected.and_then(|inspection| inspection.holders.first());
        ServerState {
            address: server.address,
            // A quorum has only mutexes.
            holder: holder.map(|holder| holder.to_holder(LockKind::Mutex)),
            last_fencing_token: inspection.and_then(|inspection| inspection.last_token),
            error,
        }
    }
}

impl LockManager {
    /// Returns the current state of a lock, including its holder and its waiters.
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// let manager = distlock::LockManager::in_memory();
    /// let guard = manager.lock("report").acquire().await?;
    ///
    /// let state = manager.inspect("report").await?;
    /// assert_eq!(state.holders.len(), 1);
    /// assert_eq!(state.last_fencing_token, Some(guard.fencing_token()));
    /// assert_eq!(state.queue_length, 0);
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKey`], [`Error::KeyConflict`], [`Error::Unavailable`] if the store does not
    /// reply within a second, [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Inspecting changes nothing, no matter when the future is dropped.
    pub async fn inspect(&self, key: &str) -> Result<LockState, Error> {
        let key = LockKey::new(key)?;
        self.on_io_thread(|core| async move { inspect(&core, key, MAX_NAMED_WAITERS).await })
            .await
    }

    /// Checks that the store replies, for a readiness probe. Sends one command, which only reads.
    /// In a cluster it is sent to one node; over a quorum a majority must reply.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// LockManager::in_memory().ping().await?;
    ///
    /// let nowhere = LockManager::connect_lazy("redis://127.0.0.1:1")?; // nothing listens there
    /// assert!(nowhere.ping().await.is_err_and(|error| error.is_unavailable()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the store does not reply within a second, [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Changes nothing, no matter when the future is dropped.
    pub async fn ping(&self) -> Result<(), Error> {
        self.on_io_thread(|core| async move {
            let inspect = Inspect {
                key: &LockKey::new("ping")?,
                max_listed: 0,
            };
            let inspecting = core.store.inspect(&inspect, INSPECT_TIMEOUT);
            let inspected = core.run_command(Operation::Inspect, inspecting).await;
            inspected.map_err(|error| error.into_error(None, Duration::ZERO))?;
            Ok(())
        })
        .await
    }

    /// Runs `work` on the I/O thread, where the connections are. The work continues if this future
    /// is dropped.
    pub(crate) async fn on_io_thread<T, Fut>(
        &self,
        work: impl FnOnce(Arc<Core>) -> Fut,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.core().check_process()?;
        self.check_alive()?;
        let (sender, receiver) = oneshot::channel();
        let work = work(self.core().clone());
        self.core().executor.spawn(async move {
            // The caller may have dropped its future.
            let _ = sender.send(work.await);
        });
        receiver.await.unwrap_or_else(|_| Err(shut_down_error()))
    }
}

pub(crate) async fn inspect(
    core: &Arc<Core>,
    key: LockKey,
    max_listed: usize,
) -> Result<LockState, Error> {
    let inspection = inspect_store(core, &key, max_listed, Duration::ZERO).await?;
    hold_events::publish_queue(core, &key, inspection.queue_length);
    Ok(LockState {
        key: key.to_string(),
        kind: inspection.kind,
        holders: inspection.named_holders(),
        expires_in: inspection
            .expires_in
            .filter(|_| !inspection.holders.is_empty()),
        queue_length: inspection.queue_length,
        waiters: inspection.waiters.into_iter().map(Waiter::of).collect(),
        last_fencing_token: inspection.last_token,
        last_success: inspection.record.map(SuccessRecord::of),
        record_conflict: inspection.record_conflict,
        servers: inspection
            .servers
            .into_iter()
            .map(ServerState::of)
            .collect(),
    })
}

/// Returns the store's view of a lock. An error reports that the call has waited for `waited`.
pub(crate) async fn inspect_store(
    core: &Core,
    key: &LockKey,
    max_listed: usize,
    waited: Duration,
) -> Result<Inspection, Error> {
    let inspect = Inspect { key, max_listed };
    let inspecting = core.store.inspect(&inspect, INSPECT_TIMEOUT);
    let inspection = core.run_command(Operation::Inspect, inspecting).await;
    let key = || key.to_string();
    let inspection = inspection.map_err(|error| error.into_error(Some(key()), waited))?;
    match inspection.key_conflict {
        Some(detail) => Err(Error::KeyConflict { key: key(), detail }),
        None => Ok(inspection),
    }
}

impl Waiter {
    fn of(waiter: QueuedWaiter) -> Self {
        Waiter {
            client: waiter.client_name,
            waiting_since: waiter.since.to_system_time(),
            this_process: waiter.this_process,
        }
    }
}
