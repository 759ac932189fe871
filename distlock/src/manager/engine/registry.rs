//! All acquisitions of a manager, each until it has ended, and the notifications of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::fencing::FencingToken;
use crate::protocol::acquisition::{Acquisition, AcquisitionState, Progress};
use crate::protocol::messages::{Acquire, OwnerNumber};
use crate::protocol::request::Request;
use crate::protocol::timing::MAX_WATCHDOG_SLEEP;
use crate::store::command::{Confirm, Downgrade, Release};
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;
use crate::util::notify::wait_until;

/// The acquisitions of a manager, ordered by owner id, so that a simulation can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    /// Wakes the watchdog when a hold becomes due earlier than expected.
    pub(crate) watchdog_notify: Notify,
    /// Wakes the queue checks when an acquisition is queued, or needs a poll of its call.
    pub(crate) queue_check_notify: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    acquiring: BTreeMap<OwnerNumber, Arc<Entry>>,
    held: BTreeMap<OwnerNumber, (BootInstant, Arc<Entry>)>,
    /// The holds, by the time at which each needs an action.
    due: BTreeSet<(BootInstant, OwnerNumber)>,
    /// The next wake-up of the watchdog; `None` while it works, or when nothing is held.
    wakes_at: Option<BootInstant>,
    last_sequence: u64,
}

/// The part of an acquisition that the registry indexes, and for which callers wait.
struct Snapshot {
    state: AcquisitionState,
    due: Option<BootInstant>,
    progress: Progress,
    is_confirmed: bool,
}

impl Snapshot {
    fn of(acquisition: &Acquisition) -> Self {
        Snapshot {
            state: acquisition.state(),
            due: acquisition.poll_timeout(),
            progress: acquisition.progress(),
            is_confirmed: acquisition.is_confirmed(),
        }
    }
}

/// An acquisition, shared by its call or holder and the tasks that work for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) owner: OwnerNumber,
    pub(crate) request: Arc<Request>,
    acquisition: Mutex<Acquisition>,
    /// The order of the calls: the first call acquires first, even after a reconnect.
    sequence: u64,
    /// Wakes the call that acquires or downgrades.
    pub(crate) changed: Notify,
    /// True if its last command, or the one in flight, uses a runtime connection.
    on_runtime_connection: AtomicBool,
    /// Wakes every task that waits for the end of the hold.
    pub(crate) ended: Notify,
    /// Wakes every task that waits for the confirmation of a short grant.
    pub(crate) confirmed: Notify,
    /// The number of bodies under the hold, which stop by themselves when it is lost.
    bodies: AtomicUsize,
    bodies_ended: Notify,
    /// True once its end was published.
    is_end_published: AtomicBool,
    /// True once the holder has finished its work and released the hold.
    is_completed: AtomicBool,
    /// Counts this acquisition while its key may be in the store, even beyond the safe deadline.
    _in_store: TaskTrackerToken,
}

impl Entry {
    fn new(
        owner: OwnerNumber,
        acquisition: Acquisition,
        sequence: u64,
        in_store: TaskTrackerToken,
    ) -> Arc<Self> {
        Arc::new(Entry {
            owner,
            request: acquisition.request().clone(),
            acquisition: Mutex::new(acquisition),
            sequence,
            changed: Notify::new(),
            on_runtime_connection: AtomicBool::new(false),
            ended: Notify::new(),
            confirmed: Notify::new(),
            bodies: AtomicUsize::new(0),
            bodies_ended: Notify::new(),
            is_end_published: AtomicBool::new(false),
            is_completed: AtomicBool::new(false),
            _in_store: in_store,
        })
    }

    /// Returns an acquisition that is not registered, for an owner id that no call here uses.
    pub(crate) fn unregistered(
        owner: OwnerNumber,
        acquisition: Acquisition,
        in_store: TaskTrackerToken,
    ) -> Arc<Self> {
        Self::new(owner, acquisition, 0, in_store)
    }

    /// Sets whether its command uses a runtime connection.
    pub(crate) fn set_on_runtime_connection(&self, on_runtime_connection: bool) {
        self.on_runtime_connection
            .store(on_runtime_connection, Ordering::Release);
    }

    pub(crate) fn is_on_runtime_connection(&self) -> bool {
        self.on_runtime_connection.load(Ordering::Acquire)
    }

    pub(crate) fn acquire_command(&self, wait: Duration) -> Acquire<'_> {
        Acquire {
            key: &self.request.key,
            kind: self.request.kind,
            owner: self.owner,
            timing: self.request.timing,
            durability: self.request.durability,
            wait,
            metadata: self.request.options.metadata(),
            once: self.request.once.as_ref(),
        }
    }

    pub(crate) fn confirm_command(&self) -> Confirm<'_> {
        Confirm {
            key: &self.request.key,
            kind: self.request.kind,
            owner: self.owner,
            timing: self.request.timing,
            durability: self.request.durability,
            once: self.request.once.as_ref(),
        }
    }

    /// Returns the command that downgrades the write hold with this token.
    pub(crate) fn downgrade_command(&self, token: FencingToken) -> Downgrade<'_> {
        Downgrade {
            key: &self.request.key,
            owner: self.owner,
            token,
            timing: self.request.timing,
            durability: self.request.durability,
        }
    }

    /// Returns the release command. The key stays taken for `keep_for`.
    pub(crate) fn release_command(&self, keep_for: Duration) -> Release<'_> {
        let acquisition = lock(&self.acquisition);
        Release {
            key: &self.request.key,
            kind: self.request.kind,
            owner: self.owner,
            keep_for,
            after_unanswered: acquisition.is_after_unanswered(),
            success: acquisition
                .succeeded_under()
                .and_then(|token| Some((self.request.once.as_ref()?, token))),
        }
    }

    /// Reads the acquisition without changing it.
    pub(crate) fn peek<T>(&self, read: impl FnOnce(&Acquisition) -> T) -> T {
        read(&lock(&self.acquisition))
    }

    /// Counts a body until the result is dropped.
    pub(crate) fn start_body(&self) -> RunningBody<'_> {
        self.bodies.fetch_add(1, Ordering::AcqRel);
        RunningBody(self)
    }

    /// Marks the end as published. Returns true the first time.
    pub(crate) fn mark_end_published(&self) -> bool {
        !self.is_end_published.swap(true, Ordering::AcqRel)
    }

    /// Marks the work under the hold as ended.
    pub(crate) fn mark_completed(&self) {
        self.is_completed.store(true, Ordering::Release);
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.is_completed.load(Ordering::Acquire)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.bodies.load(Ordering::Acquire) > 0
    }

    /// Waits until no body runs under the hold.
    pub(crate) async fn wait_for_bodies(&self) {
        wait_until(&self.bodies_ended, || (!self.has_body()).then_some(())).await;
    }
}

/// A running body.
#[derive(Debug)]
pub(crate) struct RunningBody<'a>(&'a Entry);

impl Drop for RunningBody<'_> {
    fn drop(&mut self) {
        if self.0.bodies.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.bodies_ended.notify_waiters();
        }
    }
}

impl Registry {
    /// Adds an acquisition for a call that is about to acquire.
    pub(crate) fn register(
        &self,
        owner: OwnerNumber,
        acquisition: Acquisition,
        in_store: TaskTrackerToken,
    ) -> Arc<Entry> {
        let mut inner = lock(&self.inner);
        inner.last_sequence += 1;
        let entry = Entry::new(owner, acquisition, inner.last_sequence, in_store);
        inner.acquiring.insert(owner, entry.clone());
        entry
    }

    /// Runs `change` on an acquisition, updates the index, and wakes every task that waits for
    /// something of it. Every change of an acquisition uses this function.
    pub(crate) fn update<T>(
        &self,
        entry: &Arc<Entry>,
        change: impl FnOnce(&mut Acquisition) -> T,
    ) -> T {
        let mut acquisition = lock(&entry.acquisition);
        let before = Snapshot::of(&acquisition);
        let result = change(&mut acquisition);
        let after = Snapshot::of(&acquisition);
        if (before.state, before.due) != (after.state, after.due) {
            self.update_index(entry, before.state, &after);
        }
        // A call starts its commands itself.
        if before.progress != after.progress && !acquisition.is_in_flight() {
            entry.changed.notify_one();
        }
        if !before.progress.has_stage_of(after.progress) {
            entry.ended.notify_waiters();
        }
        if !before.is_confirmed && after.is_confirmed {
            entry.confirmed.notify_waiters();
        }
        result
    }

    /// The caller has locked the acquisition, so no other thread indexes an older state.
    fn update_index(&self, entry: &Arc<Entry>, before: AcquisitionState, after: &Snapshot) {
        let mut inner = lock(&self.inner);
        let must_wake = match (after.state, after.due) {
            (AcquisitionState::Held, Some(due)) => inner.insert_hold(entry, due),
            (AcquisitionState::Ended, _) => {
                inner.remove(entry.owner);
                false
            }
            _ => false,
        };
        drop(inner);
        if must_wake {
            self.watchdog_notify.notify_one();
        }
        let is_checked = matches!(
            after.state,
            AcquisitionState::Queued | AcquisitionState::NeedsPoll
        );
        if is_checked && before != after.state {
            self.queue_check_notify.notify_one();
        }
    }

    /// Returns the acquisition of an owner id, unless it has ended.
    pub(crate) fn find(&self, owner: OwnerNumber) -> Option<Arc<Entry>> {
        let inner = lock(&self.inner);
        let held = || inner.held.get(&owner).map(|(_, entry)| entry.clone());
        inner.acquiring.get(&owner).cloned().or_else(held)
    }

    /// Returns the acquisitions that acquire or wait, in the order of their calls.
    pub(crate) fn acquiring(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<_> = lock(&self.inner).acquiring.values().cloned().collect();
        all.sort_unstable_by_key(|entry| entry.sequence);
        all
    }

    /// Returns the queued acquisitions, in the order of their calls.
    pub(crate) fn queued(&self) -> Vec<Arc<Entry>> {
        self.acquiring_with(AcquisitionState::Queued)
    }

    /// Returns the acquisitions that need a poll of their call, in the order of the calls.
    pub(crate) fn needing_poll(&self) -> Vec<Arc<Entry>> {
        self.acquiring_with(AcquisitionState::NeedsPoll)
    }

    fn acquiring_with(&self, state: AcquisitionState) -> Vec<Arc<Entry>> {
        let mut all = self.acquiring();
        all.retain(|entry| lock(&entry.acquisition).state() == state);
        all
    }

    /// Returns all acquisitions: those that acquire, then those that hold.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.acquiring().into_iter().chain(self.held())
    }

    pub(crate) fn held(&self) -> Vec<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner
            .held
            .values()
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Returns the number of holds, and of acquisitions that acquire or wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = lock(&self.inner);
        (inner.held.len(), inner.acquiring.len())
    }

    /// Returns the holds that need an action now.
    pub(crate) fn due_holds(&self, now: BootInstant) -> Vec<Arc<Entry>> {
        let inner = lock(&self.inner);
        let due = inner.due.range(..=(now, OwnerNumber::MAX));
        due.filter_map(|(_, owner)| inner.held.get(owner))
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Returns how long the watchdog may sleep; `None` if nothing is held. The result is at most
    /// `MAX_WATCHDOG_SLEEP`, because a timer may sleep through a suspend.
    pub(crate) fn plan_sleep(&self, now: BootInstant) -> Option<Duration> {
        let mut inner = lock(&self.inner);
        let sleep = inner
            .due
            .first()
            .map(|(due, _)| due.since(now).min(MAX_WATCHDOG_SLEEP));
        inner.wakes_at = sleep.map(|sleep| now + sleep);
        sleep
    }
}

impl Inner {
    /// Stores a hold by its due time. Returns true if the watchdog must be woken for it.
    fn insert_hold(&mut self, entry: &Arc<Entry>, due: BootInstant) -> bool {
        let owner = entry.owner;
        self.acquiring.remove(&owner);
        if let Some((previous_due, _)) = self.held.insert(owner, (due, entry.clone())) {
            self.due.remove(&(previous_due, owner));
        }
        self.due.insert((due, owner));
        self.wakes_at.is_none_or(|wakes_at| due < wakes_at)
    }

    fn remove(&mut self, owner: OwnerNumber) {
        self.acquiring.remove(&owner);
        if let Some((due, _)) = self.held.remove(&owner) {
            self.due.remove(&(due, owner));
        }
    }
}
