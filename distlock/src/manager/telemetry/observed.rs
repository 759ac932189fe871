//! What is told of holds to those who observe, each of it once.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::key::LockKey;
use crate::loss::LossReason;
use crate::manager::engine::core::Core;
use crate::manager::engine::hold::Hold;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::call::name;
use crate::observer::event::{Event, HoldOutcome, Loss, ReleaseOutcome};
use crate::protocol::claim::leaving::Left;
use crate::util::clock::Moment;

impl Hold {
    /// Since when nothing proves that it is ours: from the send of the last command that did.
    pub(crate) fn since_proof(&self) -> Duration {
        let validity = self.entry.request.timing.validity();
        let proven = self.believed_until() - validity;
        // A grant that was not confirmed is believed for less, and began with its proof.
        self.core.clock.now().since(proven.max(self.grip.since))
    }

    /// Its holder is done with it, or has gone.
    pub(crate) fn tell_ended(&self, outcome: HoldOutcome) {
        if self.core.observed.is_none() || !self.entry.mark_ended() {
            return;
        }
        self.core
            .tell_more(self.entry.request.told, || Event::Ended {
                lock: name(self.options().label.as_ref()),
                key: self.key().shared(),
                fencing_token: self.token(),
                held: self.age(),
                outcome,
            });
    }

    /// It ended by itself.
    pub(crate) fn tell_lost(&self, error: &Error) {
        if self.core.observed.is_none() {
            return;
        }
        let Some(reason) = loss(error) else {
            return self.tell_ended(HoldOutcome::HoldLimit);
        };
        self.core
            .tell_more(self.entry.request.told, || Event::Lost {
                lock: name(self.options().label.as_ref()),
                key: self.key().shared(),
                fencing_token: self.token(),
                reason,
                since_proof: self.since_proof(),
                completed: matches!(
                    error,
                    Error::Lost {
                        completed: true,
                        ..
                    }
                ),
            });
        self.tell_ended(HoldOutcome::Lost);
    }
}

/// How a hold was lost; `None` if it only lasted as long as it may.
pub(crate) fn loss(error: &Error) -> Option<Loss> {
    match error {
        Error::HoldLimit { .. } => None,
        Error::Lost { reason, .. } => Some(match reason {
            LossReason::NotRenewed { .. } => Loss::Expired,
            LossReason::Revoked { .. } => Loss::Revoked,
            LossReason::ShutDown => Loss::Closed,
            LossReason::Gone | LossReason::Released => Loss::Gone,
        }),
        _ => Some(Loss::Gone),
    }
}

/// The first attempt to release a hold is over.
pub(crate) fn tell_released(core: &Core, entry: &Entry, began: Moment, left: Left, failed: bool) {
    if core.observed.is_none() || core.claims.peek(entry, |claim| claim.grip().is_none()) {
        return;
    }
    let took = core.clock.now().since(began);
    core.tell_more(entry.request.told, || Event::Released {
        lock: name(entry.request.options.label.as_ref()),
        key: entry.request.key.shared(),
        took,
        outcome: match left {
            Left::NotOurs => ReleaseOutcome::NotHeld,
            Left::Again(_) if failed => ReleaseOutcome::Unanswered,
            Left::Done | Left::Again(_) => ReleaseOutcome::Released,
        },
    });
}

/// Somebody saw the queue of a lock, which has the name by which it is held or waited for here.
pub(crate) fn tell_queue(core: &Arc<Core>, key: &LockKey, waiters: u64) {
    core.observe(|| {
        let known = core.claims.asking().into_iter().chain(core.claims.held());
        let labels = known.filter_map(|entry| {
            let label = entry.request.options.label.clone()?;
            entry.request.key.same_lock(key).then_some(label)
        });
        Event::QueueSeen {
            lock: name(labels.into_iter().next().as_ref()),
            key: key.shared(),
            waiters,
        }
    });
}
