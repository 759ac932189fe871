//! Inspection of a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::engine::core::{Core, shut_down_error};
use crate::manager::telemetry::observed;
use crate::protocol::words::{AtServer, Inspection, Occupant, Waiting, wall};
use crate::store::command::Inspect;

/// Timeout of each command that inspects, lists or revokes locks.
pub(crate) const INSPECT_WITHIN: Duration = Duration::from_secs(1);

/// Upper limit of the waiters that an inspection names.
const NAMED: usize = 1_000;

/// The state of a lock, see [`LockManager::inspect`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let free = locks.inspect("report").await?;
/// assert!(free.holders().is_empty() && free.remaining.is_none());
///
/// let guard = locks.lock("report").acquire().await?;
/// let held = locks.inspect("report").await?;
/// assert_eq!(held.fencing_token, Some(guard.fencing_token()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    /// The key. [`list`](LockManager::list) omits braces that enclose the whole key.
    pub key: String,
    holders: Vec<Holder>,
    /// The fencing token of the holder; `None` if the lock is free.
    pub fencing_token: Option<FencingToken>,
    /// The time until other clients can acquire the lock, if it is neither renewed nor released;
    /// `None` if it is free.
    pub remaining: Option<Duration>,
    /// The number of waiters in the queue.
    pub waiters: u64,
    waiting: Vec<Waiter>,
    /// The last fencing token. The store keeps it for the
    /// [`fence_ttl`](crate::LockManagerBuilder::fence_ttl) after its acquisition.
    pub last_token: Option<FencingToken>,
    servers: Vec<ServerState>,
}

/// A waiter in the queue of a lock, see [`KeyState::waiting`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let lock = locks.lock("report");
/// let _held = lock.acquire().await?;
/// let _next = tokio::spawn(async move { lock.acquire().await });
///
/// let longest = loop {
///     if let Some(waiter) = locks.inspect("report").await?.waiting().first() {
///         break waiter.clone();
///     }
/// };
/// assert!(longest.this_process, "a call of {}", longest.client);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The client's name: `host:pid`, unless the builder's `client_name` sets another.
    pub client: String,
    /// When the waiter joined the queue, by the store's clock.
    pub since: SystemTime,
    /// True if the waiter is a call of this process.
    pub this_process: bool,
}

/// The state of a lock on one server of a quorum, see [`KeyState::servers`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// for server in locks.inspect("report").await?.servers() {
///     match server.trouble() {
///         None => println!("{}: token {:?}", server.address, server.last_token),
///         Some(trouble) => println!("{}: {trouble}", server.address),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerState {
    /// The server's host and port.
    pub address: String,
    holder: Option<Holder>,
    /// The number of waiters in this server's queue.
    pub waiters: u64,
    /// The last fencing token that this server knows.
    pub last_token: Option<FencingToken>,
    trouble: Option<String>,
}

impl ServerState {
    /// Returns the lock's holder on this server. One server alone does not make a hold. `None` also
    /// while a client only has the vote of this server.
    ///
    /// ```
    /// # use distlock::{KeyState, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// fn votes(state: &KeyState) -> usize {
    ///     state.servers().iter().filter(|server| server.holder().is_some()).count()
    /// }
    ///
    /// let _held = locks.lock("report").acquire().await?;
    /// assert_eq!(votes(&locks.inspect("report").await?), 0, "the memory store is no quorum");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns why the server could not be inspected; `None` if it was inspected.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let state = locks.inspect("report").await?;
    /// let away = state.servers().iter().filter(|server| server.trouble().is_some());
    /// assert_eq!(away.count(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn of(server: AtServer) -> Self {
        let (seen, trouble) = match server.seen {
            Ok(seen) => (Some(seen), None),
            Err(trouble) => (None, Some(trouble.detail)),
        };
        let holder = seen.as_ref().and_then(|seen| seen.occupant.as_ref());
        ServerState {
            address: server.address,
            holder: holder.map(Occupant::holder),
            waiters: seen.as_ref().map_or(0, |seen| seen.waiters),
            last_token: seen.and_then(|seen| seen.last_token),
            trouble,
        }
    }
}

impl KeyState {
    /// Returns the holders; empty if the lock is free.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let who = |state: distlock::KeyState| state.holders().first().map(ToString::to_string);
    /// assert_eq!(who(locks.inspect("report").await?), None);
    /// let _held = locks.lock("report").acquire().await?;
    /// assert!(who(locks.inspect("report").await?).is_some_and(|text| text.starts_with("held by")));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns the waiters in the order in which they are served, at most the first 1,000.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let lock = locks.lock("report");
    /// let _held = lock.acquire().await?;
    /// let _next = tokio::spawn(async move { lock.acquire().await });
    /// while locks.inspect("report").await?.waiting().is_empty() {
    ///     tokio::task::yield_now().await;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waiting(&self) -> &[Waiter] {
        &self.waiting
    }

    /// Returns the lock's state on each server of a quorum, in the order of the URL; empty without
    /// a quorum.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let state = locks.inspect("report").await?;
    /// assert!(state.servers().is_empty(), "one store, and no quorum");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn servers(&self) -> &[ServerState] {
        &self.servers
    }
}

impl LockManager {
    /// Returns the current state of a lock, including its holder and its waiters.
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// let manager = distlock::LockManager::memory();
    /// let guard = manager.lock("report").acquire().await?;
    ///
    /// let seen = manager.inspect("report").await?;
    /// assert_eq!(seen.holders().len(), 1);
    /// assert_eq!(seen.last_token, Some(guard.fencing_token()));
    /// assert_eq!(seen.waiters, 0);
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKey`], [`Error::KeyConflict`], [`Error::Unavailable`], [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Inspecting changes nothing, whenever the future is dropped.
    pub async fn inspect(&self, key: impl Into<String>) -> Result<KeyState, Error> {
        let key = LockKey::new(&key.into())?;
        self.at_home(|core| async move { inspect(&core, key, NAMED).await })
            .await
    }

    /// Runs `work` on the I/O thread, where the connections are. The work continues if this future
    /// is dropped.
    pub(crate) async fn at_home<T, Fut>(
        &self,
        work: impl FnOnce(Arc<Core>) -> Fut,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.check_alive()?;
        let (reply, answer) = oneshot::channel();
        let work = work(self.core().clone());
        self.core().executor.spawn_later(async move {
            // The caller may have dropped its future.
            let _ = reply.send(work.await);
        });
        answer.await.unwrap_or_else(|_| Err(shut_down_error()))
    }
}

pub(crate) async fn inspect(
    core: &Arc<Core>,
    key: LockKey,
    waiters: usize,
) -> Result<KeyState, Error> {
    let seen = look(core, &key, waiters, Duration::ZERO).await?;
    observed::publish_queue(core, &key, seen.waiters);
    Ok(KeyState {
        key: key.to_string(),
        holders: seen.occupant.iter().map(Occupant::holder).collect(),
        fencing_token: seen.occupant.as_ref().map(|occupant| occupant.token),
        remaining: seen.left.filter(|_| seen.occupant.is_some()),
        waiters: seen.waiters,
        waiting: seen.waiting.into_iter().map(Waiter::of).collect(),
        last_token: seen.last_token,
        servers: seen.servers.into_iter().map(ServerState::of).collect(),
    })
}

/// Returns the store's view of a lock. An error reports that the call has waited for `waited`.
pub(crate) async fn look(
    core: &Core,
    key: &LockKey,
    waiters: usize,
    waited: Duration,
) -> Result<Inspection, Error> {
    let seen = core.call(Inspect { key, waiters }, INSPECT_WITHIN).await;
    let key = || key.to_string();
    let seen = *seen.map_err(|trouble| trouble.into_error(Some(key()), waited))?;
    match seen.foreign {
        Some(detail) => Err(Error::KeyConflict { key: key(), detail }),
        None => Ok(seen),
    }
}

impl Waiter {
    fn of(waiting: Waiting) -> Self {
        Waiter {
            client: waiting.name,
            since: wall(waiting.since),
            this_process: waiting.this_process,
        }
    }
}
