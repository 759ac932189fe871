//! The limits of releases. However many there are, their load on the store and their memory in this
//! process are bounded.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::registry::Entry;
use crate::manager::telemetry::logging;
use crate::util::mutex::lock;

/// Upper limit of releases in flight. More would delay commands for which callers wait.
const MAX_IN_FLIGHT: usize = 256;

/// How long releases that are given up are counted before they are logged.
const LOG_DELAY: Duration = Duration::from_secs(1);

/// The releases in flight, and those that were given up.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    in_flight: AtomicUsize,
    abandoned: Mutex<Option<Abandoned>>,
}

/// The number of releases given up since the last line of the log, and the lock of one of them.
#[derive(Debug)]
struct Abandoned {
    releases: usize,
    key: LockKey,
    lock: Cow<'static, str>,
}

impl Releases {
    /// Returns how many more releases may be in flight, besides those that holders wait for.
    pub(crate) fn room(&self) -> usize {
        MAX_IN_FLIGHT.saturating_sub(self.in_flight.load(Ordering::Acquire))
    }
}

/// Counts a release as in flight until it is dropped.
pub(crate) struct ReleasePermit(Arc<Core>);

impl ReleasePermit {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        core.releases.in_flight.fetch_add(1, Ordering::AcqRel);
        ReleasePermit(core.clone())
    }
}

impl Drop for ReleasePermit {
    fn drop(&mut self) {
        let core = &self.0;
        let before = core.releases.in_flight.fetch_sub(1, Ordering::AcqRel);
        if before >= MAX_IN_FLIGHT && !core.is_inherited() {
            core.registry.driver_notify.notify_one();
        }
    }
}

/// Counts a release that was given up. All of a second are logged together.
pub(crate) fn record_abandoned(core: &Arc<Core>, entry: &Entry) {
    let is_first = {
        let mut abandoned = lock(&core.releases.abandoned);
        let is_first = abandoned.is_none();
        let request = &entry.request;
        let abandoned = abandoned.get_or_insert_with(|| Abandoned {
            releases: 0,
            key: request.key.clone(),
            lock: request.name(),
        });
        abandoned.releases += 1;
        is_first
    };
    if is_first {
        let core = core.clone();
        core.clone().executor.spawn(async move {
            tokio::time::sleep(LOG_DELAY).await;
            log_abandoned(&core);
        });
    }
}

pub(crate) fn log_abandoned(core: &Core) {
    let abandoned = lock(&core.releases.abandoned).take();
    if let Some(abandoned) = abandoned {
        let store = core.address().unwrap_or_default().to_owned();
        core.spawn_logging(move || {
            let (lock, key) = (&abandoned.lock, abandoned.key.as_str());
            logging::releases_abandoned(&store, lock, key, abandoned.releases);
        });
    }
}
