//! Who is told what a manager does, and whether keys are shown.

use crate::manager::builder::LockManagerBuilder;
use crate::manager::builder::assembly::Parts;
use crate::observer::Observer;

impl LockManagerBuilder {
    /// Has somebody told what happens, see [`Observer`]; may be called several times. Without
    /// observers nothing is made or measured for them.
    ///
    /// ```
    /// use distlock::LockManager;
    /// use distlock::observer::{Event, Observer};
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// #[derive(Default)]
    /// struct Acquired(AtomicU64);
    ///
    /// impl Observer for Acquired {
    ///     fn observe(&self, event: &Event) {
    ///         if matches!(event, Event::Acquired { .. }) {
    ///             self.0.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let acquired = Arc::new(Acquired::default());
    /// let locks = LockManager::builder().observer(acquired.clone()).memory()?;
    /// locks.lock("report").run(async |_| ()).await?;
    /// locks.shutdown().await; // all is told by then
    /// assert_eq!(acquired.0.load(Ordering::Relaxed), 1);
    /// # Ok(()) }
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.parts.observers.add(observer);
        self
    }

    /// Whether spans, and lines of the log at INFO and above, name keys; default `false`, for keys
    /// may say whom a lock is for, and there are as many as there are users or orders. Lines at
    /// DEBUG name them always, and so does the line of a lock that ended before its holder was
    /// done, for somebody has to look at what it protects.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// // In staging keys say nothing of anybody.
    /// let locks = LockManager::builder().show_keys(true).memory()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn show_keys(mut self, on: bool) -> Self {
        self.parts.shows_keys = on;
        self
    }

    /// What the manager is made of: with the feature `metrics` somebody who records them.
    pub(crate) fn parts(&self) -> Parts {
        #[cfg_attr(not(feature = "metrics"), allow(unused_mut))]
        let mut parts = self.parts.clone();
        #[cfg(feature = "metrics")]
        parts.observers.add(crate::metrics::Metrics::new());
        parts
    }
}
