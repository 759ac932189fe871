//! What a lock looks like, for those who ask.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::core::shut_down_error;
use crate::manager::observed;
use crate::protocol::words::{AtServer, Inspection, Occupant};

/// How long an inspection may take.
const INSPECT_WITHIN: Duration = Duration::from_secs(1);

/// What a lock looks like, see [`LockManager::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    holders: Vec<Holder>,
    /// How many stand in its queue.
    pub waiters: u64,
    /// The last fencing token, kept for the [`fence_ttl`](crate::LockManagerBuilder::fence_ttl) beyond its acquisition.
    pub last_token: Option<FencingToken>,
    servers: Vec<ServerState>,
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

    /// What each server of a quorum has of it, in the order of the URL; nothing where there is no quorum.
    #[must_use]
    pub fn servers(&self) -> &[ServerState] {
        &self.servers
    }
}

impl LockManager {
    /// What a lock looks like now: who holds it, and how many wait.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKey`], [`Error::ForeignKey`], [`Error::Unavailable`], [`Error::ShutDown`].
    pub async fn inspect(&self, key: impl Into<String>) -> Result<KeyState, Error> {
        let text = key.into();
        let key = LockKey::new(&text)?;
        self.check_alive()?;
        let core = self.core().clone();
        let (reply, answer) = oneshot::channel();
        let asked = key.clone();
        self.core().executor.spawn_later(async move {
            // The caller may have gone.
            let _ = reply.send(core.store.inspect(&key, INSPECT_WITHIN).await);
        });
        match answer.await {
            Ok(Ok(Inspection {
                foreign: Some(detail),
                ..
            })) => Err(Error::ForeignKey { key: text, detail }),
            Ok(Ok(seen)) => {
                observed::tell_queue(self.core(), &asked, seen.waiters);
                Ok(KeyState {
                    holders: seen.occupant.iter().map(Occupant::holder).collect(),
                    waiters: seen.waiters,
                    last_token: seen.last_token,
                    servers: seen.servers.into_iter().map(ServerState::of).collect(),
                })
            }
            Ok(Err(trouble)) => Err(trouble.into_error(Some(text), Duration::ZERO)),
            Err(_) => Err(shut_down_error()),
        }
    }
}
