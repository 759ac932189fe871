//! The shutdown of a manager.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::release;
use crate::manager::engine::table::Entry;
use crate::protocol::acquisition::AcquisitionState;

/// Upper limit of the waits for releases in flight, and for observers, when a manager ends.
const DRAIN: Duration = Duration::from_secs(2);

/// Ends everything: rejects new calls, fails waiting calls, stops bodies, and releases holds. Waits
/// until the store has replied, or no longer can. A second call waits for the first.
pub(crate) async fn shut_down(core: Arc<Core>) {
    let _turn = core.shutting_down.lock().await;
    if core.phase() == Phase::Closed {
        return;
    }
    core.phase.send_replace(Phase::Draining);
    let held = end_claims(&core);
    let ending = TaskTracker::new();
    for entry in held {
        let (of_task, one) = (core.clone(), ending.token());
        core.executor.spawn(async move {
            let core = of_task;
            // A body notices the loss at its next await and ends by itself. A body that does not
            // await gets as long as its lease would have lasted.
            let lease = entry.request.timing.lease;
            let _ = tokio::time::timeout(lease, entry.without_body()).await;
            release::release_in_background(&core, &entry);
            drop(one);
        });
    }
    ending.close();
    ending.wait().await;
    drain(core.clone()).await;
}

/// Waits for calls and releases in flight, then closes.
pub(crate) async fn drain(core: Arc<Core>) {
    core.phase
        .send_modify(|phase| *phase = (*phase).max(Phase::Draining));
    core.under_way.close();
    let _ = tokio::time::timeout(DRAIN, core.under_way.wait()).await;
    abandon(&core);
    let _ = tokio::time::timeout(DRAIN, core.telemetry.delivered()).await;
    core.telemetry.end();
}

/// Closes at once. The holds that are left are lost, because they are no longer renewed.
pub(crate) fn abandon(core: &Arc<Core>) {
    core.phase.send_modify(|phase| *phase = Phase::Closed);
    end_claims(core);
    release::sweep(core, |_| true);
    core.store.close();
    core.telemetry.connections_down();
}

/// Fails all waiters, ends all holds, and returns the holds that ended.
fn end_claims(core: &Arc<Core>) -> Vec<Arc<Entry>> {
    let now = core.clock.now();
    let mut held = Vec::new();
    for entry in core.claims.asking().into_iter().chain(core.claims.held()) {
        let (before, is_under_way_at_home) = core.claims.with(&entry, |acquisition| {
            let is_unanswered = acquisition.is_in_flight() && !entry.is_on_lane();
            let before = acquisition.state();
            acquisition.handle_shutdown(now);
            (before, is_unanswered)
        });
        entry.changed.notify_one();
        match before {
            AcquisitionState::Held => {
                release::tell_loss(core, &entry);
                held.push(entry);
            }
            // `perform` releases an acquisition with a command in flight on the I/O thread. The
            // runtimes of the other calls may not run.
            AcquisitionState::Acquiring
            | AcquisitionState::Queued
            | AcquisitionState::AwaitsCall
                if !is_under_way_at_home =>
            {
                release::release_in_background(core, &entry);
            }
            _ => {}
        }
    }
    held
}
