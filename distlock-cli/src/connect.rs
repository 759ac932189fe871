//! The connection to the store named by the command line, otherwise by the environment.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use distlock::{Credentials, LockManager, LockManagerBuilder};

use crate::cli::Global;
use crate::exit::{Failure, MISCONFIGURED};

/// Connects to the store that the command line or the environment names.
pub(crate) async fn connect(global: &Global) -> Result<LockManager, Failure> {
    let (builder, url) = builder(global)?;
    Ok(builder.connect(&url).await?)
}

/// Returns the options and the URL of that store.
pub(crate) fn builder(global: &Global) -> Result<(LockManagerBuilder, String), Failure> {
    let url = match &global.url {
        Some(url) => url.clone(),
        None => variable("DISTLOCK_URL")?.ok_or_else(|| {
            misconfigured(
                "no lock store was given: pass --url redis://host:6379, or set DISTLOCK_URL",
            )
        })?,
    };
    let mut builder = LockManager::builder()
        .namespace(&global.namespace)
        .connect_timeout(global.connect_timeout.max(Duration::from_millis(1)))
        // A single call can as well be sent by the I/O thread.
        .max_runtime_connections(0);
    if url.contains("+sentinel:")
        && let Some(credentials) = credentials("DISTLOCK_SENTINEL_")?
    {
        builder = builder.sentinel_credentials(credentials);
    }
    // User and password on the command line take precedence over the environment.
    let url_has_credentials = global.url.is_some() && url.contains('@');
    if !url_has_credentials && let Some(credentials) = credentials("DISTLOCK_")? {
        builder = builder.credentials(credentials);
    }
    Ok((builder, url))
}

fn credentials(prefix: &str) -> Result<Option<Credentials>, Failure> {
    let password = variable(&format!("{prefix}PASSWORD"))?;
    let username = variable(&format!("{prefix}USERNAME"))?;
    match (username, password) {
        (None, None) => Ok(None),
        (None, Some(password)) => Ok(Some(Credentials::from_password(password))),
        (Some(username), Some(password)) => Ok(Some(Credentials::new(username, password))),
        (Some(_), None) => Err(misconfigured(&format!(
            "{prefix}USERNAME is set, but {prefix}PASSWORD is not: set both or neither"
        ))),
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    let value = env::var_os(name).map(OsString::into_string).transpose();
    value.map_err(|_| misconfigured(&format!("the environment variable {name} is not UTF-8")))
}

fn misconfigured(message: &str) -> Failure {
    Failure::new(MISCONFIGURED, message)
}
