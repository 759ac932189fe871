//! The deletion of success records.

use std::time::Duration;

use crate::config::options::Options;
use crate::error::Error;
use crate::key::{LockKey, escape};
use crate::manager::LockManager;
use crate::manager::admin::inspect::INSPECT_TIMEOUT;
use crate::observer::event::Operation;
use crate::protocol::messages;

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
    /// [`Error::InvalidKey`], [`Error::Unavailable`] if the store does not reply within a second,
    /// [`Error::ShutDown`]. [`Error::KeyConflict`] if distlock did not write the value at the
    /// record's key, or if it is dated ten years ahead; it is left unchanged. [`Error::Config`]
    /// over a quorum, which has no records. [`Error::InvalidValue`] for an empty value, or one of
    /// more than 128 bytes.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the record may be deleted nevertheless.
    pub async fn delete_record(&self, key: &str, value: Option<&str>) -> Result<bool, Error> {
        let key = LockKey::new(key)?;
        if let Some(reason) = self.core().capabilities.records_unavailable {
            return Err(Error::config(format!(
                "lock `{key}`: success records are not available: {reason}"
            )));
        }
        let options = Options {
            once_for: value.map(|value| Ok(value.to_owned())),
            ..Options::default()
        };
        options.check(key.as_str())?;
        let selector = value.map(escape).unwrap_or_default();
        self.on_io_thread(|core| async move {
            let delete = messages::DeleteRecord {
                key: &key,
                selector: &selector,
            };
            let deleting = core.store.delete_record(&delete, INSPECT_TIMEOUT);
            let deleted = core.run_command(Operation::DeleteRecord, deleting).await;
            core.known_data.forget_success(&key, &selector);
            let key = key.to_string();
            match deleted {
                Ok(Ok(deleted)) => Ok(deleted),
                Ok(Err(detail)) => Err(Error::KeyConflict { key, detail }),
                Err(error) => Err(error.into_error(Some(key), Duration::ZERO)),
            }
        })
        .await
    }
}
