//! All acquisitions of a manager, each until it has ended, and the notifications of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::{Acquire, Owner};
use crate::protocol::request::Request;
use crate::protocol::timing::MAX_WATCHDOG_SLEEP;
use crate::store::command::{Confirm, Release};
use crate::util::clock::Moment;
use crate::util::mutex::lock;
use crate::util::notified::until;

/// The acquisitions of a manager, ordered by owner id, so that a simulation can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Mutex<Rows>,
    /// Wakes the watchdog when a hold becomes due earlier than expected.
    pub(crate) due: Notify,
    /// Wakes the queue checks when an acquisition is queued, or its call is to continue.
    pub(crate) queued: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    asking: BTreeMap<Owner, Arc<Entry>>,
    held: BTreeMap<Owner, (Moment, Arc<Entry>)>,
    /// The holds, by the time at which each needs an action.
    due: BTreeSet<(Moment, Owner)>,
    /// The next wake-up of the watchdog; `None` while it works, or when nothing is held.
    wakes_at: Option<Moment>,
    arrivals: u64,
}

/// The published state of an acquisition.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    standing: AcquisitionState,
    due: Option<Moment>,
}

impl State {
    fn of(acquisition: &Acquisition) -> Self {
        State {
            standing: acquisition.state(),
            due: acquisition.poll_timeout(),
        }
    }
}

/// An acquisition, shared by its call or holder and the tasks that work for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) owner: Owner,
    pub(crate) request: Arc<Request>,
    acquisition: Mutex<Acquisition>,
    /// Its place among all calls: the first call acquires first, also after a reconnect.
    arrival: u64,
    /// Wakes the call that acquires.
    pub(crate) changed: Notify,
    /// True if its last command, or the one in flight, uses a runtime connection.
    on_lane: AtomicBool,
    /// Wakes every task that waits for the end of the hold.
    pub(crate) over: Notify,
    /// Wakes every task that waits for the confirmation of a short grant.
    pub(crate) confirmed: Notify,
    /// The number of bodies under the hold, which stop by themselves when it is lost.
    bodies: AtomicUsize,
    without_body: Notify,
    /// True once its end was published.
    has_ended: AtomicBool,
    /// True once its holder has released it, after the end of its work.
    is_completed: AtomicBool,
    /// Counts it while its key may be in the store, even beyond the safe deadline.
    _in_store: TaskTrackerToken,
}

impl Entry {
    fn new(
        owner: Owner,
        acquisition: Acquisition,
        arrival: u64,
        in_store: TaskTrackerToken,
    ) -> Arc<Self> {
        Arc::new(Entry {
            owner,
            request: acquisition.request().clone(),
            acquisition: Mutex::new(acquisition),
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

    /// Returns an acquisition that is in no table, for an id that no call here uses.
    pub(crate) fn unknown(
        owner: Owner,
        acquisition: Acquisition,
        in_store: TaskTrackerToken,
    ) -> Arc<Self> {
        Self::new(owner, acquisition, 0, in_store)
    }

    /// Sets whether its command uses a runtime connection.
    pub(crate) fn asks_on_lane(&self, on_lane: bool) {
        self.on_lane.store(on_lane, Ordering::Release);
    }

    pub(crate) fn is_on_lane(&self) -> bool {
        self.on_lane.load(Ordering::Acquire)
    }

    pub(crate) fn ask(&self, wait: Duration) -> Acquire<'_> {
        Acquire {
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

    /// Returns the release command. The key stays taken for `keep`.
    pub(crate) fn release(&self, keep: Duration) -> Release<'_> {
        Release {
            key: &self.request.key,
            owner: self.owner,
            keep,
        }
    }

    /// Counts a body until the result is dropped.
    pub(crate) fn body(&self) -> RunningBody<'_> {
        self.bodies.fetch_add(1, Ordering::AcqRel);
        RunningBody(self)
    }

    /// Marks the end as published. Returns true the first time.
    pub(crate) fn mark_ended(&self) -> bool {
        !self.has_ended.swap(true, Ordering::AcqRel)
    }

    /// Marks the work under the hold as ended.
    pub(crate) fn complete(&self) {
        self.is_completed.store(true, Ordering::Release);
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.is_completed.load(Ordering::Acquire)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.bodies.load(Ordering::Acquire) > 0
    }

    /// Waits until no body runs under the hold.
    pub(crate) async fn without_body(&self) {
        until(&self.without_body, || (!self.has_body()).then_some(())).await;
    }
}

/// A running body.
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
    /// Adds an acquisition for a call that is about to acquire.
    pub(crate) fn enter(
        &self,
        owner: Owner,
        acquisition: Acquisition,
        in_store: TaskTrackerToken,
    ) -> Arc<Entry> {
        let mut rows = lock(&self.rows);
        rows.arrivals += 1;
        let entry = Entry::new(owner, acquisition, rows.arrivals, in_store);
        rows.asking.insert(owner, entry.clone());
        entry
    }

    /// Runs `act` on an acquisition, and publishes what changed. Every change of an acquisition
    /// uses this function.
    pub(crate) fn with<T>(&self, entry: &Arc<Entry>, act: impl FnOnce(&mut Acquisition) -> T) -> T {
        let mut acquisition = lock(&entry.acquisition);
        let before = State::of(&acquisition);
        let was_confirmed = acquisition.is_confirmed();
        let result = act(&mut acquisition);
        self.update(entry, &acquisition, before, was_confirmed);
        result
    }

    fn update(
        &self,
        entry: &Arc<Entry>,
        acquisition: &Acquisition,
        before: State,
        was_confirmed: bool,
    ) {
        let after = State::of(acquisition);
        if before != after {
            self.publish(entry, before.standing, after);
        }
        if before.standing == AcquisitionState::Held && !was_confirmed && acquisition.is_confirmed()
        {
            entry.confirmed.notify_waiters();
        }
    }

    /// The caller has locked the acquisition, so that no other thread publishes an older state.
    fn publish(&self, entry: &Arc<Entry>, before: AcquisitionState, after: State) {
        let mut rows = lock(&self.rows);
        let woken = match (after.standing, after.due) {
            (AcquisitionState::Held, Some(due)) => rows.hold(entry, due),
            (AcquisitionState::Ended, _) => {
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
            AcquisitionState::Queued | AcquisitionState::AwaitsCall => self.queued.notify_one(),
            AcquisitionState::Ended => entry.over.notify_waiters(),
            AcquisitionState::Acquiring | AcquisitionState::Held => {}
        }
    }

    /// Returns the acquisition of an id, unless it has ended.
    pub(crate) fn find(&self, owner: Owner) -> Option<Arc<Entry>> {
        let rows = lock(&self.rows);
        let held = || rows.held.get(&owner).map(|(_, entry)| entry.clone());
        rows.asking.get(&owner).cloned().or_else(held)
    }

    /// Returns the acquisitions that acquire or wait, in the order of their calls.
    pub(crate) fn asking(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<_> = lock(&self.rows).asking.values().cloned().collect();
        all.sort_unstable_by_key(|entry| entry.arrival);
        all
    }

    /// Returns the queued acquisitions, in the order of their calls.
    pub(crate) fn waiting(&self) -> Vec<Arc<Entry>> {
        self.standing(AcquisitionState::Queued)
    }

    /// Returns the acquisitions with a call that is to continue, in the order of the calls.
    pub(crate) fn due_calls(&self) -> Vec<Arc<Entry>> {
        self.standing(AcquisitionState::AwaitsCall)
    }

    fn standing(&self, standing: AcquisitionState) -> Vec<Arc<Entry>> {
        let mut all = self.asking();
        all.retain(|entry| lock(&entry.acquisition).state() == standing);
        all
    }

    pub(crate) fn held(&self) -> Vec<Arc<Entry>> {
        let rows = lock(&self.rows);
        rows.held.values().map(|(_, entry)| entry.clone()).collect()
    }

    /// Returns the number of holds, and of acquisitions that acquire or wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let rows = lock(&self.rows);
        (rows.held.len(), rows.asking.len())
    }

    /// Returns the holds that need an action now.
    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<Entry>> {
        let rows = lock(&self.rows);
        let due = rows.due.range(..=(now, Owner::MAX));
        due.filter_map(|(_, owner)| rows.held.get(owner))
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Returns how long the watchdog may sleep; `None` if nothing is held. The result is at most
    /// `MAX_WATCHDOG_SLEEP`, because a timer may sleep through a suspend.
    pub(crate) fn sleep(&self, now: Moment) -> Option<Duration> {
        let mut rows = lock(&self.rows);
        let sleep = rows
            .due
            .first()
            .map(|(due, _)| due.since(now).min(MAX_WATCHDOG_SLEEP));
        rows.wakes_at = sleep.map(|sleep| now + sleep);
        sleep
    }

    /// Reads an acquisition without changing it.
    pub(crate) fn peek<T>(
        &self,
        entry: &Entry,
        look: impl FnOnce(MutexGuard<'_, Acquisition>) -> T,
    ) -> T {
        look(lock(&entry.acquisition))
    }
}

impl Rows {
    /// Stores a hold by its due time. Returns true if the watchdog must be woken for it.
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
