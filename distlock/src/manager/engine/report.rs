//! Reports what has happened to a hold and to its release, each once.

use std::sync::Arc;

use crate::manager::engine::abandoned_releases;
use crate::manager::engine::core::Core;
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::manager::telemetry::hold_events;
use crate::manager::telemetry::loss_report;
use crate::manager::telemetry::record_report;
use crate::protocol::outcome::Report;

/// Publishes and logs what has happened since the last call.
pub(crate) fn publish(core: &Arc<Core>, entry: &Arc<Entry>) {
    while let Some(report) = entry.poll_report() {
        match report {
            Report::Record(outcome) => record_report::publish(core, entry, outcome),
            Report::Lost(end) => {
                if let Some(hold) = HeldLock::of(core, entry) {
                    hold.publish_loss(&end);
                    loss_report::log_loss(hold, end);
                }
            }
            Report::Released { sent_at, outcome } => {
                hold_events::publish_release(core, entry, sent_at, outcome);
            }
            Report::Abandoned => abandoned_releases::record(core, entry),
        }
    }
}
