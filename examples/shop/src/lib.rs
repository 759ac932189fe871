//! Orders over HTTP, one at a time per item in all replicas: axum, PostgreSQL, and distlock in Redis
//! or in the same database.
//!
//! [`shop`] has the locked method, [`stock`] the SQL with the fence column, [`http`] the routes,
//! and `main.rs` the process.

use distlock::{Error, LockManager};

pub mod http;
pub mod shop;
pub mod stock;

/// Connects to the store of the locks. One in PostgreSQL needs distlock's schema, which a service
/// with a role of few rights leaves to its migrations.
///
/// # Errors
///
/// Those of [`LockManager::connect`].
pub async fn connect_locks(url: &str) -> Result<LockManager, Error> {
    if url.starts_with("postgres") {
        LockManager::install_schema(url).await?;
    }
    LockManager::connect(url).await
}
