//! The manager: one client of one store, and the process-wide default.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use once_cell::sync::OnceCell;
use tokio::sync::oneshot;

use crate::clock::{BootClock, Clock, TokioClock};
use crate::engine::{Engine, Phase};
use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::io::{Executor, IoThread};
use crate::key::LockKey;
use crate::lock::Lock;
use crate::store::memory::{MemoryServer, MemoryStore};
use crate::store::redis::{RedisConfig, RedisStore};
use crate::store::{ClientId, Inspection, LockStore};

/// How long an inspection may take.
const INSPECT_WITHIN: Duration = Duration::from_secs(1);

const DEFAULT_MAX_WAITERS: u32 = 10_000;
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A client of a lock store: it owns the connections, the watchdog, and the calls that wait.
///
/// Cheap to clone; all clones are the same client. A process usually has one, made at start-up and
/// given to [`install`]. All its background work runs on a thread of its own, so it serves any number
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
    connected: SystemTime,
    /// A child process has no I/O thread.
    pid: u32,
    /// Kept to be dropped: then the thread drains and ends.
    _io: Option<IoThread>,
}

impl LockManager {
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
    /// [`Error::Unavailable`] when the server does not answer within 2 s
    /// ([`Builder::connect_timeout`]). No error contains the password.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url.as_ref()).connect().await
    }

    /// An in-process store of its own, for development and tests, with the real clock.
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
        if self.inner.pid != std::process::id() {
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

    /// An error at once, instead of a wait for a thread that is not there.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.inner.pid != std::process::id() {
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
    pub(crate) fn as_holder(&self) -> Holder {
        Holder {
            client: self.inner.client_name.clone(),
            held_since: self.inner.connected,
            this_process: true,
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("store", &self.inner.identity)
            .field("client", &self.inner.client_name)
            .field("phase", &self.engine().phase())
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
    /// The last fencing token, kept for two hours beyond its use.
    pub last_token: Option<FencingToken>,
}

/// Builds a [`LockManager`].
///
/// ```no_run
/// # async fn f() -> Result<(), distlock::Error> {
/// let manager = distlock::LockManager::builder()
///     .url("redis://127.0.0.1:6379")
///     .namespace("shop")
///     .client_name("checkout-3")
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing by itself; call `connect` or `memory_on_current_runtime`"]
pub struct Builder {
    url: Option<String>,
    namespace: String,
    client_name: Option<String>,
    max_waiters: u32,
    connect_timeout: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            url: None,
            namespace: "distlock".into(),
            client_name: None,
            max_waiters: DEFAULT_MAX_WAITERS,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may contain a password.
        f.debug_struct("Builder")
            .field("url", &self.url.as_ref().map(|_| "<redacted>"))
            .field("namespace", &self.namespace)
            .field("client_name", &self.client_name)
            .field("max_waiters", &self.max_waiters)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

impl Builder {
    /// The URL of the store, see [`LockManager::connect`].
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The first part of every key in the store, default `distlock`. Managers with different
    /// namespaces do not see each other's locks.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The name under which others see this client in [`Error::Busy`], default `host:pid`.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// How many calls may wait for one key, default 10 000; further ones get [`Error::Busy`] at once.
    pub fn max_waiters(mut self, limit: u32) -> Self {
        self.max_waiters = limit;
        self
    }

    /// How long [`connect`](Builder::connect) tries, default 2 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// Those of [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(self) -> Result<LockManager, Error> {
        self.check()?;
        let Some(url) = &self.url else {
            return Err(Error::Config {
                detail: "no URL was given; call `.url(\"redis://127.0.0.1:6379\")` on the builder"
                    .into(),
            });
        };
        match url.strip_prefix("memory:") {
            Some("") => self.memory(MemoryServer::new(Arc::new(BootClock))),
            Some(name) => {
                let server = MemoryServer::named(name);
                self.memory(server)
            }
            None => {
                let config = RedisConfig::parse(url, &self.namespace, self.connect_timeout)?;
                self.redis(config).await
            }
        }
    }

    /// An in-process store without a thread: everything runs on the current runtime and takes all time
    /// from `tokio::time`, so that tests can pause and advance it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] outside of a tokio runtime.
    pub fn memory_on_current_runtime(self) -> Result<LockManager, Error> {
        self.check()?;
        let executor = Executor::current()?;
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let server = MemoryServer::new(clock.clone());
        let engine = Engine::new(clock, executor);
        let store = self.memory_store(server, &engine);
        Ok(self.finish(engine, Box::new(store), None))
    }

    fn memory(self, server: MemoryServer) -> Result<LockManager, Error> {
        self.check()?;
        let (engine, io) = on_io_thread()?;
        let store = self.memory_store(server, &engine);
        Ok(self.finish(engine, Box::new(store), Some(io)))
    }

    fn memory_store(&self, server: MemoryServer, engine: &Arc<Engine>) -> MemoryStore {
        let name = self.name();
        MemoryStore::new(
            server,
            ClientId::new(),
            name,
            self.max_waiters,
            engine.events(),
        )
    }

    async fn redis(self, config: RedisConfig) -> Result<LockManager, Error> {
        let (engine, io) = on_io_thread()?;
        let connecting = RedisStore::connect(
            config,
            ClientId::new(),
            self.name(),
            self.max_waiters,
            engine.clock.clone(),
            engine.events(),
        );
        let (mut reply, answer) = oneshot::channel();
        engine.spawn_later(async move {
            tokio::select! {
                store = connecting => drop(reply.send(store)),
                () = reply.closed() => {}
            }
        });
        match answer.await {
            Ok(store) => Ok(self.finish(engine, Box::new(store?), Some(io))),
            Err(_) => Err(engine.shut_down_error()),
        }
    }

    fn finish(
        self,
        engine: Arc<Engine>,
        store: Box<dyn LockStore>,
        io: Option<IoThread>,
    ) -> LockManager {
        let identity = store.identity().into();
        engine.start(store);
        LockManager {
            inner: Arc::new(Inner {
                engine,
                identity,
                client_name: self.name(),
                connected: SystemTime::now(),
                pid: std::process::id(),
                _io: io,
            }),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |detail: &str| {
            Err(Error::Config {
                detail: detail.into(),
            })
        };
        if self.namespace.is_empty()
            || self.namespace.len() > 64
            || self
                .namespace
                .contains(|c: char| c.is_control() || c.is_whitespace() || "{}".contains(c))
        {
            return refuse(
                "the namespace must have 1 to 64 bytes, without white space, braces and control characters",
            );
        }
        if let Some(name) = &self.client_name
            && (name.is_empty() || name.len() > 128 || name.contains(char::is_control))
        {
            return refuse("the client name must have 1 to 128 bytes, without control characters");
        }
        if self.connect_timeout.is_zero() {
            return refuse("the connect timeout must be longer than zero");
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.client_name.clone().unwrap_or_else(host_and_pid)
    }
}

fn host_and_pid() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let host: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
    format!("{host}:{}", std::process::id())
}

/// An engine on a thread of its own, which drains when the thread is dropped.
fn on_io_thread() -> Result<(Arc<Engine>, IoThread), Error> {
    let slot: Arc<OnceCell<Arc<Engine>>> = Arc::default();
    let of_thread = slot.clone();
    let (io, executor) = IoThread::start(async move {
        if let Some(engine) = of_thread.get() {
            engine.drain().await;
        }
    })?;
    let engine = Engine::new(Arc::new(BootClock), executor);
    // The slot is empty: nobody else has it.
    let _ = slot.set(engine.clone());
    Ok((engine, io))
}

static INSTALLED: OnceCell<LockManager> = OnceCell::new();

/// Makes a manager the default of this process: the one that annotated functions use.
///
/// ```
/// # async fn f() -> Result<(), distlock::Error> {
/// distlock::install(distlock::LockManager::memory())?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
///
/// # Errors
///
/// [`Error::AlreadyInstalled`] the second time, also after [`shutdown`].
pub fn install(manager: LockManager) -> Result<(), Error> {
    INSTALLED.set(manager).map_err(|_| Error::AlreadyInstalled)
}

/// The default manager of this process, if one was [installed](install).
#[must_use]
pub fn installed() -> Option<LockManager> {
    INSTALLED.get().cloned()
}

/// Shuts the installed manager down, see [`LockManager::shutdown`]; does nothing without one.
///
/// # Cancel safety
///
/// Dropping the future does not stop the shutdown.
pub async fn shutdown() {
    if let Some(manager) = installed() {
        manager.shutdown().await;
    }
}
