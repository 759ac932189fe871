//! Settings of a quorum of independent servers.

use std::time::Duration;

use crate::error::Error;

/// The settings on which all clients of a `redis+quorum://` URL must agree. They define how many
/// servers a lock needs, and for how long a server that may have forgotten a lock grants none.
/// Clients with different settings do not exclude each other. The URL names at least three servers.
///
/// The servers have no queue. A call that waits tries again after a random pause of 2 to 80 ms, so
/// calls of different clients have no order, and under contention a call may lose to others until
/// its `wait` ends. Waiting calls of one manager for one key take turns.
///
/// ```
/// use distlock::{LockManager, Quorum};
/// use std::time::Duration;
///
/// let quorum = Quorum::new().max_lease(Duration::from_secs(30));
/// let locks = LockManager::builder()
///     .quorum(quorum)
///     .connect_lazy("redis+quorum://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003")?;
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it has no effect until it is passed to `LockManagerBuilder::quorum`"]
pub struct Quorum {
    pub(crate) size: Option<usize>,
    pub(crate) max_lease: Duration,
    pub(crate) servers_are_durable: bool,
}

impl Default for Quorum {
    fn default() -> Self {
        Quorum::new()
    }
}

impl Quorum {
    /// Creates the default settings: a majority, leases of up to a minute, and servers that forget.
    ///
    /// ```
    /// use distlock::Quorum;
    ///
    /// assert_eq!(Quorum::new(), Quorum::default());
    /// ```
    pub fn new() -> Self {
        Quorum {
            size: None,
            max_lease: Duration::from_secs(60),
            servers_are_durable: false,
        }
    }

    /// Sets how many servers have to grant a lock: more than half of them, at most all. Default:
    /// the smallest majority. With a greater size, up to `2 * size - servers - 1` servers may even
    /// forget a lock and grant it again at once.
    pub fn size(mut self, servers: usize) -> Self {
        self.size = Some(servers);
        self
    }

    /// Sets the longest lease of any client; more than zero, default 1 minute. A server that was
    /// restarted, was flushed, or is new may have forgotten a lock. It grants none for `longest`,
    /// plus a grace period of up to ten seconds. A lock with a longer lease, or a longer
    /// [`min_hold`](crate::Lock::min_hold), is rejected with [`Error::Config`].
    pub fn max_lease(mut self, longest: Duration) -> Self {
        self.max_lease = longest;
        self
    }

    /// Sets whether to assume that a restarted server has forgotten no write that it acknowledged,
    /// so that it grants locks as soon as it is back; default `false`. Every server then needs
    /// `appendonly yes`, `appendfsync always` and a disk that keeps all data that was flushed to
    /// it. The client detects only a server that comes back without any data. If another server has
    /// forgotten a lock, two clients may hold that lock.
    pub fn assume_durable_servers(mut self, on: bool) -> Self {
        self.servers_are_durable = on;
        self
    }

    /// Checks that `servers` servers can form this quorum.
    pub(crate) fn check(&self, servers: usize) -> Result<(), Error> {
        let is_majority = |size: usize| size > servers / 2 && size <= servers;
        if let Some(size) = self.size.filter(|size| !is_majority(*size)) {
            return Err(Error::config(format!(
                "a quorum of {size} is not a majority of {servers} servers: two clients could hold one lock; set \
                 `Quorum::size` to between {} and {servers}",
                servers / 2 + 1
            )));
        }
        if self.max_lease.is_zero() {
            return Err(Error::config(
                "`Quorum::max_lease` is zero: no lock could have a lease; set it to the longest lease in use",
            ));
        }
        Ok(())
    }
}
