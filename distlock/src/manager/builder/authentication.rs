//! Who a manager is to its servers, where the URL does not say it.

use std::future::Future;
use std::time::Duration;

use crate::config::credentials::{Credentials, Source};
use crate::error::Error;
use crate::manager::builder::LockManagerBuilder;
use crate::store::redis::transport::config::RedisConfig;

impl LockManagerBuilder {
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

    /// Where credentials come from, if not from the URL.
    pub(crate) fn source(&self, config: &RedisConfig) -> Result<Option<Source>, Error> {
        let refuse = |detail: &str| {
            Err(Error::Config {
                detail: detail.into(),
            })
        };
        match (&self.credentials, self.credentials_every) {
            (None, None) => Ok(None),
            (None, Some(_)) => refuse("`credentials_every` was set, but no `credentials`"),
            (Some(_), _) if config.has_credentials() => refuse(
                "`credentials` was set, and the URL has a user or a password too; take them out of the URL",
            ),
            (Some(_), Some(every)) if every < Duration::from_secs(1) => {
                refuse("`credentials_every` must be at least a second")
            }
            (Some(source), None) => Ok(Some(source.clone())),
            (Some(source), Some(every)) => Ok(Some(source.clone().each(every))),
        }
    }
}
