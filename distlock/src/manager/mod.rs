//! The manager: one client of one store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::BootClock;
use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::lock::Lock;
use crate::manager::builder::Builder;
use crate::manager::engine::{Engine, Phase};
use crate::manager::executor::IoThread;
use crate::protocol::words::{Inspection, wall};
use crate::store::memory::MemoryServer;

pub(crate) mod acquire;
pub(crate) mod builder;
pub(crate) mod counted;
pub(crate) mod engine;
pub(crate) mod executor;
pub(crate) mod hold;
pub(crate) mod releases;
pub(crate) mod report;
pub(crate) mod waiters;
pub(crate) mod watchdog;

/// How long an inspection may take.
const INSPECT_WITHIN: Duration = Duration::from_secs(1);

/// A client of a lock store: it owns the connections, the watchdog, and the calls that wait.
///
/// Cheap to clone; all clones are the same client. A process usually has one, made at start-up and
/// given to [`install`](crate::install). All its background work runs on a thread of its own, so it serves any number
/// of runtimes, and code that blocks its own runtime does not delay renewals.
///
/// When the last clone and the last guard are gone it finishes the releases under way (for at most 2 s)
/// and ends; the end of the process does not wait for that, but [`shutdown`](LockManager::shutdown) does.
#[derive(Clone)]
pub struct LockManager {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    identity: Arc<str>,
    client_name: String,
    /// A child process has no I/O thread.
    pid: u32,
    /// Kept to be dropped: then the thread drains and ends.
    io: Option<IoThread>,
}

impl LockManager {
    pub(crate) fn new(
        engine: Arc<Engine>,
        identity: Arc<str>,
        client_name: String,
        io: Option<IoThread>,
    ) -> Self {
        LockManager {
            inner: Arc::new(Inner {
                engine,
                identity,
                client_name,
                pid: std::process::id(),
                io,
            }),
        }
    }

    /// Connects to the store that the URL names:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, or `redis+unix:///path/to/socket`;
    /// - `memory:` is an in-process store of its own, `memory:<name>` one that all managers of this
    ///   process with the same name share. They are for development and tests: they exclude nobody in
    ///   another process.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, an unknown scheme, wrong credentials or missing rights,
    /// [`Error::Unavailable`] when the server cannot be used within 2 s
    /// ([`Builder::connect_timeout`]). No error contains the password.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url.as_ref()).connect().await
    }

    /// Makes a manager that connects in the background, see [`Builder::connect_lazy`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL.
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url.as_ref()).connect_lazy()
    }

    /// An in-process store of its own, for development and tests, with the real clock. Under
    /// `tokio::time::pause` use [`Builder::memory_on_current_runtime`].
    ///
    /// # Panics
    ///
    /// If the system refuses to start a thread.
    #[must_use]
    pub fn memory() -> Self {
        match Self::builder().memory(MemoryServer::new(Arc::new(BootClock))) {
            Ok(manager) => manager,
            Err(error) => panic!("{error}"),
        }
    }

    /// A builder, for everything that a URL does not say.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects to the store that the environment variable `DISTLOCK_URL` names.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when the variable is not set, and those of [`connect`](LockManager::connect).
    pub async fn from_env() -> Result<Self, Error> {
        match std::env::var("DISTLOCK_URL") {
            Ok(url) => Self::connect(url).await,
            Err(_) => Err(Error::Config {
                detail: "the environment variable DISTLOCK_URL is not set (or not UTF-8); set it to a URL \
                         such as redis://127.0.0.1:6379, or to memory: for development"
                    .into(),
            }),
        }
    }

    /// Describes a lock. Nothing is checked, and nobody asked, before it is acquired.
    ///
    /// Keys are at most 512 bytes, without control characters, and with at most one non-empty `{...}`,
    /// which is a Redis Cluster hash tag. Pass foreign values through [`escape`](crate::escape).
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(self.clone(), key.into())
    }

    /// What a lock looks like now: who holds it, and how many wait.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKey`], [`Error::ForeignKey`], [`Error::Unavailable`], [`Error::ShutDown`].
    pub async fn inspect(&self, key: impl Into<String>) -> Result<KeyState, Error> {
        let text = key.into();
        let key = LockKey::new(&text)?;
        self.check_alive()?;
        let engine = self.engine().clone();
        let (reply, answer) = oneshot::channel();
        self.engine().spawn_later(async move {
            // The caller may have gone.
            let _ = reply.send(engine.store().inspect(&key, INSPECT_WITHIN).await);
        });
        match answer.await {
            Ok(Ok(Inspection {
                foreign: Some(detail),
                ..
            })) => Err(Error::ForeignKey { key: text, detail }),
            Ok(Ok(seen)) => Ok(KeyState {
                holder: seen.occupant.map(|occupant| occupant.holder()),
                waiters: seen.waiters,
                last_token: seen.last_token,
            }),
            Ok(Err(trouble)) => Err(trouble.into_error(Some(text), Duration::ZERO)),
            Err(_) => Err(self.engine().shut_down_error()),
        }
    }

    /// Ends this manager, for all its clones: calls that wait get [`Error::ShutDown`], bodies are
    /// stopped with [`Error::Lost`], everything held is released, and connections are closed. A body
    /// that does not await keeps its lock until it ends, for at most its lease.
    ///
    /// Await it before the process exits, so that no key stays behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown.
    pub async fn shutdown(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let engine = self.engine().clone();
        let (done, finished) = oneshot::channel();
        self.engine().spawn_later(async move {
            engine.shut_down().await;
            // The caller may have gone.
            let _ = done.send(());
        });
        // An error means that there is nothing left to shut down.
        let _ = finished.await;
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    pub(crate) fn store_identity(&self) -> &Arc<str> {
        &self.inner.identity
    }

    /// The server, for a store that has one.
    pub(crate) fn address(&self) -> Option<&str> {
        self.engine().store().address()
    }

    /// A forked child has no I/O thread, and its parent's locks are not its own.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.inner.pid == std::process::id()
    }

    /// An error at once, instead of a wait for a thread that is not there.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if !self.is_of_this_process() {
            return Err(Error::ShutDown {
                detail:
                    "this process was forked from the one that connected it; connect a new manager \
                         after fork"
                        .into(),
            });
        }
        if self.engine().phase() != Phase::Running {
            return Err(self.engine().shut_down_error());
        }
        Ok(())
    }

    /// This process, as the holder of a lock.
    pub(crate) fn as_holder(&self, held_for: Duration) -> Holder {
        Holder {
            client: self.inner.client_name.clone(),
            held_since: wall(self.engine().clock.wall_micros()) - held_for,
            this_process: true,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A thread drains by itself when it is dropped; on the caller's runtime releases are done in place.
        if self.io.is_none() {
            self.engine.abandon();
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockManager");
        shown
            .field("store", &self.inner.identity)
            .field("client", &self.inner.client_name);
        if !self.is_of_this_process() {
            return shown.finish_non_exhaustive();
        }
        let (held, waiting, releasing) = self.engine().in_use();
        shown
            .field("phase", &self.engine().phase())
            .field("held", &held)
            .field("waiting", &waiting)
            .field("releasing", &releasing)
            .finish()
    }
}

/// What a lock looks like, see [`LockManager::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    /// Who holds it.
    pub holder: Option<Holder>,
    /// How many stand in its queue.
    pub waiters: u64,
    /// The last fencing token, kept for the [`fence_ttl`](crate::Builder::fence_ttl) beyond its acquisition.
    pub last_token: Option<FencingToken>,
}
