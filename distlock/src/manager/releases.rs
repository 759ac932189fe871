//! Releases in the background: each is repeated until it is answered, and however many there are, they
//! burden the store and the memory of this process no more than a bounded number.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::clock::Moment;
use crate::key::LockKey;
use crate::manager::counted::Counted;
use crate::manager::engine::{Engine, Phase};
use crate::manager::hold::Hold;
use crate::manager::report;
use crate::mutex::lock;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Owner;

/// Releases under way at a time. More of them would delay what callers wait for.
const IN_FLIGHT: usize = 256;

/// Releases that are remembered while the store cannot be reached. What is beyond ends with its lease.
const MOST: usize = 65_536;

/// The pause before what failed is tried again. It doubles for each release that the store refuses, so that
/// these do not stand before others.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often a release that was answered is sent once more, at most.
const MOST_AGAIN: u32 = 3;

/// How often it is seen whose time is over, and told what was given up.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What is to be taken back from the store: a lock, a place in a queue, or an ask whose answer never came.
#[derive(Debug)]
pub(crate) struct Release {
    key: LockKey,
    owner: Owner,
    timing: Timing,
    /// How long the key stays taken, counted from `began`.
    keep: Duration,
    began: Moment,
    /// The hold that ends with it, and until when it was believed.
    hold: Option<(Arc<Hold>, Moment)>,
    tell: Option<oneshot::Sender<Released>>,
    /// An attempt may have been applied although nobody heard of it.
    was_unanswered: bool,
    /// When it is tried again, after a failure or because an ask may still be applied.
    due: Moment,
    /// How often it was sent once more.
    again: u32,
    pause: Duration,
    /// A shutdown waits for it.
    _under_way: Counted,
    _in_store: Counted,
}

/// What came of the first attempt to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The store has answered, or it goes on in the background.
    Done,
    /// The store says that the lock had not been ours any more, although it should have been.
    NotOurs,
}

/// What is left to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// It is sent once more.
    Again,
}

#[derive(Debug, Default)]
pub(crate) struct Releases {
    table: Mutex<Table>,
    failed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    in_flight: usize,
    /// They wait for others.
    waiting: VecDeque<Release>,
    /// They failed, or are to be sent once more, and wait for the store and their time.
    failed: VecDeque<Release>,
    /// How many were given up since that was last told, and one of them.
    given_up: Option<(usize, LockKey)>,
}

impl Release {
    /// Of whatever an owner has at a key.
    pub(crate) fn undo(engine: &Engine, key: LockKey, owner: Owner, timing: Timing) -> Self {
        Release {
            key,
            owner,
            timing,
            keep: Duration::ZERO,
            began: engine.clock.now(),
            hold: None,
            tell: None,
            was_unanswered: false,
            due: engine.clock.now(),
            again: 0,
            pause: FIRST_PAUSE,
            _under_way: engine.under_way(),
            _in_store: engine.in_store(),
        }
    }

    /// Of a hold; until when it was believed, if it still was.
    pub(crate) fn of(
        engine: &Engine,
        hold: &Arc<Hold>,
        believed_until: Option<Moment>,
        keep: Duration,
    ) -> (Self, oneshot::Receiver<Released>) {
        let (tell, told) = oneshot::channel();
        let release = Release {
            keep,
            hold: believed_until.map(|until| (hold.clone(), until)),
            tell: Some(tell),
            ..Self::undo(engine, hold.key.clone(), hold.owner, hold.timing)
        };
        (release, told)
    }

    fn is_over(&self, now: Moment) -> bool {
        now >= self.began + self.timing.ttl()
    }

    /// One attempt.
    async fn attempt(&mut self, engine: &Arc<Engine>) -> Result<Next, Trouble> {
        // Repeated, it is to be kept no longer than the first time.
        let keep = self
            .keep
            .saturating_sub(engine.clock.now().since(self.began));
        let within = self.timing.command_deadline();
        let store = engine.store();
        let answer = store.release(&self.key, self.owner, keep, within).await;
        let released = match &answer {
            Ok(reply) => self.judge(engine, reply.was_held),
            Err(trouble) => {
                self.was_unanswered |= !trouble.unsent;
                Released::Done
            }
        };
        if let Some(tell) = self.tell.take() {
            // Nobody needs to listen.
            let _ = tell.send(released);
        }
        match answer {
            // The shutdown released what there was; there is nothing left to ask.
            _ if engine.phase() == Phase::Closed => Ok(Next::Nothing),
            Ok(reply) => Ok(match reply.again_after {
                Some(after) if self.again < MOST_AGAIN => {
                    self.is_sent_again(engine.clock.now() + after);
                    Next::Again
                }
                _ => Next::Nothing,
            }),
            Err(trouble) => {
                // Once the store is back, all are tried.
                self.due = engine.clock.now();
                if !trouble.is_no_answer() {
                    self.due = self.due + self.pause;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
                Err(trouble)
            }
        }
    }

    /// An ask may still be applied until then: whatever it makes is released as well.
    fn is_sent_again(&mut self, due: Moment) {
        (self.due, self.began) = (due, due);
        self.again += 1;
        self.keep = Duration::ZERO;
        // What became of the hold was said by the first answer.
        self.hold = None;
    }

    /// A lock that was believed until now, and that the first release did not find, was lost before. One
    /// whose lease may have ended meanwhile proves nothing.
    fn judge(&self, engine: &Engine, was_held: bool) -> Released {
        match &self.hold {
            Some((hold, until))
                if !was_held && !self.was_unanswered && engine.clock.now() < *until =>
            {
                engine.tell_loss(hold, hold.gone());
                Released::NotOurs
            }
            _ => Released::Done,
        }
    }
}

impl Releases {
    /// Whether nothing is to be released.
    pub(crate) fn count(&self) -> usize {
        let table = lock(&self.table);
        table.in_flight + table.waiting.len() + table.failed.len()
    }

    /// Nothing is released any more. How many were given up, and a key of them.
    pub(crate) fn clear(&self) -> Option<(usize, LockKey)> {
        let mut table = lock(&self.table);
        let failed = std::mem::take(&mut table.failed);
        let waiting = std::mem::take(&mut table.waiting);
        for release in failed.iter().chain(&waiting) {
            table.give_up(release);
        }
        table.given_up.take()
    }
}

/// Releases in the background.
pub(crate) fn submit(engine: &Arc<Engine>, release: Release) {
    {
        let mut table = lock(&engine.releases.table);
        if table.in_flight >= IN_FLIGHT {
            table.waiting.push_back(release);
            table.give_up_surplus();
            return;
        }
        table.in_flight += 1;
    }
    engine.spawn(work(engine.clone(), release));
}

/// Releases for a caller who waits: its first attempt stands behind no other release.
pub(crate) fn submit_first(engine: &Arc<Engine>, release: Release) {
    lock(&engine.releases.table).in_flight += 1;
    engine.spawn(work(engine.clone(), release));
}

/// Attempts one release, and then those that wait, for as long as the store answers.
async fn work(engine: Arc<Engine>, mut release: Release) {
    loop {
        let result = release.attempt(&engine).await;
        let answers = !matches!(&result, Err(trouble) if trouble.is_no_answer());
        let mut table = lock(&engine.releases.table);
        if !matches!(result, Ok(Next::Nothing)) {
            if release.is_over(engine.clock.now()) {
                table.give_up(&release);
            } else {
                table.failed.push_back(release);
                table.give_up_surplus();
            }
            engine.releases.failed.notify_one();
        }
        let next = if answers && table.in_flight <= IN_FLIGHT {
            table.waiting.pop_front()
        } else {
            None
        };
        match next {
            Some(next) => release = next,
            None => {
                table.in_flight -= 1;
                return;
            }
        }
    }
}

/// Tries again what failed, when its time has come and the store is back.
pub(crate) async fn keep_releasing(engine: Arc<Engine>) {
    let releases = &engine.releases;
    let mut swept = engine.clock.now();
    loop {
        if lock(&releases.table).is_at_rest() {
            releases.failed.notified().await;
        }
        tokio::time::sleep(FIRST_PAUSE).await;
        // Whichever comes first: what is over is given up also while the store is away.
        let _ = tokio::time::timeout(SWEEP_EVERY, engine.store().ready()).await;
        let now = engine.clock.now();
        if now >= swept + SWEEP_EVERY {
            swept = now;
            sweep(&engine, now);
        }
        if engine.store().outage().is_none() {
            let due = lock(&releases.table).take_due(now);
            for release in due {
                engine.spawn(work(engine.clone(), release));
            }
        }
    }
}

/// What cannot be left in the store any more needs no release. Tells of those that were given up.
fn sweep(engine: &Arc<Engine>, now: Moment) {
    let given_up = {
        let mut table = lock(&engine.releases.table);
        table.give_up_what_is_over(now);
        table.given_up.take()
    };
    if let Some((releases, key)) = given_up {
        engine.report(move || report::releases_given_up(key.as_str(), releases));
    }
}

impl Table {
    /// Whether nothing is left to do but what is under way.
    fn is_at_rest(&self) -> bool {
        // What waits is taken up by those that are in flight.
        let waits = self.in_flight == 0 && !self.waiting.is_empty();
        self.failed.is_empty() && !waits && self.given_up.is_none()
    }

    /// As many as may be under way: those that were never tried come first.
    fn take_due(&mut self, now: Moment) -> Vec<Release> {
        let room = IN_FLIGHT.saturating_sub(self.in_flight);
        let first = room.min(self.waiting.len());
        let mut due: Vec<_> = self.waiting.drain(..first).collect();
        for _ in 0..self.failed.len() {
            if due.len() == room {
                break;
            }
            match self.failed.pop_front() {
                Some(release) if release.due <= now => due.push(release),
                Some(release) => self.failed.push_back(release),
                None => break,
            }
        }
        self.in_flight += due.len();
        due
    }

    fn give_up(&mut self, release: &Release) {
        let given_up = self.given_up.get_or_insert((0, release.key.clone()));
        given_up.0 += 1;
    }

    fn give_up_what_is_over(&mut self, now: Moment) {
        let mut over = Vec::new();
        for queue in [&mut self.failed, &mut self.waiting] {
            for release in std::mem::take(queue) {
                if release.is_over(now) {
                    over.push(release);
                } else {
                    queue.push_back(release);
                }
            }
        }
        for release in &over {
            self.give_up(release);
        }
    }

    /// The oldest go, where there are too many.
    fn give_up_surplus(&mut self) {
        if self.waiting.len() + self.failed.len() > MOST
            && let Some(oldest) = self.failed.pop_front().or_else(|| self.waiting.pop_front())
        {
            self.give_up(&oldest);
        }
    }
}
