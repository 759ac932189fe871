//! Releases, repeated until the store has replied or all state in it has expired.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::options::Options;
use crate::key::LockKey;
use crate::manager::engine::backlog::{PendingRelease, ReleaseResult};
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::manager::engine::sync_future::SyncFuture;
use crate::manager::telemetry::hold_events;
use crate::manager::telemetry::logging;
use crate::manager::telemetry::loss_report;
use crate::manager::telemetry::record_report;
use crate::observer::event::Operation;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::acquisition::releasing::ReleaseStep;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{OwnerNumber, ReleaseReply};
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::store::DirectSender;
use crate::util::clock::BootInstant;

/// The pause before a failed release is retried, and the interval of sweeps.
const RETRY_BACKOFF: Duration = Duration::from_millis(50);
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Releases a hold after its work, for a holder that waits for the result.
pub(crate) fn release(core: &Arc<Core>, hold: &HeldLock, succeeded: bool) -> StartedRelease {
    if !begin_release(core, &hold.entry, succeeded) {
        return StartedRelease::NotNeeded;
    }
    let release = new_release(core, &hold.entry);
    match core.store.direct_sender() {
        Some(connection) => {
            core.releases.assign_to_holder(release);
            let (core, entry) = (core.clone(), hold.entry.clone());
            StartedRelease::ByHolder(HolderRelease {
                core,
                entry,
                connection,
                is_done: false,
            })
        }
        None => StartedRelease::OnIoThread(send_on_io_thread(core, release)),
    }
}

/// Sends a release on the I/O thread, ahead of those that wait.
fn send_on_io_thread(
    core: &Arc<Core>,
    mut release: PendingRelease,
) -> oneshot::Receiver<ReleaseResult> {
    let (sender, receiver) = oneshot::channel();
    release.result_sender = Some(sender);
    core.releases.count_in_flight();
    (core.executor).poll_or_spawn(run_releases(core.clone(), release));
    receiver
}

/// Sends on the I/O thread a release that its holder was to send, and may have sent.
pub(crate) fn take_over(core: &Arc<Core>, owner: OwnerNumber) {
    let Some(release) = core.releases.take_from_holder(owner) else {
        return;
    };
    let timeout = release.entry.request.timing.command_timeout();
    let timed_out = StoreError::timed_out(timeout);
    core.update(&release.entry, |acquisition, now| {
        acquisition.handle_release_reply(Err(timed_out), now)
    });
    drop(send_on_io_thread(core, release));
}

/// Sends the release that an acquisition needs although its call has not requested one.
pub(crate) fn submit_pending_release(core: &Arc<Core>, entry: &Arc<Entry>) {
    if core.registry.update(entry, Acquisition::poll_release) {
        submit(core, entry);
    }
}

/// Releases what the store may hold for an acquisition, after other releases, because no caller
/// waits for it.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<Entry>) {
    if begin_release(core, entry, false) {
        submit(core, entry);
    } else {
        submit_pending_release(core, entry);
    }
}

/// Releases an owner id without an acquisition here, whatever the store holds for it.
pub(crate) fn release_unregistered(
    core: &Arc<Core>,
    key: LockKey,
    kind: Kind,
    owner: OwnerNumber,
    lease: Duration,
) {
    let options = Options {
        lease,
        ..Options::default()
    };
    let now = core.clock.now();
    let request = Arc::new(Request::new(key, kind, options, now));
    let acquisition = Acquisition::release_only(request, core.rules, now);
    submit(
        core,
        &Entry::unregistered(owner, acquisition, core.in_store.token()),
    );
}

/// Starts the release of an acquisition, or queues it after others.
pub(crate) fn submit(core: &Arc<Core>, entry: &Arc<Entry>) {
    if let Some(release) = core.releases.try_start(new_release(core, entry)) {
        (core.executor).poll_or_spawn(run_releases(core.clone(), release));
    }
}

fn begin_release(core: &Arc<Core>, entry: &Arc<Entry>, succeeded: bool) -> bool {
    core.update(entry, |acquisition, now| {
        acquisition.release(succeeded, now)
    })
}

/// Hands off the lock once `min_hold` has elapsed. If the manager closes first, the key expires
/// with its TTL, and the next queue check grants the lock. Call this after the reply to the
/// release, which would otherwise report a lost lock.
fn hand_off_at(core: &Arc<Core>, entry: &Arc<Entry>, at: BootInstant) {
    let (task_core, request, owner) = (core.clone(), entry.request.clone(), entry.owner);
    let in_store = core.in_store.token();
    let remaining = at.since(core.clock.now());
    core.spawn_while_open(async move {
        tokio::time::sleep(remaining).await;
        release_unregistered(
            &task_core,
            request.key.clone(),
            request.kind,
            owner,
            request.timing.lease,
        );
        drop(in_store);
    });
}

fn new_release(core: &Core, entry: &Arc<Entry>) -> PendingRelease {
    PendingRelease {
        entry: entry.clone(),
        result_sender: None,
        due: core.clock.now(),
        is_first: true,
        _in_flight: core.in_flight.token(),
    }
}

/// Attempts a release, and then those that wait, while the store replies.
async fn run_releases(core: Arc<Core>, mut release: PendingRelease) {
    loop {
        let next = attempt(&core, release).await;
        match next {
            Some(next) => release = next,
            None => return,
        }
    }
}

/// Attempts a release once. Returns the next one to attempt.
async fn attempt(core: &Arc<Core>, mut release: PendingRelease) -> Option<PendingRelease> {
    let entry = release.entry.clone();
    let now = core.clock.now();
    let keep_for = entry.peek(|acquisition| acquisition.keep_for(now));
    let timeout = entry.request.timing.command_timeout();
    let reply = core
        .run_command(entry.release_command(keep_for), timeout)
        .await;
    let store_responds = !matches!(&reply, Err(error) if error.is_unanswered());
    let step = handle_reply(core, &mut release, reply, now, keep_for);
    if let Some(sender) = release.result_sender.take() {
        // The receiver may be gone.
        let _ = sender.send(step.into());
    }
    match step {
        ReleaseStep::Done | ReleaseStep::NotHeld => core.releases.finish(),
        // After the shutdown, no connection is left for a retry.
        ReleaseStep::RepeatAt(_) if core.phase() == Phase::Closed => {
            record_report::report_abandoned(core, &entry);
            core.releases.finish()
        }
        ReleaseStep::RepeatAt(_) if has_expired(core, &release) => {
            core.releases.abandon(&release, store_responds)
        }
        ReleaseStep::RepeatAt(due) => {
            release.due = due;
            core.releases.retry_later(release, store_responds)
        }
    }
}

/// Handles the reply to a command that was sent at `sent_at`: publishes the first one, and a loss
/// that it reveals. A key that is kept for `keep_for` is handed off then.
fn handle_reply(
    core: &Arc<Core>,
    release: &mut PendingRelease,
    reply: Result<ReleaseReply, StoreError>,
    sent_at: BootInstant,
    keep_for: Duration,
) -> ReleaseStep {
    let entry = &release.entry;
    let failed = reply.is_err();
    let step = core.update(entry, |acquisition, now| {
        acquisition.handle_release_reply(reply, now)
    });
    record_report::report(core, entry);
    if step == ReleaseStep::NotHeld {
        report_loss(core, entry);
    }
    if std::mem::take(&mut release.is_first) {
        hold_events::publish_release(core, entry, sent_at, step, failed);
    }
    if step == ReleaseStep::Done && !keep_for.is_zero() {
        hand_off_at(core, entry, sent_at + keep_for);
    }
    step
}

fn has_expired(core: &Core, release: &PendingRelease) -> bool {
    let now = core.clock.now();
    (release.entry).peek(|acquisition| acquisition.has_expired(now))
}

/// Retries failed releases when they are due and the store can be used.
pub(crate) async fn run_release_retries(core: Arc<Core>) {
    let mut last_sweep = core.clock.now();
    loop {
        if core.releases.is_idle() {
            core.releases.retry_notify.notified().await;
        }
        tokio::time::sleep(RETRY_BACKOFF).await;
        // Whichever comes first, because releases are abandoned even during an outage.
        let _ = tokio::time::timeout(SWEEP_INTERVAL, core.store.ready()).await;
        let now = core.clock.now();
        if now >= last_sweep + SWEEP_INTERVAL {
            last_sweep = now;
            sweep(&core, |release| has_expired(&core, release));
        }
        if core.store.unavailable().is_none() {
            for release in core.releases.start_due(now) {
                (core.executor).poll_or_spawn(run_releases(core.clone(), release));
            }
        }
    }
}

/// Abandons releases, and logs all that were abandoned.
pub(crate) fn sweep(core: &Core, has_expired: impl Fn(&PendingRelease) -> bool) {
    if let Some(abandoned) = core.releases.sweep(has_expired) {
        for entry in &abandoned.once_calls {
            record_report::report_abandoned(core, entry);
        }
        let store = core.address().unwrap_or_default().to_owned();
        core.spawn_logging(move || {
            let (lock, key) = (&abandoned.lock, abandoned.key.as_str());
            logging::releases_abandoned(&store, lock, key, abandoned.releases);
        });
    }
}

/// Reports a lost hold, once.
pub(crate) fn report_loss(core: &Arc<Core>, entry: &Arc<Entry>) {
    let Some(hold) = HeldLock::of(core, entry) else {
        return;
    };
    if let Some(end) = hold.take_loss() {
        hold.publish_loss(&end);
        loss_report::log_loss(hold, end);
    }
}

/// A started release. It continues if this is dropped.
pub(crate) enum StartedRelease {
    NotNeeded,
    OnIoThread(oneshot::Receiver<ReleaseResult>),
    ByHolder(HolderRelease),
}

impl StartedRelease {
    /// Waits until the first attempt has a reply or has timed out.
    pub(crate) async fn wait(self) -> ReleaseResult {
        let receiver = match self {
            StartedRelease::NotNeeded => return ReleaseResult::NoLossFound,
            StartedRelease::OnIoThread(receiver) => receiver,
            StartedRelease::ByHolder(release) => match release.send().await {
                Ok(result) => return result,
                Err(receiver) => receiver,
            },
        };
        // An error means that no result will come.
        receiver.await.unwrap_or(ReleaseResult::NoLossFound)
    }
}

/// A release that its holder sends over a runtime connection.
pub(crate) struct HolderRelease {
    core: Arc<Core>,
    entry: Arc<Entry>,
    connection: Box<dyn DirectSender>,
    is_done: bool,
}

impl HolderRelease {
    /// Sends the release; returns the result's receiver if the I/O thread has to send it instead.
    async fn send(mut self) -> Result<ReleaseResult, oneshot::Receiver<ReleaseResult>> {
        let (core, entry) = (&self.core, &self.entry);
        let now = core.clock.now();
        let keep_for = entry.peek(|acquisition| acquisition.keep_for(now));
        let timeout = entry.request.timing.command_timeout();
        let started = core.command_start();
        let reply = SyncFuture::new(
            self.connection
                .release(entry.release_command(keep_for), timeout),
        )
        .await;
        if let Some(reply) = &reply {
            core.publish_command(Operation::Release, started, reply);
        }
        self.is_done = true;
        let Some(mut release) = core.releases.take_from_holder(entry.owner) else {
            // Timed out; the I/O thread has taken over the release.
            return Ok(ReleaseResult::NoLossFound);
        };
        let Some(reply) = reply else {
            return Err(send_on_io_thread(core, release));
        };
        let step = handle_reply(core, &mut release, reply, now, keep_for);
        if matches!(step, ReleaseStep::RepeatAt(_)) {
            drop(send_on_io_thread(core, release));
        }
        Ok(step.into())
    }
}

impl Drop for HolderRelease {
    fn drop(&mut self) {
        if !self.is_done && !self.core.is_inherited() {
            take_over(&self.core, self.entry.owner);
        }
    }
}

impl From<ReleaseStep> for ReleaseResult {
    fn from(step: ReleaseStep) -> Self {
        match step {
            ReleaseStep::NotHeld => ReleaseResult::NotHeld,
            ReleaseStep::Done | ReleaseStep::RepeatAt(_) => ReleaseResult::NoLossFound,
        }
    }
}
