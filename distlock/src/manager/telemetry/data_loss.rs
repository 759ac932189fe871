//! Warns about a store that lost its data, or may lose it.

use std::sync::atomic::Ordering;

use crate::manager::core::Core;
use crate::manager::core::known_data::Acquired;
use crate::manager::telemetry::logging::TARGET;
use crate::protocol::messages::Inspection;
use crate::protocol::request::Request;
use crate::util::visible::Visible;

/// Warns if the acquisition of a call that runs at most once shows that its success record is gone,
/// and at the first one if a restart would lose the records.
pub(crate) fn check_record(core: &Core, request: &Request) {
    if core.address.is_none() {
        return;
    }
    if core.known_data.is_record_gone(request, core.clock.now()) {
        let (store, lock, key) = (core.address.clone(), request.name(), request.key.clone());
        core.spawn_logging(move || {
            tracing::warn!(
                target: TARGET,
                lock = &*lock,
                key = Visible(key.as_str()).to_string(),
                store = store.as_deref(),
                "success record gone before its time: the work runs again; unless `distlock forget` deleted the record, \
                 check that the work can be repeated, and whether the store lost its data"
            );
        });
    }
    let has_warned = &core.known_data.has_warned_of_persistence;
    if core.store.lacks_append_only_file() && !has_warned.swap(true, Ordering::Relaxed) {
        let store = core.address.clone();
        core.spawn_logging(move || {
            tracing::warn!(
                target: TARGET,
                store = store.as_deref(),
                "server has no append-only file: a restart loses the success records since its last snapshot, and \
                 their work runs again; set `appendonly yes`"
            );
        });
    }
}

/// Warns if an inspection of a key shows that the store lost the data of an acquisition.
pub(crate) fn examine(core: &Core, acquired: &Acquired, found: &Inspection) {
    if core.address.is_none() || !core.known_data.is_lost(acquired, found, core.clock.now()) {
        return;
    }
    let (store, (held, waiting)) = (core.address.clone(), core.registry.count());
    core.spawn_logging(move || {
        tracing::warn!(
            target: TARGET,
            store = store.as_deref(),
            held,
            waiting,
            "lock store lost its data: locks from before are free for other clients although their holders may still \
             run, and work with `once_per` or `once_for` may run again; check what ran twice, and the store's persistence"
        );
    });
}
