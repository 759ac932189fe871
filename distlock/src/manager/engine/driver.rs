//! The driver: sends what is due for the acquisitions of a manager, and handles every reply.
//!
//! A call sends its first command itself, and a holder its awaited release. What is late, dropped
//! or repeated is sent here.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::sync::oneshot;

use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::core::{Core, Phase};
use crate::manager::engine::{renew, report};
use crate::observer::event::Operation;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::messages::{Acquire, AcquireReply, Confirm, Downgrade, Release, ReleaseReply};
use crate::protocol::outcome::{Action, Outcome};
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::util::clock::BootInstant;
use crate::util::sync::{SyncFuture, wait_until};

/// Drives all acquisitions, until the manager closes.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let now = core.clock.now();
        let mut actions = Vec::new();
        for entry in core.registry.due(now) {
            actions.extend(Sending::next(&core, &entry, false));
        }
        let is_usable = core.store.ready().now_or_never().is_some();
        if is_usable {
            for entry in core.registry.due_repeats(now) {
                actions.extend(Sending::next(&core, &entry, true));
            }
        }
        // First, because holds may be about to expire.
        let (renewals, others): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(Sending::is_renewal);
        renew::start(&core, renewals.iter().map(|renewal| renewal.entry.clone()));
        for sending in others {
            core.executor.spawn(sending.send());
        }
        while let Some(entry) = core.registry.surplus() {
            core.registry.drive(&entry, Acquisition::abandon);
            report::publish(&core, &entry);
        }
        wait(&core, is_usable).await;
    }
}

/// Waits until something is due, or the store can be used again.
async fn wait(core: &Core, is_usable: bool) {
    let sleep = core.registry.plan_sleep(core.clock.now(), is_usable);
    let sleep = async {
        match sleep {
            Some(sleep) => tokio::time::sleep(sleep).await,
            None => std::future::pending().await,
        }
    };
    let usable = async {
        if is_usable {
            std::future::pending().await
        }
        core.store.ready().await;
    };
    tokio::select! {
        biased;
        () = core.registry.driver_notify.notified() => {}
        () = sleep => {}
        () = usable => {}
    }
}

/// A command that is about to be sent for an acquisition, or in flight. If it is dropped before it
/// has a reply, the acquisition continues without one.
pub(crate) struct Sending {
    core: Arc<Core>,
    entry: Arc<RegistryEntry>,
    action: Action,
    /// The number of the command if its reply is awaited, see [`Acquisition::awaited`].
    number: Option<u32>,
}

impl Sending {
    /// Returns the next command of an acquisition, if one is due.
    fn next(core: &Arc<Core>, entry: &Arc<RegistryEntry>, repeats: bool) -> Option<Self> {
        let now = core.clock.now();
        let next = core.registry.drive(entry, |acquisition| {
            let action = acquisition.poll_action(repeats, now)?;
            Some((action, acquisition.awaited()))
        });
        report::publish(core, entry);
        let (action, number) = next?;
        Some(Self::new(core, entry, action, number))
    }

    pub(crate) fn new(
        core: &Arc<Core>,
        entry: &Arc<RegistryEntry>,
        action: Action,
        number: Option<u32>,
    ) -> Self {
        Sending {
            core: core.clone(),
            entry: entry.clone(),
            action,
            number,
        }
    }

    fn is_renewal(&self) -> bool {
        matches!(self.action, Action::Renew)
    }

    fn timeout(&self) -> Duration {
        match self.action {
            Action::Acquire { timeout, .. }
            | Action::Confirm { timeout }
            | Action::Downgrade { timeout, .. }
            | Action::Release { timeout, .. } => timeout,
            Action::Renew => self.entry.request.timing().command_timeout(),
        }
    }

    /// Sends the command in place, if the store can do that on any runtime. Otherwise, the I/O
    /// thread sends it. Returns the outcome of an acquire for its call, if it is known then.
    pub(crate) async fn send_here(self) -> Option<Outcome> {
        if let Some(reply) = self.acquire_here().await {
            let outcome = self.handle(reply, |acquisition, reply, now| {
                acquisition.handle_acquire_reply(reply, now);
                acquisition.claim_outcome()
            });
            return outcome.flatten();
        }
        if let Some(reply) = self.release_here().await {
            self.handle(reply, Acquisition::handle_release_reply);
            return None;
        }
        let executor = self.core.executor.clone();
        executor.run_or_spawn(self.send());
        None
    }

    async fn acquire_here(&self) -> Option<Option<StoreResult<AcquireReply>>> {
        let acquire = self.acquire_command()?;
        let call = self.core.store.acquire_here(&acquire, self.timeout())?;
        Some(self.reply(SyncFuture::new(call)).await)
    }

    async fn release_here(&self) -> Option<Option<StoreResult<ReleaseReply>>> {
        let release = self.release_command()?;
        let call = self.core.store.release_here(&release, self.timeout())?;
        Some(self.reply(SyncFuture::new(call)).await)
    }

    /// Leaves the timeout of the command to its sender. Returns false if the command was given up.
    fn leave_timeout(&self) -> bool {
        self.number.is_none()
            || self.core.registry.update(&self.entry, |acquisition| {
                let is_awaited = acquisition.awaited() == self.number;
                if is_awaited {
                    acquisition.leave_timeout();
                }
                is_awaited
            })
    }

    /// Sends the command. Runs on the I/O thread, where the store keeps the timeout.
    pub(crate) async fn send(self) {
        if !self.leave_timeout() {
            return;
        }
        let (store, entry) = (&*self.core.store, &*self.entry);
        let timeout = self.timeout();
        match self.action {
            Action::Acquire { wait, .. } => {
                let acquire = entry.request.acquire_command(entry.owner, wait);
                let reply = self.reply(store.acquire(&acquire, timeout)).await;
                self.handle(reply, Acquisition::handle_acquire_reply);
            }
            Action::Confirm { .. } => {
                let confirm = Confirm {
                    target: entry.request.target(entry.owner),
                    once: entry.request.once.as_ref(),
                };
                let reply = self.reply(store.confirm(&confirm, timeout)).await;
                self.handle(reply, Acquisition::handle_confirmation);
            }
            Action::Downgrade { token, .. } => {
                let target = entry.request.target(entry.owner);
                let downgrade = Downgrade { target, token };
                let reply = self.reply(store.downgrade(&downgrade, timeout)).await;
                self.handle(reply, Acquisition::handle_downgrade);
            }
            Action::Release { .. } => {
                let Some(release) = self.release_command() else {
                    return;
                };
                let reply = self.reply(store.release(&release, timeout)).await;
                self.handle(reply, Acquisition::handle_release_reply);
            }
            // Sent in batches, see `renew::start`.
            Action::Renew => {}
        }
    }

    /// Returns the reply, or `None` once the acquisition does not await it any longer. The command
    /// is then not continued, because a release may have been sent.
    async fn reply<T>(&self, call: impl Future<Output = StoreResult<T>>) -> Option<StoreResult<T>> {
        let Sending { core, entry, .. } = self;
        let started = core.command_start();
        let mut call = pin!(call);
        let mut changed = pin!(entry.changed.notified());
        let reply = poll_fn(|context| {
            loop {
                // Before the first poll, too: the command is then not sent.
                if self.is_given_up() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(reply) = call.as_mut().poll(context) {
                    return Poll::Ready(Some(reply));
                }
                ready!(changed.as_mut().poll(context));
                changed.set(entry.changed.notified());
            }
        });
        let reply = reply.await;
        let late = || Err::<(), _>(StoreError::timed_out(self.timeout()));
        match (&reply, started) {
            (Some(reply), _) => core.publish_command(operation(&self.action), started, reply),
            (None, Some(at)) if core.clock.now() >= at + self.timeout() => {
                core.publish_command(operation(&self.action), started, &late());
            }
            (None, _) => {}
        }
        reply
    }

    fn is_given_up(&self) -> bool {
        self.number.is_some() && self.entry.peek(Acquisition::awaited) != self.number
    }

    fn acquire_command(&self) -> Option<Acquire<'_>> {
        match self.action {
            Action::Acquire { wait, .. } => {
                let entry = &self.entry;
                Some(entry.request.acquire_command(entry.owner, wait))
            }
            _ => None,
        }
    }

    fn release_command(&self) -> Option<Release<'_>> {
        let Action::Release {
            keep_for,
            succeeded_under,
            unanswered_until,
            ..
        } = self.action
        else {
            return None;
        };
        let once = self.entry.request.once.as_ref();
        Some(Release {
            keep_for,
            unanswered_until,
            success: once.zip(succeeded_under),
            ..self.entry.request.release_command(self.entry.owner)
        })
    }

    /// Handles the reply, and returns the result of `handle`, unless the reply was not awaited.
    fn handle<R, T>(
        mut self,
        reply: Option<StoreResult<R>>,
        handle: impl FnOnce(&mut Acquisition, StoreResult<R>, BootInstant) -> T,
    ) -> Option<T> {
        let reply = reply?;
        let (core, number) = (&*self.core, self.number.take());
        #[cfg(sabotage)]
        let must_cancel = !crate::protocol::rules::rule!(cancel_is_final) && reply.is_err();
        let result = core.update(&self.entry, |acquisition, now| {
            if number.is_some() && acquisition.awaited() != number {
                return None;
            }
            let result = handle(acquisition, reply, now);
            end_if_closed(core, acquisition, now);
            Some(result)
        });
        report::publish(&self.core, &self.entry);
        #[cfg(sabotage)]
        if must_cancel && matches!(self.action, Action::Acquire { .. }) {
            let (core, entry) = (self.core.clone(), self.entry.clone());
            self.core.executor.spawn(async move {
                let timeout = entry.request.timing().command_timeout();
                // The rule that this breaks forbids the command.
                let _ = core
                    .store
                    .release(&entry.request.release_command(entry.owner), timeout)
                    .await;
            });
        }
        result
    }
}

/// Sends one acquire for several acquisitions, and returns the error of the command if it failed.
pub(crate) async fn send_all(
    core: Arc<Core>,
    sending: Vec<Sending>,
    replied: oneshot::Sender<StoreResult<()>>,
) {
    let acquires: Vec<_> = sending
        .iter()
        .filter_map(Sending::acquire_command)
        .collect();
    let Some(first) = sending.first() else { return };
    if !sending.iter().all(Sending::leave_timeout) {
        return;
    }
    let call = core.store.acquire_all(&acquires, first.timeout());
    let reply = first.reply(call).await;
    drop(acquires);
    let result = match &reply {
        Some(Err(error)) => Err(error.clone()),
        _ => Ok(()),
    };
    for sending in sending {
        sending.handle(reply.clone(), |acquisition, reply, now| {
            // Otherwise, nothing is in the store, as after a try of a lock that is held.
            let busy = AcquireReply::Busy(Vec::new());
            let reply = reply.map(|proof| proof.map_or(busy, AcquireReply::Held));
            acquisition.handle_acquire_reply(reply, now);
            // None of them is repeated by itself.
            if result.is_err() {
                acquisition.release(false, now);
            }
        });
    }
    // The caller may be gone.
    let _ = replied.send(result);
}

impl Drop for Sending {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        if self.core.is_inherited() {
            return;
        }
        self.core.update(&self.entry, |acquisition, now| {
            if acquisition.awaited() == Some(number) {
                acquisition.handle_unanswered(now);
                end_if_closed(&self.core, acquisition, now);
            }
        });
        report::publish(&self.core, &self.entry);
    }
}

/// Ends an acquisition once the manager is closed, because nothing drives it any longer.
fn end_if_closed(core: &Core, acquisition: &mut Acquisition, now: BootInstant) {
    if core.phase() == Phase::Closed {
        acquisition.handle_shutdown(now);
        acquisition.abandon();
    }
}

fn operation(action: &Action) -> Operation {
    match action {
        Action::Acquire { .. } => Operation::Acquire,
        Action::Confirm { .. } => Operation::Confirm,
        Action::Renew => Operation::Renew,
        Action::Downgrade { .. } => Operation::Downgrade,
        Action::Release { .. } => Operation::Release,
    }
}

/// Begins the release of a hold after its work, ahead of others, because its holder waits.
pub(crate) fn begin_release(
    core: &Arc<Core>,
    hold: &HoldHandle,
    succeeded: bool,
) -> Option<Sending> {
    prepare(core, &hold.entry, |acquisition, now| {
        let has_begun = acquisition.release(succeeded, now);
        has_begun
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    })
}

/// Sends a release, and waits until the first attempt has a reply or has timed out. The release
/// continues if this is dropped.
pub(crate) async fn send_and_wait(sending: Sending, entry: &RegistryEntry) {
    let _ = sending.send_here().await;
    wait_until(&entry.changed, || {
        entry.peek(Acquisition::was_release_attempted).then_some(())
    })
    .await;
}

/// Releases what the store may hold for an acquisition, if that is necessary. No caller waits for
/// it, so it is sent after all releases that are due.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<RegistryEntry>) {
    let sending = prepare(core, entry, |acquisition, now| {
        let may_send = core.registry.may_release(now);
        let has_begun = acquisition.release(false, now);
        (has_begun && may_send)
            .then(|| acquisition.poll_action(true, now))
            .flatten()
    });
    if let Some(sending) = sending {
        core.executor.run_or_spawn(sending.send());
    }
}

/// Begins a release by `begin`, and returns its command if it is sent now.
fn prepare(
    core: &Arc<Core>,
    entry: &Arc<RegistryEntry>,
    begin: impl FnOnce(&mut Acquisition, BootInstant) -> Option<Action>,
) -> Option<Sending> {
    let next = core.update(entry, |acquisition, now| {
        let action = begin(acquisition, now)?;
        Some((action, acquisition.awaited()))
    });
    let (action, number) = next?;
    Some(Sending::new(core, entry, action, number))
}
