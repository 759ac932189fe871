//! The releases that were given up: the log line of each second's.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::registry::Entry;
use crate::manager::telemetry::logging;
use crate::util::mutex::lock;

/// How long releases that are given up are counted before they are logged.
const LOG_DELAY: Duration = Duration::from_secs(1);

/// The releases that were given up and not logged yet.
#[derive(Debug, Default)]
pub(crate) struct AbandonedReleases(Mutex<Option<Abandoned>>);

/// The number of releases given up since the last line of the log, and the lock of one of them.
#[derive(Debug)]
struct Abandoned {
    releases: usize,
    key: LockKey,
    lock: Cow<'static, str>,
}

/// Counts a release that was given up. All of a second are logged together.
pub(crate) fn record(core: &Arc<Core>, entry: &Entry) {
    let is_first = {
        let mut abandoned = lock(&core.abandoned_releases.0);
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
            log(&core);
        });
    }
}

pub(crate) fn log(core: &Core) {
    let abandoned = lock(&core.abandoned_releases.0).take();
    if let Some(abandoned) = abandoned {
        let store = core.address().unwrap_or_default().to_owned();
        core.spawn_logging(move || {
            let (lock, key) = (&abandoned.lock, abandoned.key.as_str());
            logging::releases_abandoned(&store, lock, key, abandoned.releases);
        });
    }
}
