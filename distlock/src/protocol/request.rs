//! The request of an acquire call.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;

use crate::config::options::Options;
use crate::key::LockKey;
use crate::observer::event::UNLABELED;
use crate::observer::telemetry::Delivery;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, OwnerId, Release, Target};
use crate::protocol::once::Once;
use crate::protocol::timing::Timing;
use crate::util::clock::BootInstant;

/// How long the store keeps a queue entry after the wait has ended.
const QUEUE_ENTRY_GRACE: Duration = Duration::from_secs(1);

/// A wait counts as long after half of `wait`, clamped to these bounds.
const MIN_LONG_WAIT: Duration = Duration::from_secs(1);
const MAX_LONG_WAIT: Duration = Duration::from_secs(30);

/// The key and options of one acquire call.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) key: LockKey,
    pub(crate) kind: Kind,
    /// Set for a call that runs at most once.
    pub(crate) once: Option<Once>,
    pub(crate) options: Options,
    /// The start of the call.
    pub(crate) started: BootInstant,
    /// Set when the call is published.
    delivery: OnceCell<Delivery>,
    /// Set once observers have been notified of a long wait.
    is_long_wait_reported: AtomicBool,
    /// The outcome that the testing kit has set for the call.
    #[cfg(feature = "testing")]
    pub(crate) outcome_id: Option<usize>,
}

impl Request {
    /// Creates a request. The options must have been checked.
    pub(crate) fn new(key: LockKey, kind: Kind, options: Options, started: BootInstant) -> Self {
        Request {
            key,
            kind,
            once: Once::of(&options),
            options,
            started,
            delivery: OnceCell::new(),
            is_long_wait_reported: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            outcome_id: None,
        }
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing::new(self.options.lease())
    }

    /// Returns the lock, and an owner of it.
    pub(crate) fn target(&self, owner: OwnerId) -> Target<'_> {
        Target {
            key: &self.key,
            kind: self.kind,
            owner,
            timing: self.timing(),
            durability: self.options.durability(),
        }
    }

    /// Returns the command that acquires the lock, with the options that the store has to know.
    pub(crate) fn acquire_command(&self, owner: OwnerId, wait: Duration) -> Acquire<'_> {
        Acquire {
            target: self.target(owner),
            wait,
            metadata: self.options.metadata(),
            once: self.once.as_ref(),
        }
    }

    /// Returns the command that releases whatever the store has for an owner.
    pub(crate) fn release_command(&self, owner: OwnerId) -> Release<'_> {
        Release {
            target: self.target(owner),
            keep_for: Duration::ZERO,
            success: None,
            unanswered_until: None,
        }
    }

    /// Returns how the events of the call and of its hold are delivered.
    pub(crate) fn delivery(&self) -> Delivery {
        self.delivery.get().copied().unwrap_or(Delivery::BestEffort)
    }

    pub(crate) fn set_delivery(&self, delivery: Delivery) {
        // A call is published once.
        let _ = self.delivery.set(delivery);
    }

    /// Returns the name of the lock in events and metrics.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        self.options
            .label
            .clone()
            .unwrap_or(Cow::Borrowed(UNLABELED))
    }

    /// Returns the time at which the wait counts as long.
    pub(crate) fn long_wait_from(&self) -> BootInstant {
        self.started + (self.options.wait() / 2).clamp(MIN_LONG_WAIT, MAX_LONG_WAIT)
    }

    /// Marks a wait that counts as long. Returns true the first time.
    pub(crate) fn mark_long_wait(&self, now: BootInstant) -> bool {
        now >= self.long_wait_from() && !self.is_long_wait_reported.swap(true, Ordering::AcqRel)
    }

    /// Returns true if `wait` is zero. Such a call tries once, and does not wait in the queue.
    pub(crate) fn is_try_acquire(&self) -> bool {
        self.options.wait().is_zero()
    }

    /// Returns the end of the wait.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.started + self.options.wait()
    }

    /// Returns the time until which the store keeps the queue entry.
    pub(crate) fn queue_entry_expires_at(&self) -> BootInstant {
        self.deadline() + QUEUE_ENTRY_GRACE
    }

    /// Returns how long the call has waited: zero if it tries once, however long its command took.
    pub(crate) fn waited(&self, now: BootInstant) -> Duration {
        if self.is_try_acquire() {
            Duration::ZERO
        } else {
            now.since(self.started)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_once_after_half_of_it() {
        let second = Duration::from_secs(1);
        for (wait, long) in [
            (second, second),
            (second * 10, second * 5),
            (second * 90, second * 30),
        ] {
            let options = Options {
                wait: Some(wait),
                ..Options::default()
            };
            let started = BootInstant(1);
            let request = Request::new(LockKey::new("k").unwrap(), Kind::Mutex, options, started);
            assert!(!request.mark_long_wait(BootInstant((started + long).0 - 1)));
            assert!(request.mark_long_wait(started + long), "{wait:?}");
            assert!(!request.mark_long_wait(started + long * 2), "{wait:?}");
        }
    }
}
