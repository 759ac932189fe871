//! Receiving the events of a manager: calls, holds, renewals and connections.
//!
//! Pass an [`Observer`] to
//! [`LockManagerBuilder::add_observer`](crate::LockManagerBuilder::add_observer). With the feature
//! `metrics` every manager also records
//! [metrics](https://github.com/distlock/distlock/blob/main/docs/operations/observing.md#metrics).
//!
//! ```
//! use distlock::{LockManager, observer};
//!
//! let stderr = observer::from_fn(|event| eprintln!("{event:?}"));
//! let locks = LockManager::builder().add_observer(stderr).in_memory()?;
//! # Ok::<(), distlock::Error>(())
//! ```

use std::sync::Arc;

pub use crate::observer::event::{
    AcquireFailure, AcquirePath, CommandOutcome, Connection, Event, HoldOutcome, Operation,
    RecordOutcome, ReleaseOutcome, RenewalOutcome, SkipKind,
};

pub(crate) mod event;
pub(crate) mod labels;
pub(crate) mod telemetry;

/// Receives the events of a manager.
///
/// Events arrive in order, one at a time, on a thread that may block, so a slow observer delays no
/// renewal and no call. Up to 8,192 events are queued. Further ones are dropped and counted
/// ([`Event::Lagged`]). The events of a call are delivered all or not at all: if its first event
/// was delivered, so is its last. A panic of an observer is logged once; the observer receives the
/// next event nevertheless. If the system refuses to start that thread, tokio may panic in the code
/// that caused the event.
///
/// A shutdown of the manager waits up to 2 s for events that are still queued. Later events, such
/// as that of a guard that outlives its manager, are delivered on the thread that causes them. An
/// observer that owns a [`LockManager`](crate::LockManager) keeps it alive.
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
/// let manager = LockManager::builder().add_observer(losses.clone()).in_memory()?;
/// manager.lock("report:daily").label("report:<name>").run(async |_| Ok::<_, distlock::Error>(())).await?;
/// manager.shutdown().await;
/// assert_eq!(losses.0.load(Ordering::Relaxed), 0);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Receives one event.
    ///
    /// ```
    /// use distlock::observer::{Event, Observer};
    ///
    /// struct Alerts(std::sync::mpsc::Sender<String>);
    ///
    /// impl Observer for Alerts {
    ///     fn observe(&self, event: &Event) {
    ///         if let Event::AcquireFailed { lock, outcome, .. } = event {
    ///             let _ = self.0.send(format!("{lock}: {outcome}"));
    ///         }
    ///     }
    /// }
    /// ```
    fn observe(&self, event: &Event);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event) {
        (**self).observe(event);
    }
}

/// Returns an observer that calls a function with each event.
///
/// ```
/// # use distlock::LockManager;
/// # use distlock::observer::{self, Event};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let (sender, failures) = std::sync::mpsc::channel();
/// let observer = observer::from_fn(move |event| {
///     if let Event::AcquireFailed { lock, outcome, .. } = event {
///         let _ = sender.send(format!("{lock}: {outcome}"));
///     }
/// });
/// let locks = LockManager::builder().add_observer(observer).in_memory()?;
/// let lock = locks.lock("inventory:7").label("inventory:<item_id>");
/// let _guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// assert_eq!(failures.recv().as_deref(), Ok("inventory:<item_id>: busy"));
/// # Ok(()) }
/// ```
pub fn from_fn(observe: impl Fn(&Event) + Send + Sync + 'static) -> impl Observer {
    FromFn(observe)
}

struct FromFn<F>(F);

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for FromFn<F> {
    fn observe(&self, event: &Event) {
        (self.0)(event);
    }
}
