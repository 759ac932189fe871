//! Library support for the command line. Not public API: it changes without notice.

use std::time::Duration;

use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::builder::connect::Store;
pub use crate::manager::builder::environment::with_environment;
#[cfg(feature = "postgres")]
pub use crate::store::postgres::facts::PostgresFacts;
use crate::store::redis::servers;
pub use crate::store::redis::servers::{Server, ServerConnection, ServerRole};

/// Returns the servers of the store that the URL names; none for a store in this process.
///
/// # Errors
///
/// [`Error::Config`], and [`Error::Unavailable`] if the servers of a cluster cannot be discovered.
pub async fn servers(builder: &LockManagerBuilder, url: &str) -> Result<Vec<Server>, Error> {
    match builder.store(url)? {
        Store::Memory(_) => Ok(Vec::new()),
        #[cfg(feature = "postgres")]
        Store::Postgres(_) => Ok(Vec::new()),
        Store::Redis(config) => {
            let servers = servers::servers(&config).await;
            servers.map_err(|error| error.into_error(None, Duration::ZERO))
        }
    }
}

/// Returns what the server of a store in PostgreSQL says about itself; `None` for any other store.
///
/// # Errors
///
/// [`Error::Config`], and [`Error::Unavailable`] if the server does not reply.
#[cfg(feature = "postgres")]
pub async fn postgres_facts(
    builder: &LockManagerBuilder,
    url: &str,
) -> Result<Option<PostgresFacts>, Error> {
    match builder.store(url)? {
        Store::Postgres(config) => builder.postgres_facts(*config).await.map(Some),
        _ => Ok(None),
    }
}

/// Returns the address of the store; `memory:` for a store without one.
#[must_use]
pub fn address(manager: &LockManager) -> &str {
    manager.address().unwrap_or("memory:")
}

/// Returns the lease and the wait of a builder, if it has any.
#[must_use]
pub fn default_times(builder: &LockManagerBuilder) -> (Option<Duration>, Option<Duration>) {
    (builder.defaults.lease, builder.defaults.wait)
}

/// Returns the namespace of a builder.
#[must_use]
pub fn namespace(builder: &LockManagerBuilder) -> &str {
    &builder.namespace
}
