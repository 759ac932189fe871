//! Connecting: opens the store and starts a manager's background work.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::config::credentials::CredentialsProvider;
use crate::config::options::{Defaults, FENCE_TTL_RANGE, Options, check_times};
use crate::config::quorum::Quorum;
use crate::error::Error;
use crate::error::LockKind;
use crate::manager::LockManager;
use crate::manager::builder::dependencies::Dependencies;
use crate::manager::builder::explain::explain;
use crate::manager::builder::{DEFAULT_MAX_RUNTIME_CONNECTIONS, LockManagerBuilder};
use crate::manager::core::executor::{Executor, IoThread};
use crate::manager::core::known_data::KnownData;
use crate::manager::core::logged_names::LoggedNames;
use crate::manager::core::registry::Registry;
use crate::manager::core::renewal_log::RenewalLogLimiter;
use crate::manager::core::{Core, Phase, shut_down_error};
use crate::manager::engine::driver;
use crate::manager::engine::events;
use crate::manager::engine::queue_check;
use crate::observer::telemetry::Telemetry;
use crate::store::Capabilities;
use crate::store::client_id::ClientId;
use crate::store::client_id::ProcessId;
use crate::store::connecting::StoreState;
use crate::store::memory::MemoryStore;
use crate::store::memory::server::MemoryServer;
#[cfg(feature = "postgres")]
use crate::store::postgres::config::PostgresConfig;
use crate::store::redis::conn::client::Client;
use crate::store::redis::open;
use crate::store::redis::quorum::capabilities;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::{ServerLocation, StoreLocation};
use crate::store::{OpenedStore, ReportSink, Settings};
use crate::util::clock::{BootClock, TokioClock};
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
            #[cfg(feature = "postgres")]
            Ok(Store::Postgres(config)) => self.connect_postgres(*config).await,
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
                let (manager, _) = self.open_redis(&config, false)?;
                Ok(manager)
            }
            #[cfg(feature = "postgres")]
            Store::Postgres(config) => {
                let (manager, _) = self.open_postgres(&config, false)?;
                Ok(manager)
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
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            #[cfg(feature = "postgres")]
            return Ok(Store::Postgres(Box::new(self.postgres_config(url)?)));
            #[cfg(not(feature = "postgres"))]
            return Err(Error::config(
                "the URL names PostgreSQL, and this build of distlock has only Redis; enable the feature `postgres`",
            ));
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
        config.max_runtime_connections = self
            .max_runtime_connections
            .unwrap_or(DEFAULT_MAX_RUNTIME_CONNECTIONS);
        config.credentials = self.checked_credentials_provider(config.has_credentials())?;
        config.quorum = self.checked_quorum(&config)?;
        Ok(Store::Redis(Box::new(config)))
    }

    async fn connect_redis(self, config: RedisConfig) -> Result<LockManager, Error> {
        let (manager, state) = self.open_redis(&config, true)?;
        let core = manager.core().clone();
        self.wait_connected(manager, async move {
            open::wait_connected(&config, &state, &*core.store, &*core.clock).await
        })
        .await
    }

    /// Returns the manager once it is connected. The wait runs where its connections do.
    pub(crate) async fn wait_connected(
        &self,
        manager: LockManager,
        waiting: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<LockManager, Error> {
        let (mut sender, receiver) = oneshot::channel();
        manager.core().executor.spawn(async move {
            tokio::select! {
                connected = waiting => drop(sender.send(connected)),
                () = sender.closed() => {}
            }
        });
        let connected = receiver.await.map_err(|_| shut_down_error())?;
        connected.map_err(|error| explain(error, &self.origins))?;
        Ok(manager)
    }

    /// Creates a manager that connects in the background, and returns the state of its connections.
    fn open_redis(
        &self,
        config: &RedisConfig,
        is_connecting: bool,
    ) -> Result<(LockManager, Arc<StoreState>), Error> {
        let core_builder = CoreBuilder::on_io_thread(self.dependencies())?;
        let state = Arc::new(StoreState::default());
        state.is_connecting.store(is_connecting, Ordering::Relaxed);
        let settings = self.settings();
        let manager = core_builder.build(&settings, self.defaults, |builder, core| {
            let client = Client {
                state: state.clone(),
                ..builder.client(settings.clone(), core)
            };
            let _entered = builder.executor.enter();
            open::connect_lazy(config, client)
        });
        Ok((manager, state))
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
            client_name: name.unwrap_or_else(host_and_pid),
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
        wrap_store: impl FnOnce(MemoryStore, &Weak<Core>) -> OpenedStore,
    ) -> Result<LockManager, Error> {
        self.check()?;
        let dependencies = Dependencies {
            clock: Arc::new(TokioClock::new()),
            ..self.dependencies()
        };
        let server = MemoryServer::new(dependencies.clock.clone());
        let core_builder = CoreBuilder::on_executor(Executor::current()?, dependencies);
        Ok(self.over_memory(core_builder, server, wrap_store))
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
        let core_builder = CoreBuilder::on_io_thread(self.dependencies())?;
        Ok(self.over_memory(core_builder, server, |store, _| store.into_opened_store()))
    }

    fn over_memory(
        self,
        core_builder: CoreBuilder,
        server: MemoryServer,
        wrap_store: impl FnOnce(MemoryStore, &Weak<Core>) -> OpenedStore,
    ) -> LockManager {
        let settings = self.settings();
        core_builder.build(&settings, self.defaults, |_, core| {
            let id = ClientId::new();
            let events = events::event_sink(core.clone());
            wrap_store(MemoryStore::new(server, id, settings.clone(), events), core)
        })
    }

    /// Returns the credentials provider, unless the URL has the credentials.
    pub(crate) fn checked_credentials_provider(
        &self,
        has_url_credentials: bool,
    ) -> Result<Option<CredentialsProvider>, Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        match (&self.credentials, self.credentials_refresh_interval) {
            (None, None) => Ok(None),
            (None, Some(_)) => refuse(
                "`credentials_refresh_interval` was set, but no `credentials_provider`; set the provider, or \
                    remove the interval",
            ),
            (Some(_), _) if has_url_credentials => refuse(
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
        let checked = Capabilities::MEMORY.check_durability(self.defaults.durability);
        checked.map_err(Error::config)
    }

    /// Returns the quorum options. Fails if they do not fit the URL.
    fn checked_quorum(&self, config: &RedisConfig) -> Result<Quorum, Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        match (&config.location, &self.quorum) {
            (StoreLocation::Quorum(servers), quorum) => {
                let quorum = quorum.clone().unwrap_or_default();
                quorum.check(servers.len())?;
                let capabilities = capabilities::of_quorum(quorum.max_lease);
                // The built-in lease may be too long, for calls with a lease of their own.
                let options = Options {
                    lease: Some(self.defaults.lease.unwrap_or_default()),
                    ..Options::of(&self.defaults)
                };
                capabilities
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

    /// Returns the dependencies of the manager. The feature `metrics` adds an observer.
    pub(crate) fn dependencies(&self) -> Dependencies {
        #[cfg_attr(not(feature = "metrics"), allow(unused_mut))]
        let mut dependencies = self.dependencies.clone();
        #[cfg(feature = "metrics")]
        dependencies
            .observers
            .push(Arc::new(crate::metrics::Metrics::new()));
        dependencies
    }
}

pub(crate) enum Store {
    Memory(MemoryServer),
    Redis(Box<RedisConfig>),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresConfig>),
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

/// Builds a manager. Its store is opened while its state is built, because each of the two refers to
/// the other.
pub(crate) struct CoreBuilder {
    pub(crate) dependencies: Dependencies,
    pub(crate) executor: Executor,
    telemetry: Arc<Telemetry>,
    io_thread: Option<IoThread>,
}

impl CoreBuilder {
    /// Starts an I/O thread for a manager.
    pub(crate) fn on_io_thread(dependencies: Dependencies) -> Result<Self, Error> {
        let (io_thread, executor) = IoThread::start(dependencies.background_runtime.clone())?;
        Ok(CoreBuilder {
            io_thread: Some(io_thread),
            ..Self::on_executor(executor, dependencies)
        })
    }

    /// Prepares a manager that runs its work on `executor`.
    pub(crate) fn on_executor(executor: Executor, dependencies: Dependencies) -> Self {
        let delivery_executor = executor.clone();
        let spawn = Box::new(move |work| delivery_executor.spawn_blocking(work));
        CoreBuilder {
            telemetry: Telemetry::new(dependencies.observers.clone(), spawn),
            dependencies,
            executor,
            io_thread: None,
        }
    }

    /// Returns where a store of this manager reports.
    pub(crate) fn report_sink(&self, core: &Weak<Core>) -> ReportSink {
        let (executor, telemetry) = (self.executor.clone(), self.telemetry.clone());
        events::report_sink(core.clone(), executor, telemetry)
    }

    /// Returns the client of a Redis store for this manager.
    pub(crate) fn client(&self, settings: Settings, core: &Weak<Core>) -> Client {
        let manager = core.clone();
        Client {
            reports: self.report_sink(core),
            is_idle: Arc::new(move || {
                manager
                    .upgrade()
                    .is_none_or(|core| core.registry.is_empty())
            }),
            ..self
                .dependencies
                .client(settings, events::event_sink(core.clone()))
        }
    }

    /// Opens the store, starts the background work, and returns the manager with these defaults.
    pub(crate) fn build(
        mut self,
        settings: &Settings,
        defaults: Defaults,
        open: impl FnOnce(&Self, &Weak<Core>) -> OpenedStore,
    ) -> LockManager {
        let io_thread = self.io_thread.take();
        let core = Arc::new_cyclic(|core| {
            let opened = open(&self, core);
            Core {
                process: ProcessId::current(),
                store: opened.store,
                system: opened.system,
                identity: opened.identity,
                address: opened.address,
                capabilities: opened.capabilities,
                clock: self.dependencies.clock,
                random: self.dependencies.random,
                executor: self.executor,
                telemetry: self.telemetry,
                show_keys: self.dependencies.show_keys,
                max_waiters: settings.max_waiters,
                registry: Registry::default(),
                abandoned_releases: Mutex::default(),
                renewal_log: RenewalLogLimiter::default(),
                skips: LoggedNames::default(),
                other_permits: LoggedNames::default(),
                known_data: KnownData::new(settings.fence_ttl),
                loss_lines: TaskTracker::new(),
                phase: tokio::sync::watch::Sender::new(Phase::Running),
                shutdown_lock: tokio::sync::Mutex::default(),
                #[cfg(feature = "testing")]
                call_hook: self.dependencies.call_hook,
            }
        });
        core.spawn_while_open(driver::run(core.clone()));
        core.spawn_while_open(queue_check::run_queue_checks(core.clone()));
        LockManager::new(core, settings.client_name.clone(), defaults, io_thread)
    }
}
