//! How a manager is made.

pub(crate) mod assembly;
pub(crate) mod authentication;
pub(crate) mod connect;
pub(crate) mod durability;
pub(crate) mod in_memory;
pub(crate) mod quorum;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::credentials::{Credentials, Source};
use crate::config::options::{Durability, FENCE_TTLS};
use crate::config::quorum::Quorum;
use crate::config::tls::Tls;
use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::assembly::{Assembly, Parts};
use crate::manager::engine::core::shut_down_error;
use crate::manager::telemetry::report;
use crate::store::Settings;
use crate::store::memory::server::MemoryServer;
use crate::store::redis::open;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::{Place, Single};
use crate::util::clock::BootClock;
use crate::util::visible::is_hidden;

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

/// What a URL names.
enum Store {
    Memory(MemoryServer),
    Redis(Box<RedisConfig>),
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

    /// How many calls may wait for one key, default 10 000; further ones get [`Error::Busy`] with
    /// `queue_full` at once. Waiters whose process is gone, or whose time is up, do not count for
    /// long: each further call looks for them in another part of the queue, a hundred places at a
    /// time.
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
    /// assert!(matches!(error, Error::Busy { queue_full: true, .. }), "{error}");
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

    /// Connects, and tries for as long as the
    /// [`connect_timeout`](LockManagerBuilder::connect_timeout) while the server cannot be reached,
    /// loads, or is a replica.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().url("memory:").connect().await?;
    ///
    /// let nowhere = LockManager::builder().connect().await;
    /// assert!(matches!(nowhere, Err(Error::Config { .. })), "no URL was given");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(self) -> Result<LockManager, Error> {
        match self.store()? {
            Store::Memory(server) => self.in_memory(server),
            Store::Redis(config) => self.redis(*config).await,
        }
    }

    /// Makes a manager that connects in the background, and never waits: for a service that is to
    /// start while its Redis is down.
    ///
    /// Calls wait for the first connection by their own `wait`, and fail with
    /// [`Error::Unavailable`]; those that do not wait fail at once. A wrong password or a missing
    /// right is found by them as well.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let builder = LockManager::builder().url("redis://127.0.0.1:1"); // nothing listens there yet
    /// let locks = builder.connect_lazy()?;
    /// let error = locks.lock("report").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    /// assert!(error.is_unavailable(), "it tried for so long");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL or an option that cannot work.
    pub fn connect_lazy(self) -> Result<LockManager, Error> {
        match self.store()? {
            Store::Memory(server) => self.in_memory(server),
            Store::Redis(config) => {
                let assembly = Assembly::on_io_thread(self.parts())?;
                let client = assembly.client(self.settings());
                let opened = {
                    let _on_the_thread = assembly.executor.enter();
                    open::connect_lazy(&config, client)
                };
                Ok(assembly.finish(opened, self.name(), self.durability))
            }
        }
    }

    /// What the URL names.
    fn store(&self) -> Result<Store, Error> {
        self.check()?;
        let Some(url) = &self.url else {
            return Err(Error::Config {
                detail: "no URL was given; call `.url(\"redis://127.0.0.1:6379\")` on the builder"
                    .into(),
            });
        };
        Ok(match url.strip_prefix("memory:") {
            Some("") => Store::Memory(MemoryServer::new(Arc::new(BootClock))),
            Some(name) => {
                let name = format!("{name} {}", self.namespace);
                Store::Memory(MemoryServer::named(&name))
            }
            None => {
                let config = RedisConfig::parse(url, &self.namespace, self.connect_timeout)?;
                let tls = match (&self.tls, &config.tls) {
                    (Some(_), None) => {
                        return Err(Error::Config {
                            detail: "`tls` was set, but the URL asks for a plain connection; write rediss:// for TLS"
                                .into(),
                        });
                    }
                    (Some(settings), Some(_)) => Some(settings.clone()),
                    (None, tls) => tls.clone(),
                };
                let sentinel_credentials = self.sentinel_credentials.clone();
                let has_sentinels = matches!(config.place, Place::One(Single::Sentinel { .. }));
                if sentinel_credentials.is_some() && !has_sentinels {
                    return Err(Error::Config {
                        detail:
                            "`sentinel_credentials` was set, but the URL names no sentinels; write \
                                 redis+sentinel://host,host/service"
                                .into(),
                    });
                }
                let lanes = self.lanes;
                let (credentials, terms) = (self.source(&config)?, self.terms(&config)?);
                Store::Redis(Box::new(RedisConfig {
                    lanes,
                    tls,
                    credentials,
                    sentinel_credentials,
                    terms,
                    ..config
                }))
            }
        })
    }

    async fn redis(self, config: RedisConfig) -> Result<LockManager, Error> {
        let assembly = Assembly::on_io_thread(self.parts())?;
        let connecting = open::connect(config, assembly.client(self.settings()));
        let (mut reply, answer) = oneshot::channel();
        assembly.executor.spawn_later(async move {
            tokio::select! {
                store = connecting => drop(reply.send(store)),
                () = reply.closed() => {}
            }
        });
        let opened = answer.await.map_err(|_| shut_down_error())??;
        if let Some(policy) = &opened.eviction {
            report::eviction(&opened.identity, policy);
        }
        Ok(assembly.finish(opened, self.name(), self.durability))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |detail: &str| {
            Err(Error::Config {
                detail: detail.into(),
            })
        };
        if !is_namespace(&self.namespace) {
            return refuse(
                "the namespace must have 1 to 64 bytes, without white space, braces and control characters, and none of \
                 its parts behind a `:` may be `lock`, `queue`, `entry`, `fence` or `client`",
            );
        }
        if let Some(name) = &self.client_name
            && (name.is_empty() || name.len() > 128 || name.contains(is_hidden))
        {
            return refuse("the client name must have 1 to 128 bytes, without control characters");
        }
        if self.connect_timeout.is_zero() {
            return refuse("the connect timeout must be longer than zero");
        }
        if !FENCE_TTLS.contains(&self.settings.fence_ttl) {
            return refuse(&format!(
                "the fence ttl is {:?}, but must be from a minute to 366 days: tokens could go back soon, or keys would \
                 be kept that nobody uses",
                self.settings.fence_ttl
            ));
        }
        Ok(())
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            name: self.name(),
            ..self.settings.clone()
        }
    }

    pub(crate) fn name(&self) -> String {
        self.client_name.clone().unwrap_or_else(host_and_pid)
    }
}

/// What may stand before the kind of a key in the store (`shop:lock:...`). A kind in the namespace
/// itself is refused: `b` in the namespace `shop:lock:a` would be the same key as `a:lock:b` in
/// `shop`.
pub(crate) fn is_namespace(name: &str) -> bool {
    const KINDS: [&str; 5] = ["lock", "queue", "entry", "fence", "client"];
    let odd = |c: char| c.is_control() || c.is_whitespace() || "{}".contains(c);
    !name.is_empty()
        && name.len() <= 64
        && !name.contains(odd)
        && !name.split(':').skip(1).any(|part| KINDS.contains(&part))
}

fn host_and_pid() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let host: String = host.chars().filter(|c| !is_hidden(*c)).take(100).collect();
    format!("{host}:{}", std::process::id())
}
