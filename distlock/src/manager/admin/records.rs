//! The success records of `once_per` and `once_for`.

use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::key::{LockKey, escape};
use crate::manager::LockManager;
use crate::manager::admin::inspect::INSPECT_TIMEOUT;
use crate::protocol::holder_name;
use crate::protocol::messages::system_time;
use crate::protocol::once::Record;
use crate::store::command;

/// The record of a successful run, see [`Lock::once_per`](crate::Lock::once_per).
///
/// ```
/// # use distlock::LockManager;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let job = locks.lock("jobs:invoices").once_per(Duration::from_secs(60 * 60));
/// job.run(async |_| Ok::<_, distlock::Error>(())).await?;
///
/// let success = locks.inspect("jobs:invoices").await?.last_success.expect("it is recorded");
/// assert!(success.started <= success.finished && success.finished < success.next);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SuccessRecord {
    /// When the run acquired the lock, by the store's clock.
    pub started: SystemTime,
    /// When the run released the lock, by the same clock.
    pub finished: SystemTime,
    /// When the work may run again, for a call with the period of that run.
    pub next: SystemTime,
    /// The name of the client that ran it.
    pub client: String,
    /// The [`metadata`](crate::Lock::metadata) of the run.
    pub metadata: Option<String>,
    /// The fencing token of the run.
    pub fencing_token: FencingToken,
}

impl SuccessRecord {
    pub(crate) fn of(record: Record) -> Self {
        let (client, metadata) = holder_name::split(&record.name);
        SuccessRecord {
            started: record.last_success(),
            finished: system_time(record.finished),
            next: record.next(record.gap),
            client,
            metadata,
            fencing_token: record.token,
        }
    }
}

impl LockManager {
    /// Deletes the success record of a key, so that the work may run again at once. `value` is that
    /// of [`once_for`](crate::Lock::once_for), and `None` for [`once_per`](crate::Lock::once_per).
    /// Returns false if there is no record.
    ///
    /// A run that is in progress is not stopped, and is recorded when it succeeds.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let job = locks.lock("jobs:close").once_for("2026-11-30");
    /// job.run(async |_| Ok::<_, distlock::Error>(())).await?;
    ///
    /// assert!(locks.delete_record("jobs:close", Some("2026-11-30")).await?);
    /// job.run(async |_| Ok::<_, distlock::Error>(())).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKey`], [`Error::Unavailable`], [`Error::ShutDown`]. [`Error::Config`] over a
    /// quorum, which has no records.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the record may be deleted nevertheless.
    pub async fn delete_record(&self, key: &str, value: Option<&str>) -> Result<bool, Error> {
        let key = LockKey::new(key)?;
        if let Some(reason) = self.core().limits.records_unavailable {
            return Err(Error::config(format!(
                "lock `{key}`: success records are not available: {reason}"
            )));
        }
        let selector = value.map(escape).unwrap_or_default();
        self.on_io_thread(|core| async move {
            let delete = command::DeleteRecord {
                key: &key,
                selector: &selector,
            };
            let deleted = core.run_command(delete, INSPECT_TIMEOUT).await;
            deleted.map_err(|error| error.into_error(Some(key.to_string()), Duration::ZERO))
        })
        .await
    }
}
