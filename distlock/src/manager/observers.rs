//! Who is told what a manager does, and whether keys are shown.

use crate::manager::assembly::Parts;
use crate::manager::builder::LockManagerBuilder;
use crate::observer::Observer;

impl LockManagerBuilder {
    /// Has somebody told what happens, see [`Observer`]; may be called several times. Without observers nothing is made
    /// or measured for them.
    ///
    /// ```
    /// use distlock::LockManager;
    /// use distlock::observer::{Event, Observer};
    ///
    /// struct Told;
    ///
    /// impl Observer for Told {
    ///     fn observe(&self, event: &Event) {
    ///         println!("{event:?}");
    ///     }
    /// }
    ///
    /// let manager = LockManager::builder().observer(Told).memory()?;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.parts.observers.add(observer);
        self
    }

    /// Whether spans, and lines of the log at INFO and above, name keys; default `false`, for keys may say whom a lock is
    /// for, and there are as many as there are users or orders. Lines at DEBUG name them always, and so does the line of a
    /// lock that ended before its holder was done, for somebody has to look at what it protects.
    pub fn show_keys(mut self, on: bool) -> Self {
        self.parts.shows_keys = on;
        self
    }

    /// What the manager is made of: with the feature `metrics` somebody who records them.
    pub(super) fn parts(&self) -> Parts {
        #[cfg_attr(not(feature = "metrics"), allow(unused_mut))]
        let mut parts = self.parts.clone();
        #[cfg(feature = "metrics")]
        parts.observers.add(crate::metrics::Metrics::new());
        parts
    }
}
