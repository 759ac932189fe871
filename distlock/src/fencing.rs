//! The fencing token.

use std::fmt;
use std::num::{ParseIntError, TryFromIntError};
use std::str::FromStr;

/// A number that is greater for every later acquisition of the same key.
///
/// Pass it to the resource that the lock protects. Let the resource reject every access with a
/// token lower than the highest it has seen. This protects the data when a process was paused for
/// longer than its lease and has not noticed that yet.
///
/// Tokens are made from the server's time in microseconds and the previous token. They therefore
/// keep rising after `FLUSHALL` or a restart without persistence. While the previous token is
/// remembered, they rise whatever the server's clock does. Renewal and re-entry keep the token;
/// every new acquisition has a new one.
///
/// The previous token is remembered for the [`fence_ttl`](crate::LockManagerBuilder::fence_ttl)
/// after its acquisition. If the key is not acquired for that long, or the server loses its data,
/// the next token depends on the clock alone. If the clock was ahead at the last acquisition, and
/// has been set back by more than the time since, the next token is lower.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::in_memory();
/// let first = locks.lock("report").acquire().await?;
/// let older = first.fencing_token();
/// first.release().await?;
///
/// let second = locks.lock("report").acquire().await?;
/// assert!(second.fencing_token() > older);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FencingToken(u64);

impl FencingToken {
    /// Creates a token from a stored number, so that a resource can compare the next token with the
    /// highest it has seen.
    ///
    /// ```
    /// # use distlock::FencingToken;
    /// let column: i64 = 1_790_000_000_000_000;
    /// let highest = FencingToken::try_from(column)?;
    /// let sent: FencingToken = "1790000000000001".parse()?;
    /// assert!(sent > highest && highest > FencingToken::new(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn new(token: u64) -> Self {
        FencingToken(token)
    }

    /// Returns the token as a number.
    ///
    /// ```
    /// let token = distlock::FencingToken::new(1_790_000_000_000_000);
    /// assert_eq!(token.get(), 1_790_000_000_000_000);
    /// ```
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the token as a signed number, for an SQL `BIGINT`. Tokens of acquired locks are
    /// below 2^63; a greater one, which no lock has issued, becomes `i64::MAX`.
    ///
    /// ```
    /// use distlock::FencingToken;
    ///
    /// assert_eq!(FencingToken::new(1_790_000_000_000_000).as_i64(), 1_790_000_000_000_000);
    /// assert_eq!(FencingToken::new(u64::MAX).as_i64(), i64::MAX);
    /// ```
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        if self.0 > i64::MAX as u64 {
            i64::MAX
        } else {
            self.0 as i64
        }
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

/// Fails for a negative number.
impl TryFrom<i64> for FencingToken {
    type Error = TryFromIntError;

    fn try_from(token: i64) -> Result<Self, TryFromIntError> {
        u64::try_from(token).map(FencingToken)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(token: &str) -> Result<Self, ParseIntError> {
        token.parse().map(FencingToken)
    }
}
