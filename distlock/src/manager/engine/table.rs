//! All claims of a manager, each until it is over: where they are found, and what is published of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::protocol::claim::{Claim, Standing};
use crate::protocol::request::Request;
use crate::protocol::timing::TICK;
use crate::protocol::words::{Ask, Owner};
use crate::store::command::{Confirm, Release};
use crate::util::clock::Moment;
use crate::util::mutex::lock;
use crate::util::notified::until;

/// The claims of a manager by their owner ids, in order, so that a simulation can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Mutex<Rows>,
    /// Wakes who renews, when something is due earlier than was known.
    pub(crate) due: Notify,
    /// Wakes who looks, when a claim stands in a queue, or its call is to go on.
    pub(crate) queued: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    asking: BTreeMap<Owner, Arc<Entry>>,
    held: BTreeMap<Owner, (Moment, Arc<Entry>)>,
    /// The holds by when something is to be done for them.
    due: BTreeSet<(Moment, Owner)>,
    /// When whoever renews wakes by itself; `None` while it works, or when nothing is held.
    wakes_at: Option<Moment>,
    arrivals: u64,
}

/// What is published of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    standing: Standing,
    due: Option<Moment>,
}

impl State {
    fn of(claim: &Claim) -> Self {
        State {
            standing: claim.standing(),
            due: claim.poll_timeout(),
        }
    }
}

/// A claim, shared by its call or its holder and by whoever works for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) owner: Owner,
    pub(crate) request: Arc<Request>,
    claim: Mutex<Claim>,
    /// Who called first asks first, also after a reconnect.
    arrival: u64,
    /// Wakes the call that asks.
    pub(crate) changed: Notify,
    /// Its ask is, or was last, under way on a lane.
    on_lane: AtomicBool,
    /// Wakes everybody who waits for the end of the hold.
    pub(crate) over: Notify,
    /// Wakes every task that waits for the confirmation of a short grant.
    pub(crate) confirmed: Notify,
    /// Bodies that run under the hold, and stop by themselves when it is lost.
    bodies: AtomicUsize,
    without_body: Notify,
    /// Its end was told to those who observe.
    has_ended: AtomicBool,
    /// Its holder has released it: the work had ended.
    is_completed: AtomicBool,
    /// Its key may outlive the belief in it.
    _in_store: TaskTrackerToken,
}

impl Entry {
    fn new(owner: Owner, claim: Claim, arrival: u64, in_store: TaskTrackerToken) -> Arc<Self> {
        Arc::new(Entry {
            owner,
            request: claim.request().clone(),
            claim: Mutex::new(claim),
            arrival,
            changed: Notify::new(),
            on_lane: AtomicBool::new(false),
            over: Notify::new(),
            confirmed: Notify::new(),
            bodies: AtomicUsize::new(0),
            without_body: Notify::new(),
            has_ended: AtomicBool::new(false),
            is_completed: AtomicBool::new(false),
            _in_store: in_store,
        })
    }

    /// A claim that is in no table: an id that nobody here knows.
    pub(crate) fn unknown(owner: Owner, claim: Claim, in_store: TaskTrackerToken) -> Arc<Self> {
        Self::new(owner, claim, 0, in_store)
    }

    /// Says whether its ask goes over a lane.
    pub(crate) fn asks_on_lane(&self, on_lane: bool) {
        self.on_lane.store(on_lane, Ordering::Release);
    }

    pub(crate) fn is_on_lane(&self) -> bool {
        self.on_lane.load(Ordering::Acquire)
    }

    /// What it asks of the store.
    pub(crate) fn ask(&self, wait: Duration) -> Ask<'_> {
        Ask {
            key: &self.request.key,
            owner: self.owner,
            timing: self.request.timing,
            durability: self.request.durability,
            wait,
        }
    }

    pub(crate) fn confirm(&self) -> Confirm<'_> {
        Confirm {
            key: &self.request.key,
            owner: self.owner,
            timing: self.request.timing,
            durability: self.request.durability,
        }
    }

    /// Releases it, or keeps its key taken for that long.
    pub(crate) fn release(&self, keep: Duration) -> Release<'_> {
        Release {
            key: &self.request.key,
            owner: self.owner,
            keep,
        }
    }

    /// Counts a body for as long as it may run.
    pub(crate) fn body(&self) -> RunningBody<'_> {
        self.bodies.fetch_add(1, Ordering::AcqRel);
        RunningBody(self)
    }

    /// Its end is told: whether that is to be done, for it is done once.
    pub(crate) fn mark_ended(&self) -> bool {
        !self.has_ended.swap(true, Ordering::AcqRel)
    }

    /// Notes that the work under the hold has ended.
    pub(crate) fn complete(&self) {
        self.is_completed.store(true, Ordering::Release);
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.is_completed.load(Ordering::Acquire)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.bodies.load(Ordering::Acquire) > 0
    }

    /// Resolves when no body runs under the hold.
    pub(crate) async fn without_body(&self) {
        until(&self.without_body, || (!self.has_body()).then_some(())).await;
    }
}

/// A body that runs.
#[derive(Debug)]
pub(crate) struct RunningBody<'a>(&'a Entry);

impl Drop for RunningBody<'_> {
    fn drop(&mut self) {
        if self.0.bodies.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.without_body.notify_waiters();
        }
    }
}

impl Table {
    /// A new claim, of a call that is about to ask.
    pub(crate) fn enter(
        &self,
        owner: Owner,
        claim: Claim,
        in_store: TaskTrackerToken,
    ) -> Arc<Entry> {
        let mut rows = lock(&self.rows);
        rows.arrivals += 1;
        let entry = Entry::new(owner, claim, rows.arrivals, in_store);
        rows.asking.insert(owner, entry.clone());
        entry
    }

    /// Does something with a claim, and keeps true what is known of it here. The only way to change
    /// one.
    pub(crate) fn with<T>(&self, entry: &Arc<Entry>, act: impl FnOnce(&mut Claim) -> T) -> T {
        let mut claim = lock(&entry.claim);
        let before = State::of(&claim);
        let was_confirmed = claim.is_confirmed();
        let result = act(&mut claim);
        self.update(entry, &claim, before, was_confirmed);
        result
    }

    fn update(&self, entry: &Arc<Entry>, claim: &Claim, before: State, was_confirmed: bool) {
        let after = State::of(claim);
        if before != after {
            self.publish(entry, before.standing, after);
        }
        if before.standing == Standing::Held && !was_confirmed && claim.is_confirmed() {
            entry.confirmed.notify_waiters();
        }
    }

    /// The claim is locked meanwhile, so that nobody publishes something older.
    fn publish(&self, entry: &Arc<Entry>, before: Standing, after: State) {
        let mut rows = lock(&self.rows);
        let woken = match (after.standing, after.due) {
            (Standing::Held, Some(due)) => rows.hold(entry, due),
            (Standing::Over, _) => {
                rows.remove(entry.owner);
                false
            }
            _ => false,
        };
        drop(rows);
        if woken {
            self.due.notify_one();
        }
        if before == after.standing {
            return;
        }
        match after.standing {
            Standing::Queued | Standing::Due => self.queued.notify_one(),
            Standing::Over => entry.over.notify_waiters(),
            Standing::Asking | Standing::Held => {}
        }
    }

    /// The claim of an id, while it is not over.
    pub(crate) fn find(&self, owner: Owner) -> Option<Arc<Entry>> {
        let rows = lock(&self.rows);
        let held = || rows.held.get(&owner).map(|(_, entry)| entry.clone());
        rows.asking.get(&owner).cloned().or_else(held)
    }

    /// All that ask or wait, in the order of their calls.
    pub(crate) fn asking(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<_> = lock(&self.rows).asking.values().cloned().collect();
        all.sort_unstable_by_key(|entry| entry.arrival);
        all
    }

    /// Those that stand in a queue, in the order of their calls.
    pub(crate) fn waiting(&self) -> Vec<Arc<Entry>> {
        self.standing(Standing::Queued)
    }

    /// Those whose calls are to go on, in the order of these.
    pub(crate) fn due_calls(&self) -> Vec<Arc<Entry>> {
        self.standing(Standing::Due)
    }

    fn standing(&self, standing: Standing) -> Vec<Arc<Entry>> {
        let mut all = self.asking();
        all.retain(|entry| lock(&entry.claim).standing() == standing);
        all
    }

    pub(crate) fn held(&self) -> Vec<Arc<Entry>> {
        let rows = lock(&self.rows);
        rows.held.values().map(|(_, entry)| entry.clone()).collect()
    }

    /// How many are held, and how many ask or wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let rows = lock(&self.rows);
        (rows.held.len(), rows.asking.len())
    }

    /// The holds for which something is to be done now.
    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<Entry>> {
        let rows = lock(&self.rows);
        let due = rows.due.range(..=(now, Owner::MAX));
        due.filter_map(|(_, owner)| rows.held.get(owner))
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// How long whoever renews may sleep; `None` until something is held. A timer may sleep through
    /// a suspend, so it is never long.
    pub(crate) fn sleep(&self, now: Moment) -> Option<Duration> {
        let mut rows = lock(&self.rows);
        let sleep = rows.due.first().map(|(due, _)| due.since(now).min(TICK));
        rows.wakes_at = sleep.map(|sleep| now + sleep);
        sleep
    }

    /// Looks at a claim without changing it.
    pub(crate) fn peek<T>(
        &self,
        entry: &Entry,
        look: impl FnOnce(MutexGuard<'_, Claim>) -> T,
    ) -> T {
        look(lock(&entry.claim))
    }
}

impl Rows {
    /// Keeps a hold by when it is due. Whether that is earlier than whoever renews would wake.
    fn hold(&mut self, entry: &Arc<Entry>, due: Moment) -> bool {
        let owner = entry.owner;
        self.asking.remove(&owner);
        if let Some((known, _)) = self.held.insert(owner, (due, entry.clone())) {
            self.due.remove(&(known, owner));
        }
        self.due.insert((due, owner));
        self.wakes_at.is_none_or(|wakes_at| due < wakes_at)
    }

    fn remove(&mut self, owner: Owner) {
        self.asking.remove(&owner);
        if let Some((due, _)) = self.held.remove(&owner) {
            self.due.remove(&(due, owner));
        }
    }
}
