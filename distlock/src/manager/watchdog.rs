//! Renewals of all holds, in batches from one timer, and the loss of those that could not be renewed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::error::LossReason;
use crate::manager::engine::Engine;
use crate::manager::hold::{End, Hold};
use crate::manager::report;
use crate::mutex::lock;
use crate::protocol::timing::TICK;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Owner, Renewal, RenewalFailure};

/// Holds renewed by one script: more would freeze the server for too long.
const RENEW_BATCH: usize = 1_000;

/// Renewals that fail are told of no more often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Everything this client holds.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    table: Mutex<Table>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// In order, so that a simulation can be repeated.
    holds: BTreeMap<Owner, Entry>,
    due: BTreeSet<(Moment, Owner)>,
    /// Whose renewals failed since that was last told.
    failing: BTreeSet<Owner>,
    told_at: Option<Moment>,
    /// When the watchdog wakes by itself; `None` while it works or nothing is held.
    wakes_at: Option<Moment>,
}

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    /// The next attempt to renew or confirm; `Moment::MAX` while one is under way.
    attempt: Moment,
    /// Where the entry stands in `due`.
    due: Moment,
    /// A short grant is confirmed before it is ever renewed: the server counts it as short until then.
    confirmed: bool,
}

/// What one turn of the watchdog has to do.
#[derive(Debug, Default)]
struct Turn {
    renewals: Vec<Arc<Hold>>,
    confirmations: Vec<Arc<Hold>>,
    /// They ended by themselves: their safe deadline or their limit has passed.
    over: Vec<Arc<Hold>>,
    sleep: Option<Duration>,
}

impl Table {
    fn schedule(&mut self, owner: Owner, attempt: Moment) {
        let Some(entry) = self.holds.get_mut(&owner) else {
            return;
        };
        self.due.remove(&(entry.due, owner));
        entry.attempt = attempt;
        entry.due = attempt.min(entry.hold.safe_until().unwrap_or(Moment(0)));
        self.due.insert((entry.due, owner));
    }

    fn remove(&mut self, owner: Owner) -> Option<Entry> {
        let entry = self.holds.remove(&owner)?;
        self.due.remove(&(entry.due, owner));
        Some(entry)
    }

    /// Takes what is due: ended holds leave the table, the others go to the turn.
    fn turn(&mut self, now: Moment) -> Turn {
        let mut turn = Turn::default();
        while let Some(&(due, owner)) = self.due.first() {
            if due > now {
                break;
            }
            let Some(entry) = self.holds.get(&owner) else {
                self.due.pop_first();
                continue;
            };
            let (hold, confirmed, attempt) = (entry.hold.clone(), entry.confirmed, entry.attempt);
            // Also wakes the body: `is_held` ends a hold whose safe deadline has passed.
            if !hold.is_held() {
                self.remove(owner);
                turn.over.push(hold);
                continue;
            }
            if attempt <= now {
                if confirmed {
                    turn.renewals.push(hold);
                    self.schedule(owner, Moment::MAX);
                } else {
                    // Another one is sent while this one is under way, for a short grant leaves no
                    // time for a timeout; the first answer counts.
                    self.schedule(owner, now + hold.timing.grant().command_deadline());
                    turn.confirmations.push(hold);
                }
            } else {
                self.schedule(owner, attempt);
            }
        }
        turn.sleep = self.due.first().map(|(due, _)| due.since(now).min(TICK));
        self.wakes_at = turn.sleep.map(|sleep| now + sleep);
        turn
    }
}

impl Watchdog {
    /// Renews a hold from now on, until it is forgotten or lost.
    pub(crate) fn watch(&self, hold: Arc<Hold>, proven_at: Moment, confirmed: bool) {
        let attempt = if confirmed {
            next_renewal(&hold, proven_at)
        } else {
            proven_at + hold.timing.confirm_after()
        };
        let owner = hold.owner;
        let mut table = lock(&self.table);
        let due = attempt.min(hold.safe_until().unwrap_or(Moment(0)));
        let entry = Entry {
            hold,
            attempt,
            due,
            confirmed,
        };
        table.holds.insert(owner, entry);
        table.due.insert((due, owner));
        let due = table.due.first().map(|(due, _)| *due);
        let sleeps_past = table.wakes_at.is_none_or(|wakes_at| due < Some(wakes_at));
        drop(table);
        if sleeps_past {
            self.wake.notify_one();
        }
    }

    /// No renewal is sent after this.
    pub(crate) fn forget(&self, owner: Owner) {
        lock(&self.table).remove(owner);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.table).holds.len()
    }

    pub(crate) fn knows(&self, owner: Owner) -> bool {
        lock(&self.table).holds.contains_key(&owner)
    }

    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.table)
            .holds
            .values()
            .map(|entry| entry.hold.clone())
            .collect()
    }

    /// Renews everything at once, after a reconnect. What is under way stays so until its deadline.
    pub(crate) fn renew_all(&self, now: Moment) {
        let mut table = lock(&self.table);
        let idle: Vec<_> = table
            .holds
            .iter()
            .filter(|(_, entry)| entry.attempt != Moment::MAX)
            .map(|(owner, _)| *owner)
            .collect();
        for owner in idle {
            table.schedule(owner, now);
        }
        drop(table);
        self.wake.notify_one();
    }

    fn reschedule(&self, hold: &Hold, attempt: Moment) {
        let mut table = lock(&self.table);
        table.schedule(hold.owner, attempt);
        let earlier = table.wakes_at.is_none_or(|wakes_at| attempt < wakes_at);
        drop(table);
        if earlier {
            self.wake.notify_one();
        }
    }

    fn confirmed(&self, hold: &Hold, proven_at: Moment) {
        if let Some(entry) = lock(&self.table).holds.get_mut(&hold.owner) {
            entry.confirmed = true;
        }
        self.reschedule(hold, next_renewal(hold, proven_at));
    }
}

/// When to renew next: rounded down, so that holds taken one after another are renewed together.
fn next_renewal(hold: &Hold, proven_at: Moment) -> Moment {
    let every = hold.timing.renew_every();
    let grid = u64::try_from((every / 16).as_nanos()).unwrap_or(1).max(1);
    let next = proven_at + every;
    let next = Moment(next.0 - next.0 % grid);
    match hold.limit() {
        Some(limit) if hold.safe_until() >= Some(limit) => Moment::MAX,
        _ => next,
    }
}

/// The watchdog's task.
pub(crate) async fn keep_watch(engine: Arc<Engine>) {
    loop {
        let turn = lock(&engine.watchdog.table).turn(engine.clock.now());
        for batch in renewal_batches(turn.renewals) {
            engine.spawn_later(renew(engine.clone(), batch));
        }
        for hold in turn.over {
            if let Some(error) = hold.error() {
                engine.tell_loss(&hold, error);
            }
        }
        for hold in turn.confirmations {
            engine.spawn_later(confirm(engine.clone(), hold));
        }
        let wake = engine.watchdog.wake.notified();
        match turn.sleep {
            Some(sleep) => {
                // Whichever comes first.
                let _ = tokio::time::timeout(sleep, wake).await;
            }
            None => wake.await,
        }
    }
}

/// Batches of holds whose commands have the same deadline.
fn renewal_batches(mut holds: Vec<Arc<Hold>>) -> Vec<Vec<Arc<Hold>>> {
    holds.sort_by_key(|hold| hold.timing.command_deadline());
    let same =
        |a: &Arc<Hold>, b: &Arc<Hold>| a.timing.command_deadline() == b.timing.command_deadline();
    holds
        .chunk_by(same)
        .flat_map(|group| group.chunks(RENEW_BATCH))
        .map(<[_]>::to_vec)
        .collect()
}

async fn renew(engine: Arc<Engine>, holds: Vec<Arc<Hold>>) {
    let Some(within) = holds.first().map(|hold| hold.timing.command_deadline()) else {
        return;
    };
    let batch: Vec<_> = holds
        .iter()
        .map(|hold| Renewal {
            key: hold.key.clone(),
            owner: hold.owner,
            token: hold.token,
            timing: hold.timing,
        })
        .collect();
    let started = engine.clock.now();
    match engine.store().renew(&batch, within).await {
        Ok(renewed) => {
            if report::shows_renewals() {
                let (count, failures) = (holds.len(), renewed.failures.len());
                let took = engine.clock.now().since(started);
                engine.report(move || report::renewed(count, failures, took));
            }
            let mut refused = Vec::new();
            let mut failures = renewed.failures.into_iter().peekable();
            for (index, hold) in holds.iter().enumerate() {
                match failures.next_if(|(failed, _)| *failed == index) {
                    None => proven(&engine, hold, renewed.sent),
                    Some((_, RenewalFailure::Gone)) => gone(&engine, hold),
                    Some((_, RenewalFailure::Trouble(trouble))) => {
                        failed(&engine, hold, started, &trouble);
                        refused.push((hold.clone(), trouble));
                    }
                }
            }
            if let Some((_, trouble)) = refused.first().cloned() {
                let holds: Vec<_> = refused.into_iter().map(|(hold, _)| hold).collect();
                failing(&engine, &holds, &trouble);
            }
        }
        Err(trouble) => {
            for hold in &holds {
                failed(&engine, hold, started, &trouble);
            }
            failing(&engine, &holds, &trouble);
        }
    }
}

/// Tells that renewals fail, in one line a second at most, however many holds there are.
fn failing(engine: &Engine, holds: &[Arc<Hold>], trouble: &Trouble) {
    let now = engine.clock.now();
    let count = {
        let mut table = lock(&engine.watchdog.table);
        // Those of an earlier outage have been renewed, or are lost.
        if table
            .told_at
            .is_none_or(|told| now >= told + TELL_EVERY * 2)
        {
            table.failing.clear();
        }
        table.failing.extend(holds.iter().map(|hold| hold.owner));
        if table.told_at.is_some_and(|told| now < told + TELL_EVERY) {
            return;
        }
        table.told_at = Some(now);
        std::mem::take(&mut table.failing).len()
    };
    let believed = holds.iter().filter(|hold| hold.safe_until().is_some());
    let Some(nearest) = believed.min_by_key(|hold| hold.safe_until()).cloned() else {
        return;
    };
    let store = engine.store().address().unwrap_or_default().to_owned();
    let detail = trouble.to_string();
    engine.report(move || report::renewals_fail(&store, count, &nearest, &detail));
}

async fn confirm(engine: Arc<Engine>, hold: Arc<Hold>) {
    let within = hold.remaining();
    if within.is_zero() {
        // Released, or lost, before this was sent.
        return;
    }
    match engine
        .store()
        .confirm(&hold.key, hold.owner, hold.timing, within)
        .await
    {
        // Another token: the grant had expired, and this one came later, for a body that never ran.
        Ok(Some(proof)) if proof.token != hold.token => gone(&engine, &hold),
        Ok(Some(proof)) => {
            hold.extend(proof.sent + hold.timing.validity());
            engine.watchdog.confirmed(&hold, proof.sent);
        }
        Ok(None) => gone(&engine, &hold),
        // The next attempt is scheduled already.
        Err(trouble) => hold.note_failure(trouble.to_string()),
    }
}

fn proven(engine: &Engine, hold: &Hold, sent: Moment) {
    hold.extend(sent + hold.timing.validity());
    engine.watchdog.reschedule(hold, next_renewal(hold, sent));
}

/// The store says that the lock is not ours: no retry can change that.
fn gone(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    engine.watchdog.forget(hold.owner);
    if hold.finish(End::Lost(LossReason::Gone)) {
        if let Some(error) = hold.error() {
            engine.tell_loss(hold, error);
        }
        // It found the lock free, perhaps: a release drives the queue (design rule 5).
        engine.undo(hold.key.clone(), hold.owner, hold.timing);
    }
}

fn failed(engine: &Engine, hold: &Hold, started: Moment, trouble: &Trouble) {
    hold.note_failure(trouble.to_string());
    let again = (started + hold.timing.retry_pause()).max(engine.clock.now());
    engine.watchdog.reschedule(hold, again);
}
