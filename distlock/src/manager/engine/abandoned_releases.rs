//! The releases that were given up and not logged yet.

use std::borrow::Cow;
use std::sync::Mutex;

use crate::key::LockKey;
use crate::manager::engine::registry::Entry;
use crate::util::mutex::lock;

#[derive(Debug, Default)]
pub(crate) struct AbandonedReleases(Mutex<Option<Abandoned>>);

/// The number of releases given up since the last line of the log, and the lock of one of them.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) releases: usize,
    pub(crate) key: LockKey,
    pub(crate) lock: Cow<'static, str>,
}

impl AbandonedReleases {
    /// Counts a release. Returns true if it is the first since the last `take`.
    pub(crate) fn record(&self, entry: &Entry) -> bool {
        let mut abandoned = lock(&self.0);
        let is_first = abandoned.is_none();
        let request = &entry.request;
        let abandoned = abandoned.get_or_insert_with(|| Abandoned {
            releases: 0,
            key: request.key.clone(),
            lock: request.name(),
        });
        abandoned.releases += 1;
        is_first
    }

    pub(crate) fn take(&self) -> Option<Abandoned> {
        lock(&self.0).take()
    }
}
