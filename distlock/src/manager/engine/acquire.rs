//! The path of a call to its hold.
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
use crate::manager::engine::release;
use crate::manager::engine::sole::Sole;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::call::Call;
use crate::manager::telemetry::report;
use crate::observer::event::Operation;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::Occupant;
use crate::protocol::outcome::{Action, Obstacle, Outcome, Refusal};
use crate::protocol::request::Request;
use crate::store::RuntimeConnection;
use crate::util::clock::Moment;

/// Acquires the lock, with as many owner ids as necessary. If this future is dropped, everything
/// that it requested is released.
pub(crate) async fn acquire(core: &Arc<Core>, request: Request) -> Result<HeldLock, Error> {
    let mut call = Call::begin(core, request);
    let request = call.request.clone();
    let mut obstacle = None;
    let refusal = loop {
        let mut asker = Asker::new(core, &request, obstacle.take());
        match asker.outcome(&mut call).await {
            Outcome::Held => match asker.hold() {
                Some(held) => {
                    let grip = &held.grip;
                    call.acquired(grip.path, grip.token, grip.granted_at);
                    return Ok(held);
                }
                None => break Refusal::ShutDown,
            },
            Outcome::Retry(last) => obstacle = last,
            Outcome::Refused(refusal) => break refusal,
        }
    };
    let error = error(core, &request, refusal);
    call.refused(&error);
    Err(error)
}

/// An owner id that a call acquires with. If dropped before it becomes a hold, it is released,
/// whatever the store has of it.
struct Asker {
    core: Arc<Core>,
    entry: Arc<Entry>,
    /// Resolves when the command that the I/O thread runs for this id has ended.
    at_home: Option<oneshot::Receiver<()>>,
    holds: bool,
    /// Makes a shutdown wait for the command sent here, so that it is undone.
    under_way: Option<TaskTrackerToken>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if self.holds {
            return;
        }
        let answered = self.at_home.take().is_none_or(|mut at_home| {
            at_home.close();
            at_home.try_recv().is_ok()
        });
        // No command may follow the release. While one is in flight, `perform` releases the id.
        if answered {
            release::release_in_background(&self.core, &self.entry);
        }
    }
}

impl Asker {
    fn new(core: &Arc<Core>, request: &Arc<Request>, obstacle: Option<Obstacle>) -> Self {
        let acquisition = Acquisition::new(request.clone(), obstacle, core.rules);
        // Random, because a pushed grant that names an owner id is trusted.
        let owner = core.random.next();
        let entry = core.claims.enter(owner, acquisition, core.in_store.token());
        // A shutdown that has begun either finds the new entry, or is noticed here.
        if core.phase() != Phase::Running {
            let now = core.clock.now();
            core.claims
                .with(&entry, |acquisition| acquisition.handle_shutdown(now));
        }
        Asker {
            core: core.clone(),
            entry,
            at_home: None,
            holds: false,
            under_way: None,
        }
    }

    /// Runs the actions of the acquisition until its outcome is known.
    async fn outcome(&mut self, call: &mut Call<'_>) -> Outcome {
        loop {
            // Taken before the decision: a shutdown waits for this token if a command is in flight,
            // instead of releasing the acquisition.
            let under_way = self.core.under_way.token();
            let now = self.core.clock.now();
            let next = self.core.claims.with(&self.entry, |acquisition| {
                acquisition.handle_time(now);
                if let Some(outcome) = acquisition.poll_outcome() {
                    return Err(outcome);
                }
                let command = acquisition.poll_action(now);
                acquisition.poll_outcome().map_or(Ok(command), Err)
            });
            // `perform` has changed the acquisition, but not reported its end yet. If its channel
            // were closed now, it would release the id.
            if matches!(next, Err(Outcome::Held) | Ok(Some(_)))
                && let Some(at_home) = self.at_home.take()
            {
                // An error means the same.
                let _ = at_home.await;
            }
            match next {
                Err(outcome) => return outcome,
                Ok(Some(action @ Action::Acquire { wait, timeout })) => {
                    match self.runtime_connection() {
                        Some(lane) => {
                            self.under_way = Some(under_way);
                            self.ask(&*lane, wait, timeout).await;
                        }
                        None => self.send(action, under_way),
                    }
                }
                Ok(Some(action)) => self.send(action, under_way),
                Ok(None) => {
                    drop(under_way);
                    self.note_queue(call);
                    self.wait().await;
                }
            }
        }
    }

    /// Reports the call as queued, once.
    fn note_queue(&self, call: &mut Call<'_>) {
        if call.was_queued {
            return;
        }
        let claims = &self.core.claims;
        if claims.peek(&self.entry, |acquisition| acquisition.state()) != AcquisitionState::Queued {
            return;
        }
        let holder = || {
            claims.peek(&self.entry, |acquisition| {
                acquisition.occupant().map(Occupant::holder)
            })
        };
        report::queued(&self.entry.request, holder);
        call.queued(holder);
    }

    /// Returns this runtime's connection, unless replicas must acknowledge the lock.
    fn runtime_connection(&self) -> Option<Box<dyn RuntimeConnection>> {
        let store = &self.core.store;
        let alone = self.entry.request.durability.is_none();
        alone.then(|| store.runtime_connection()).flatten()
    }

    /// Sends the acquire command on this runtime, and waits until the acquisition needs no reply.
    async fn ask(&mut self, lane: &dyn RuntimeConnection, wait: Duration, timeout: Duration) {
        let (core, entry) = (&*self.core, &*self.entry);
        entry.asks_on_lane(true);
        let began = core.call_began();
        let mut answer = Sole::new(lane.acquire(entry.ask(wait), timeout));
        loop {
            let answer = tokio::select! {
                biased;
                answer = &mut answer => answer,
                () = entry.changed.notified() => {
                    if core.claims.peek(entry, |acquisition| acquisition.is_in_flight()) {
                        continue;
                    }
                    return;
                }
            };
            core.call_ended(Operation::Acquire, began, &answer);
            let now = core.clock.now();
            (core.claims).with(&self.entry, |acquisition| {
                acquisition.handle_acquire_reply(answer, now)
            });
            self.under_way = None;
            return;
        }
    }

    /// Starts a command on the I/O thread.
    fn send(&mut self, action: Action, under_way: TaskTrackerToken) {
        self.entry.asks_on_lane(false);
        let (answered, at_home) = oneshot::channel();
        self.at_home = Some(at_home);
        let (core, entry) = (self.core.clone(), self.entry.clone());
        self.core
            .executor
            .spawn(perform(core, entry, action, answered, under_way));
    }

    /// Waits until an event arrives, the wait ends, or a failed acquire may be retried.
    async fn wait(&mut self) {
        let (core, entry) = (&*self.core, &self.entry);
        if let Some(at_home) = &mut self.at_home {
            let answered = tokio::select! {
                biased;
                answered = at_home => answered,
                () = entry.changed.notified() => return,
            };
            self.at_home = None;
            if answered.is_err() {
                // The I/O thread no longer runs.
                let now = core.clock.now();
                core.claims
                    .with(entry, |acquisition| acquisition.handle_shutdown(now));
            }
            return;
        }
        let retry_at = core
            .claims
            .peek(entry, |acquisition| acquisition.poll_retry());
        let retry = async {
            match retry_at {
                Some(at) => {
                    sleep_until(core, at).await;
                    Sole::new(core.store.ready()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = entry.changed.notified() => {}
            () = sleep_until(core, entry.request.deadline()) => {}
            () = retry => core.claims.with(entry, Acquisition::handle_retry),
        }
    }

    fn hold(&mut self) -> Option<HeldLock> {
        let held = HeldLock::of(&self.core, &self.entry)?;
        // From here on the guard releases the id.
        self.holds = true;
        Some(held)
    }
}

/// Sends a command on the I/O thread. Releases the acquisition if its call ended or a shutdown
/// began.
async fn perform(
    core: Arc<Core>,
    entry: Arc<Entry>,
    action: Action,
    mut answered: oneshot::Sender<()>,
    // Makes a shutdown wait until this command is undone.
    _under_way: TaskTrackerToken,
) {
    tokio::select! {
        biased;
        () = answered.closed() => {}
        () = send(&core, &entry, action) => {}
    }
    if answered.send(()).is_err() || core.phase() != Phase::Running {
        release::release_in_background(&core, &entry);
    }
}

async fn send(core: &Arc<Core>, entry: &Arc<Entry>, action: Action) {
    let request = &*entry.request;
    match action {
        Action::Acquire { wait, timeout } => {
            let answer = core.call(entry.ask(wait), timeout).await;
            let undone = answer.is_err() && !core.rules.undo_is_final;
            let now = core.clock.now();
            (core.claims).with(entry, |acquisition| {
                acquisition.handle_acquire_reply(answer, now)
            });
            if undone {
                let (key, lease) = (request.key.clone(), request.timing.lease);
                release::undo_unknown(core, key, entry.owner, lease);
            }
        }
        Action::Confirm { timeout } => {
            let answer = core.call(entry.confirm(), timeout).await;
            let now = core.clock.now();
            (core.claims).with(entry, |acquisition| {
                acquisition.handle_confirmation(answer, now)
            });
        }
        // The watchdog sends the renewals of a hold.
        Action::Renew => {}
    }
}

/// Sleeps on the executor's timer. The caller's runtime may have none, or may have paused it.
async fn sleep_until(core: &Core, when: Moment) {
    core.executor.sleep(when.since(core.clock.now())).await;
}

fn error(core: &Core, request: &Request, refusal: Refusal) -> Error {
    let waited = request.waited(core.clock.now());
    let key = request.key.to_string();
    match refusal {
        Refusal::Busy(occupant) => Error::Busy {
            key,
            waited,
            holders: occupant.iter().map(Occupant::holder).collect(),
        },
        Refusal::Full(occupant) => Error::QueueFull {
            key,
            max_waiters: core.max_waiters,
            holders: occupant.iter().map(Occupant::holder).collect(),
        },
        Refusal::Unavailable(trouble) => {
            // A call that waited for a connection returns why there is still none.
            let is_past = trouble.unsent || trouble.outage == Outage::Unreachable;
            let still = core.store.outage().filter(|_| is_past);
            still.unwrap_or(trouble).into_error(Some(key), waited)
        }
        Refusal::Foreign(detail) => Error::KeyConflict { key, detail },
        Refusal::ShutDown => shut_down_error(),
    }
}
