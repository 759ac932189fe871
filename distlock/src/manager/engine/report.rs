//! Reports what has happened to a hold and to its release, each once.

use std::sync::Arc;
use std::time::Duration;

use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::engine::loss;
use crate::manager::telemetry::hold_events;
use crate::manager::telemetry::logging;
use crate::manager::telemetry::record_report;
use crate::protocol::outcome::Report;
use crate::util::sync::lock;

/// How long releases that are given up are counted before they are logged.
const LOG_DELAY: Duration = Duration::from_secs(1);

/// Publishes and logs what has happened since the last call.
pub(crate) fn publish(core: &Arc<Core>, entry: &Arc<RegistryEntry>) {
    entry.publish_reports(|report| match report {
        Report::Record(outcome) => record_report::publish(core, entry, outcome),
        Report::Lost(end) => {
            if let Some(hold) = HoldHandle::of(core, entry) {
                hold.publish_loss(&end);
                loss::log(hold, end);
            }
        }
        Report::Released { sent_at, outcome } => {
            hold_events::publish_release(core, entry, sent_at, outcome);
        }
        Report::Abandoned => {
            let mut abandoned = lock(&core.abandoned_releases);
            abandoned.0 += 1;
            if abandoned.1.is_none() {
                abandoned.1 = Some(entry.clone());
                let core = core.clone();
                core.clone().executor.spawn(async move {
                    tokio::time::sleep(LOG_DELAY).await;
                    log_abandoned(&core);
                });
            }
        }
    });
}

/// Logs the releases that were given up since the last call.
pub(crate) fn log_abandoned(core: &Core) {
    let (releases, first) = std::mem::take(&mut *lock(&core.abandoned_releases));
    if let Some(entry) = first {
        let store = core.address().unwrap_or_default().to_owned();
        core.spawn_logging(move || {
            let (lock, key) = (entry.request.name(), entry.request.key.as_str());
            logging::releases_abandoned(&store, &lock, key, releases);
        });
    }
}
