//! Being told what happens: every call, hold, renewal and connection of a manager, as it happens.
//!
//! An [`Observer`] is given to
//! [`LockManagerBuilder::observer`](crate::LockManagerBuilder::observer). With the feature
//! `metrics` every manager has one that records the metrics of
//! [docs/operations/observing.md](https://github.com/distlock/distlock/blob/main/docs/operations/observing.md).
//!
//! ```
//! use distlock::LockManager;
//! use distlock::observer::{Event, Observer};
//!
//! struct Stderr;
//!
//! impl Observer for Stderr {
//!     fn observe(&self, event: &Event) {
//!         eprintln!("{event:?}");
//!     }
//! }
//!
//! let locks = LockManager::builder().observer(Stderr).memory()?;
//! # Ok::<(), distlock::Error>(())
//! ```

use std::sync::Arc;

pub use crate::observer::event::{
    CallOutcome, Event, HoldOutcome, Link, Loss, Operation, Path, Refused, ReleaseOutcome,
    RenewalOutcome,
};

pub(crate) mod event;
pub(crate) mod labels;
pub(crate) mod telemetry;

/// Is told what happens to the locks of a manager, and to its connections.
///
/// Events come in the order in which they happened, one at a time, on a thread that may be blocked:
/// whoever is slow here delays no renewal and no call. Up to 8 192 events wait; what does not fit
/// is counted ([`Event::Missed`]). A call is told of wholly or not at all: if its beginning was
/// told, so is its end. An observer that panics is told of once in the log, and is called for the
/// next event all the same.
///
/// When the manager is shut down what is still to be told is, for at most two seconds; later
/// events, such as that of a guard that outlives it, are told where they happen. An observer that
/// owns a [`LockManager`](crate::LockManager) keeps it alive.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use distlock::LockManager;
/// use distlock::observer::{Event, Observer};
///
/// #[derive(Default)]
/// struct Losses(AtomicU64);
///
/// impl Observer for Losses {
///     fn observe(&self, event: &Event) {
///         if let Event::Lost { lock, reason, .. } = event {
///             eprintln!("a lock of {lock} was lost: {reason}");
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # async fn f() -> Result<(), distlock::Error> {
/// let losses = Arc::new(Losses::default());
/// let manager = LockManager::builder().observer(losses.clone()).memory()?;
/// manager.lock("report:daily").label("report:<name>").run(async |_| ()).await?;
/// manager.shutdown().await;
/// assert_eq!(losses.0.load(Ordering::Relaxed), 0);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use distlock::observer::{Event, Observer};
    /// # use std::sync::mpsc;
    /// struct Alarms(mpsc::Sender<String>);
    ///
    /// impl Observer for Alarms {
    ///     fn observe(&self, event: &Event) {
    ///         if let Event::NotAcquired { lock, outcome, .. } = event {
    ///             let _ = self.0.send(format!("{lock}: {outcome}"));
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let (alarms, told) = mpsc::channel();
    /// let locks = LockManager::builder().observer(Alarms(alarms)).memory()?;
    /// let lock = locks.lock("inventory:7").label("inventory:<item_id>");
    /// let _held = lock.acquire().await?;
    /// assert!(lock.try_acquire().await?.is_none());
    /// assert_eq!(told.recv().as_deref(), Ok("inventory:<item_id>: busy"));
    /// # Ok(()) }
    /// ```
    fn observe(&self, event: &Event);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event) {
        (**self).observe(event);
    }
}
