//! Releases that wait to be sent. However many there are, their load on the store and their memory
//! in this process are bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::key::LockKey;
use crate::manager::engine::registry::Entry;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::messages::OwnerNumber;
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// Upper limit of releases in flight. More would delay commands for which callers wait.
const MAX_IN_FLIGHT: usize = 256;

/// Upper limit of releases kept while the store cannot be reached. Locks beyond it end with their
/// lease.
const MAX_BACKLOG: usize = 65_536;

/// A pending release of an acquisition.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) entry: Arc<Entry>,
    /// Receives the result of the first attempt.
    pub(crate) result_sender: Option<oneshot::Sender<ReleaseResult>>,
    /// The time of the next attempt.
    pub(crate) due: BootInstant,
    /// True until the first attempt has been made.
    pub(crate) is_first: bool,
    /// Makes a shutdown wait for the release.
    pub(crate) _in_flight: TaskTrackerToken,
}

/// The result of the first attempt to release, as the holder receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseResult {
    /// No loss is known: the store has replied, or the release continues in the background.
    NoLossFound,
    /// According to the store, this client no longer held the lock.
    NotHeld,
}

/// All pending releases of a manager.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queues: Mutex<Queues>,
    /// Releases that their holders send themselves.
    by_holders: Mutex<BTreeMap<OwnerNumber, PendingRelease>>,
    /// Wakes the task that retries releases.
    pub(crate) retry_notify: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    in_flight: usize,
    /// Releases never attempted, which wait for others to end.
    fresh: VecDeque<PendingRelease>,
    /// Releases that wait for the store, or for their time.
    retries: VecDeque<PendingRelease>,
    abandoned: Option<Abandoned>,
}

/// The number of releases abandoned since the last report, and the key of one of them.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) releases: usize,
    pub(crate) key: LockKey,
    pub(crate) lock: Cow<'static, str>,
    /// Those of calls that run at most once, whose success may be recorded or not.
    pub(crate) once_calls: Vec<Arc<Entry>>,
}

impl Backlog {
    /// Returns the release if it may start now. Otherwise it waits for one in flight to end.
    pub(crate) fn try_start(&self, release: PendingRelease) -> Option<PendingRelease> {
        let mut queues = lock(&self.queues);
        if queues.in_flight >= MAX_IN_FLIGHT {
            queues.fresh.push_back(release);
            queues.abandon_surplus();
            return None;
        }
        queues.in_flight += 1;
        Some(release)
    }

    /// Counts a release as in flight, even beyond `MAX_IN_FLIGHT`. The caller starts it at once,
    /// because its holder waits for it.
    pub(crate) fn count_in_flight(&self) {
        lock(&self.queues).in_flight += 1;
    }

    /// Stores a release that its holder sends, in case the holder stops running.
    pub(crate) fn assign_to_holder(&self, release: PendingRelease) {
        lock(&self.by_holders).insert(release.entry.owner, release);
    }

    /// Removes a release that its holder was to send. Only the first call gets it.
    pub(crate) fn take_from_holder(&self, owner: OwnerNumber) -> Option<PendingRelease> {
        lock(&self.by_holders).remove(&owner)
    }

    /// Schedules the repeat of a release that is not in flight.
    pub(crate) fn schedule(&self, release: PendingRelease) {
        let mut queues = lock(&self.queues);
        queues.retries.push_back(release);
        queues.abandon_surplus();
        drop(queues);
        self.retry_notify.notify_one();
    }

    /// Schedules a retry. Returns the next waiting release, if `store_responds`.
    pub(crate) fn retry_later(
        &self,
        release: PendingRelease,
        store_responds: bool,
    ) -> Option<PendingRelease> {
        let mut queues = lock(&self.queues);
        queues.retries.push_back(release);
        queues.abandon_surplus();
        let next = queues.next(store_responds);
        drop(queues);
        self.retry_notify.notify_one();
        next
    }

    /// Ends a release, and returns the next waiting one.
    pub(crate) fn finish(&self) -> Option<PendingRelease> {
        lock(&self.queues).next(true)
    }

    /// Abandons a release. Returns the next waiting one, if `store_responds`.
    pub(crate) fn abandon(
        &self,
        release: &PendingRelease,
        store_responds: bool,
    ) -> Option<PendingRelease> {
        let mut queues = lock(&self.queues);
        queues.abandon(release);
        let next = queues.next(store_responds);
        drop(queues);
        self.retry_notify.notify_one();
        next
    }

    pub(crate) fn count(&self) -> usize {
        let queues = lock(&self.queues);
        let by_holders = lock(&self.by_holders).len();
        queues.in_flight + queues.fresh.len() + queues.retries.len() + by_holders
    }

    /// Returns true if no work is left, apart from releases in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let queues = lock(&self.queues);
        // Releases in flight start fresh ones when they end.
        let waits_for_slot = queues.in_flight == 0 && !queues.fresh.is_empty();
        queues.retries.is_empty() && !waits_for_slot && queues.abandoned.is_none()
    }

    /// Starts as many due releases as the limit allows, those never attempted first.
    pub(crate) fn start_due(&self, now: BootInstant) -> Vec<PendingRelease> {
        lock(&self.queues).start_due(now)
    }

    /// Abandons releases of expired state. Returns all abandoned since the last call.
    pub(crate) fn sweep(&self, has_expired: impl Fn(&PendingRelease) -> bool) -> Option<Abandoned> {
        let mut queues = lock(&self.queues);
        let Queues { fresh, retries, .. } = &mut *queues;
        let mut expired_queues = Vec::new();
        for queue in [retries, fresh] {
            let (expired, remaining): (VecDeque<_>, _) =
                std::mem::take(queue).into_iter().partition(&has_expired);
            *queue = remaining;
            expired_queues.push(expired);
        }
        for release in expired_queues.iter().flatten() {
            queues.abandon(release);
        }
        queues.abandoned.take()
    }
}

impl Queues {
    fn next(&mut self, store_responds: bool) -> Option<PendingRelease> {
        let next = (store_responds && self.in_flight <= MAX_IN_FLIGHT)
            .then(|| self.fresh.pop_front())
            .flatten();
        if next.is_none() {
            self.in_flight -= 1;
        }
        next
    }

    fn start_due(&mut self, now: BootInstant) -> Vec<PendingRelease> {
        let capacity = MAX_IN_FLIGHT.saturating_sub(self.in_flight);
        let fresh_count = capacity.min(self.fresh.len());
        let mut due: Vec<_> = self.fresh.drain(..fresh_count).collect();
        for _ in 0..self.retries.len() {
            if due.len() == capacity {
                break;
            }
            match self.retries.pop_front() {
                Some(release) if release.due <= now => due.push(release),
                Some(release) => self.retries.push_back(release),
                None => break,
            }
        }
        self.in_flight += due.len();
        due
    }

    /// Counts an abandoned release, unless its hold was lost, which has its own report.
    fn abandon(&mut self, release: &PendingRelease) {
        if release.entry.peek(Acquisition::is_lost) {
            return;
        }
        let request = &release.entry.request;
        let abandoned = self.abandoned.get_or_insert_with(|| Abandoned {
            releases: 0,
            key: request.key.clone(),
            lock: request.name(),
            once_calls: Vec::new(),
        });
        abandoned.releases += 1;
        if request.once.is_some() {
            abandoned.once_calls.push(release.entry.clone());
        }
    }

    /// Abandons the oldest release if there are too many.
    fn abandon_surplus(&mut self) {
        if self.fresh.len() + self.retries.len() > MAX_BACKLOG
            && let Some(oldest) = self.retries.pop_front().or_else(|| self.fresh.pop_front())
        {
            self.abandon(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::Options;
    use crate::protocol::kind::Kind;
    use crate::protocol::request::Request;
    use crate::protocol::rules::Rules;
    use tokio_util::task::TaskTracker;

    fn release(owner: OwnerNumber) -> PendingRelease {
        let (key, now) = (LockKey::new("k").unwrap(), BootInstant(0));
        let request = Arc::new(Request::new(key, Kind::Mutex, Options::default(), now));
        let acquisition = Acquisition::release_only(request, Rules::ALL, now);
        let counter = TaskTracker::new();
        PendingRelease {
            entry: Entry::unregistered(owner, acquisition, counter.token()),
            result_sender: None,
            due: now,
            is_first: true,
            _in_flight: counter.token(),
        }
    }

    /// In an outage some releases were attempted, some not. Those abandoned are reported once.
    #[test]
    fn a_sweep_abandons_expired_releases_in_both_queues() {
        let backlog = Backlog::default();
        let many = MAX_IN_FLIGHT as OwnerNumber;
        let started: Vec<_> = (0..many + 4)
            .filter_map(|owner| backlog.try_start(release(owner)))
            .collect();
        for release in started {
            assert!(backlog.retry_later(release, false).is_none());
        }
        assert_eq!(backlog.count(), MAX_IN_FLIGHT + 4);
        let is_odd = |release: &PendingRelease| release.entry.owner % 2 == 1;
        let abandoned = || backlog.sweep(is_odd).map(|abandoned| abandoned.releases);
        assert_eq!(
            (abandoned(), abandoned()),
            (Some(MAX_IN_FLIGHT / 2 + 2), None)
        );
        let due = backlog.start_due(BootInstant(0));
        assert_eq!(due.len(), MAX_IN_FLIGHT / 2 + 2);
        for release in &due {
            assert!(backlog.abandon(release, false).is_none());
        }
        assert!(!backlog.is_idle(), "it is not reported yet");
        assert_eq!(abandoned(), Some(due.len()));
        assert!(backlog.is_idle() && backlog.count() == 0);
        let started: Vec<_> = (0..=many)
            .filter_map(|owner| backlog.try_start(release(owner)))
            .collect();
        for release in &started {
            assert!(backlog.abandon(release, false).is_none());
        }
        let abandoned = backlog.sweep(|_| false).map(|abandoned| abandoned.releases);
        assert_eq!(abandoned, Some(MAX_IN_FLIGHT));
        assert!(!backlog.is_idle(), "no release starts the last one");
    }

    #[test]
    fn beyond_its_limit_the_backlog_abandons_the_oldest_release() {
        let backlog = Backlog::default();
        let limit = MAX_IN_FLIGHT + MAX_BACKLOG;
        for owner in 0..=limit {
            backlog.try_start(release(owner as OwnerNumber));
        }
        assert_eq!(backlog.count(), limit);
        let abandoned = backlog.sweep(|_| false).map(|abandoned| abandoned.releases);
        assert_eq!(abandoned, Some(1));
    }
}
