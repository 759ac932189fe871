//! The shutdown of a manager.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::manager::core::registry::RegistryEntry;
use crate::manager::core::{Core, Phase};
use crate::manager::engine::{driver, report};
use crate::protocol::acquisition::{Acquisition, AcquisitionState};

/// Upper limit of the waits for releases, and for observers, when a manager ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends everything: rejects new calls, fails waiting calls, stops bodies, and releases holds. Waits
/// until the store has replied, or no longer can. A second call waits for the first.
pub(crate) async fn shut_down(core: Arc<Core>) {
    let _shutting_down = core.shutdown_lock.lock().await;
    if core.phase() == Phase::Closed {
        return;
    }
    core.phase.send_replace(Phase::Draining);
    let held = end_all(&core);
    let releases = TaskTracker::new();
    for entry in held {
        let (task_core, token) = (core.clone(), releases.token());
        core.executor.run_or_spawn(async move {
            let core = task_core;
            // A body notices the loss at its next await and ends by itself. A body that does not
            // await gets as long as its lease would have lasted.
            let lease = entry.request.timing().lease;
            let _ = tokio::time::timeout(lease, entry.wait_for_bodies()).await;
            driver::release_in_background(&core, &entry);
            drop(token);
        });
    }
    releases.close();
    releases.wait().await;
    drain(core.clone()).await;
}

/// Waits for releases, then closes.
pub(crate) async fn drain(core: Arc<Core>) {
    core.phase
        .send_modify(|phase| *phase = (*phase).max(Phase::Draining));
    core.loss_lines.close();
    let ended = async {
        core.registry.released().await;
        core.loss_lines.wait().await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, ended).await;
    close(&core);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, core.telemetry.wait_until_delivered()).await;
    core.telemetry.end();
}

/// Closes at once. The holds that are left are lost, because they are no longer renewed.
pub(crate) fn close(core: &Arc<Core>) {
    core.phase.send_modify(|phase| *phase = Phase::Closed);
    end_all(core);
    for entry in core.registry.all() {
        core.registry.update(&entry, Acquisition::abandon);
        report::publish(core, &entry);
    }
    report::log_abandoned(core);
    core.store.close();
    core.telemetry.publish_connections_down();
}

/// Fails all waiters, ends all holds, and returns the acquisitions of those that were not released.
fn end_all(core: &Arc<Core>) -> Vec<Arc<RegistryEntry>> {
    let end = |entry: &Arc<RegistryEntry>| {
        core.update(entry, Acquisition::handle_shutdown);
        report::publish(core, entry);
        entry.peek(Acquisition::state) == AcquisitionState::Lost
    };
    core.registry.all().into_iter().filter(end).collect()
}
