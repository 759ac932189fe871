//! All acquisitions of a manager, each until it has ended, and the notifications of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::protocol::acquisition::Acquisition;
use crate::protocol::acquisition::AcquisitionState::{
    self, Acquiring, Ended, Held, Queued, Releasing,
};
use crate::protocol::messages::OwnerId;
use crate::protocol::outcome::Report;
use crate::protocol::request::Request;
use crate::protocol::timing::MAX_WATCHDOG_SLEEP;
use crate::util::clock::BootInstant;
use crate::util::sync::lock;
use crate::util::sync::wait_until;

/// Upper limit of releases that wait for the store, for others to end, or for their time. Locks
/// beyond it end with their TTL.
const MAX_BACKLOG: usize = 65_536;

/// Upper limit of releases in flight. More would delay commands for which callers wait.
const MAX_RELEASES_IN_FLIGHT: usize = 256;

/// The acquisitions of a manager, ordered by owner id, so that a simulation can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    index: Mutex<Index>,
    /// The number of acquisitions that are being released.
    releasing: AtomicUsize,
    /// The number of those whose release is in flight.
    in_flight: AtomicUsize,
    /// Notified when the last of these has ended.
    released: Notify,
    /// Wakes the driver when an acquisition is due earlier than expected.
    pub(crate) driver_notify: Notify,
    /// Wakes the queue checks when an acquisition is queued.
    pub(crate) queue_check_notify: Notify,
}

#[derive(Debug, Default)]
struct Index {
    entries: BTreeMap<OwnerId, Arc<RegistryEntry>>,
    /// When each acquisition needs attention, or earlier.
    due: BTreeSet<(BootInstant, OwnerId)>,
    /// When a failed acquire may be repeated.
    retries: BTreeSet<(BootInstant, OwnerId)>,
    /// When a release that is not in flight may be sent.
    releases: BTreeSet<(BootInstant, OwnerId)>,
    /// The next wake-up of the driver; `None` while it works, or if nothing is due.
    wakes_at: Option<BootInstant>,
    last_sequence: u64,
}

/// That for which tasks wait: a state, the reply to a command, a confirmation or a downgrade.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    state: AcquisitionState,
    awaited: Option<u32>,
    is_confirmed: bool,
}

impl Progress {
    fn of(acquisition: &Acquisition) -> Self {
        Progress {
            state: acquisition.state(),
            awaited: acquisition.awaited(),
            is_confirmed: acquisition.is_confirmed(),
        }
    }

    /// Returns true while a release is in flight.
    fn is_release(&self) -> bool {
        self.state == Releasing && self.awaited.is_some()
    }
}

/// The times by which an acquisition is in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Indexed {
    due: Option<BootInstant>,
    retry: Option<BootInstant>,
    release: Option<BootInstant>,
    /// Set once it has ended, and another acquisition may have its owner id.
    is_removed: bool,
}

impl Indexed {
    fn of(acquisition: &Acquisition, state: AcquisitionState) -> Self {
        let (repeat, is_release) = (acquisition.poll_repeat(), state == Releasing);
        Indexed {
            due: acquisition.poll_timeout(),
            retry: repeat.filter(|_| !is_release),
            release: repeat.filter(|_| is_release),
            is_removed: state == Ended,
        }
    }

    /// Returns true if the index has to change to `wanted`. An acquisition that is due later than
    /// it was stays where it is until then, because most have ended before.
    fn is_outdated(&self, wanted: &Indexed) -> bool {
        let is_due_later = self.due.is_some_and(|indexed| wanted.due > Some(indexed));
        let due = if is_due_later { self.due } else { wanted.due };
        *self != Indexed { due, ..*wanted }
    }
}

/// An acquisition, shared by its call or holder and the tasks that work for it.
#[derive(Debug)]
pub(crate) struct RegistryEntry {
    pub(crate) owner: OwnerId,
    pub(crate) request: Arc<Request>,
    state: Mutex<(Acquisition, Indexed)>,
    /// The acquisition's [`AcquisitionState`], readable without its mutex.
    last_state: AtomicU8,
    /// The order of the calls: the first call acquires first, even after a reconnect.
    sequence: u64,
    /// Wakes the call, and the tasks that wait for a reply.
    pub(crate) changed: Notify,
    /// Wakes every task that waits for the end of the hold.
    pub(crate) ended: Notify,
    /// Wakes every task that waits for the confirmation of a short grant.
    pub(crate) confirmed: Notify,
    /// The number of bodies under the hold, which stop by themselves when it is lost.
    bodies: AtomicUsize,
    bodies_ended: Notify,
    /// Locked while reports are published, so that they are in order on every thread.
    reporting: Mutex<()>,
    /// True once its end was published.
    is_end_published: AtomicBool,
    /// True once the holder has finished its work and released the hold.
    is_completed: AtomicBool,
}

impl RegistryEntry {
    /// Reads the acquisition without changing it.
    pub(crate) fn peek<T>(&self, read: impl FnOnce(&Acquisition) -> T) -> T {
        read(&lock(&self.state).0)
    }

    /// Wakes every task that waits for this change.
    fn notify(&self, before: Progress, after: Progress) {
        self.changed.notify_waiters();
        if before.is_confirmed != after.is_confirmed {
            self.confirmed.notify_waiters();
        }
        // A downgrade ends the write hold, which was confirmed.
        let was_downgraded = before.is_confirmed && !after.is_confirmed;
        if before.state == Held && (after.state != Held || was_downgraded) {
            self.ended.notify_waiters();
        }
    }

    /// Publishes, once and in order, what has happened to the hold and its release.
    pub(crate) fn publish_reports(&self, publish: impl Fn(Report)) {
        let _in_order = lock(&self.reporting);
        let next = || lock(&self.state).0.poll_report();
        while let Some(report) = next() {
            publish(report);
        }
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
pub(crate) struct RunningBody<'a>(&'a RegistryEntry);

impl Drop for RunningBody<'_> {
    fn drop(&mut self) {
        if self.0.bodies.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.bodies_ended.notify_waiters();
        }
    }
}

impl Registry {
    /// Adds an acquisition. Does nothing if there is one with its owner id, which is random.
    pub(crate) fn register(&self, owner: OwnerId, acquisition: Acquisition) -> Arc<RegistryEntry> {
        let state = acquisition.state();
        let mut index = lock(&self.index);
        let is_new = !index.entries.contains_key(&owner);
        let mut indexed = Indexed::default();
        let must_wake =
            is_new && index.change(owner, &mut indexed, Indexed::of(&acquisition, state));
        indexed.is_removed = !is_new;
        index.last_sequence += 1;
        let entry = Arc::new(RegistryEntry {
            owner,
            request: acquisition.request().clone(),
            state: Mutex::new((acquisition, indexed)),
            last_state: AtomicU8::new(state as u8),
            sequence: index.last_sequence,
            changed: Notify::new(),
            ended: Notify::new(),
            confirmed: Notify::new(),
            bodies: AtomicUsize::new(0),
            bodies_ended: Notify::new(),
            reporting: Mutex::new(()),
            is_end_published: AtomicBool::new(false),
            is_completed: AtomicBool::new(false),
        });
        if is_new {
            index.entries.insert(owner, entry.clone());
            self.releasing
                .fetch_add(usize::from(state == Releasing), Ordering::AcqRel);
        }
        drop(index);
        if must_wake {
            self.driver_notify.notify_one();
        }
        entry
    }

    /// Runs `change` on an acquisition, updates the index, and wakes every task that waits for
    /// something of it. Every change uses this function or `drive`, except that a report is taken.
    pub(crate) fn update<T>(
        &self,
        entry: &RegistryEntry,
        change: impl FnOnce(&mut Acquisition) -> T,
    ) -> T {
        self.apply(entry, Indexed::is_outdated, change)
    }

    /// Does the same for an acquisition that is due by the index.
    pub(crate) fn drive<T>(
        &self,
        entry: &RegistryEntry,
        change: impl FnOnce(&mut Acquisition) -> T,
    ) -> T {
        self.apply(entry, |indexed, wanted| indexed != wanted, change)
    }

    fn apply<T>(
        &self,
        entry: &RegistryEntry,
        must_index: impl FnOnce(&Indexed, &Indexed) -> bool,
        change: impl FnOnce(&mut Acquisition) -> T,
    ) -> T {
        let mut state = lock(&entry.state);
        let (acquisition, indexed) = &mut *state;
        let before = Progress::of(acquisition);
        let result = change(acquisition);
        let after = Progress::of(acquisition);
        let wanted = Indexed::of(acquisition, after.state);
        // The acquisition stays locked, so no other thread indexes an older state.
        if !indexed.is_removed
            && must_index(indexed, &wanted)
            && lock(&self.index).change(entry.owner, indexed, wanted)
        {
            self.driver_notify.notify_one();
        }
        if before.state != after.state {
            entry.last_state.store(after.state as u8, Ordering::Release);
            if after.state == Releasing {
                self.releasing.fetch_add(1, Ordering::AcqRel);
            } else if before.state == Releasing
                && self.releasing.fetch_sub(1, Ordering::AcqRel) == 1
            {
                self.released.notify_waiters();
            }
        }
        if before.is_release() != after.is_release() {
            if after.is_release() {
                self.in_flight.fetch_add(1, Ordering::AcqRel);
            } else if self.in_flight.fetch_sub(1, Ordering::AcqRel) >= MAX_RELEASES_IN_FLIGHT {
                self.driver_notify.notify_one();
            }
        }
        drop(state);
        if before != after {
            entry.notify(before, after);
            if after.state == Queued {
                self.queue_check_notify.notify_one();
            }
        }
        result
    }

    /// Returns the acquisition of an owner id, unless it has ended.
    pub(crate) fn find(&self, owner: OwnerId) -> Option<Arc<RegistryEntry>> {
        lock(&self.index).entries.get(&owner).cloned()
    }

    /// Returns all acquisitions, in the order of their calls.
    pub(crate) fn all(&self) -> Vec<Arc<RegistryEntry>> {
        self.all_in(|_| true)
    }

    /// Returns the acquisitions in some states, in the order of their calls.
    fn all_in(&self, is_wanted: impl Fn(u8) -> bool) -> Vec<Arc<RegistryEntry>> {
        let index = lock(&self.index);
        let wanted = index
            .entries
            .values()
            .filter(|entry| is_wanted(entry.last_state.load(Ordering::Acquire)));
        let mut wanted: Vec<_> = wanted.cloned().collect();
        drop(index);
        wanted.sort_unstable_by_key(|entry| entry.sequence);
        wanted
    }

    pub(crate) fn acquiring(&self) -> Vec<Arc<RegistryEntry>> {
        self.all_in(|state| state == Acquiring as u8 || state == Queued as u8)
    }

    pub(crate) fn queued(&self) -> Vec<Arc<RegistryEntry>> {
        self.all_in(|state| state == Queued as u8)
    }

    pub(crate) fn held(&self) -> Vec<Arc<RegistryEntry>> {
        self.all_in(|state| state == Held as u8)
    }

    /// Returns the number of holds, and of acquisitions that acquire or wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.held().len(), self.acquiring().len())
    }

    /// Returns the number of acquisitions that are being released.
    pub(crate) fn releasing(&self) -> usize {
        self.releasing.load(Ordering::Acquire)
    }

    /// Returns how many more releases may be in flight, besides those that holders wait for.
    pub(crate) fn room(&self) -> usize {
        MAX_RELEASES_IN_FLIGHT.saturating_sub(self.in_flight.load(Ordering::Acquire))
    }

    /// Waits until nothing is being released.
    pub(crate) async fn released(&self) {
        wait_until(&self.released, || (self.releasing() == 0).then_some(())).await;
    }

    /// Returns true if the store has nothing of this manager.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.index).entries.is_empty()
    }

    /// Returns the acquisitions that need attention now, in the order of their calls.
    pub(crate) fn due(&self, now: BootInstant) -> Vec<Arc<RegistryEntry>> {
        lock(&self.index).up_to(now, |index| &index.due, usize::MAX)
    }

    /// Returns the acquires to repeat now, and as many releases as may be sent.
    pub(crate) fn due_repeats(&self, now: BootInstant) -> Vec<Arc<RegistryEntry>> {
        let (index, room) = (lock(&self.index), self.room());
        let mut due = index.up_to(now, |index| &index.retries, usize::MAX);
        due.extend(index.up_to(now, |index| &index.releases, room));
        due
    }

    /// Returns true if a release may be sent at once: there is room, and no other is due.
    pub(crate) fn may_release(&self, now: BootInstant) -> bool {
        let is_due = |(due, _): &(BootInstant, _)| *due <= now;
        self.room() > 0 && !lock(&self.index).releases.first().is_some_and(is_due)
    }

    /// Returns the oldest release, if more than `MAX_BACKLOG` wait.
    pub(crate) fn surplus(&self) -> Option<Arc<RegistryEntry>> {
        let index = lock(&self.index);
        let (_, owner) = index
            .releases
            .first()
            .filter(|_| index.releases.len() > MAX_BACKLOG)?;
        index.entries.get(owner).cloned()
    }

    /// Returns how long the driver may sleep; `None` if nothing is due. What is repeated counts
    /// only if it may be sent. The result is at most `MAX_WATCHDOG_SLEEP`, because a timer may
    /// sleep through a suspend.
    pub(crate) fn plan_sleep(&self, now: BootInstant, may_repeat: bool) -> Option<Duration> {
        let may_release = may_repeat && self.room() > 0;
        let mut index = lock(&self.index);
        let due = [
            index.due.first(),
            index.retries.first().filter(|_| may_repeat),
            index.releases.first().filter(|_| may_release),
        ];
        let next = due.into_iter().flatten().map(|(due, _)| *due).min();
        let sleep = next.map(|next| next.since(now).min(MAX_WATCHDOG_SLEEP));
        index.wakes_at = sleep.map(|sleep| now + sleep);
        sleep
    }
}

impl Index {
    /// Changes the times of an acquisition, and removes one that has ended. Returns true if the
    /// driver must be woken for them.
    fn change(&mut self, owner: OwnerId, indexed: &mut Indexed, wanted: Indexed) -> bool {
        let moved = [
            (&mut self.due, indexed.due, wanted.due),
            (&mut self.retries, indexed.retry, wanted.retry),
            (&mut self.releases, indexed.release, wanted.release),
        ];
        let mut earliest: Option<BootInstant> = None;
        for (times, before, after) in moved {
            if before == after {
                continue;
            }
            if let Some(before) = before {
                times.remove(&(before, owner));
            }
            if let Some(after) = after {
                times.insert((after, owner));
                earliest = Some(earliest.map_or(after, |earliest| earliest.min(after)));
            }
        }
        if wanted.is_removed {
            // Its caller has another reference.
            self.entries.remove(&owner);
        }
        *indexed = wanted;
        earliest.is_some_and(|due| self.wakes_at.is_none_or(|wakes_at| due < wakes_at))
    }

    fn up_to(
        &self,
        now: BootInstant,
        times: impl Fn(&Self) -> &BTreeSet<(BootInstant, OwnerId)>,
        limit: usize,
    ) -> Vec<Arc<RegistryEntry>> {
        let due = times(self).range(..=(now, OwnerId(u64::MAX))).take(limit);
        let mut due: Vec<_> = due
            .filter_map(|(_, owner)| self.entries.get(owner).cloned())
            .collect();
        due.sort_unstable_by_key(|entry| entry.sequence);
        due
    }
}
