//! The events of a call: one when it begins, and one when it ends, even if it is dropped.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use crate::error::{Error, HoldKind, Holder};
use crate::fencing::FencingToken;
use crate::manager::core::Core;
use crate::manager::engine::acquire::AcquireCall;
use crate::manager::telemetry::data_loss;
use crate::observer::event::{AcquireFailure, Event, SkipKind};
use crate::observer::telemetry::Delivery;
use crate::protocol::hold::GrantOrigin;

/// Publishes a call that did not start, because its `run_if` is false. Its key is not built.
pub(crate) fn publish_run_if_false(
    core: &Core,
    label: &'static str,
    template: &'static str,
    kind: HoldKind,
) {
    let event = || Event::Skipped {
        lock: Cow::Borrowed(label),
        key: template.into(),
        kind,
        waited: Duration::ZERO,
        reason: SkipKind::RunIf,
        holder: None,
    };
    core.telemetry.emit(Delivery::BestEffort, event);
}

impl AcquireCall<'_> {
    /// Publishes the start of the call. Its end is then published, too.
    pub(crate) fn publish_started(&mut self) {
        let event = || Event::AcquireStarted {
            lock: self.request.name(),
            key: self.request.key.shared(),
            kind: self.request.kind.hold_kind(),
        };
        let delivery = self.core.telemetry.emit(Delivery::BestEffort, event);
        self.request.set_delivery(delivery);
        self.failure = Some(AcquireFailure::Cancelled);
    }

    /// Publishes that the call was queued. `holder` is called only if the event is observed.
    pub(crate) fn publish_queued(&self, holder: impl FnOnce() -> Option<Holder>) {
        self.core.publish(&self.request, |lock, key| Event::Queued {
            lock,
            key,
            holder: holder(),
        });
    }

    /// Ends the call with its lock.
    pub(crate) fn finish_acquired(mut self, origin: GrantOrigin, fencing_token: FencingToken) {
        self.failure = None;
        self.core
            .known_data
            .record_acquired(&self.request, fencing_token);
        if self.request.once.is_some() {
            data_loss::check_record(self.core, &self.request);
        }
        self.core.publish(&self.request, |lock, key| {
            let now = self.core.clock.now();
            Event::Acquired {
                lock,
                key,
                kind: self.request.kind.hold_kind(),
                weight: self.request.kind.permits_held(),
                waited: now.since(self.request.started),
                path: origin.path,
                fencing_token: self.request.kind.public_token(fencing_token),
                handoff: origin.granted_at.map(|granted_at| now.since(granted_at)),
            }
        });
    }

    /// Ends the call without its lock: as skipped, if its options say so.
    pub(crate) fn finish_failed(&mut self, error: &Error) {
        if let Error::AlreadyRan { last_success, .. } = error {
            let age = SystemTime::now().duration_since(*last_success);
            let since = self.core.clock.now() - age.unwrap_or_default();
            self.core.known_data.record_success(&self.request, since);
        }
        if !self.request.options.is_skip(error) {
            self.failure = AcquireFailure::of(error);
            return;
        }
        self.failure = None;
        let reason = match error {
            Error::AlreadyRan { .. } => SkipKind::AlreadyRan,
            _ => SkipKind::Busy,
        };
        self.core
            .publish(&self.request, |lock, key| Event::Skipped {
                lock,
                key,
                kind: self.request.kind.hold_kind(),
                waited: self.core.clock.now().since(self.request.started),
                reason,
                holder: error.holders().first().cloned(),
            });
    }

    /// Publishes that the call ended without its lock, unless its end was published or it was not
    /// started.
    pub(crate) fn publish_failure(&mut self) {
        let Some(outcome) = self.failure.take() else {
            return;
        };
        let waited = self.core.clock.now().since(self.request.started);
        self.core
            .publish(&self.request, |lock, key| Event::AcquireFailed {
                lock,
                key,
                kind: self.request.kind.hold_kind(),
                waited,
                outcome,
            });
    }
}
