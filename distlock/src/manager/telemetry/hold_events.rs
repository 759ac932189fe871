//! The events of a hold.

use std::borrow::Cow;
use std::time::Duration;

use crate::error::BodyState;
use crate::key::LockKey;
use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::observer::event::{Event, HoldOutcome, ReleaseOutcome, UNLABELED};
use crate::observer::telemetry::Delivery;
use crate::protocol::outcome::HoldEnd;
use crate::util::clock::BootInstant;

impl HoldHandle {
    /// Returns the time since the send of the last command that proved the hold.
    pub(crate) fn unconfirmed_for(&self) -> Duration {
        let validity = self.entry.request.timing().validity();
        let proven = self.safe_until() - validity;
        // An unconfirmed grant is valid for less, and its hold began with its proof.
        self.core.clock.now().since(proven.max(self.hold.since))
    }

    /// Publishes the end of the hold, at most once.
    pub(crate) fn publish_end(&self, outcome: HoldOutcome) {
        if self.entry.mark_end_published() {
            self.core
                .publish(&self.entry.request, |lock, key| Event::HoldEnded {
                    lock,
                    key,
                    kind: self.entry.request.kind.hold_kind(),
                    weight: self.entry.request.kind.permits_held(),
                    fencing_token: self.public_token(),
                    held: self.age(),
                    outcome,
                });
        }
    }

    /// Publishes that the hold ended before its holder released it.
    pub(crate) fn publish_loss(&self, end: &HoldEnd) {
        let reason = match end {
            HoldEnd::Lost(reason) => reason,
            HoldEnd::MaxHold => return self.publish_end(HoldOutcome::MaxHoldExceeded),
            HoldEnd::Released | HoldEnd::Unclaimed => return,
        };
        self.core
            .publish(&self.entry.request, |lock, key| Event::Lost {
                lock,
                key,
                kind: self.entry.request.kind.hold_kind(),
                weight: self.entry.request.kind.permits_held(),
                fencing_token: self.public_token(),
                reason: reason.clone(),
                unconfirmed_for: self.unconfirmed_for(),
                completed: self.body_state(reason) == BodyState::Completed,
            });
        self.publish_end(HoldOutcome::Lost);
    }
}

/// Publishes the outcome of the first attempt to release a hold.
pub(crate) fn publish_release(
    core: &Core,
    entry: &RegistryEntry,
    started: BootInstant,
    outcome: ReleaseOutcome,
) {
    core.publish(&entry.request, |lock, key| Event::Released {
        lock,
        key,
        kind: entry.request.kind.hold_kind(),
        took: core.clock.now().since(started),
        outcome,
    });
}

/// Publishes the length of a lock's queue, under the name by which this client uses the lock.
pub(crate) fn publish_queue(core: &Core, key: &LockKey, queue_length: u64) {
    core.telemetry.emit(Delivery::BestEffort, || {
        let mut entries = core.registry.all().into_iter();
        let label = entries.find_map(|entry| {
            let label = entry.request.options.label.clone()?;
            entry.request.key.same_lock(key).then_some(label)
        });
        Event::QueueInspected {
            lock: label.unwrap_or(Cow::Borrowed(UNLABELED)),
            key: key.shared(),
            queue_length,
        }
    });
}
