//! The release of a hold or of a place in a queue, as its holder or call begins it.

use std::sync::Arc;

use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::engine::driver::Sending;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::outcome::Action;
use crate::util::clock::BootInstant;
use crate::util::notify::wait_until;

/// Begins the release of a hold after its work, ahead of others, because its holder waits.
pub(crate) fn release(core: &Arc<Core>, hold: &HoldHandle, succeeded: bool) -> Option<Sending> {
    begin(core, &hold.entry, |acquisition, now| {
        let has_begun = acquisition.release(succeeded, now);
        has_begun
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    })
}

/// Sends a release, and waits until the first attempt has a reply or has timed out. The release
/// continues if this is dropped.
pub(crate) async fn send_and_wait(sending: Sending, entry: &RegistryEntry) {
    let _ = sending.send_here().await;
    wait_until(&entry.changed, || {
        entry.peek(Acquisition::was_release_attempted).then_some(())
    })
    .await;
}

/// Releases what the store may hold for an acquisition, if that is necessary. No caller waits for
/// it, so it is sent after all releases that are due.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<RegistryEntry>) {
    let sending = begin(core, entry, |acquisition, now| {
        let may_send = core.registry.may_release(now);
        let has_begun = acquisition.release(false, now);
        (has_begun && may_send)
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    });
    if let Some(sending) = sending {
        core.executor.poll_or_spawn(sending.send());
    }
}

fn begin(
    core: &Arc<Core>,
    entry: &Arc<RegistryEntry>,
    begin: impl FnOnce(&mut Acquisition, BootInstant) -> Option<Action>,
) -> Option<Sending> {
    let next = core.update(entry, |acquisition, now| {
        let action = begin(acquisition, now)?;
        Some((action, acquisition.awaited()))
    });
    let (action, number) = next?;
    Some(Sending::new(core, entry, action, number))
}
