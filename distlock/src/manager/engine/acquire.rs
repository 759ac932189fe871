//! An acquire call, from its start to its hold.
//!
//! A call runs on its caller's runtime, and needs no timer there. It sends its acquire command over
//! the runtime connection, if there is one. The manager's I/O thread does everything else.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::error::{Error, Outage};
use crate::manager::engine::core::{Core, Phase, shut_down_error};
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::manager::engine::release;
use crate::manager::engine::sync_future::SyncFuture;
use crate::manager::telemetry::acquire_call::AcquireCall;
use crate::manager::telemetry::logging;
use crate::observer::event::Operation;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::{AcquireReply, HolderView};
use crate::protocol::outcome::{Action, Failure, Outcome, WaitReason};
use crate::protocol::request::Request;
use crate::store::DirectSender;
use crate::util::clock::BootInstant;

/// Acquires the lock, with as many acquisitions as necessary. If this future is dropped, everything
/// that it requested is cancelled.
pub(crate) async fn acquire(core: &Arc<Core>, request: Request) -> Result<HeldLock, Error> {
    let mut call = AcquireCall::begin(core, Arc::new(request));
    let request = call.request.clone();
    let mut wait_reason = None;
    let failure = loop {
        let mut attempt = AcquireAttempt::new(core, &request, wait_reason.take());
        match attempt.run(&mut call).await {
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
    let in_flight = core.in_flight.token();
    let mut attempts: Vec<_> = requests
        .map(|request| AcquireAttempt::new(core, &Arc::new(request), None))
        .collect();
    let mut time = None;
    for attempt in &attempts {
        let action = core.update(&attempt.entry, Acquisition::poll_action);
        let Some(Action::Acquire { wait, timeout }) = action else {
            // A shutdown has begun.
            return Ok(None);
        };
        time = Some((wait, timeout));
    }
    let Some(time) = time else { return Ok(None) };
    let mut calls = Vec::new();
    for attempt in &mut attempts {
        let (done, io_thread_done) = oneshot::channel();
        attempt.io_thread_done = Some(io_thread_done);
        calls.push((attempt.entry.clone(), done));
    }
    let work = perform_all(core.clone(), calls, time, in_flight);
    core.executor.poll_or_spawn(work);
    let mut all_held = true;
    for attempt in &mut attempts {
        // Taken once it has resolved: a call that is dropped before must see the command in flight.
        if let Some(io_thread_done) = &mut attempt.io_thread_done {
            // An error means that the I/O thread no longer runs.
            let _ = io_thread_done.await;
        }
        attempt.io_thread_done = None;
        match (core.registry).update(&attempt.entry, Acquisition::poll_outcome) {
            Some(Outcome::Held) => {}
            Some(Outcome::Failed(Failure::Unavailable(error))) if error.is_unanswered() => {
                let call = AcquireCall::begin(core, attempt.entry.request.clone());
                let error = failure_error(core, &call.request, Failure::Unavailable(error));
                call.finish_failed(&error);
                return Err(error);
            }
            _ => all_held = false,
        }
    }
    if !all_held {
        return Ok(None);
    }
    let held = attempts
        .iter()
        .map(|attempt| HeldLock::of(core, &attempt.entry));
    let Some(held) = held.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    for (attempt, held) in attempts.iter_mut().zip(&held) {
        // From here on the guard releases the lock.
        attempt.became_hold = true;
        let call = AcquireCall::begin(core, held.entry.request.clone());
        call.finish_acquired(held.info.path, held.info.token, held.info.granted_at);
    }
    Ok(Some(held))
}

/// One acquisition of a call. If dropped before it becomes a hold, it is cancelled, whatever the
/// store holds for it.
struct AcquireAttempt {
    core: Arc<Core>,
    entry: Arc<Entry>,
    /// Resolves when the command that the I/O thread runs for this acquisition has ended.
    io_thread_done: Option<oneshot::Receiver<()>>,
    became_hold: bool,
    /// Makes a shutdown wait for the command sent here, so that it is cancelled.
    in_flight: Option<TaskTrackerToken>,
}

impl Drop for AcquireAttempt {
    fn drop(&mut self) {
        if self.became_hold || self.core.is_inherited() {
            return;
        }
        let has_ended = self.io_thread_done.take().is_none_or(|mut io_thread_done| {
            io_thread_done.close();
            io_thread_done.try_recv().is_ok()
        });
        // No command may follow the release. While one is in flight, `perform` sends the release.
        if has_ended {
            release::release_in_background(&self.core, &self.entry);
        }
    }
}

impl AcquireAttempt {
    fn new(core: &Arc<Core>, request: &Arc<Request>, wait_reason: Option<WaitReason>) -> Self {
        let acquisition = Acquisition::new(request.clone(), wait_reason, core.rules);
        // Random, because a pushed grant that names an owner id is trusted.
        let owner = core.random.next();
        let entry = core
            .registry
            .register(owner, acquisition, core.in_store.token());
        // A shutdown that has begun either finds the new entry, or is noticed here.
        if core.phase() != Phase::Running {
            core.update(&entry, Acquisition::handle_shutdown);
        }
        AcquireAttempt {
            core: core.clone(),
            entry,
            io_thread_done: None,
            became_hold: false,
            in_flight: None,
        }
    }

    /// Runs the actions of the acquisition until its outcome is known.
    async fn run(&mut self, call: &mut AcquireCall<'_>) -> Outcome {
        loop {
            // Taken before the decision: a shutdown waits for this token if a command is in flight,
            // instead of releasing the acquisition.
            let in_flight = self.core.in_flight.token();
            let next = self.core.update(&self.entry, |acquisition, now| {
                acquisition.handle_time(now);
                if let Some(outcome) = acquisition.poll_outcome() {
                    return Err(outcome);
                }
                let command = acquisition.poll_action(now);
                acquisition.poll_outcome().map_or(Ok(command), Err)
            });
            // `perform` has changed the acquisition, but not reported its end yet. If its channel
            // were closed now, it would release the acquisition.
            if matches!(next, Err(Outcome::Held) | Ok(Some(_)))
                && let Some(io_thread_done) = self.io_thread_done.take()
            {
                // An error means that the I/O thread no longer runs.
                let _ = io_thread_done.await;
            }
            match next {
                Err(outcome) => return outcome,
                Ok(Some(action @ Action::Acquire { wait, timeout })) => {
                    match self.runtime_connection() {
                        Some(connection) => {
                            self.in_flight = Some(in_flight);
                            self.acquire_over(&*connection, wait, timeout).await;
                        }
                        None => self.send_on_io_thread(action, in_flight),
                    }
                }
                Ok(Some(action)) => self.send_on_io_thread(action, in_flight),
                Ok(None) => {
                    drop(in_flight);
                    self.report_queued(call);
                    self.wait().await;
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

    /// Returns this runtime's connection, unless replicas or disks must acknowledge the lock.
    fn runtime_connection(&self) -> Option<Box<dyn DirectSender>> {
        let store = &self.core.store;
        let needs_no_acks = self.entry.request.durability.is_none();
        needs_no_acks.then(|| store.direct_sender()).flatten()
    }

    /// Sends the acquire command on this runtime, and waits until the acquisition needs no reply.
    async fn acquire_over(
        &mut self,
        connection: &dyn DirectSender,
        wait: Duration,
        timeout: Duration,
    ) {
        let (core, entry) = (&*self.core, &*self.entry);
        entry.set_on_runtime_connection(true);
        let started = core.command_start();
        let mut reply = SyncFuture::new(connection.acquire(entry.acquire_command(wait), timeout));
        loop {
            let reply = tokio::select! {
                biased;
                reply = &mut reply => reply,
                () = entry.changed.notified() => {
                    if entry.peek(Acquisition::is_in_flight) {
                        continue;
                    }
                    return;
                }
            };
            core.publish_command(Operation::Acquire, started, &reply);
            core.update(&self.entry, |acquisition, now| {
                acquisition.handle_acquire_reply(reply, now)
            });
            self.in_flight = None;
            return;
        }
    }

    /// Starts a command on the I/O thread.
    fn send_on_io_thread(&mut self, action: Action, in_flight: TaskTrackerToken) {
        self.entry.set_on_runtime_connection(false);
        let (done, io_thread_done) = oneshot::channel();
        self.io_thread_done = Some(io_thread_done);
        let (core, entry) = (self.core.clone(), self.entry.clone());
        self.core
            .executor
            .poll_or_spawn(perform(core, entry, action, done, in_flight));
    }

    /// Waits until an event arrives, the wait ends, or a failed acquire may be retried.
    async fn wait(&mut self) {
        let (core, entry) = (&*self.core, &self.entry);
        if let Some(io_thread_done) = &mut self.io_thread_done {
            let result = tokio::select! {
                biased;
                result = io_thread_done => result,
                () = entry.changed.notified() => return,
            };
            self.io_thread_done = None;
            if result.is_err() {
                // The I/O thread no longer runs.
                core.update(entry, Acquisition::handle_shutdown);
            }
            return;
        }
        let retry_at = entry.peek(Acquisition::poll_retry);
        let retry = async {
            match retry_at {
                Some(at) => {
                    sleep_until(core, at).await;
                    SyncFuture::new(core.store.ready()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = entry.changed.notified() => {}
            () = sleep_until(core, entry.request.deadline()) => {}
            () = retry => core.registry.update(entry, Acquisition::handle_retry),
        }
    }

    fn take_hold(&mut self) -> Option<HeldLock> {
        let held = HeldLock::of(&self.core, &self.entry)?;
        // From here on the guard releases the lock.
        self.became_hold = true;
        Some(held)
    }
}

/// Sends a command on the I/O thread. Releases the acquisition if its call ended or a shutdown
/// began.
async fn perform(
    core: Arc<Core>,
    entry: Arc<Entry>,
    action: Action,
    mut done: oneshot::Sender<()>,
    // Makes a shutdown wait until this command is cancelled.
    _in_flight: TaskTrackerToken,
) {
    tokio::select! {
        biased;
        () = done.closed() => {}
        () = send(&core, &entry, action) => {}
    }
    if done.send(()).is_err() || core.phase() != Phase::Running {
        release::release_in_background(&core, &entry);
    }
}

/// Sends one acquire for several acquisitions, like [`perform`].
async fn perform_all(
    core: Arc<Core>,
    mut calls: Vec<(Arc<Entry>, oneshot::Sender<()>)>,
    (wait, timeout): (Duration, Duration),
    _in_flight: TaskTrackerToken,
) {
    let entries: Vec<_> = calls.iter().map(|(entry, _)| entry.clone()).collect();
    let send = async {
        let commands = entries.iter().map(|entry| entry.acquire_command(wait));
        let commands: Vec<_> = commands.collect();
        let reply = core.run_command(&*commands, timeout).await;
        for entry in &entries {
            let reply = match &reply {
                Ok(Some(proof)) => Ok(AcquireReply::Held(*proof)),
                // Nothing is in the store, as after a try of a lock that is held.
                Ok(None) => Ok(AcquireReply::Busy(Vec::new())),
                Err(error) => Err(error.clone()),
            };
            core.update(entry, |acquisition, now| {
                acquisition.handle_acquire_reply(reply, now)
            });
        }
    };
    if let Some((_, done)) = calls.first_mut() {
        tokio::select! {
            biased;
            () = done.closed() => {}
            () = send => {}
        }
    }
    for (entry, done) in calls {
        if done.send(()).is_err() || core.phase() != Phase::Running {
            release::release_in_background(&core, &entry);
        }
    }
}

async fn send(core: &Arc<Core>, entry: &Arc<Entry>, action: Action) {
    let request = &*entry.request;
    match action {
        Action::Acquire { wait, timeout } => {
            let reply = core.run_command(entry.acquire_command(wait), timeout).await;
            let must_cancel = reply.is_err() && !core.rules.cancel_is_final;
            core.update(entry, |acquisition, now| {
                acquisition.handle_acquire_reply(reply, now)
            });
            if must_cancel {
                let (key, lease) = (request.key.clone(), request.timing.lease);
                release::release_unregistered(core, key, entry.request.kind, entry.owner, lease);
            }
        }
        Action::Confirm { timeout } => {
            let reply = core.run_command(entry.confirm_command(), timeout).await;
            core.update(entry, |acquisition, now| {
                acquisition.handle_confirmation(reply, now)
            });
        }
        // The watchdog sends the commands of a hold.
        Action::Renew | Action::Downgrade { .. } => {}
    }
}

/// Sleeps on the executor's timer. The caller's runtime may have none, or may have paused it.
async fn sleep_until(core: &Core, at: BootInstant) {
    core.executor.sleep(at.since(core.clock.now())).await;
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
