//! What a call wants.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::options::{Durability, Options};
use crate::key::LockKey;
use crate::observer::event::UNLABELED;
use crate::observer::telemetry::Delivery;
use crate::protocol::timing::Timing;
use crate::util::clock::Moment;

/// How much longer than its wait a caller's place is kept.
const PLACE_GRACE: Duration = Duration::from_secs(1);

/// Half of a wait is long, within these bounds.
const LEAST_LONG: Duration = Duration::from_secs(1);
const MOST_LONG: Duration = Duration::from_secs(30);

/// What is wanted: today one key, for one holder.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) key: LockKey,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
    pub(crate) options: Options,
    /// When the call began.
    pub(crate) started: Moment,
    /// The delivery of its events.
    pub(crate) delivery: Delivery,
    /// Observers know that it waits for long.
    waits_long: AtomicBool,
}

impl Request {
    /// The options must have been checked.
    pub(crate) fn new(key: LockKey, options: Options, started: Moment) -> Self {
        Request {
            key,
            timing: Timing::new(options.lease),
            durability: options.durability(),
            options,
            started,
            delivery: Delivery::BestEffort,
            waits_long: AtomicBool::new(false),
        }
    }

    /// Returns the name of the lock in events and metrics.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        (self.options.label.clone()).unwrap_or(Cow::Borrowed(UNLABELED))
    }

    /// The moment from which the call waits for long.
    pub(crate) fn long_wait_from(&self) -> Moment {
        self.started + (self.options.wait / 2).clamp(LEAST_LONG, MOST_LONG)
    }

    /// Marks a call that waits for long; returns true the first time.
    pub(crate) fn mark_long_wait(&self, now: Moment) -> bool {
        now >= self.long_wait_from() && !self.waits_long.swap(true, Ordering::AcqRel)
    }

    /// Zero tries once and never stands in the queue.
    pub(crate) fn tries_once(&self) -> bool {
        self.options.wait.is_zero()
    }

    /// Until when the caller waits.
    pub(crate) fn deadline(&self) -> Moment {
        self.started + self.options.wait
    }

    /// Until when the store keeps its place in the queue.
    pub(crate) fn place_until(&self) -> Moment {
        self.deadline() + PLACE_GRACE
    }

    /// For how long the call has waited. Who does not wait has not waited, however long a command
    /// took.
    pub(crate) fn waited(&self, now: Moment) -> Duration {
        if self.tries_once() {
            Duration::ZERO
        } else {
            now.since(self.started)
        }
    }
}
