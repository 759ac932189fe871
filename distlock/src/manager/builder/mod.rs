//! The options of a manager.

pub(crate) mod connect;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::config::credentials::{Credentials, Source};
use crate::config::options::Durability;
use crate::config::quorum::Quorum;
use crate::config::tls::Tls;
use crate::error::Error;
use crate::manager::LockManager;
use crate::observer::Observer;
use crate::protocol::rules::Rules;
use crate::store::Settings;
use crate::store::redis::conn::client::Way;
use crate::store::redis::wire::scripts::Scripts;
use crate::util::clock::{BootClock, Clock};
use crate::util::random::{Random, SystemRandom};

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a panic ends the process, only its author knows whether all of its runtimes have an I/O
/// driver.
const DEFAULT_LANES: usize = if cfg!(panic = "abort") { 0 } else { 8 };

/// Builds a [`LockManager`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::builder()
///     .url("memory:") // in production: redis://127.0.0.1:6379
///     .namespace("shop")
///     .client_name("checkout-3")
///     .connect()
///     .await?;
/// let _held = locks.lock("report").acquire().await?;
/// assert_eq!(locks.inspect("report").await?.holders()[0].client, "checkout-3");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing by itself; call `connect` or `memory`"]
pub struct LockManagerBuilder {
    url: Option<String>,
    namespace: String,
    client_name: Option<String>,
    /// But for the name, which is `client_name`.
    settings: Settings,
    pub(crate) durability: Durability,
    connect_timeout: Duration,
    lanes: usize,
    tls: Option<Tls>,
    pub(crate) quorum: Option<Quorum>,
    pub(crate) credentials: Option<Source>,
    pub(crate) credentials_every: Option<Duration>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) parts: Parts,
}

impl Default for LockManagerBuilder {
    fn default() -> Self {
        LockManagerBuilder {
            url: None,
            namespace: "distlock".into(),
            client_name: None,
            settings: Settings::named(String::new()),
            durability: Durability::NONE,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            lanes: DEFAULT_LANES,
            tls: None,
            quorum: None,
            credentials: None,
            credentials_every: None,
            sentinel_credentials: None,
            parts: Parts::default(),
        }
    }
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may contain a password.
        f.debug_struct("LockManagerBuilder")
            .field("url", &self.url.as_ref().map(|_| "<redacted>"))
            .field("namespace", &self.namespace)
            .field("client_name", &self.client_name)
            .field("max_waiters", &self.settings.max_waiters)
            .field("fence_ttl", &self.settings.fence_ttl)
            .field("durability", &self.durability)
            .field("connect_timeout", &self.connect_timeout)
            .field("lanes", &self.lanes)
            .field("tls", &self.tls)
            .field("quorum", &self.quorum)
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .finish()
    }
}

/// What a manager is made of, beside its store and what its user chooses.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// Where background work runs, if not on a thread of its own.
    pub(crate) elsewhere: Option<Handle>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) rules: Rules,
    /// From which of its calls on a runtime has a lane: many live for a few calls only.
    pub(crate) lane_after: u32,
    /// How a Redis server is reached.
    pub(crate) way: Way,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    /// Whether spans and lines of the log name keys.
    pub(crate) shows_keys: bool,
}

impl Default for Parts {
    fn default() -> Self {
        let parts = Parts {
            clock: Arc::new(BootClock),
            random: Arc::new(SystemRandom),
            elsewhere: None,
            scripts: Arc::new(Scripts::ours()),
            rules: Rules::in_force(),
            lane_after: 8,
            way: |sockets| Arc::new(sockets),
            observers: Vec::new(),
            shows_keys: false,
        };
        #[cfg(sabotage)]
        let parts = crate::__inside::sabotage::sabotaged(parts);
        parts
    }
}

impl LockManager {
    /// Connects to the store that the URL names:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, or `redis+unix:///path/to/socket`;
    /// - `rediss://...`: the same over TLS, with the feature `tls-native-roots` or
    ///   `tls-webpki-roots`; what else it needs is given to `LockManagerBuilder::tls`;
    /// - `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]`: whichever server
    ///   the sentinels say is the master of the service, now and after each failover;
    ///   `rediss+sentinel://` over TLS to all of them;
    /// - `redis+cluster://[user:password@]host[:port],host[:port]`: a Redis Cluster, of which any
    ///   of these nodes names the rest; each lock is in the node that has its slot.
    ///   `rediss+cluster://` over TLS to all of them;
    /// - `redis+quorum://[user:password@]host[:port],host[:port],host[:port][/db]`: independent
    ///   servers, most of which must agree ([`Quorum`](crate::Quorum)); `rediss+quorum://` over TLS
    ///   to all of them. It is new: not for production yet;
    /// - `memory:` is an in-process store of its own, `memory:<name>` one that all managers of this
    ///   process with the same name share. They are for development and tests: they exclude nobody
    ///   in another process.
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
    /// let refused = LockManager::connect("http://127.0.0.1").await;
    /// assert!(matches!(refused, Err(Error::Config { .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, an unknown scheme, wrong credentials, missing rights,
    /// or a server of another kind than the URL says (another protocol, TLS or none, a node of a
    /// cluster, a version that is too old), [`Error::Unavailable`] when the server cannot be used
    /// within 2 s ([`LockManagerBuilder::connect_timeout`]). No error contains the password.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url.as_ref()).connect().await
    }

    /// Makes a manager that connects in the background, see [`LockManagerBuilder::connect_lazy`].
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// // The service starts, although nothing listens there yet.
    /// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?;
    /// let error = locks.lock("report").try_acquire().await.unwrap_err();
    /// assert!(error.is_unavailable() && error.is_retryable());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL.
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url.as_ref()).connect_lazy()
    }

    /// An in-process store of its own, for development and tests, with the real clock. Under
    /// `tokio::time::pause` use [`LockManagerBuilder::memory_on_current_runtime`].
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let (one, other) = (LockManager::memory(), LockManager::memory());
    /// let _held = one.lock("report").acquire().await?;
    /// assert!(other.lock("report").try_acquire().await?.is_some(), "each is a store of its own");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If the system refuses to start a thread.
    #[must_use]
    pub fn memory() -> Self {
        match Self::builder().memory() {
            Ok(manager) => manager,
            Err(error) => panic!("{error}"),
        }
    }

    /// A builder, for everything that a URL does not say.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().client_name("checkout-3").memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// assert_eq!(locks.inspect("report").await?.holders()[0].client, "checkout-3");
    /// # Ok(()) }
    /// ```
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }
}

impl LockManagerBuilder {
    /// The URL of the store, see [`LockManager::connect`].
    ///
    /// ```
    /// let builder = distlock::LockManager::builder().url("redis://shop:secret@127.0.0.1:6379/2");
    /// assert!(!format!("{builder:?}").contains("secret"));
    /// ```
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The first part of every key in the store, default `distlock`. Managers with different
    /// namespaces do not see each other's locks. It may have parts, such as `shop:eu`, but none
    /// behind a `:` may be called like a kind of our keys (`lock`, `queue`, `entry`, `fence`,
    /// `client`).
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let builder = LockManager::builder().url("memory:one-server");
    /// let shop = builder.clone().namespace("shop").connect().await?;
    /// let blog = builder.namespace("blog").connect().await?;
    /// let _held = shop.lock("report").acquire().await?;
    /// assert!(blog.lock("report").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The name under which others see this client in [`Error::Busy`], default `host:pid`.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().client_name("checkout-3").memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// let error = locks.lock("report").wait(Duration::ZERO).acquire().await.unwrap_err();
    /// assert!(error.to_string().contains("held by checkout-3"));
    /// # Ok(()) }
    /// ```
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Sets how many calls may wait for one key; default 10,000. Further calls fail with
    /// [`Error::QueueFull`] at once. Waiters whose process has ended or whose `wait` has expired do
    /// not count for long: each further call checks another hundred places of the queue.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().max_waiters(0).memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let error = locks.lock("report").wait(day).acquire().await.unwrap_err();
    /// assert!(matches!(error, Error::QueueFull { .. }), "{error}");
    /// # Ok(()) }
    /// ```
    pub fn max_waiters(mut self, limit: u32) -> Self {
        self.settings.max_waiters = limit;
        self
    }

    /// How long the last fencing token of a key is remembered after its acquisition, default 2 h; a
    /// minute to 366 days.
    ///
    /// While it is remembered, tokens rise whatever the server's clock does. Afterwards they are
    /// made from the clock alone, and can go back if it was ahead and has been corrected: choose it
    /// longer than a wrong clock may go unnoticed. Each key used within this time costs the server
    /// about 150 bytes (the memory store up to 500). Managers that share locks should agree; the
    /// last one to acquire decides.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// // Somebody looks at the clocks once a day.
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let locks = LockManager::builder().fence_ttl(2 * day).memory()?;
    /// assert!(LockManager::builder().fence_ttl(2 * 366 * day).memory().is_err(), "keys would be kept that nobody uses");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn fence_ttl(mut self, ttl: Duration) -> Self {
        self.settings.fence_ttl = ttl;
        self
    }

    /// How long [`connect`](LockManagerBuilder::connect) tries, default 2 s. Raise it for a service
    /// that is started together with its Redis, or use
    /// [`connect_lazy`](LockManagerBuilder::connect_lazy).
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let builder = LockManager::builder().url("redis://127.0.0.1:1"); // nothing listens there
    /// let connected = builder.connect_timeout(Duration::from_millis(50)).connect().await;
    /// assert!(connected.is_err_and(|error| error.is_unavailable()));
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How many runtimes may have a connection of their own to the server, default 8; 0: none.
    ///
    /// Calls of such a runtime ask and release without a hop to the manager's thread, which is what
    /// most of the time of an uncontended call goes into. A runtime gets its connection after a few
    /// calls, and loses it when it was not used for a minute, or when it does not run while an
    /// answer is owed. So a manager has at most `n + 2` connections, one more for each pair of
    /// `min_replicas` and `fsync`, and one to each sentinel.
    ///
    /// In a cluster there are none: each would be a connection to each node.
    ///
    /// It needs the runtime's I/O driver, and for TLS or
    /// [credentials](LockManagerBuilder::credentials) its timers as well (`enable_all`). Tokio
    /// cannot be asked whether there is one: in a runtime without, the first attempt panics in a
    /// task of its own, which is caught, but may be seen on stderr, and its calls go on over the
    /// manager's thread. A program that is built with `panic = "abort"` cannot catch that, so there
    /// the default is 0.
    ///
    /// ```
    /// // A thousand replicas at one server: two connections of each, in place of up to ten.
    /// let locks = distlock::LockManager::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .lanes(0)
    ///     .connect_lazy()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn lanes(mut self, n: usize) -> Self {
        self.lanes = n;
        self
    }

    /// How a `rediss://` server's certificate is checked, and what is shown to it. Without it: see
    /// [`Tls`](crate::Tls).
    ///
    /// ```
    /// # use distlock::{LockManager, Tls};
    /// let builder = LockManager::builder().tls(Tls::new().ca_file("/etc/redis/ca.crt"));
    /// let locks = builder.clone().url("rediss://127.0.0.1:6380").connect_lazy()?;
    /// assert!(builder.url("redis://127.0.0.1:6379").connect_lazy().is_err(), "a plain connection");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Where user and password come from, in place of the URL's: a file or a service that knows the
    /// password, or the token, of the moment. It is asked for each connection that is opened, and
    /// [from time to time](LockManagerBuilder::credentials_every), when the live connections are
    /// told (`AUTH`). It runs on the manager's thread (or the runtime of a
    /// [lane](LockManagerBuilder::lanes)) and must not block. A connection that is being opened
    /// waits for it, for no longer than a second and no longer than three quarters of the
    /// [`connect_timeout`](LockManagerBuilder::connect_timeout): what takes longer has to be
    /// fetched ahead. When it fails or panics it is asked again; what it says is in the error, so
    /// it must not say secrets.
    ///
    /// ```
    /// use distlock::{Credentials, LockManager};
    ///
    /// let builder = LockManager::builder().credentials(|| async {
    ///     let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
    ///     Ok(Credentials::new("shop", password.trim()))
    /// });
    /// let locks = builder.clone().url("redis://127.0.0.1:6379").connect_lazy()?;
    /// assert!(builder.url("redis://shop:secret@127.0.0.1:6379").connect_lazy().is_err(), "which one is it?");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn credentials<F, Fut>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'static,
    {
        self.credentials = Some(Source::new(source));
        self
    }

    /// How often the source of the credentials is asked for those of the live connections, default
    /// 5 min, at least a second: before a token runs out, for then a managed service closes its
    /// connections.
    ///
    /// ```
    /// # use distlock::{Credentials, LockManager};
    /// # use std::time::Duration;
    /// # async fn token() -> std::io::Result<String> { Ok("token".into()) }
    /// let builder = LockManager::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .credentials_every(Duration::from_secs(10 * 60)); // a token is good for a quarter of an hour
    /// assert!(builder.clone().connect_lazy().is_err(), "nobody knows a token");
    /// let locks = builder
    ///     .credentials(|| async { Ok(Credentials::new("shop", token().await?)) })
    ///     .connect_lazy()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn credentials_every(mut self, every: Duration) -> Self {
        self.credentials_every = Some(every);
        self
    }

    /// Who we are to the sentinels of a `redis+sentinel://` URL, if they ask: user and password in
    /// the URL are for the servers that they watch.
    ///
    /// ```
    /// # use distlock::{Credentials, LockManager};
    /// let builder = LockManager::builder().sentinel_credentials(Credentials::password("another secret"));
    /// let url = "redis+sentinel://shop:secret@127.0.0.1:26379,127.0.0.1:26380/orders";
    /// let locks = builder.clone().url(url).connect_lazy()?;
    /// assert!(builder.url("redis://127.0.0.1:6379").connect_lazy().is_err(), "there are no sentinels");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_credentials = Some(credentials);
        self
    }

    /// How many replicas of the server must have acknowledged a lock before it counts as held, and
    /// each of its renewals; default 0. It is the default of all locks of this manager, see
    /// [`Lock::min_replicas`](crate::Lock::min_replicas) for what it gives, and what it does not.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// let builder = LockManager::builder().min_replicas(1);
    /// let locks = builder.clone().url("redis://127.0.0.1:6379").connect_lazy()?;
    /// assert!(builder.memory().is_err(), "the memory store has no replicas");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn min_replicas(mut self, n: u32) -> Self {
        self.durability.replicas = n;
        self
    }

    /// Whether a lock counts as held only once it is on the server's disk, and on those of its
    /// [`min_replicas`](LockManagerBuilder::min_replicas); default `false`. It is the default of
    /// all locks of this manager, see [`Lock::fsync`](crate::Lock::fsync).
    ///
    /// ```
    /// # use distlock::LockManager;
    /// let builder = LockManager::builder().fsync(true);
    /// let locks = builder.clone().url("redis://127.0.0.1:6379").connect_lazy()?;
    /// let quorum = builder.url("redis+quorum://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003");
    /// assert!(quorum.connect_lazy().is_err(), "its servers are set up each by itself");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn fsync(mut self, on: bool) -> Self {
        self.durability.fsync = on;
        self
    }

    /// What all clients of a `redis+quorum://` URL agree on, if not on the default of [`Quorum`].
    ///
    /// ```
    /// # use distlock::{LockManager, Quorum};
    /// let builder = LockManager::builder().quorum(Quorum::default().size(2));
    /// let url = "redis+quorum://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";
    /// let locks = builder.clone().url(url).connect_lazy()?;
    /// assert!(builder.url("redis://127.0.0.1:6379").connect_lazy().is_err(), "one server is no quorum");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn quorum(mut self, quorum: Quorum) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Adds an observer, which receives the events of this manager. May be called several times.
    ///
    /// Without observers no events are created or measured.
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
    /// let locks = LockManager::builder().add_observer(observer).memory()?;
    /// locks.lock("report").run(async |_| ()).await?;
    /// locks.shutdown().await; // delivers all events
    /// assert_eq!(acquired.load(Ordering::Relaxed), 1);
    /// # Ok(()) }
    /// ```
    pub fn add_observer(mut self, observer: impl Observer) -> Self {
        self.parts.observers.push(Arc::new(observer));
        self
    }

    /// Whether spans, and lines of the log at INFO and above, name keys; default `false`, for keys
    /// may say whom a lock is for, and there are as many as there are users or orders. Lines at
    /// DEBUG name them always, and so does the line of a lock that ended before its holder was
    /// done, for somebody has to look at what it protects.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// // In staging keys say nothing of anybody.
    /// let locks = LockManager::builder().show_keys(true).memory()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn show_keys(mut self, on: bool) -> Self {
        self.parts.shows_keys = on;
        self
    }
}
