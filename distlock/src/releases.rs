//! Releases in the background: each is repeated until it is answered, and however many there are, they
//! burden the store and the memory of this process no more than a bounded number.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::clock::Moment;
use crate::engine::{BackgroundTask, Engine, Phase};
use crate::hold::{Hold, lock};
use crate::key::LockKey;
use crate::options::Timing;
use crate::report;
use crate::store::{Owner, Trouble};

/// Releases under way at a time. More of them would delay what callers wait for.
const IN_FLIGHT: usize = 256;

/// Releases that are remembered while the store cannot be reached. What is beyond ends with its lease.
const MOST: usize = 65_536;

/// The pause before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// Releases that are given up are told of no more often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How often it is seen whose time is over while the store cannot be reached.
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
    /// A shutdown waits for it.
    _task: BackgroundTask,
}

/// What came of the first attempt to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The store has answered, or it goes on in the background.
    Done,
    /// The store says that the lock had not been ours any more, although it should have been.
    NotOurs,
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
    /// They failed, and wait for the store.
    failed: VecDeque<Release>,
    /// How many were given up since that was last told.
    given_up: usize,
    told_at: Option<Moment>,
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
            _task: engine.under_way(),
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

    /// One attempt. `Err`: it is to be tried again.
    async fn attempt(&mut self, engine: &Arc<Engine>) -> Result<(), Trouble> {
        // Repeated, it is to be kept no longer than the first time.
        let keep = self
            .keep
            .saturating_sub(engine.clock.now().since(self.began));
        let within = self.timing.command_deadline();
        let store = engine.store();
        let answer = store.release(&self.key, self.owner, keep, within).await;
        let released = match &answer {
            Ok(was_held) => self.judge(engine, *was_held),
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
            Ok(_) => Ok(()),
            // The shutdown released what there was; there is nothing left to ask.
            Err(_) if engine.phase() == Phase::Closed => Ok(()),
            Err(_) if self.is_over(engine.clock.now()) => {
                give_up(engine, [&*self]);
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
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

    /// Nothing is released any more.
    pub(crate) fn clear(&self) {
        let mut table = lock(&self.table);
        let dropped = (
            std::mem::take(&mut table.waiting),
            std::mem::take(&mut table.failed),
        );
        drop(table);
        drop(dropped);
    }
}

/// Releases in the background.
pub(crate) fn submit(engine: &Arc<Engine>, release: Release) {
    let mut table = lock(&engine.releases.table);
    if table.in_flight >= IN_FLIGHT {
        table.waiting.push_back(release);
        let surplus = table.surplus();
        drop(table);
        give_up(engine, &surplus);
        return;
    }
    table.in_flight += 1;
    drop(table);
    engine.spawn(work(engine.clone(), release));
}

/// Releases for a caller who waits: its first attempt stands behind no other release.
pub(crate) fn submit_first(engine: &Arc<Engine>, release: Release) {
    lock(&engine.releases.table).in_flight += 1;
    engine.spawn(work(engine.clone(), release));
}

async fn work(engine: Arc<Engine>, mut release: Release) {
    loop {
        let done = release.attempt(&engine).await;
        let mut table = lock(&engine.releases.table);
        let mut surplus = None;
        if done.is_err() {
            table.failed.push_back(release);
            surplus = table.surplus();
            engine.releases.failed.notify_one();
        }
        // While the store does not answer, one after the other would fail.
        let next = if done.is_ok() && table.in_flight <= IN_FLIGHT {
            table.waiting.pop_front()
        } else {
            None
        };
        if next.is_none() {
            table.in_flight -= 1;
        }
        drop(table);
        give_up(&engine, &surplus);
        match next {
            Some(next) => release = next,
            None => return,
        }
    }
}

/// Tries again what failed, once the store is back.
pub(crate) async fn keep_releasing(engine: Arc<Engine>) {
    let releases = &engine.releases;
    loop {
        releases.failed.notified().await;
        tokio::time::sleep(PAUSE).await;
        while tokio::time::timeout(SWEEP_EVERY, engine.store().ready())
            .await
            .is_err()
        {
            forget_what_is_over(&engine);
        }
        let (failed, waiting) = {
            let mut table = lock(&releases.table);
            (
                std::mem::take(&mut table.failed),
                std::mem::take(&mut table.waiting),
            )
        };
        for release in failed.into_iter().chain(waiting) {
            submit(&engine, release);
        }
    }
}

/// What cannot be left in the store any more needs no release.
fn forget_what_is_over(engine: &Arc<Engine>) {
    let now = engine.clock.now();
    let over: Vec<_> = {
        let mut table = lock(&engine.releases.table);
        let mut over = Vec::new();
        let Table {
            waiting, failed, ..
        } = &mut *table;
        for queue in [waiting, failed] {
            let all = std::mem::take(queue);
            for release in all {
                if release.is_over(now) {
                    over.push(release);
                } else {
                    queue.push_back(release);
                }
            }
        }
        over
    };
    give_up(engine, &over);
}

/// Tells of releases that are not tried any more, in one line a second at most.
fn give_up<'a>(engine: &Arc<Engine>, releases: impl IntoIterator<Item = &'a Release>) {
    let mut releases = releases.into_iter();
    let Some(first) = releases.next() else {
        return;
    };
    let now = engine.clock.now();
    let count = {
        let mut table = lock(&engine.releases.table);
        table.given_up += 1 + releases.count();
        if table.told_at.is_some_and(|told| now < told + TELL_EVERY) {
            return;
        }
        table.told_at = Some(now);
        std::mem::take(&mut table.given_up)
    };
    let key = first.key.clone();
    engine.report(move || report::releases_given_up(key.as_str(), count));
}

impl Table {
    /// The oldest, where there are too many.
    fn surplus(&mut self) -> Option<Release> {
        if self.waiting.len() + self.failed.len() <= MOST {
            return None;
        }
        self.failed.pop_front().or_else(|| self.waiting.pop_front())
    }
}
