//! What the clients of several independent servers agree on.

use std::time::Duration;

use crate::error::Error;

/// What all clients of a `redis+quorum://` URL must agree on: how many servers a lock needs, and when a server that may have
/// forgotten a lock votes again. Clients that differ do not exclude each other.
///
/// ```no_run
/// # async fn f() -> Result<(), distlock::Error> {
/// use std::time::Duration;
///
/// let manager = distlock::LockManager::builder()
///     .url("redis+quorum://a:6379,b:6379,c:6379")
///     .quorum(distlock::Quorum::default().max_lease(Duration::from_secs(30)))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quorum {
    pub(crate) size: Option<usize>,
    pub(crate) max_lease: Duration,
    pub(crate) nodes_remember: bool,
}

impl Default for Quorum {
    /// A majority, leases of up to a minute, and servers that forget.
    fn default() -> Self {
        Quorum {
            size: None,
            max_lease: Duration::from_secs(60),
            nodes_remember: false,
        }
    }
}

impl Quorum {
    /// How many servers have to vote for a holder; default: more than half of them. With more than that, up to
    /// `2 * size - servers - 1` of them may even forget a lock that they had, and vote again at once.
    #[must_use]
    pub fn size(mut self, servers: usize) -> Self {
        self.size = Some(servers);
        self
    }

    /// The longest lease that any client takes; default a minute. A server that was restarted, was flushed, or is used for the
    /// first time does not vote for so long (and a grace of up to ten seconds), for it may have forgotten a lock. A lock with a
    /// longer lease, or a longer [`min_hold`](crate::Lock::min_hold), is refused.
    #[must_use]
    pub fn max_lease(mut self, longest: Duration) -> Self {
        self.max_lease = longest;
        self
    }

    /// Says that a server which is restarted has forgotten nothing that it ever answered: it has `appendonly yes` and
    /// `appendfsync always`, and its disk keeps what it was told to. Then it votes as soon as it is back. Nobody checks this,
    /// and if it is not so, two may hold a lock; only a server that comes back with nothing at all is found out. Default
    /// `false`.
    #[must_use]
    pub fn servers_never_forget(mut self, never: bool) -> Self {
        self.nodes_remember = never;
        self
    }

    /// Whether so many servers can agree on that.
    pub(crate) fn check(&self, servers: usize) -> Result<(), Error> {
        let is_majority = |size: usize| size > servers / 2 && size <= servers;
        if let Some(size) = self.size.filter(|size| !is_majority(*size)) {
            return Err(Error::Config {
                detail: format!(
                    "a quorum of {size} is no majority of {servers} servers: two could hold one lock; take between {} and {servers}",
                    servers / 2 + 1
                ),
            });
        }
        if self.max_lease.is_zero() {
            return Err(Error::Config {
                detail: "max_lease of a quorum is zero, so no lock could have a lease".into(),
            });
        }
        Ok(())
    }
}
