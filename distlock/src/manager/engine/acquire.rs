//! An acquire call, from its start to its hold.
//!
//! A call runs on its caller's runtime, and needs no timer there. It sends its first command
//! itself. The driver repeats what fails, and ends the wait.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Outage};
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::core::{Core, Phase, shut_down_error};
use crate::manager::engine::driver::{self, Sending};
use crate::manager::telemetry::logging;
use crate::observer::event::AcquireFailure;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::{HolderView, OwnerId};
use crate::protocol::outcome::{Failure, Outcome, WaitReason};
use crate::protocol::request::Request;
use crate::util::sync::wait_until;

/// The least pause of a call that itself waits for its end.
const MIN_SLEEP: Duration = Duration::from_millis(10);

/// Acquires the lock, with as many acquisitions as necessary. If this future is dropped, everything
/// that it requested is cancelled.
pub(crate) async fn acquire(core: &Arc<Core>, request: Request) -> Result<HoldHandle, Error> {
    #[cfg(feature = "testing")]
    let request = match &core.call_hook {
        Some(hook) => hook.begin(request),
        None => request,
    };
    let mut call = AcquireCall::begin(core, request);
    let mut wait_reason = None;
    let failure = loop {
        // Draw an owner id, and register it. From here on the driver releases whatever the store
        // has for it, even if this future is dropped at its next await.
        let outcome = match call.begin_acquisition(wait_reason.take()) {
            // Send the acquire from this thread if the store can. A free lock is then held after
            // one round trip, without a change of threads.
            Some(sending) => sending.send_here().await,
            None => None,
        };
        let outcome = match outcome {
            Some(outcome) => outcome,
            // The lock is busy, or the reply is late. A pushed grant wakes this call, and the
            // driver repeats what failed, checks the queue, and ends the wait.
            None => call.outcome().await,
        };
        match outcome {
            // The hold was claimed with the outcome. Until then it would have ended by itself,
            // because a caller that is not polled must not keep the lock (R37).
            Outcome::Held => match call.take_hold() {
                // The guard releases it from here on.
                Some(held) => {
                    #[cfg(feature = "testing")]
                    if let Some(hook) = &core.call_hook {
                        hook.acquired(core, &held.entry);
                    }
                    call.finish_acquired(held.hold.origin, held.hold.token);
                    return Ok(held);
                }
                None => break Failure::ShutDown,
            },
            // The store no longer has the owner, or the hold ended unclaimed. An owner id that was
            // released may not acquire again (R1).
            Outcome::Retry(last) => wait_reason = last,
            Outcome::Failed(failure) => break failure,
        }
    };
    Err(call.fail(failure))
}

/// Acquires several locks with one command, if all of them are free. Otherwise, or after an error,
/// returns `None`, and cancels what the command may have left behind. A call that tries once gets
/// the error of a command without a reply.
///
/// The requests have the same options. Their calls are published only if they end here.
pub(crate) async fn acquire_all(
    core: &Arc<Core>,
    requests: impl Iterator<Item = Request>,
) -> Result<Option<Vec<HoldHandle>>, Error> {
    let mut calls: Vec<_> = requests
        .map(|request| AcquireCall::new(core, request))
        .collect();
    let sending = calls.iter_mut().map(|call| call.begin_acquisition(None));
    // None are sent once a shutdown has begun.
    let Some(sending) = sending.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let (replied, reply) = oneshot::channel();
    core.executor
        .run_or_spawn(driver::send_all(core.clone(), sending, replied));
    // No result comes if the I/O thread no longer runs.
    if let Ok(Err(error)) = reply.await
        && error.is_unanswered()
        && calls[0].request.is_try_acquire()
    {
        let mut call = calls.swap_remove(0);
        call.publish_started();
        return Err(call.fail(Failure::Unavailable(error)));
    }
    if !calls
        .iter()
        .all(|call| call.claim_outcome() == Some(Outcome::Held))
    {
        return Ok(None);
    }
    let held = calls.iter_mut().map(AcquireCall::take_hold);
    let Some(held) = held.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    for (mut call, held) in calls.into_iter().zip(&held) {
        call.publish_started();
        call.finish_acquired(held.hold.origin, held.hold.token);
    }
    Ok(Some(held))
}

/// A call that acquires a lock. If it is dropped without its lock, its acquisition is cancelled,
/// whatever the store has for it.
pub(crate) struct AcquireCall<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) request: Arc<Request>,
    /// Its acquisition, until that is a hold.
    entry: Option<Arc<RegistryEntry>>,
    /// True once it was published that the call was queued.
    is_queued_published: bool,
    /// The reason why it ends without its lock; `None` before its start is published, and after
    /// its end is.
    pub(crate) failure: Option<AcquireFailure>,
}

impl Drop for AcquireCall<'_> {
    fn drop(&mut self) {
        if !self.core.is_inherited() {
            self.cancel_acquisition();
            self.publish_failure();
        }
    }
}

impl<'a> AcquireCall<'a> {
    fn new(core: &'a Arc<Core>, request: Request) -> Self {
        AcquireCall {
            core,
            request: Arc::new(request),
            entry: None,
            is_queued_published: false,
            failure: None,
        }
    }

    /// Begins a call, and publishes its start.
    pub(crate) fn begin(core: &'a Arc<Core>, request: Request) -> Self {
        let mut call = Self::new(core, request);
        call.publish_started();
        call
    }

    /// Cancels the acquisition before, registers another, and returns its first command; `None`
    /// once a shutdown has begun.
    fn begin_acquisition(&mut self, wait_reason: Option<WaitReason>) -> Option<Sending> {
        self.cancel_acquisition();
        let core = self.core;
        let now = core.clock.now();
        let mut acquisition = Acquisition::new(self.request.clone(), wait_reason);
        let action = acquisition.poll_action(false, now);
        let number = acquisition.awaited();
        // Random, because a pushed grant that names an owner id is trusted.
        let owner = OwnerId(core.random.next());
        let entry = self
            .entry
            .insert(core.registry.register(owner, acquisition));
        // A shutdown that has begun either finds the new entry, or is noticed here.
        if core.phase() != Phase::Running {
            core.update(entry, |acquisition, now| {
                acquisition.handle_shutdown(now);
                // Its acquire was not sent.
                acquisition.abandon();
            });
            return None;
        }
        Some(Sending::new(core, entry, action?, number))
    }

    fn cancel_acquisition(&mut self) {
        if let Some(entry) = self.entry.take() {
            driver::release_in_background(self.core, &entry);
        }
    }

    /// Waits until the outcome is known.
    async fn outcome(&mut self) -> Outcome {
        let Some(entry) = self.entry.clone() else {
            return Outcome::Retry(None);
        };
        let core = self.core;
        let waiting = wait_until(&entry.changed, || {
            let outcome = self.claim_outcome();
            if outcome.is_none() {
                self.report_queued();
            }
            outcome
        });
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
                    core.update(&entry, Acquisition::handle_time);
                }
            }
        }
    }

    /// Returns the outcome, once it is known. A hold that has ended by now is not claimed.
    fn claim_outcome(&self) -> Option<Outcome> {
        self.core.update(self.entry.as_ref()?, |acquisition, now| {
            acquisition.handle_time(now);
            acquisition.claim_outcome()
        })
    }

    /// Reports the call as queued, once.
    fn report_queued(&mut self) {
        let Some(entry) = self.entry.clone().filter(|_| !self.is_queued_published) else {
            return;
        };
        if entry.peek(Acquisition::state) == AcquisitionState::Queued {
            self.is_queued_published = true;
            let holder = || entry.peek(Acquisition::first_holder);
            logging::queued(&self.request, holder);
            self.publish_queued(holder);
        }
    }

    /// Returns the hold, which this call then no longer cancels.
    fn take_hold(&mut self) -> Option<HoldHandle> {
        let held = HoldHandle::of(self.core, self.entry.as_ref()?)?;
        self.entry = None;
        Some(held)
    }

    fn fail(mut self, failure: Failure) -> Error {
        let error = failure_error(self.core, &self.request, failure);
        self.finish_failed(&error);
        error
    }
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
            let mut error = current.unwrap_or(error);
            // A call that gave up by itself does not know the server.
            if let Some(address) = core.address().filter(|address| address.contains("://"))
                && !error.detail.contains("://")
            {
                error = error.at(address);
            }
            error.into_error(Some(key), waited)
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
