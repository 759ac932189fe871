//! Takes back from the store what was given up, until it has answered or nothing can be left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::options::Options;
use crate::key::LockKey;
use crate::manager::engine::backlog::{Answered, Release};
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::held::Held;
use crate::manager::engine::sole::Sole;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::lost;
use crate::manager::telemetry::observed;
use crate::manager::telemetry::report;
use crate::observer::event::Operation;
use crate::protocol::claim::Claim;
use crate::protocol::claim::leaving::Left;
use crate::protocol::request::Request;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Owner, ReleaseReply};
use crate::store::Lane;
use crate::util::clock::Moment;

/// The pause before what failed is tried again, and how often it is seen what cannot be left any
/// more.
const PAUSE: Duration = Duration::from_millis(50);
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Releases a hold whose holder waits for the answer. With `keep`, its key stays taken for that
/// long.
pub(crate) fn release(core: &Arc<Core>, hold: &Held, keep: Duration) -> Tried {
    hold.entry.complete();
    if !leave(core, &hold.entry, keep) {
        return Tried::Nothing;
    }
    let release = new(core, &hold.entry, None);
    match core.store.lane() {
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

/// Sends a release at home, behind no other.
fn retry(core: &Arc<Core>, mut release: Release) -> oneshot::Receiver<Answered> {
    let (tell, told) = oneshot::channel();
    release.tell = Some(tell);
    core.releases.start_at_once();
    core.executor.spawn(work(core.clone(), release));
    told
}

/// Sends at home what its holder was to send, and may have sent.
pub(crate) fn take_over(core: &Arc<Core>, owner: Owner) {
    let Some(release) = core.releases.take_from_holder(owner) else {
        return;
    };
    let within = release.entry.request.timing.command_deadline();
    let (unheard, now) = (Trouble::timed_out(within), core.clock.now());
    (core.claims).with(&release.entry, |claim| {
        claim.handle_release(Err(unheard), now)
    });
    drop(retry(core, release));
}

/// Sends the release of a claim that gave back what its call did not take.
pub(crate) fn submit_what_is_given_back(core: &Arc<Core>, entry: &Arc<Entry>) {
    if core.claims.with(entry, Claim::poll_release) {
        submit(core, entry);
    }
}

/// Releases whatever there is of a claim, behind others, for nobody waits for it.
pub(crate) fn release_in_background(core: &Arc<Core>, entry: &Arc<Entry>) {
    if leave(core, entry, Duration::ZERO) {
        submit(core, entry);
    } else {
        submit_what_is_given_back(core, entry);
    }
}

/// Takes back an id that nobody here knows, whatever the store has of it.
pub(crate) fn undo_unknown(core: &Arc<Core>, key: LockKey, owner: Owner, lease: Duration) {
    let options = Options {
        lease,
        ..Options::default()
    };
    let now = core.clock.now();
    let request = Arc::new(Request::new(key, options, now));
    let claim = Claim::unknown(request, core.rules, now);
    submit(core, &Entry::unknown(owner, claim, core.in_store.token()));
}

/// Sends the release of a claim that was given up.
pub(crate) fn submit(core: &Arc<Core>, entry: &Arc<Entry>) {
    if let Some(release) = core.releases.start(new(core, entry, None)) {
        core.executor.spawn(work(core.clone(), release));
    }
}

fn leave(core: &Arc<Core>, entry: &Arc<Entry>, keep: Duration) -> bool {
    let now = core.clock.now();
    core.claims.with(entry, |claim| claim.leave(keep, now))
}

/// What `min_hold` keeps is handed on as soon as it may be, unless the process ends before: then
/// the TTL does it. Not before the release was answered, which would find it gone, and take that
/// for a loss.
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

/// Attempts one release, and then those that wait, for as long as the store answers.
async fn work(core: Arc<Core>, mut release: Release) {
    loop {
        let next = attempt(&core, release).await;
        match next {
            Some(next) => release = next,
            None => return,
        }
    }
}

/// One attempt; the next release that is to be attempted in its place.
async fn attempt(core: &Arc<Core>, mut release: Release) -> Option<Release> {
    let entry = release.entry.clone();
    let now = core.clock.now();
    let keep = core.claims.peek(&entry, |claim| claim.keep(now));
    let timeout = entry.request.timing.command_deadline();
    let answer = core.call(entry.release(keep), timeout).await;
    let failed = answer.is_err();
    let answers = !matches!(&answer, Err(trouble) if trouble.is_no_answer());
    let left = judge(core, &entry, answer);
    if std::mem::take(&mut release.is_first) {
        observed::publish_release(core, &entry, now, left, failed);
    }
    if left == Left::Done && !keep.is_zero() {
        hand_on_at(core, &entry, now + keep);
    }
    if let Some(tell) = release.tell.take() {
        // Nobody needs to listen.
        let _ = tell.send(left.into());
    }
    match left {
        Left::Done | Left::NotOurs => core.releases.done(),
        // The shutdown released what there was; there is nothing left to ask.
        Left::Again(_) if core.phase() == Phase::Closed => core.releases.done(),
        Left::Again(_) if is_past(core, &release) => core.releases.give_up(&release, answers),
        Left::Again(due) => {
            release.due = due;
            core.releases.again(release, answers)
        }
    }
}

/// What an answer says, told where it says that a hold had been lost.
fn judge(core: &Arc<Core>, entry: &Arc<Entry>, answer: Result<ReleaseReply, Trouble>) -> Left {
    let now = core.clock.now();
    let left = core
        .claims
        .with(entry, |claim| claim.handle_release(answer, now));
    if left == Left::NotOurs {
        tell_loss(core, entry);
    }
    left
}

fn is_past(core: &Core, release: &Release) -> bool {
    let now = core.clock.now();
    core.claims.peek(&release.entry, |claim| claim.is_past(now))
}

/// Tries again what failed, when its time has come and the store is back.
pub(crate) async fn keep_releasing(core: Arc<Core>) {
    let mut swept = core.clock.now();
    loop {
        if core.releases.is_at_rest() {
            core.releases.failed.notified().await;
        }
        tokio::time::sleep(PAUSE).await;
        // Whichever comes first: what is over is given up also while the store is away.
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

/// Gives up releases, and tells of those that were.
pub(crate) fn sweep(core: &Core, is_past: impl Fn(&Release) -> bool) {
    if let Some(given_up) = core.releases.sweep(is_past) {
        let store = core.address().unwrap_or_default().to_owned();
        core.report(move || {
            let (lock, key) = (&given_up.lock, given_up.key.as_str());
            report::releases_given_up(&store, lock, key, given_up.releases);
        });
    }
}

/// Tells once that a hold was lost.
pub(crate) fn tell_loss(core: &Arc<Core>, entry: &Arc<Entry>) {
    let Some(hold) = Held::of(core, entry) else {
        return;
    };
    if let Some(error) = hold.untold_loss() {
        hold.publish_loss(&error);
        lost::log(hold, error);
    }
}

/// A release that was begun. It goes on if this is dropped.
pub(crate) enum Tried {
    Nothing,
    AtHome(oneshot::Receiver<Answered>),
    Here(Here),
}

impl Tried {
    /// Resolves when it was answered, or its first attempt ran out of time.
    pub(crate) async fn wait(self) -> Answered {
        let told = match self {
            Tried::Nothing => return Answered::Released,
            Tried::AtHome(told) => told,
            Tried::Here(here) => match here.send().await {
                Ok(answered) => return answered,
                Err(told) => told,
            },
        };
        // An error means that there is nothing to wait for.
        told.await.unwrap_or(Answered::Released)
    }
}

/// A release that its holder sends, on the lane of his runtime.
pub(crate) struct Here {
    core: Arc<Core>,
    entry: Arc<Entry>,
    lane: Box<dyn Lane>,
    is_done: bool,
}

impl Here {
    /// Sends it; an error if home has to.
    async fn send(mut self) -> Result<Answered, oneshot::Receiver<Answered>> {
        let (core, entry) = (&self.core, &self.entry);
        let now = core.clock.now();
        let keep = core.claims.peek(entry, |claim| claim.keep(now));
        let timeout = entry.request.timing.command_deadline();
        let began = core.call_began();
        let answer = Sole::new(self.lane.release(entry.release(keep), timeout)).await;
        if let Some(answer) = &answer {
            core.call_ended(Operation::Release, began, answer);
        }
        self.is_done = true;
        let Some(mut release) = core.releases.take_from_holder(entry.owner) else {
            // It was late, and home sees to it.
            return Ok(Answered::Released);
        };
        let Some(answer) = answer else {
            return Err(retry(core, release));
        };
        let failed = answer.is_err();
        let left = judge(core, entry, answer);
        release.is_first = false;
        observed::publish_release(core, entry, now, left, failed);
        if left == Left::Done && !keep.is_zero() {
            hand_on_at(core, entry, now + keep);
        }
        if matches!(left, Left::Again(_)) {
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

impl From<Left> for Answered {
    fn from(left: Left) -> Self {
        match left {
            Left::NotOurs => Answered::NotOurs,
            Left::Done | Left::Again(_) => Answered::Released,
        }
    }
}
