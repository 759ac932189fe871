//! Credentials for the server, and their source.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Default interval at which the source is queried for open connections.
const EVERY: Duration = Duration::from_secs(5 * 60);

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

type Asked = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>;

type Ask = dyn Fn() -> Pin<Box<dyn Future<Output = Asked> + Send>> + Send + Sync;

/// The source of the current credentials.
#[derive(Clone)]
pub(crate) struct Source {
    ask: Arc<Ask>,
    /// Interval at which open connections re-authenticate.
    pub(crate) every: Duration,
}

impl Source {
    pub(crate) fn new<F, Fut>(ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Asked> + Send + 'static,
    {
        Source {
            ask: Arc::new(move || Box::pin(ask())),
            every: EVERY,
        }
    }

    pub(crate) fn each(self, every: Duration) -> Self {
        Source { every, ..self }
    }

    /// Fetches the credentials. A panic of the source becomes an error, so the caller continues.
    pub(crate) async fn ask(&self) -> Asked {
        let panicked = |_| Err("it panicked".into());
        let mut asking = match catch_unwind(AssertUnwindSafe(|| (self.ask)())) {
            Ok(asking) => asking,
            Err(panic) => return panicked(panic),
        };
        poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(context)));
            polled.unwrap_or_else(|panic| Poll::Ready(panicked(panic)))
        })
        .await
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
