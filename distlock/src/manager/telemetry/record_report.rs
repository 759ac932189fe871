//! The report of a success: an event, and a log line with its key if it is not recorded.

use crate::manager::core::Core;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::telemetry::logging::TARGET;
use crate::observer::event::{Event, RecordOutcome};
use crate::protocol::request::Request;
use crate::util::visible::Visible;

/// Publishes and logs whether a success is recorded.
pub(crate) fn publish(core: &Core, entry: &RegistryEntry, outcome: RecordOutcome) {
    if outcome == RecordOutcome::Recorded {
        let request = &entry.request;
        core.known_data.record_success(request, request.started);
    } else {
        let store = core.address().unwrap_or("in this process").to_owned();
        let request = entry.request.clone();
        core.spawn_logging(move || log(&store, &request, outcome));
    }
    core.publish(&entry.request, |lock, key| Event::SuccessRecorded {
        lock,
        key,
        outcome,
    });
}

/// Logs a success that is not, or may not be, recorded.
fn log(store: &str, request: &Request, outcome: RecordOutcome) {
    let (lock, key) = (&*request.name(), Visible(request.key.as_str()).to_string());
    match outcome {
        RecordOutcome::Recorded => {}
        RecordOutcome::Refused => tracing::error!(
            target: TARGET,
            lock,
            key,
            store,
            outcome = outcome.as_str(),
            "success not recorded: the store rejected the record, or the lock was lost, so the work may run again \
             within its period; check that it can be repeated, and the memory and the replicas of the store"
        ),
        RecordOutcome::Unknown => tracing::error!(
            target: TARGET,
            lock,
            key,
            store,
            outcome = outcome.as_str(),
            "success perhaps not recorded: the replies of the store do not show it, so the work may run again within \
             its period; check that it can be repeated, and the store"
        ),
    }
}
