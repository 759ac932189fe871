//! A holder of a lock, as errors and inspections show it.

use std::fmt;
use std::time::SystemTime;

use crate::error::kind::HoldKind;
use crate::fencing::FencingToken;
use crate::util::visible::Visible;

/// A holder of a lock.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let _held = locks.lock("report").acquire().await?;
/// let seen = locks.inspect("report").await?;
/// let holder = &seen.holders[0];
/// assert!(holder.this_process);
/// assert!(holder.to_string().starts_with(&format!("held by {} for", holder.client)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Holder {
    /// The client's name: `host:pid`, unless the builder's `client_name` says otherwise.
    pub client: String,
    /// The [`metadata`](crate::Lock::metadata) of the call that acquired the lock.
    pub metadata: Option<String>,
    /// The kind of the hold.
    pub kind: HoldKind,
    /// The number of permits of a holder of a [`Semaphore`](crate::Semaphore); otherwise 1.
    pub weight: u32,
    /// The fencing token of the hold; `None` if it is unknown, and for permits, which have none.
    pub fencing_token: Option<FencingToken>,
    /// The time at which the holder acquired the lock, by the store's clock.
    pub held_since: SystemTime,
    /// The time until which [`min_hold`](crate::Lock::min_hold) keeps the key although the work is
    /// finished, by the store's clock; `None` while the lock is held.
    pub kept_until: Option<SystemTime>,
    /// True if the holder is this process. A call may then be waiting for itself.
    pub this_process: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())?;
        // Permits are shared, so one in this process is no sign of a self-deadlock.
        let is_hinted = self.kept_until.is_none() && self.kind != HoldKind::Semaphore;
        if self.this_process && is_hinted {
            f.write_str(
                " (this process: another task, or a call outside of the holder's call tree)",
            )?;
        }
        Ok(())
    }
}

impl Holder {
    /// Returns true if a list need not distinguish the two.
    pub(super) fn is_same_client(&self, other: &Holder) -> bool {
        let is_same_name = self.client == other.client && self.metadata == other.metadata;
        is_same_name && self.kept_until == other.kept_until
    }

    /// Returns the description of the hold, without a hint.
    pub(super) fn describe(&self) -> String {
        let metadata = self
            .metadata
            .as_ref()
            .map(|text| format!(" [{}]", Visible(text)));
        let name = format!("{}{}", Visible(&self.client), metadata.unwrap_or_default());
        match (self.kept_until, self.held_since.elapsed()) {
            (Some(until), _) => {
                format!("kept until {}, work finished by {name}", time_of_day(until))
            }
            (None, Ok(held_for)) => format!("held by {name} for {held_for:.1?}"),
            (None, Err(_)) => format!("held by {name}"),
        }
    }
}

/// Returns the hours, minutes and seconds in UTC.
fn time_of_day(time: SystemTime) -> String {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since_epoch.unwrap_or_default().as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}
