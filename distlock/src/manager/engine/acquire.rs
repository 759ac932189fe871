//! An acquire call, from its start to its hold.
//!
//! A call runs on its caller's runtime, and needs no timer there. It sends its first command
//! itself.
//! The driver repeats what fails, and ends the wait.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Outage};
use crate::manager::engine::core::{Core, Phase, shut_down_error};
use crate::manager::engine::driver::{self, Sending};
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::manager::engine::release;
use crate::manager::telemetry::acquire_call::AcquireCall;
use crate::manager::telemetry::logging;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::HolderView;
use crate::protocol::outcome::{Failure, Outcome, WaitReason};
use crate::protocol::request::Request;
use crate::util::clock::BootInstant;
use crate::util::notify::wait_until;

/// The least pause of a call that itself waits for its end.
const MIN_SLEEP: Duration = Duration::from_millis(10);

/// Acquires the lock, with as many acquisitions as necessary. If this future is dropped, everything
/// that it requested is cancelled.
pub(crate) async fn acquire(core: &Arc<Core>, request: Request) -> Result<HeldLock, Error> {
    let mut call = AcquireCall::begin(core, Arc::new(request));
    let request = call.request.clone();
    let mut wait_reason = None;
    let failure = loop {
        let (mut attempt, sending) = AcquireAttempt::begin(core, &request, wait_reason.take());
        let outcome = match sending {
            Some(sending) => sending.send_here().await,
            None => None,
        };
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => attempt.outcome(&mut call).await,
        };
        match outcome {
            Outcome::Held => match attempt.take_hold() {
                Some(held) => {
                    let info = &held.info;
                    call.finish_acquired(info.path, info.token, info.granted_at);
                    return Ok(held);
                }
                None => break Failure::ShutDown,
            },
            Outcome::Retry(last) => wait_reason = last,
            Outcome::Failed(failure) => break failure,
        }
    };
    let error = failure_error(core, &request, failure);
    call.finish_failed(&error);
    Err(error)
}

/// Acquires several locks with one command, if all of them are free. Otherwise, or after an error,
/// returns `None`, and cancels what the command may have left behind. A call that tries once gets
/// the error of a command without a reply.
///
/// The requests have the same options. Their calls are published only if they end here.
pub(crate) async fn acquire_all(
    core: &Arc<Core>,
    requests: impl Iterator<Item = Request>,
) -> Result<Option<Vec<HeldLock>>, Error> {
    let (mut attempts, sending): (Vec<_>, Vec<_>) = requests
        .map(|request| AcquireAttempt::begin(core, &Arc::new(request), None))
        .unzip();
    let Some(sending) = sending.into_iter().collect::<Option<Vec<_>>>() else {
        // A shutdown has begun.
        return Ok(None);
    };
    let (replied, reply) = oneshot::channel();
    (core.executor).poll_or_spawn(driver::send_all(core.clone(), sending, replied));
    // No result comes if the I/O thread no longer runs.
    if let Ok(Err(error)) = reply.await
        && error.is_unanswered()
        && let Some(attempt) = attempts.first()
        && attempt.entry.request.is_try_acquire()
    {
        let call = AcquireCall::begin(core, attempt.entry.request.clone());
        let error = failure_error(core, &call.request, Failure::Unavailable(error));
        call.finish_failed(&error);
        return Err(error);
    }
    let has_claimed =
        |attempt: &AcquireAttempt| core.update(&attempt.entry, claim) == Some(Outcome::Held);
    if !attempts.iter().all(has_claimed) {
        return Ok(None);
    }
    let held = attempts.iter_mut().map(AcquireAttempt::take_hold);
    let Some(held) = held.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    for hold in &held {
        let call = AcquireCall::begin(core, hold.entry.request.clone());
        call.finish_acquired(hold.info.path, hold.info.token, hold.info.granted_at);
    }
    Ok(Some(held))
}

/// One acquisition of a call. If dropped before it becomes a hold, it is cancelled, whatever the
/// store holds for it.
struct AcquireAttempt {
    core: Arc<Core>,
    entry: Arc<Entry>,
    became_hold: bool,
}

impl Drop for AcquireAttempt {
    fn drop(&mut self) {
        if !self.became_hold && !self.core.is_inherited() {
            release::release_in_background(&self.core, &self.entry);
        }
    }
}

impl AcquireAttempt {
    /// Registers an acquisition, and returns its first command.
    fn begin(
        core: &Arc<Core>,
        request: &Arc<Request>,
        wait_reason: Option<WaitReason>,
    ) -> (Self, Option<Sending>) {
        let now = core.clock.now();
        let mut acquisition = Acquisition::new(request.clone(), wait_reason, core.rules);
        let action = acquisition.poll_action(false, now);
        let number = acquisition.awaited();
        // Random, because a pushed grant that names an owner id is trusted.
        let owner = core.random.next();
        let attempt = AcquireAttempt {
            core: core.clone(),
            entry: core.registry.register(owner, acquisition),
            became_hold: false,
        };
        // A shutdown that has begun either finds the new entry, or is noticed here.
        if core.phase() != Phase::Running {
            core.update(&attempt.entry, |acquisition, now| {
                acquisition.handle_shutdown(now);
                // Its acquire was not sent.
                acquisition.abandon();
            });
            return (attempt, None);
        }
        let sending = action.map(|action| Sending::new(core, &attempt.entry, action, number));
        (attempt, sending)
    }

    /// Waits until the outcome is known.
    async fn outcome(&self, call: &mut AcquireCall<'_>) -> Outcome {
        let (core, entry) = (&*self.core, &*self.entry);
        let claim_or_report = || {
            let outcome = core.update(entry, claim);
            if outcome.is_none() {
                self.report_queued(call);
            }
            outcome
        };
        let waiting = wait_until(&entry.changed, claim_or_report);
        if !core.executor.inline {
            return waiting.await;
        }
        // The driver's runtime may have ended before this one.
        let mut waiting = pin!(waiting);
        loop {
            let remaining = entry.request.deadline().since(core.clock.now());
            tokio::select! {
                biased;
                outcome = &mut waiting => return outcome,
                () = core.executor.sleep(remaining.max(MIN_SLEEP)) => {
                    core.update(entry, Acquisition::handle_time);
                }
            }
        }
    }

    /// Reports the call as queued, once.
    fn report_queued(&self, call: &mut AcquireCall<'_>) {
        if call.is_queued_published {
            return;
        }
        if self.entry.peek(Acquisition::state) != AcquisitionState::Queued {
            return;
        }
        let holder = || self.entry.peek(Acquisition::first_holder);
        logging::queued(&self.entry.request, holder);
        call.publish_queued(holder);
    }

    fn take_hold(&mut self) -> Option<HeldLock> {
        let held = HeldLock::of(&self.core, &self.entry)?;
        // From here on the guard releases the lock.
        self.became_hold = true;
        Some(held)
    }
}

/// Returns the outcome, once it is known. A hold that has ended by now is not claimed.
fn claim(acquisition: &mut Acquisition, now: BootInstant) -> Option<Outcome> {
    acquisition.handle_time(now);
    acquisition.poll_outcome()
}

fn failure_error(core: &Core, request: &Request, failure: Failure) -> Error {
    let waited = request.waited(core.clock.now());
    let key = request.key.to_string();
    let kind = request.kind.lock_kind();
    let named = |holders: Vec<HolderView>, kind| {
        let holders = holders.iter();
        holders.map(|holder| holder.to_holder(kind)).collect()
    };
    match failure {
        Failure::Busy(holders) => Error::Busy {
            key,
            waited,
            holders: named(holders, kind),
            held_keys: Vec::new(),
        },
        Failure::Full(holders) => Error::QueueFull {
            key,
            max_waiters: core.max_waiters,
            holders: named(holders, kind),
        },
        Failure::Unavailable(error) => {
            // A call that waited for a connection returns why there is still none.
            let is_outdated = error.unsent || error.outage == Outage::Unreachable;
            let current = core.store.unavailable().filter(|_| is_outdated);
            current.unwrap_or(error).into_error(Some(key), waited)
        }
        Failure::AlreadyRan(record) => Error::AlreadyRan {
            key,
            last_success: record.last_success(),
            next: record.next(request.once.as_ref().map_or(record.gap, |once| once.gap)),
        },
        Failure::KeyConflict(detail) => Error::KeyConflict { key, detail },
        Failure::WrongKind { existing, holders } => Error::WrongKind {
            key,
            requested: kind,
            existing,
            holders: named(holders, existing),
        },
        Failure::ShutDown => shut_down_error(),
    }
}
