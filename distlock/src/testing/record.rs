//! The record of an acquisition.

use std::time::Duration;

use crate::error::HoldKind;
use crate::fencing::FencingToken;

/// An acquisition of a lock, see
/// [`TestLocks::acquisitions`](crate::testing::TestLocks::acquisitions).
///
/// A nested call that re-enters a lock of its own call tree acquires nothing, and neither does a
/// rejected call.
///
/// ```
/// # use distlock::{Error, testing::TestLocks};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Error> {
/// let locks = TestLocks::new();
/// let guard = locks.manager().lock("report:7").label("report:<id>").acquire().await?;
///
/// let acquisition = &locks.acquisitions()[0];
/// assert_eq!(acquisition.key, "report:7");
/// assert_eq!(acquisition.label.as_deref(), Some("report:<id>"));
/// assert_eq!(acquisition.fencing_token, Some(guard.fencing_token()));
/// assert!(acquisition.waited.is_zero());
/// # guard.release().await }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireRecord {
    /// The key as the call wrote it.
    pub key: String,
    /// The label; for an annotated function, its template.
    pub label: Option<String>,
    /// The kind of the hold.
    pub kind: HoldKind,
    /// The fencing token of the hold; permits have none.
    pub fencing_token: Option<FencingToken>,
    /// How long the call waited, in tokio's time.
    pub waited: Duration,
}
