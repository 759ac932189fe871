//! The release of a hold or of a place in a queue, as its holder or call begins it.

use std::sync::Arc;

use crate::manager::engine::core::Core;
use crate::manager::engine::driver::Sending;
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::outcome::Action;
use crate::util::clock::BootInstant;
use crate::util::notify::wait_until;

/// A release that has begun. It continues if this is dropped.
#[must_use]
pub(crate) struct AwaitedRelease {
    entry: Arc<Entry>,
    sending: Option<Sending>,
}

/// Begins the release of a hold after its work, ahead of others, because its holder waits.
pub(crate) fn release(core: &Arc<Core>, hold: &HeldLock, succeeded: bool) -> AwaitedRelease {
    let entry = hold.entry.clone();
    let sending = begin(core, &entry, |acquisition, now| {
        let has_begun = acquisition.release(succeeded, now);
        has_begun
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    });
    AwaitedRelease { entry, sending }
}

/// Releases what the store may hold for an acquisition, if that is necessary. No caller waits for
/// it.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<Entry>) {
    let has_room = core.registry.room() > 0;
    let sending = begin(core, entry, |acquisition, now| {
        let may_send = acquisition.release(false, now) && has_room;
        may_send
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    });
    if let Some(sending) = sending {
        core.executor.poll_or_spawn(sending.send());
    }
}

fn begin(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    begin: impl FnOnce(&mut Acquisition, BootInstant) -> Option<Action>,
) -> Option<Sending> {
    let next = core.update(entry, |acquisition, now| {
        let action = begin(acquisition, now)?;
        Some((action, acquisition.awaited()))
    });
    let (action, number) = next?;
    Some(Sending::new(core, entry, action, number))
}

impl AwaitedRelease {
    /// Waits until the first attempt has a reply or has timed out.
    pub(crate) async fn wait(self) {
        let AwaitedRelease { entry, sending } = self;
        let Some(sending) = sending else { return };
        let _ = sending.send_here().await;
        wait_until(&entry.changed, || {
            entry.peek(Acquisition::was_release_attempted).then_some(())
        })
        .await;
    }
}
