//! Releases, repeated until the store has replied or can have nothing left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::options::Options;
use crate::key::LockKey;
use crate::manager::engine::backlog::{Answered, Release};
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::sole::Sole;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::lost;
use crate::manager::telemetry::observed;
use crate::manager::telemetry::report;
use crate::observer::event::Operation;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::acquisition::releasing::ReleaseStep;
use crate::protocol::messages::{Owner, ReleaseReply};
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::store::RuntimeConnection;
use crate::util::clock::Moment;

/// The pause before a failed release is retried, and the interval of sweeps.
const PAUSE: Duration = Duration::from_millis(50);
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Releases a hold, for a holder that waits for the result. Its key stays taken for `keep`.
pub(crate) fn release(core: &Arc<Core>, hold: &HeldLock, keep: Duration) -> Tried {
    hold.entry.complete();
    if !leave(core, &hold.entry, keep) {
        return Tried::Nothing;
    }
    let release = new(core, &hold.entry, None);
    match core.store.runtime_connection() {
        Some(lane) => {
            core.releases.leave_to_holder(release);
            let (core, entry) = (core.clone(), hold.entry.clone());
            Tried::Here(Here {
                core,
                entry,
                lane,
                is_done: false,
            })
        }
        None => Tried::AtHome(retry(core, release)),
    }
}

/// Sends a release on the I/O thread, ahead of those that wait.
fn retry(core: &Arc<Core>, mut release: Release) -> oneshot::Receiver<Answered> {
    let (tell, told) = oneshot::channel();
    release.tell = Some(tell);
    core.releases.start_at_once();
    core.executor.spawn(work(core.clone(), release));
    told
}

/// Sends on the I/O thread a release that its holder was to send, and may have sent.
pub(crate) fn take_over(core: &Arc<Core>, owner: Owner) {
    let Some(release) = core.releases.take_from_holder(owner) else {
        return;
    };
    let within = release.entry.request.timing.command_timeout();
    let (unheard, now) = (StoreError::timed_out(within), core.clock.now());
    (core.claims).with(&release.entry, |acquisition| {
        acquisition.handle_release_reply(Err(unheard), now)
    });
    drop(retry(core, release));
}

/// Releases an acquisition that gave back what its call did not take.
pub(crate) fn submit_what_is_given_back(core: &Arc<Core>, entry: &Arc<Entry>) {
    if core.claims.with(entry, Acquisition::poll_release) {
        submit(core, entry);
    }
}

/// Releases what the store may have of an acquisition, behind others, because no caller waits for
/// it.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<Entry>) {
    if leave(core, entry, Duration::ZERO) {
        submit(core, entry);
    } else {
        submit_what_is_given_back(core, entry);
    }
}

/// Releases an id without an acquisition here, whatever the store has of it.
pub(crate) fn undo_unknown(core: &Arc<Core>, key: LockKey, owner: Owner, lease: Duration) {
    let options = Options {
        lease,
        ..Options::default()
    };
    let now = core.clock.now();
    let request = Arc::new(Request::new(key, options, now));
    let acquisition = Acquisition::unknown(request, core.rules, now);
    submit(
        core,
        &Entry::unknown(owner, acquisition, core.in_store.token()),
    );
}

/// Starts the release of an acquisition, or queues it behind others.
pub(crate) fn submit(core: &Arc<Core>, entry: &Arc<Entry>) {
    if let Some(release) = core.releases.start(new(core, entry, None)) {
        core.executor.spawn(work(core.clone(), release));
    }
}

fn leave(core: &Arc<Core>, entry: &Arc<Entry>, keep: Duration) -> bool {
    let now = core.clock.now();
    core.claims
        .with(entry, |acquisition| acquisition.release(keep, now))
}

/// Hands on the lock when its `min_hold` has ended; the TTL does if the manager closes before. Call
/// it after the reply to the release, which would otherwise find the lock gone and report a loss.
fn hand_on_at(core: &Arc<Core>, entry: &Arc<Entry>, when: Moment) {
    let (after, request, owner) = (core.clone(), entry.request.clone(), entry.owner);
    let kept = core.in_store.token();
    let left = when.since(core.clock.now());
    core.spawn_while_open(async move {
        tokio::time::sleep(left).await;
        undo_unknown(&after, request.key.clone(), owner, request.timing.lease);
        drop(kept);
    });
}

fn new(core: &Core, entry: &Arc<Entry>, tell: Option<oneshot::Sender<Answered>>) -> Release {
    Release {
        entry: entry.clone(),
        tell,
        due: core.clock.now(),
        is_first: true,
        _under_way: core.under_way.token(),
    }
}

/// Attempts a release, and then those that wait, while the store replies.
async fn work(core: Arc<Core>, mut release: Release) {
    loop {
        let next = attempt(&core, release).await;
        match next {
            Some(next) => release = next,
            None => return,
        }
    }
}

/// Attempts a release once. Returns the next one to attempt.
async fn attempt(core: &Arc<Core>, mut release: Release) -> Option<Release> {
    let entry = release.entry.clone();
    let now = core.clock.now();
    let keep = core
        .claims
        .peek(&entry, |acquisition| acquisition.keep(now));
    let timeout = entry.request.timing.command_timeout();
    let answer = core.call(entry.release(keep), timeout).await;
    let failed = answer.is_err();
    let answers = !matches!(&answer, Err(trouble) if trouble.is_unanswered());
    let left = judge(core, &entry, answer);
    if std::mem::take(&mut release.is_first) {
        observed::publish_release(core, &entry, now, left, failed);
    }
    if left == ReleaseStep::Done && !keep.is_zero() {
        hand_on_at(core, &entry, now + keep);
    }
    if let Some(tell) = release.tell.take() {
        // The receiver may be gone.
        let _ = tell.send(left.into());
    }
    match left {
        ReleaseStep::Done | ReleaseStep::NotOurs => core.releases.done(),
        // After the shutdown, no connection is left for a retry.
        ReleaseStep::RepeatAt(_) if core.phase() == Phase::Closed => core.releases.done(),
        ReleaseStep::RepeatAt(_) if is_past(core, &release) => {
            core.releases.give_up(&release, answers)
        }
        ReleaseStep::RepeatAt(due) => {
            release.due = due;
            core.releases.again(release, answers)
        }
    }
}

/// Returns the result of a reply, and reports a loss that it reveals.
fn judge(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    answer: Result<ReleaseReply, StoreError>,
) -> ReleaseStep {
    let now = core.clock.now();
    let left = core.claims.with(entry, |acquisition| {
        acquisition.handle_release_reply(answer, now)
    });
    if left == ReleaseStep::NotOurs {
        tell_loss(core, entry);
    }
    left
}

fn is_past(core: &Core, release: &Release) -> bool {
    let now = core.clock.now();
    core.claims
        .peek(&release.entry, |acquisition| acquisition.has_expired(now))
}

/// Retries failed releases when they are due and the store can be used.
pub(crate) async fn keep_releasing(core: Arc<Core>) {
    let mut swept = core.clock.now();
    loop {
        if core.releases.is_at_rest() {
            core.releases.failed.notified().await;
        }
        tokio::time::sleep(PAUSE).await;
        // Whichever comes first, because releases are given up also while the store is unavailable.
        let _ = tokio::time::timeout(SWEEP_EVERY, core.store.ready()).await;
        let now = core.clock.now();
        if now >= swept + SWEEP_EVERY {
            swept = now;
            sweep(&core, |release| is_past(&core, release));
        }
        if core.store.outage().is_none() {
            for release in core.releases.start_due(now) {
                core.executor.spawn(work(core.clone(), release));
            }
        }
    }
}

/// Gives up releases, and logs all that were given up.
pub(crate) fn sweep(core: &Core, is_past: impl Fn(&Release) -> bool) {
    if let Some(given_up) = core.releases.sweep(is_past) {
        let store = core.address().unwrap_or_default().to_owned();
        core.report(move || {
            let (lock, key) = (&given_up.lock, given_up.key.as_str());
            report::releases_given_up(&store, lock, key, given_up.releases);
        });
    }
}

/// Reports a lost hold, once.
pub(crate) fn tell_loss(core: &Arc<Core>, entry: &Arc<Entry>) {
    let Some(hold) = HeldLock::of(core, entry) else {
        return;
    };
    if let Some(error) = hold.untold_loss() {
        hold.publish_loss(&error);
        lost::log(hold, error);
    }
}

/// A started release. It continues if this is dropped.
pub(crate) enum Tried {
    Nothing,
    AtHome(oneshot::Receiver<Answered>),
    Here(Here),
}

impl Tried {
    /// Waits until the first attempt is answered or has timed out.
    pub(crate) async fn wait(self) -> Answered {
        let told = match self {
            Tried::Nothing => return Answered::Released,
            Tried::AtHome(told) => told,
            Tried::Here(here) => match here.send().await {
                Ok(answered) => return answered,
                Err(told) => told,
            },
        };
        // An error means that no result will come.
        told.await.unwrap_or(Answered::Released)
    }
}

/// A release that its holder sends over a runtime connection.
pub(crate) struct Here {
    core: Arc<Core>,
    entry: Arc<Entry>,
    lane: Box<dyn RuntimeConnection>,
    is_done: bool,
}

impl Here {
    /// Sends the release; returns the result's receiver if the I/O thread has to send it instead.
    async fn send(mut self) -> Result<Answered, oneshot::Receiver<Answered>> {
        let (core, entry) = (&self.core, &self.entry);
        let now = core.clock.now();
        let keep = core.claims.peek(entry, |acquisition| acquisition.keep(now));
        let timeout = entry.request.timing.command_timeout();
        let began = core.call_began();
        let answer = Sole::new(self.lane.release(entry.release(keep), timeout)).await;
        if let Some(answer) = &answer {
            core.call_ended(Operation::Release, began, answer);
        }
        self.is_done = true;
        let Some(mut release) = core.releases.take_from_holder(entry.owner) else {
            // Timed out; the I/O thread has taken over the release.
            return Ok(Answered::Released);
        };
        let Some(answer) = answer else {
            return Err(retry(core, release));
        };
        let failed = answer.is_err();
        let left = judge(core, entry, answer);
        release.is_first = false;
        observed::publish_release(core, entry, now, left, failed);
        if left == ReleaseStep::Done && !keep.is_zero() {
            hand_on_at(core, entry, now + keep);
        }
        if matches!(left, ReleaseStep::RepeatAt(_)) {
            drop(retry(core, release));
        }
        Ok(left.into())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if !self.is_done {
            take_over(&self.core, self.entry.owner);
        }
    }
}

impl From<ReleaseStep> for Answered {
    fn from(left: ReleaseStep) -> Self {
        match left {
            ReleaseStep::NotOurs => Answered::NotOurs,
            ReleaseStep::Done | ReleaseStep::RepeatAt(_) => Answered::Released,
        }
    }
}
