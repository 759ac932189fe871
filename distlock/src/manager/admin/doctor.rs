//! What `distlock doctor` needs of the library. Not public API: it changes without notice.

use std::time::Duration;

use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::builder::connect::Store;
use crate::store::redis::servers;
pub use crate::store::redis::servers::{Part, Server, ServerConnection};

/// Returns the servers of the store that the builder's URL names; none for a store in this process.
///
/// # Errors
///
/// [`Error::Config`], and [`Error::Unavailable`] if the servers of a cluster cannot be found out.
pub async fn servers(builder: &LockManagerBuilder) -> Result<Vec<Server>, Error> {
    match builder.store()? {
        Store::Memory(_) => Ok(Vec::new()),
        Store::Redis(config) => {
            let servers = servers::servers(&config).await;
            servers.map_err(|error| error.into_error(None, Duration::ZERO))
        }
    }
}

/// The address of the store.
#[must_use]
pub fn address(manager: &LockManager) -> &str {
    manager.address().unwrap_or("memory:")
}
