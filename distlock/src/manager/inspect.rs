//! What a lock looks like, for those who ask.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::core::{Core, shut_down_error};
use crate::manager::observed;
use crate::protocol::words::{AtServer, Inspection, Occupant, Waiting, wall};

/// How long an inspection may take.
pub(super) const INSPECT_WITHIN: Duration = Duration::from_secs(1);

/// So many waiters are named, at most.
const NAMED: usize = 1_000;

/// What a lock looks like, see [`LockManager::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    /// Its key; braces around the whole of it are left out where [`list`](LockManager::list) found it.
    pub key: String,
    holders: Vec<Holder>,
    /// The fencing token of who holds it; `None` if it is free.
    pub fencing_token: Option<FencingToken>,
    /// When others can have it if it is neither renewed nor released; `None` if it is free.
    pub remaining: Option<Duration>,
    /// How many stand in its queue.
    pub waiters: u64,
    waiting: Vec<Waiter>,
    /// The last fencing token, kept for the [`fence_ttl`](crate::LockManagerBuilder::fence_ttl) beyond its acquisition.
    pub last_token: Option<FencingToken>,
    servers: Vec<ServerState>,
}

/// Who stands in the queue of a lock, see [`KeyState::waiting`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The client's name: `host:pid`, unless the builder's `client_name` says otherwise.
    pub client: String,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// Whether it is a call of this very process.
    pub this_process: bool,
}

/// What one server of a quorum has of a lock, see [`KeyState::servers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerState {
    /// Its host and port.
    pub address: String,
    holder: Option<Holder>,
    /// How many stand in its queue.
    pub waiters: u64,
    /// The last fencing token that it knows of.
    pub last_token: Option<FencingToken>,
    trouble: Option<String>,
}

impl ServerState {
    /// Who holds the lock at this server, which alone is no hold. `None` also while somebody only has its vote.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Why it could not be asked, if it could not.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn of(server: AtServer) -> Self {
        let (seen, trouble) = match server.seen {
            Ok(seen) => (Some(seen), None),
            Err(trouble) => (None, Some(trouble.detail)),
        };
        let holder = seen.as_ref().and_then(|seen| seen.holder.as_ref());
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
    /// Who holds it; nobody, if it is free.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Who waits for it, in the order in which they are served: the first thousand.
    #[must_use]
    pub fn waiting(&self) -> &[Waiter] {
        &self.waiting
    }

    /// What each server of a quorum has of it, in the order of the URL; nothing where there is no quorum.
    #[must_use]
    pub fn servers(&self) -> &[ServerState] {
        &self.servers
    }
}

impl LockManager {
    /// What a lock looks like now: who holds it, and who waits.
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
    /// [`Error::InvalidKey`], [`Error::ForeignKey`], [`Error::Unavailable`], [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// It changes nothing, whenever the future is dropped.
    pub async fn inspect(&self, key: impl Into<String>) -> Result<KeyState, Error> {
        let key = LockKey::new(&key.into())?;
        self.at_home(|core| async move { inspect(&core, key, NAMED).await })
            .await
    }

    /// Does something on the manager's thread, where its connections are. It goes on if this is dropped.
    pub(super) async fn at_home<T, Fut>(
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
            // The caller may have gone.
            let _ = reply.send(work.await);
        });
        answer.await.unwrap_or_else(|_| Err(shut_down_error()))
    }
}

pub(super) async fn inspect(
    core: &Arc<Core>,
    key: LockKey,
    waiters: usize,
) -> Result<KeyState, Error> {
    let seen = core.store.inspect(&key, waiters, INSPECT_WITHIN).await;
    match seen {
        Ok(Inspection {
            foreign: Some(detail),
            ..
        }) => Err(Error::ForeignKey {
            key: key.to_string(),
            detail,
        }),
        Ok(seen) => {
            observed::tell_queue(core, &key, seen.waiters);
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
        Err(trouble) => Err(trouble.into_error(Some(key.to_string()), Duration::ZERO)),
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
