//! Reports of long waits: to observers once per call, to the log once per key and minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::core::Core;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::telemetry::logging::{self, TARGET};
use crate::observer::event::Event;
use crate::protocol::acquisition::Acquisition;
use crate::util::clock::BootInstant;

/// The shortest interval between two log lines about one key.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last log line about each key. Keys without calls are removed after
/// [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct LongWaits {
    logged: BTreeMap<LockKey, BootInstant>,
}

impl LongWaits {
    pub(crate) fn report(&mut self, core: &Arc<Core>, now: BootInstant) {
        if !core.telemetry.is_observed() && !tracing::enabled!(target: TARGET, tracing::Level::INFO)
        {
            return;
        }
        let mut by_key: BTreeMap<LockKey, Vec<Arc<RegistryEntry>>> = BTreeMap::new();
        for entry in core.registry.acquiring() {
            let key = entry.request.key.clone();
            by_key.entry(key).or_default().push(entry);
        }
        self.logged
            .retain(|key, at| by_key.contains_key(key) || now < *at + LOG_INTERVAL);
        for (key, entries) in by_key {
            publish(core, &entries, now);
            if self.is_due(&key, &entries, now) {
                log(core, &entries, now);
                self.logged.insert(key, now);
            }
        }
    }

    /// Returns true if the last line about the key is old enough, and a long wait began after it.
    fn is_due(&self, key: &LockKey, entries: &[Arc<RegistryEntry>], now: BootInstant) -> bool {
        let last = self.logged.get(key).copied();
        let mut since = entries.iter().map(|entry| entry.request.long_wait_from());
        last.is_none_or(|last| now >= last + LOG_INTERVAL)
            && since.any(|since| since <= now && last.is_none_or(|last| since > last))
    }
}

fn publish(core: &Core, entries: &[Arc<RegistryEntry>], now: BootInstant) {
    for entry in entries {
        let request = &entry.request;
        if request.mark_long_wait(now) {
            core.publish(request, |lock, key| Event::LongWait {
                lock,
                key,
                waited: request.waited(now),
                holder: entry.peek(Acquisition::first_holder),
            });
        }
    }
}

/// Logs the longest wait for one key. `entries` are in the order of their calls.
fn log(core: &Arc<Core>, entries: &[Arc<RegistryEntry>], now: BootInstant) {
    let is_long = |entry: &&Arc<RegistryEntry>| entry.request.long_wait_from() <= now;
    let Some(longest) = entries.iter().find(is_long) else {
        return;
    };
    let last_error = longest.peek(|acquisition| acquisition.error().cloned());
    let (waited, waiters) = (longest.request.waited(now), entries.len());
    let holder = longest.peek(Acquisition::first_holder);
    let error = core.store.unavailable().or(last_error);
    let (log_core, request) = (core.clone(), longest.request.clone());
    core.spawn_logging(move || {
        logging::long_wait(&log_core, &request, waited, waiters, holder, error);
    });
}
