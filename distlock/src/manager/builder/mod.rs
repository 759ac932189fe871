//! The options of a manager.

pub(crate) mod connect;
pub(crate) mod dependencies;
pub(crate) mod environment;
pub(crate) mod explain;
#[cfg(feature = "postgres")]
mod postgres;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::config::options::Defaults;
use crate::config::quorum::Quorum;
use crate::config::tls::Tls;
use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::dependencies::Dependencies;
use crate::manager::builder::explain::Origins;
use crate::observer::Observer;
use crate::store::Settings;

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Zero where a panic aborts the process, because opening a runtime connection panics without an
/// I/O driver. Only the author of the program knows whether all of its runtimes have one.
const DEFAULT_MAX_RUNTIME_CONNECTIONS: usize = if cfg!(panic = "abort") { 0 } else { 8 };

/// A builder of a [`LockManager`].
///
/// The setters check nothing. The method that creates the manager fails with [`Error::Config`] if
/// an option is outside of its range, or does not fit the URL. The in-process stores ignore options
/// for connections, such as `tls`, `credentials` and `quorum`.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::builder()
///     .namespace("shop")
///     .client_name("checkout-3")
///     .connect("memory:")
///     .await?;
/// let _held = locks.lock("report").acquire().await?;
/// assert_eq!(locks.inspect("report").await?.holders[0].client, "checkout-3");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing by itself; call `connect` or `in_memory`"]
pub struct LockManagerBuilder {
    pub(crate) namespace: String,
    client_name: Option<String>,
    /// All settings but the name, which is `client_name`.
    settings: Settings,
    pub(crate) defaults: Defaults,
    connect_timeout: Duration,
    max_runtime_connections: Option<usize>,
    tls: Option<Tls>,
    pub(crate) quorum: Option<Quorum>,
    pub(crate) credentials: Option<CredentialsProvider>,
    pub(crate) credentials_refresh_interval: Option<Duration>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) origins: Origins,
    pub(crate) dependencies: Dependencies,
}

impl Default for LockManagerBuilder {
    fn default() -> Self {
        LockManagerBuilder {
            namespace: "distlock".into(),
            client_name: None,
            settings: Settings::named(String::new()),
            defaults: Defaults::default(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            max_runtime_connections: None,
            tls: None,
            quorum: None,
            credentials: None,
            credentials_refresh_interval: None,
            sentinel_credentials: None,
            origins: Origins::default(),
            dependencies: Dependencies::default(),
        }
    }
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManagerBuilder")
            .field("namespace", &self.namespace)
            .field("client_name", &self.client_name)
            .field("max_waiters", &self.settings.max_waiters)
            .field("fence_ttl", &self.settings.fence_ttl)
            .field("defaults", &self.defaults)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_runtime_connections", &self.max_runtime_connections)
            .field("tls", &self.tls)
            .field("quorum", &self.quorum)
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .finish()
    }
}

impl LockManager {
    /// Connects to the store that the URL names:
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one server |
    /// | `redis+unix:///path/to/socket`, `unix:///path/to/socket` | one server of this machine |
    /// | `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]` | the server that the sentinels report as the primary of the service, now and after every failover |
    /// | `redis+cluster://[user:password@]host[:port],host[:port]` | a Redis Cluster. Any of these nodes names the others, and the node of a lock's slot stores the lock |
    /// | `redis+quorum://[user:password@]host[:port],host[:port],host[:port][/db]` | independent servers, most of which must grant a lock, without a queue ([`Quorum`](crate::Quorum)) |
    /// | `postgres://[user:password@]host[:port][,host[:port]]/database[?sslmode=verify-full]` | a PostgreSQL database, with the feature `postgres`, after [`distlock install`](https://github.com/distlock/distlock/blob/main/docs/guide/postgres.md#the-first-lock) has created its schema |
    /// | `memory:` | an in-process store of its own, for development and tests: it excludes no other process |
    /// | `memory:<name>` | the same, shared by all managers of this process with this name and the same [namespace](LockManagerBuilder::namespace) |
    ///
    /// - **Scheme**: in lower case. `valkey` is the same as `redis`, and `postgresql` as `postgres`.
    ///   `rediss` or `valkeys` uses TLS to all servers and sentinels, and requires one of the [TLS
    ///   features](crate#features). A socket has no TLS.
    /// - **Hosts**: a quorum has at least three different ones, a cluster or Sentinel at least one.
    ///   Of several hosts of PostgreSQL, tried in this order, the first that can write is used. An
    ///   IPv6 address is in brackets, `[::1]`. The default port is 6379, 26379 for a sentinel, or
    ///   5432 for PostgreSQL.
    /// - **User and password**: written once, before the first host. Without a user, as in
    ///   `:password@`, the password is that of the default user. Percent-encode `%`, `@`, `/`, `?`
    ///   and `#`, and also `:` in the user. Sentinels have
    ///   [credentials of their own](LockManagerBuilder::sentinel_credentials).
    /// - **Database**: a number, by default 0. A cluster has no other. In PostgreSQL a name, which
    ///   is required.
    /// - **Query and fragment**: rejected, because all other options are methods of the
    ///   [builder](LockManager::builder). Only a socket takes `?db=1&user=shop&pass=secret`,
    ///   because it has no other place for them. PostgreSQL takes `sslmode`: `verify-full`, and
    ///   `require` as the same, verifies the server over TLS, and `disable`, the default, is a
    ///   plain connection. It also takes `application_name`, by default `distlock`.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let orders = LockManager::connect("memory:shop").await?; // in production: redis://127.0.0.1:6379
    /// let returns = LockManager::connect("memory:shop").await?;
    /// let _held = orders.lock("report").acquire().await?;
    /// assert!(returns.lock("report").try_acquire().await?.is_none());
    ///
    /// for url in ["http://127.0.0.1", "redis://a,b", "redis+quorum://a,b", "redis://a?db=1"] {
    ///     let refused = LockManager::connect(url).await;
    ///     assert!(matches!(refused, Err(Error::Config { .. })), "{url}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, an unknown scheme, wrong credentials, missing
    /// permissions, or a server that does not match the URL (another protocol, TLS or none, a node
    /// of a cluster, a version that is too old, a database without the schema). Also if the system
    /// refuses to start the manager's thread. [`Error::Unavailable`] if the server cannot be used within 2 s
    /// ([`LockManagerBuilder::connect_timeout`]). No error contains the password.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection that was opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Creates a manager that connects in the background, see [`LockManagerBuilder::connect_lazy`].
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// // The service starts, although no server listens there yet.
    /// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?;
    /// let error = locks.lock("report").try_acquire().await.unwrap_err();
    /// assert!(error.is_unavailable() && error.is_retryable());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, and if the system refuses to start the manager's
    /// thread.
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        Self::builder().connect_lazy(url)
    }

    /// Creates a manager with its own in-process store and the real clock, for development and
    /// tests. Under `tokio::time::pause` use [`LockManagerBuilder::in_memory_on_current_runtime`].
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let (one, other) = (LockManager::in_memory(), LockManager::in_memory());
    /// let _held = one.lock("report").acquire().await?;
    /// assert!(other.lock("report").try_acquire().await?.is_some(), "each is a store of its own");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the system refuses to start a thread.
    #[must_use]
    pub fn in_memory() -> Self {
        match Self::builder().in_memory() {
            Ok(manager) => manager,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns a builder, for all options that a URL does not contain.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().client_name("checkout-3").in_memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// assert_eq!(locks.inspect("report").await?.holders[0].client, "checkout-3");
    /// # Ok(()) }
    /// ```
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }
}

impl LockManagerBuilder {
    /// Sets the first part of every key in the store; default `distlock`. Managers with different
    /// namespaces do not see each other's locks.
    ///
    /// A namespace must be 1 to 64 bytes long, without white space, braces or control characters.
    /// It may have several parts, such as `shop:eu`. No part after a `:` may be a kind of
    /// distlock's keys (`lock`, `queue`, `entry`, `fence`, `done`, `client`).
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the name that other clients see in [`Error::Busy`]; default `host:pid`, also for a
    /// blank name. A longer name is cut to 128 bytes. Control characters, and characters that end a
    /// line or set the direction of text, become blanks.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Sets how many calls of all processes may wait for one key; default 10,000, 0 for none.
    /// Further calls fail with [`Error::QueueFull`] at once. Waiters of ended processes and waiters
    /// with an expired `wait` do not count for long: every rejected call removes dead entries from
    /// a hundred places of the queue. Has no effect over a quorum, which has no queue.
    pub fn max_waiters(mut self, limit: u32) -> Self {
        self.settings.max_waiters = limit;
        self
    }

    /// Sets how long the store remembers a key's last fencing token after its acquisition, from 1
    /// minute to 366 days; default 2 h.
    ///
    /// While a token is remembered, tokens increase whatever the server's clock does. Afterwards
    /// they come from the clock alone, and can decrease if the clock was ahead and has been
    /// corrected. Choose a time longer than a wrong clock may stay unnoticed. Every key used within
    /// this time costs the server about 150 bytes (the memory store up to 500). Managers that share
    /// locks should agree; the last one to acquire decides.
    pub fn fence_ttl(mut self, ttl: Duration) -> Self {
        self.settings.fence_ttl = ttl;
        self
    }

    /// Sets how long [`connect`](LockManagerBuilder::connect) is retried; more than zero, default
    /// 2 s. Raise it for a service that starts together with its Redis, or use
    /// [`connect_lazy`](LockManagerBuilder::connect_lazy). An error takes up to half a second
    /// longer, because it says what listens at the address.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets how many runtimes may have their own connection to the server; default 8, 0 for none. A
    /// `postgres://` URL takes only 0: that manager has one to four connections for commands.
    ///
    /// Calls on such a runtime acquire and release without a hop to the I/O thread. That hop takes
    /// most of the time of an uncontended call. A runtime gets its connection after a few calls.
    /// The connection is closed after a minute without use. A manager therefore has at most `n + 2`
    /// connections to the server, one more for each combination of `min_replicas` and `fsync` in
    /// use, and one to each sentinel.
    ///
    /// In a cluster or over a quorum there are none: each would be a connection to each node.
    ///
    /// The runtime needs an I/O driver, and for TLS or
    /// [credentials](LockManagerBuilder::credentials_provider) also timers (`enable_all`). Tokio
    /// cannot report whether a runtime has them. Without a driver, the first attempt panics in a
    /// task of its own. The panic is caught, but may appear on stderr, and the runtime's calls
    /// continue over the I/O thread. A program built with `panic = "abort"` cannot catch the panic,
    /// so there the default is 0.
    pub fn max_runtime_connections(mut self, n: usize) -> Self {
        self.max_runtime_connections = Some(n);
        self
    }

    /// Sets how the certificate of a `rediss://` server is verified, and which one the client
    /// presents. For the defaults, see [`Tls`](crate::Tls).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets user and password, in place of the URL's. The URL can then be shown to anyone.
    pub fn credentials(self, credentials: Credentials) -> Self {
        self.credentials_provider(move || std::future::ready(Ok(credentials.clone())))
    }

    /// Sets a provider of user and password, in place of the URL's, such as a file or a service
    /// that has the current password or token.
    ///
    /// The provider is called for every connection that is opened, and
    /// [periodically](LockManagerBuilder::credentials_refresh_interval) to re-authenticate open
    /// connections (`AUTH`). It runs on the I/O thread, or on a runtime that has [its own
    /// connection](LockManagerBuilder::max_runtime_connections), and must not block. It must return
    /// within 1 s, and within three quarters of the
    /// [`connect_timeout`](LockManagerBuilder::connect_timeout), because a connection that is being
    /// opened cannot wait longer. Fetch slower credentials in advance. If the provider fails or
    /// panics, it is retried. The error contains its message, which must therefore not contain
    /// secrets.
    ///
    /// ```
    /// use distlock::{Credentials, LockManager};
    ///
    /// let builder = LockManager::builder().credentials_provider(|| async {
    ///     let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
    ///     Ok(Credentials::new("shop", password.trim()))
    /// });
    /// let locks = builder.clone().connect_lazy("redis://127.0.0.1:6379")?;
    /// assert!(builder.connect_lazy("redis://shop:secret@127.0.0.1:6379").is_err(), "which one is it?");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn credentials_provider<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'static,
    {
        self.credentials = Some(CredentialsProvider::new(provider));
        self
    }

    /// Sets how often the provider is called for the credentials of open connections; default 5
    /// min, at least 1 s. Choose less than the lifetime of a token, because a managed service
    /// closes connections when their token expires. It has no effect in PostgreSQL, where open
    /// connections keep their login. This option requires
    /// [`credentials_provider`](LockManagerBuilder::credentials_provider).
    pub fn credentials_refresh_interval(mut self, interval: Duration) -> Self {
        self.credentials_refresh_interval = Some(interval);
        self
    }

    /// Sets the credentials for the sentinels of a `redis+sentinel://` URL, if the sentinels
    /// require any. With another URL this is an error. User and password in the URL are for the
    /// servers that the sentinels monitor.
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_credentials = Some(credentials);
        self
    }

    /// Sets the [lease](crate::Lock::lease) of the locks of this manager that set none: 50 ms to
    /// 24 h, default 30 s. It goes before the environment variable `DISTLOCK_LEASE` of
    /// [`connect_from_env`](LockManagerBuilder::connect_from_env).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.defaults.lease = Some(lease);
        self
    }

    /// Sets the [wait](crate::Lock::wait) of the locks of this manager that set none: at most 24 h,
    /// default 10 s. It goes before the environment variable `DISTLOCK_WAIT` of
    /// [`connect_from_env`](LockManagerBuilder::connect_from_env). Calls that try once do not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = Some(wait);
        self
    }

    /// Sets how many replicas must acknowledge a lock, and each of its renewals, before it counts
    /// as held; default 0. This is the default for all locks of this manager. For its guarantees
    /// and their limits, see [`Lock::min_replicas`](crate::Lock::min_replicas). PostgreSQL rejects
    /// it: its servers have `synchronous_standby_names`.
    pub fn min_replicas(mut self, n: u32) -> Self {
        self.defaults.durability.replicas = n;
        self
    }

    /// Sets whether a lock counts as held only once it is on the disk of the server, and of its
    /// [`min_replicas`](LockManagerBuilder::min_replicas); default `false`. This is the default for
    /// all locks of this manager, see [`Lock::fsync`](crate::Lock::fsync). PostgreSQL rejects it:
    /// its servers have `synchronous_commit`, which is on unless an operator changes it.
    pub fn fsync(mut self, on: bool) -> Self {
        self.defaults.durability.fsync = on;
        self
    }

    /// Sets the [`Quorum`], which must be the same for all clients of a `redis+quorum://` URL;
    /// default [`Quorum::new()`]. With any other URL of a server this is an error.
    pub fn quorum(mut self, quorum: Quorum) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Adds an observer, which receives the events of this manager. May be called several times.
    ///
    /// Without observers, and without the feature `metrics`, no events are created or measured.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use distlock::observer::{self, Event};
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let acquired = Arc::new(AtomicU64::new(0));
    /// let count = acquired.clone();
    /// let observer = observer::from_fn(move |event| {
    ///     if matches!(event, Event::Acquired { .. }) {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// let locks = LockManager::builder().add_observer(observer).in_memory()?;
    /// locks.lock("report").run(async |_| Ok::<_, distlock::Error>(())).await?;
    /// locks.shutdown().await; // delivers all events
    /// assert_eq!(acquired.load(Ordering::Relaxed), 1);
    /// # Ok(()) }
    /// ```
    pub fn add_observer(mut self, observer: impl Observer) -> Self {
        self.dependencies.observers.push(Arc::new(observer));
        self
    }

    /// Sets whether spans, and log lines at INFO and above, name keys; default `false`. Keys may
    /// identify a person, and there are as many as there are users or orders. Lines at DEBUG always
    /// name keys. So do the lines of a lock that ended before its holder was done, and of a success
    /// that is not recorded, because an operator must check what the lock protects.
    pub fn show_keys(mut self, on: bool) -> Self {
        self.dependencies.show_keys = on;
        self
    }
}
