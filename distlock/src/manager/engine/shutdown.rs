//! How a manager ends.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::release;
use crate::manager::engine::table::Entry;
use crate::protocol::claim::Standing;

/// Releases that are under way when a manager is dropped have this long to be answered.
const DRAIN: Duration = Duration::from_secs(2);

/// Ends everything: new calls are refused, waiting calls get an error, bodies are stopped, what is
/// held is released. Resolves when the store has answered, or cannot any more; a second call waits
/// for the first.
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
            // A body notices the loss at its next await and ends by itself; one that does not await
            // is given as long as its lease would have lasted.
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

/// Waits for background releases, then closes.
pub(crate) async fn drain(core: Arc<Core>) {
    core.phase
        .send_modify(|phase| *phase = (*phase).max(Phase::Draining));
    core.under_way.close();
    let _ = tokio::time::timeout(DRAIN, core.under_way.wait()).await;
    abandon(&core);
    let _ = tokio::time::timeout(DRAIN, core.telemetry.delivered()).await;
    core.telemetry.end();
}

/// Closes at once. What is still believed to be held is lost, for nobody renews it any more.
pub(crate) fn abandon(core: &Arc<Core>) {
    core.phase.send_modify(|phase| *phase = Phase::Closed);
    end_claims(core);
    release::sweep(core, |_| true);
    core.store.close();
    core.telemetry.connections_down();
}

/// Calls that wait get an error, and what is held is lost; those whose hold that was.
fn end_claims(core: &Arc<Core>) -> Vec<Arc<Entry>> {
    let now = core.clock.now();
    let mut held = Vec::new();
    for entry in core.claims.asking().into_iter().chain(core.claims.held()) {
        let (before, is_under_way_at_home) = core.claims.with(&entry, |claim| {
            let is_unanswered = claim.is_unanswered() && !entry.is_on_lane();
            let before = claim.standing();
            claim.handle_shutdown(now);
            (before, is_unanswered)
        });
        entry.changed.notify_one();
        match before {
            Standing::Held => {
                release::tell_loss(core, &entry);
                held.push(entry);
            }
            // What is under way at home is taken back there. For the rest nobody's runtime need
            // run.
            Standing::Asking | Standing::Queued | Standing::Due if !is_under_way_at_home => {
                release::release_in_background(core, &entry);
            }
            _ => {}
        }
    }
    held
}
