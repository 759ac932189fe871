//! The credentials of a connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redis::RedisConnectionInfo;

use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::util::visible::text_of;

/// Timeout of a credentials provider, and of a server that receives credentials.
pub(crate) const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);

/// Adds credentials to the settings of a connection.
pub(crate) fn with_credentials(
    mut settings: RedisConnectionInfo,
    credentials: &Credentials,
) -> RedisConnectionInfo {
    if let Some(user) = credentials.user() {
        settings = settings.set_username(user);
    }
    settings.set_password(credentials.reveal())
}

/// Returns the current credentials.
pub(crate) async fn fetch_credentials(provider: &CredentialsProvider) -> StoreResult<Credentials> {
    let failed = |reason: String| {
        let detail =
            format!("the credentials provider failed ({reason}); check the `credentials_provider`");
        StoreError::new(Outage::Unreachable, detail)
    };
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, provider.fetch()).await {
        Ok(fetched) => fetched.map_err(|error| {
            // Its `Display` may fail or panic, and the I/O thread must continue.
            let text = catch_unwind(AssertUnwindSafe(|| text_of(&error)));
            let text = text.ok().and_then(Result::ok);
            failed(text.unwrap_or_else(|| "its error has no text".into()))
        }),
        Err(_) => Err(failed(format!("no answer for {CREDENTIALS_TIMEOUT:?}"))),
    }
}
