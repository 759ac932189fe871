//! The events of a call: one when it begins, and one when it ends, even if it is dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, HoldKind, Holder};
use crate::fencing::FencingToken;
use crate::manager::engine::core::Core;
use crate::manager::telemetry::data_loss;
use crate::observer::event::{AcquireFailure, AcquirePath, Event, SkipKind};
use crate::observer::telemetry::Delivery;
use crate::protocol::request::Request;
use crate::util::clock::BootInstant;

/// A call that acquires a lock.
pub(crate) struct AcquireCall<'a> {
    core: &'a Core,
    pub(crate) request: Arc<Request>,
    /// True once it was published that the call was queued.
    pub(crate) is_queued_published: bool,
    /// The reason why it ends without its lock; `None` once it has the lock.
    failure: Option<AcquireFailure>,
}

/// Returns the name of an error in events and spans; `None` for a mistake of the caller.
pub(crate) fn acquire_failure(error: &Error) -> Option<AcquireFailure> {
    match error {
        Error::QueueFull { .. } => Some(AcquireFailure::QueueFull),
        Error::Busy { .. } => Some(AcquireFailure::Busy),
        Error::Unavailable { .. } => Some(AcquireFailure::Unavailable),
        Error::KeyConflict { .. } => Some(AcquireFailure::KeyConflict),
        Error::WrongKind { .. } => Some(AcquireFailure::WrongKind),
        Error::AlreadyRan { .. } => Some(AcquireFailure::AlreadyRan),
        Error::ShutDown { .. } => Some(AcquireFailure::ShutDown),
        Error::Lost { .. } | Error::MaxHoldExceeded { .. } | Error::Released { .. } => {
            Some(AcquireFailure::Lost)
        }
        _ => None,
    }
}

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

impl<'a> AcquireCall<'a> {
    pub(crate) fn begin(core: &'a Core, request: Arc<Request>) -> Self {
        let event = || Event::AcquireStarted {
            lock: request.name(),
            key: request.key.shared(),
            kind: request.kind.hold_kind(),
        };
        request.set_delivery(core.telemetry.emit(Delivery::BestEffort, event));
        AcquireCall {
            core,
            request,
            is_queued_published: false,
            failure: Some(AcquireFailure::Cancelled),
        }
    }

    /// Publishes that the call was queued. `holder` is called only if the event is observed.
    pub(crate) fn publish_queued(&mut self, holder: impl FnOnce() -> Option<Holder>) {
        self.is_queued_published = true;
        self.core.publish(&self.request, |lock, key| Event::Queued {
            lock,
            key,
            holder: holder(),
        });
    }

    /// Ends the call with its lock. `granted_at` is the earliest time of a hand-off, if known.
    pub(crate) fn finish_acquired(
        mut self,
        path: AcquirePath,
        fencing_token: FencingToken,
        granted_at: Option<BootInstant>,
    ) {
        self.failure = None;
        data_loss::on_acquired(self.core, &self.request, fencing_token);
        self.core.publish(&self.request, |lock, key| {
            let now = self.core.clock.now();
            Event::Acquired {
                lock,
                key,
                kind: self.request.kind.hold_kind(),
                weight: self.request.kind.permits_held(),
                waited: now.since(self.request.started),
                path,
                fencing_token: self.request.kind.public_token(fencing_token),
                handoff: granted_at.map(|granted_at| now.since(granted_at)),
            }
        });
    }

    /// Ends the call without its lock: as skipped, if its options say so.
    pub(crate) fn finish_failed(mut self, error: &Error) {
        if let Error::AlreadyRan { last_success, .. } = error {
            let age = SystemTime::now().duration_since(*last_success);
            let since = self.core.clock.now() - age.unwrap_or_default();
            (self.core.known_data).record_success(&self.request, since);
        }
        if !self.request.options.is_skip(error) {
            self.failure = acquire_failure(error);
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
}

impl Drop for AcquireCall<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.failure
            && !self.core.is_inherited()
        {
            let waited = || self.core.clock.now().since(self.request.started);
            self.core
                .publish(&self.request, |lock, key| Event::AcquireFailed {
                    lock,
                    key,
                    kind: self.request.kind.hold_kind(),
                    waited: waited(),
                    outcome,
                });
        }
    }
}
