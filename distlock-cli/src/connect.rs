//! The connection to the store named by the command line, otherwise by the environment.

use std::time::Duration;

use distlock::{__doctor, LockManager, LockManagerBuilder};

use crate::cli::Global;
use crate::exit::{Failure, MISCONFIGURED};

/// Connects to the store that the command line or the environment names.
pub(crate) async fn connect(global: &Global) -> Result<LockManager, Failure> {
    let (builder, url) = builder(global)?;
    Ok(builder.connect(&url).await?)
}

/// Returns the options and the URL of that store.
pub(crate) fn builder(global: &Global) -> Result<(LockManagerBuilder, String), Failure> {
    let builder = LockManager::builder()
        .connect_timeout(global.connect_timeout.max(Duration::from_millis(1)))
        // A single call can as well be sent by the I/O thread.
        .max_runtime_connections(0);
    let (url, namespace) = (global.url.as_deref(), global.namespace.as_deref());
    let (builder, url) = __doctor::with_environment(builder, url, namespace)?;
    let url = url.ok_or_else(|| {
        Failure::new(
            MISCONFIGURED,
            "no lock store was given: pass --url redis://host:6379, or set DISTLOCK_URL",
        )
    })?;
    Ok((builder, url))
}
