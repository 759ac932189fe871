//! The fencing token.

use std::fmt;

/// A number that is greater for every later acquisition of the same key.
///
/// Pass it to the resource that the lock protects, and let the resource refuse any access with a
/// token lower than the highest it has seen. This is what protects data when a process was paused
/// for longer than its lease and does not know it yet.
///
/// Tokens are made from the server's time in microseconds and the previous token, so they keep
/// rising after `FLUSHALL`, a restart without persistence, and whatever the server's clock does.
/// Renewal and re-entry keep the token; each new acquisition has a new one.
///
/// The limit: the previous token is remembered for the [`fence_ttl`](crate::Builder::fence_ttl), two hours
/// after its acquisition unless set. If a key is not acquired for that long (or the server loses its data),
/// and the server's clock is meanwhile set back by more than that pause, because it had been ahead, then the
/// next token is lower than the last.
///
/// ```
/// # tokio_test(async {
/// let manager = distlock::LockManager::memory();
/// let first = manager.lock("report").acquire().await?;
/// let older = first.fencing_token();
/// first.release().await?;
///
/// let second = manager.lock("report").acquire().await?;
/// assert!(second.fencing_token() > older);
/// # Ok(()) });
/// # fn tokio_test<F: Future<Output = Result<(), distlock::Error>>>(f: F) {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f).unwrap()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    pub(crate) const fn new(token: u64) -> Self {
        FencingToken(token)
    }

    /// The token as a number. It is always below 2^63, so it fits a signed SQL `BIGINT`.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        i64::try_from(token.0).unwrap_or(i64::MAX)
    }
}
