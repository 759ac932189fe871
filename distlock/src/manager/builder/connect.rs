//! The ways to a manager that need no more than a URL.

use std::env::VarError;

use crate::config::credentials::Credentials;
use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;

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

    /// Connects to the store that the environment variable `DISTLOCK_URL` names, as the user in
    /// `DISTLOCK_USERNAME`, if it is set, with the password in `DISTLOCK_PASSWORD`, if that is set:
    /// then the URL has none, and can be shown to anybody. `DISTLOCK_SENTINEL_USERNAME` and
    /// `DISTLOCK_SENTINEL_PASSWORD` are for the sentinels of a `redis+sentinel://` URL.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # if std::env::var_os("DISTLOCK_URL").is_some() { return Ok(()) }
    /// // Nobody has set DISTLOCK_URL here.
    /// let error = LockManager::from_env().await.unwrap_err();
    /// assert!(matches!(error, Error::Config { .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when the variable is not set, and those of
    /// [`connect`](LockManager::connect).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](LockManager::connect).
    pub async fn from_env() -> Result<Self, Error> {
        match std::env::var("DISTLOCK_URL") {
            Ok(url) => {
                let mut builder = Self::builder().url(url);
                if let Some(credentials) = credentials_from_env("DISTLOCK_SENTINEL_")? {
                    builder = builder.sentinel_credentials(credentials);
                }
                match credentials_from_env("DISTLOCK_")? {
                    None => builder.connect().await,
                    Some(credentials) => {
                        let known = move || std::future::ready(Ok(credentials.clone()));
                        builder.credentials(known).connect().await
                    }
                }
            }
            Err(_) => Err(Error::Config {
                detail: "the environment variable DISTLOCK_URL is not set (or not UTF-8); set it to a URL \
                         such as redis://127.0.0.1:6379, or to memory: for development"
                    .into(),
            }),
        }
    }
}

fn credentials_from_env(prefix: &str) -> Result<Option<Credentials>, Error> {
    let password = from_env(&format!("{prefix}PASSWORD"))?;
    let username = from_env(&format!("{prefix}USERNAME"))?;
    match (username, password) {
        (None, None) => Ok(None),
        (None, Some(password)) => Ok(Some(Credentials::password(password))),
        (Some(username), Some(password)) => Ok(Some(Credentials::new(username, password))),
        (Some(_), None) => Err(Error::Config {
            detail: format!("{prefix}USERNAME is set, and {prefix}PASSWORD is not"),
        }),
    }
}

fn from_env(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::Config {
            detail: format!("the environment variable {name} is not UTF-8"),
        }),
    }
}
