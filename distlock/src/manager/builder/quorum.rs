//! What is set for a quorum of servers.

use crate::config::limits::Limits;
use crate::config::quorum::Quorum;
use crate::error::Error;
use crate::manager::builder::LockManagerBuilder;
use crate::store::redis::quorum::terms::Terms;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Place;

impl LockManagerBuilder {
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

    /// Whether it fits what the URL names.
    pub(crate) fn terms(&self, config: &RedisConfig) -> Result<Terms, Error> {
        let refuse = |detail: &str| {
            Err(Error::Config {
                detail: detail.into(),
            })
        };
        match (&config.place, &self.quorum) {
            (Place::Quorum(servers), quorum) => {
                let quorum = quorum.clone().unwrap_or_default();
                quorum.check(servers.len())?;
                let limits = Limits::of_quorum(quorum.max_lease);
                let checked = limits.check_durability(self.durability);
                checked.map_err(|detail| Error::Config { detail })?;
                Ok(Terms(quorum))
            }
            (_, Some(_)) => refuse(
                "`quorum` was set, but the URL names no quorum; write redis+quorum://host,host,host",
            ),
            (_, None) => Ok(Terms::default()),
        }
    }
}
