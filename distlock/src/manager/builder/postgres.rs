//! Connecting to PostgreSQL, and installing the schema there.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::builder::connect::{CoreBuilder, Store};
use crate::manager::builder::explain::explain;
use crate::manager::engine::events;
use crate::store::Capabilities;
use crate::store::connecting::{self, StoreState};
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::config::PostgresConfig;
use crate::store::postgres::facts::{self, PostgresFacts};
use crate::store::postgres::{PostgresStore, install};

impl LockManager {
    /// Creates distlock's schema in the database that the URL names, or brings its functions up to
    /// date, see [`LockManagerBuilder::install_schema`].
    ///
    /// ```no_run
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// LockManager::install_schema("postgres://owner:secret@127.0.0.1/shop").await?;
    /// let locks = LockManager::connect("postgres://shop:secret@127.0.0.1/shop").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`LockManagerBuilder::install_schema`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future installs all or nothing.
    pub async fn install_schema(url: &str) -> Result<(), Error> {
        Self::builder().install_schema(url).await
    }
}

impl LockManagerBuilder {
    /// Creates distlock's schema in the database that the URL names, or brings its functions up to
    /// date. It runs in one transaction, and may run again and while clients use the schema.
    ///
    /// The role needs `CREATE` on the database, or owns the schema. A migration tool can run the
    /// files `sql/schema.sql` and `sql/functions.sql` of this package in its place. The roles of
    /// clients then need `USAGE` on the schema `distlock`, and `SELECT, INSERT, UPDATE, DELETE` on
    /// its tables.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a malformed URL, missing rights, and a schema that is newer than this
    /// program. [`Error::Unavailable`] if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future installs all or nothing.
    pub async fn install_schema(self, url: &str) -> Result<(), Error> {
        let Store::Postgres(config) = self.store(url)? else {
            return Err(Error::config(
                "the URL names a store that needs no schema; write postgres://user:password@host/database",
            ));
        };
        let work = |client| async move { install::install(&client).await };
        self.with_client(*config, work).await
    }

    /// Queries a server about itself.
    pub(crate) async fn postgres_facts(
        &self,
        config: PostgresConfig,
    ) -> Result<PostgresFacts, Error> {
        let work = |client| async move { facts::query(&client).await };
        self.with_client(config, work).await
    }

    /// Runs work with a client that has no manager, on a thread of its own.
    async fn with_client<T, Work>(
        &self,
        config: PostgresConfig,
        work: impl FnOnce(PostgresClient) -> Work + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        Work: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let builder = CoreBuilder::on_io_thread(self.dependencies())?;
        let client = PostgresClient::new(
            config,
            self.settings(),
            builder.dependencies.clock.clone(),
            builder.dependencies.random.clone(),
            (Arc::new(|_| {}), Arc::new(|_| {})),
            Arc::default(),
        );
        let done = builder.executor.handle.spawn(work(client)).await;
        let done = done.unwrap_or_else(|error| Err(Error::config(error.to_string())));
        done.map_err(|error| explain(error, &self.origins))
    }

    /// Returns the configuration that a URL names. Fails if an option cannot work.
    pub(crate) fn postgres_config(&self, url: &str) -> Result<PostgresConfig, Error> {
        let refuse = |detail: &str| Err(Error::config(detail));
        let mut config = PostgresConfig::parse(url, &self.namespace, self.connect_timeout)?;
        match (&self.tls, &mut config.tls) {
            (Some(_), None) => {
                return refuse(
                    "`tls` was set, but the URL asks for a plain connection; write `?sslmode=verify-full` for TLS",
                );
            }
            (Some(settings), Some(tls)) => tls.clone_from(settings),
            (None, _) => {}
        }
        if self.max_runtime_connections.is_some_and(|n| n > 0) {
            return refuse(
                "`max_runtime_connections` was set, but a manager for PostgreSQL has up to four connections for commands \
                 and one for messages; remove the setting",
            );
        }
        if self.sentinel_credentials.is_some() || self.quorum.is_some() {
            return refuse(
                "`sentinel_credentials` or `quorum` was set, but the URL names PostgreSQL; remove the setting",
            );
        }
        let durability = Capabilities::POSTGRES.check_durability(self.defaults.durability);
        durability.map_err(Error::config)?;
        if self.credentials_refresh_interval.is_some() {
            return refuse(
                "`credentials_refresh_interval` was set, but PostgreSQL asks for credentials only when a connection is \
                 opened; remove the setting",
            );
        }
        config.credentials = self.checked_credentials_provider(config.has_credentials())?;
        if !config.has_user() && config.credentials.is_none() {
            return refuse(
                "the lock store's URL names no user; write postgres://user:password@host/database, or set `credentials`",
            );
        }
        Ok(config)
    }

    pub(crate) async fn connect_postgres(
        self,
        config: PostgresConfig,
    ) -> Result<LockManager, Error> {
        let (manager, state) = self.open_postgres(&config, true)?;
        let core = manager.core().clone();
        let waiting = async move {
            let started = core.clock.now();
            let limit = config.connect_timeout;
            let connected = connecting::wait_connected(&*core.store, &state, limit).await;
            let waited = || -> Duration { core.clock.now().since(started) };
            connected.map_err(|error| config.connect_error(error, waited()))
        };
        self.wait_connected(manager, waiting).await
    }

    /// Creates a manager that connects in the background, and returns the state of its connections.
    pub(crate) fn open_postgres(
        &self,
        config: &PostgresConfig,
        is_connecting: bool,
    ) -> Result<(LockManager, Arc<StoreState>), Error> {
        let core_builder = CoreBuilder::on_io_thread(self.dependencies())?;
        let state = Arc::new(StoreState::default());
        state.is_connecting.store(is_connecting, Ordering::Relaxed);
        let settings = self.settings();
        let manager = core_builder.build(&settings, self.defaults, |builder, core| {
            let client = PostgresClient::new(
                config.clone(),
                settings.clone(),
                builder.dependencies.clock.clone(),
                builder.dependencies.random.clone(),
                (events::event_sink(core.clone()), builder.report_sink(core)),
                state.clone(),
            );
            let _entered = builder.executor.enter();
            PostgresStore::connect_lazy(client)
        });
        Ok((manager, state))
    }
}
