//! The report of a success: an event, and a log line with its key if it is not recorded.

use std::sync::Arc;

use crate::manager::engine::core::Core;
use crate::manager::engine::registry::Entry;
use crate::manager::telemetry::logging::TARGET;
use crate::observer::event::{Event, RecordOutcome};
use crate::protocol::acquisition::Acquisition;
use crate::protocol::request::Request;
use crate::util::visible::Visible;

/// Publishes and logs whether a success is recorded, once the reply to its release says so.
pub(crate) fn report(core: &Core, entry: &Arc<Entry>) {
    let polled = (core.registry).update(entry, Acquisition::poll_record_outcome);
    if let Some(outcome) = polled {
        publish(core, entry, outcome);
    }
}

/// Publishes and logs whether a success is recorded, if the entry has one.
pub(crate) fn report_unknown(core: &Core, entry: &Entry) {
    let success = (core.registry).peek(entry, |acquisition| acquisition.succeeded_under());
    if success.is_some() {
        publish(core, entry, RecordOutcome::Unknown);
    }
}

fn publish(core: &Core, entry: &Entry, outcome: RecordOutcome) {
    log(core, &entry.request, outcome);
    core.publish(&entry.request, |lock, key| Event::SuccessRecorded {
        lock,
        key,
        outcome,
    });
}

/// Logs a success that is not, or may not be, recorded.
fn log(core: &Core, request: &Request, outcome: RecordOutcome) {
    let (lock, key) = (&*request.name(), Visible(request.key.as_str()));
    let store = core.address().unwrap_or("in this process");
    match outcome {
        RecordOutcome::Recorded => {}
        RecordOutcome::Refused => tracing::error!(
            target: TARGET,
            lock,
            %key,
            store,
            "success not recorded: the work may run again within its period; check that it can be repeated, and the \
             memory, the replicas and the permissions of the store"
        ),
        RecordOutcome::Unknown => tracing::error!(
            target: TARGET,
            lock,
            %key,
            store,
            "success perhaps not recorded: no release got a reply, so the work may run again within its period; check \
             that it can be repeated, and the store"
        ),
    }
}
