//! Connecting: opens the store and starts a manager's background work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::config::credentials::CredentialsProvider;
use crate::config::limits::Limits;
use crate::config::options::{Defaults, FENCE_TTL_RANGE, Options, check_times};
use crate::config::quorum::Quorum;
use crate::error::Error;
use crate::error::LockKind;
use crate::manager::LockManager;
use crate::manager::builder::explain::explain;
use crate::manager::builder::{LockManagerBuilder, Parts};
use crate::manager::engine::core::{Core, Phase, shut_down_error};
use crate::manager::engine::driver;
use crate::manager::engine::events::EventReceiver;
use crate::manager::engine::executor::{Executor, IoThread};
use crate::manager::engine::queue_check;
use crate::manager::engine::registry::Registry;
use crate::manager::engine::renewal_monitor::RenewalMonitor;
use crate::manager::engine::shutdown;
use crate::manager::telemetry::known_data::KnownData;
use crate::manager::telemetry::logged_names::LoggedNames;
use crate::observer::telemetry::Telemetry;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::memory::server::MemoryServer;
use crate::store::redis::conn::client::Client;
use crate::store::redis::conn::hooks::SingleServer;
use crate::store::redis::open;
use crate::store::redis::quorum::limits;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::{ServerLocation, StoreLocation};
use crate::store::{EventSink, IsIdle, OpenedStore, Settings};
use crate::util::clock::{BootClock, TokioClock};
use crate::util::process::ProcessId;
use crate::util::random::SystemRandom;
use crate::util::visible::cleaned;

impl LockManagerBuilder {
    /// Connects to the store that the URL names, see [`LockManager::connect`]. Retries for up to
    /// the [`connect_timeout`](LockManagerBuilder::connect_timeout) while the server cannot be
    /// reached, is loading, or is a replica.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let builder = LockManager::builder().client_name("checkout-3");
    /// let locks = builder.connect("memory:").await?; // in production: redis://127.0.0.1:6379
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`LockManager::connect`], and [`Error::Config`] for an invalid option, or one
    /// that does not fit the URL.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection that was opened.
    pub async fn connect(self, url: &str) -> Result<LockManager, Error> {
        match self.store(url) {
            Ok(Store::Memory(server)) => self.on_memory_server(server),
            Ok(Store::Redis(config)) => self.connect_redis(*config).await,
            Err(error) => Err(explain(error, &self.origins)),
        }
    }

    /// Creates a manager that connects in the background, and never waits. Use it for a service
    /// that must start while its Redis is down.
    ///
    /// Calls wait for the first connection for up to their own `wait`, and then fail with
    /// [`Error::Unavailable`]. Calls that do not wait fail at once. Calls also report a wrong
    /// password or a missing permission.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let builder = LockManager::builder().client_name("checkout-3");
    /// let locks = builder.connect_lazy("redis://127.0.0.1:1")?; // nothing listens there yet
    /// let error = locks.lock("report").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    /// assert!(error.is_unavailable(), "no connection within `wait`");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, for an option that is invalid or does not fit the
    /// URL, and if the system refuses to start a thread.
    pub fn connect_lazy(self, url: &str) -> Result<LockManager, Error> {
        match self.store(url)? {
            Store::Memory(server) => self.on_memory_server(server),
            Store::Redis(config) => {
                let assembly = Assembly::on_io_thread(self.parts())?;
                let client = assembly.client(self.settings());
                let opened = {
                    let _entered = assembly.executor.enter();
                    open::connect_lazy(&config, client)
                };
                Ok(assembly.finish(opened, self.settings(), self.defaults))
            }
        }
    }

    /// Returns the store that the URL names. Fails if an option cannot work.
    pub(crate) fn store(&self, url: &str) -> Result<Store, Error> {
        self.check()?;
        if let Some(name) = url.strip_prefix("memory:") {
            return Ok(Store::Memory(match name {
                "" => MemoryServer::new(Arc::new(BootClock)),
                name => MemoryServer::named(&format!("{name} {}", self.namespace)),
            }));
        }
        let mut config = RedisConfig::parse(url, &self.namespace, self.connect_timeout)?;
        match (&self.tls, &mut config.tls) {
            (Some(_), None) => {
                return Err(Error::config(
                    "`tls` was set, but the URL asks for a plain connection; write rediss:// for TLS",
                ));
            }
            (Some(settings), Some(tls)) => tls.clone_from(settings),
            (None, _) => {}
        }
        let has_sentinels = matches!(
            config.location,
            StoreLocation::Single(ServerLocation::Sentinel { .. })
        );
        if self.sentinel_credentials.is_some() && !has_sentinels {
            return Err(Error::config(
                "`sentinel_credentials` was set, but the URL names no sentinels; write \
                 redis+sentinel://host,host/service",
            ));
        }
        config.sentinel_credentials = self.sentinel_credentials.clone();
        config.max_runtime_connections = self.max_runtime_connections;
        config.credentials = self.checked_credentials_provider(&config)?;
        config.quorum = self.checked_quorum(&config)?;
        Ok(Store::Redis(Box::new(config)))
    }

    async fn connect_redis(self, config: RedisConfig) -> Result<LockManager, Error> {
        let assembly = Assembly::on_io_thread(self.parts())?;
        let client = assembly.client(self.settings());
        let connecting = Box::pin(async move {
            let open = |client| open::connect_lazy(&config, client);
            open::connect(&config, client, open).await
        });
        let (mut sender, receiver) = oneshot::channel();
        assembly.executor.spawn(async move {
            tokio::select! {
                store = connecting => drop(sender.send(store)),
                () = sender.closed() => {}
            }
        });
        let opened = receiver.await.map_err(|_| shut_down_error())?;
        let opened = opened.map_err(|error| explain(error, &self.origins))?;
        Ok(assembly.finish(opened, self.settings(), self.defaults))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        if !is_namespace(&self.namespace) {
            return refuse(
                "the namespace must be 1 to 64 bytes long, without white space, quotes, braces or control characters; no \
                 part after a `:` may be `lock`, `queue`, `entry`, `fence`, `done` or `client`",
            );
        }
        let times = Options::of(&self.defaults);
        check_times(times.lease(), times.wait()).map_err(Error::config)?;
        if self.connect_timeout.is_zero() {
            return refuse("the connect timeout must be longer than zero");
        }
        if !FENCE_TTL_RANGE.contains(&self.settings.fence_ttl) {
            return refuse(&format!(
                "the fence TTL is {:?}: set it to between a minute (below that, tokens could decrease soon after an \
                 acquisition) and 366 days (above that, unused keys would be kept too long)",
                self.settings.fence_ttl
            ));
        }
        Ok(())
    }

    pub(crate) fn settings(&self) -> Settings {
        let clean = |name: &String| cleaned(name, MAX_NAME);
        let name = self.client_name.as_ref().map(clean);
        let name = name.filter(|name| !name.trim().is_empty());
        Settings {
            display_name: name.unwrap_or_else(host_and_pid),
            ..self.settings.clone()
        }
    }

    /// Creates a manager with an in-process store and no thread. All work runs on the current
    /// runtime and takes the time from `tokio::time`, so that tests can pause and advance it.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().in_memory_on_current_runtime()?;
    /// let _held = locks.lock("report").acquire().await?;
    ///
    /// // Under a paused clock, ten seconds pass at once.
    /// let began = tokio::time::Instant::now();
    /// assert!(locks.lock("report").acquire().await.is_err_and(|error| error.is_busy()));
    /// assert!(began.elapsed() >= Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] outside a tokio runtime, or for an invalid option.
    pub fn in_memory_on_current_runtime(self) -> Result<LockManager, Error> {
        self.check_memory()?;
        self.in_memory_with(|store, _| store.into_opened_store())
    }

    /// Creates the same manager over the store that `wrap_store` returns.
    pub(crate) fn in_memory_with(
        self,
        wrap_store: impl FnOnce(MemoryStore, EventSink) -> OpenedStore,
    ) -> Result<LockManager, Error> {
        self.check()?;
        let executor = Executor::current()?;
        let parts = Parts {
            clock: Arc::new(TokioClock::new()),
            ..self.parts()
        };
        let server = MemoryServer::new(parts.clock.clone());
        let assembly = Assembly::on_executor(executor, parts);
        Ok(self.finish_memory(assembly, server, wrap_store))
    }

    /// Creates a manager with an in-process store of its own and the real clock, for development
    /// and tests.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// let locks = LockManager::builder().client_name("a test").in_memory()?;
    /// let refused = LockManager::builder().namespace("").in_memory();
    /// assert!(matches!(refused, Err(Error::Config { .. })));
    /// # Ok::<(), distlock::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid option, and if the system refuses to start a thread.
    pub fn in_memory(self) -> Result<LockManager, Error> {
        self.on_memory_server(MemoryServer::new(Arc::new(BootClock)))
    }

    pub(crate) fn on_memory_server(self, server: MemoryServer) -> Result<LockManager, Error> {
        self.check_memory()?;
        let assembly = Assembly::on_io_thread(self.parts())?;
        Ok(self.finish_memory(assembly, server, |store, _| store.into_opened_store()))
    }

    fn finish_memory(
        self,
        assembly: Assembly,
        server: MemoryServer,
        wrap_store: impl FnOnce(MemoryStore, EventSink) -> OpenedStore,
    ) -> LockManager {
        let client = ClientId::new(&SystemRandom);
        let events = assembly.event_receiver.sink();
        let store = MemoryStore::new(server, client, self.settings(), events.clone());
        assembly.finish(wrap_store(store, events), self.settings(), self.defaults)
    }

    /// Returns the credentials provider, unless the URL has the credentials.
    pub(crate) fn checked_credentials_provider(
        &self,
        config: &RedisConfig,
    ) -> Result<Option<CredentialsProvider>, Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        match (&self.credentials, self.credentials_refresh_interval) {
            (None, None) => Ok(None),
            (None, Some(_)) => refuse(
                "`credentials_refresh_interval` was set, but no `credentials_provider`; set the provider, or \
                    remove the interval",
            ),
            (Some(_), _) if config.has_credentials() => refuse(
                "`credentials` was set, but the URL has a user or a password too; remove them from the URL",
            ),
            (Some(_), Some(interval)) if interval < Duration::from_secs(1) => {
                refuse("`credentials_refresh_interval` must be at least a second")
            }
            (Some(provider), interval) => {
                let mut provider = provider.clone();
                provider.interval = interval.unwrap_or(provider.interval);
                Ok(Some(provider))
            }
        }
    }

    /// Fails if an option is invalid, or needs a server.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        self.check()?;
        let checked = Limits::MEMORY.check_durability(self.defaults.durability);
        checked.map_err(Error::config)
    }

    /// Returns the quorum options. Fails if they do not fit the URL.
    fn checked_quorum(&self, config: &RedisConfig) -> Result<Quorum, Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        match (&config.location, &self.quorum) {
            (StoreLocation::Quorum(servers), quorum) => {
                let quorum = quorum.clone().unwrap_or_default();
                quorum.check(servers.len())?;
                let limits = limits::of_quorum(quorum.max_lease);
                // The built-in lease may be too long, for calls with a lease of their own.
                let options = Options {
                    lease: Some(self.defaults.lease.unwrap_or_default()),
                    ..Options::of(&self.defaults)
                };
                limits
                    .check(LockKind::Mutex, &options)
                    .map_err(Error::config)?;
                Ok(quorum)
            }
            (_, Some(_)) => refuse(
                "`quorum` was set, but the URL names no quorum; write redis+quorum://host,host,host",
            ),
            (_, None) => Ok(Quorum::default()),
        }
    }

    /// Returns the components of the manager. The feature `metrics` adds an observer.
    pub(crate) fn parts(&self) -> Parts {
        #[cfg_attr(not(feature = "metrics"), allow(unused_mut))]
        let mut parts = self.parts.clone();
        #[cfg(feature = "metrics")]
        parts
            .observers
            .push(Arc::new(crate::metrics::Metrics::new()));
        parts
    }
}

pub(crate) enum Store {
    Memory(MemoryServer),
    Redis(Box<RedisConfig>),
}

/// Returns true if `name` can precede the kind of a key in the store (`shop:lock:...`). A namespace
/// that contains a kind is rejected: `b` in the namespace `shop:lock:a` would have the same key as
/// `a:lock:b` in `shop`.
pub(crate) fn is_namespace(name: &str) -> bool {
    const KINDS: [&str; 6] = ["lock", "queue", "entry", "fence", "done", "client"];
    let is_illegal = |c: char| c.is_control() || c.is_whitespace() || "{}\"'".contains(c);
    !name.is_empty()
        && name.len() <= 64
        && !name.contains(is_illegal)
        && !name.split(':').skip(1).any(|part| KINDS.contains(&part))
}

/// Maximum length of a client's name, in bytes.
const MAX_NAME: usize = 128;

fn host_and_pid() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    format!("{}:{}", cleaned(&host, 100), std::process::id())
}

/// Everything needed to build a manager once the store is open.
pub(crate) struct Assembly {
    parts: Parts,
    pub(crate) executor: Executor,
    pub(crate) event_receiver: EventReceiver,
    telemetry: Arc<Telemetry>,
    registry: Arc<Registry>,
    /// The I/O thread, and the slot for the manager that it drains at its end.
    io_thread: Option<(IoThread, Arc<OnceCell<Arc<Core>>>)>,
}

impl Assembly {
    /// Starts an I/O thread for a manager.
    pub(crate) fn on_io_thread(parts: Parts) -> Result<Self, Error> {
        let core_slot: Arc<OnceCell<Arc<Core>>> = Arc::default();
        let thread_core_slot = core_slot.clone();
        let (io_thread, executor) =
            IoThread::start(parts.background_runtime.clone(), async move {
                if let Some(core) = thread_core_slot.get() {
                    shutdown::drain(core.clone()).await;
                }
            })?;
        Ok(Assembly {
            io_thread: Some((io_thread, core_slot)),
            ..Self::on_executor(executor, parts)
        })
    }

    /// Prepares a manager that runs its work on `executor`.
    pub(crate) fn on_executor(executor: Executor, parts: Parts) -> Self {
        let delivery_executor = executor.clone();
        let spawn = Box::new(move |work| delivery_executor.spawn_blocking(work));
        let telemetry = Telemetry::new(parts.observers.clone(), spawn);
        Assembly {
            parts,
            event_receiver: EventReceiver::new(executor.clone(), telemetry.clone()),
            telemetry,
            executor,
            registry: Arc::default(),
            io_thread: None,
        }
    }

    pub(crate) fn client(&self, settings: Settings) -> Client {
        Client {
            id: ClientId::new(&*self.parts.random),
            settings,
            clock: self.parts.clock.clone(),
            random: self.parts.random.clone(),
            events: self.event_receiver.sink(),
            is_idle: self.is_idle(),
            scripts: self.parts.scripts.clone(),
            runtime_connection_after: self.parts.runtime_connection_after,
            transport_factory: self.parts.transport_factory,
            hooks: Arc::new(SingleServer),
            registry: Arc::default(),
            state: Arc::default(),
        }
    }

    /// Returns a predicate that is true while this client has nothing in the store.
    pub(crate) fn is_idle(&self) -> IsIdle {
        let registry = self.registry.clone();
        Arc::new(move || registry.is_empty())
    }

    /// Starts the background work, and returns the manager with these defaults.
    pub(crate) fn finish(
        self,
        opened: OpenedStore,
        settings: Settings,
        defaults: Defaults,
    ) -> LockManager {
        let core = Arc::new(Core {
            process: ProcessId::current(),
            store: opened.store,
            identity: opened.identity,
            address: opened.address,
            limits: opened.limits,
            clock: self.parts.clock,
            random: self.parts.random,
            executor: self.executor,
            telemetry: self.telemetry,
            show_keys: self.parts.show_keys,
            max_waiters: settings.max_waiters,
            registry: self.registry,
            abandoned_releases: Mutex::default(),
            renewal_monitor: RenewalMonitor::default(),
            skips: LoggedNames::default(),
            other_permits: LoggedNames::default(),
            known_data: KnownData::new(settings.fence_ttl),
            loss_lines: TaskTracker::new(),
            phase: tokio::sync::watch::Sender::new(Phase::Running),
            shutdown_lock: tokio::sync::Mutex::default(),
        });
        self.event_receiver.attach(&core);
        core.spawn_while_open(driver::run(core.clone()));
        core.spawn_while_open(queue_check::run_queue_checks(core.clone()));
        let io_thread = self.io_thread.map(|(io_thread, core_slot)| {
            // Cannot fail, because it is set only here.
            let _ = core_slot.set(core.clone());
            io_thread
        });
        LockManager::new(core, settings.display_name, defaults, io_thread)
    }
}
