//! Credentials for the server, and their provider.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;

/// Default interval at which the provider is queried for open connections.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// A user of the server, and its password or token.
///
/// The `Debug` output does not contain the password.
///
/// ```
/// let credentials = distlock::Credentials::new("shop", "secret");
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates the credentials of an ACL user.
    ///
    /// ```
    /// use distlock::Credentials;
    ///
    /// // The content of a mounted secret. The password may contain a colon.
    /// let mounted = "shop:s3c:ret";
    /// let credentials = mounted.split_once(':').map(|(user, password)| Credentials::new(user, password));
    /// assert_eq!(credentials, Some(Credentials::new("shop", "s3c:ret")));
    /// ```
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Credentials {
            username: Some(username.into()),
            password: password.into(),
        }
    }

    /// Creates the credentials of the default user (`requirepass`).
    ///
    /// ```
    /// let credentials = distlock::Credentials::from_password("secret");
    /// assert!(format!("{credentials:?}").contains("username: None"));
    /// ```
    pub fn from_password(password: impl Into<String>) -> Self {
        Credentials {
            username: None,
            password: password.into(),
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("password", &"<redacted>")
            .finish()
    }
}

type FetchResult = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>;

type FetchFn = dyn Fn() -> Pin<Box<dyn Future<Output = FetchResult> + Send>> + Send + Sync;

/// The provider of the current credentials.
#[derive(Clone)]
pub(crate) struct CredentialsProvider {
    fetch: Arc<FetchFn>,
    /// Interval at which open connections re-authenticate.
    pub(crate) interval: Duration,
}

impl CredentialsProvider {
    pub(crate) fn new<F, Fut>(fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = FetchResult> + Send + 'static,
    {
        CredentialsProvider {
            fetch: Arc::new(move || Box::pin(fetch())),
            interval: DEFAULT_INTERVAL,
        }
    }

    /// Fetches the credentials. A panic of the provider becomes an error, so the caller continues.
    pub(crate) async fn fetch(&self) -> FetchResult {
        let fetched = AssertUnwindSafe(async { (self.fetch)().await }).catch_unwind();
        fetched.await.unwrap_or_else(|_| Err("it panicked".into()))
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}
