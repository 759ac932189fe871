//! Releases that wait to be sent. However many there are, their load on the store and their memory
//! in this process are bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::key::LockKey;
use crate::manager::engine::table::Entry;
use crate::protocol::messages::Owner;
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Upper limit of releases in flight. More would delay commands for which callers wait.
const IN_FLIGHT: usize = 256;

/// Upper limit of releases kept while the store cannot be reached. Locks beyond it end with their
/// lease.
const MOST: usize = 65_536;

/// An acquisition to be released in the store.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) entry: Arc<Entry>,
    /// Receives the result of the first attempt.
    pub(crate) tell: Option<oneshot::Sender<Answered>>,
    /// The time of the next attempt.
    pub(crate) due: Moment,
    /// True until the first attempt has been made.
    pub(crate) is_first: bool,
    /// Makes a shutdown wait for the release.
    pub(crate) _under_way: TaskTrackerToken,
}

/// The result of the first attempt to release, as the holder receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The store has replied, or the release continues in the background.
    Released,
    /// According to the store, this client no longer held the lock.
    NotOurs,
}

/// All pending releases of a manager.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queues: Mutex<Queues>,
    /// Releases that their holders send themselves.
    by_holders: Mutex<BTreeMap<Owner, Release>>,
    /// Wakes the task that retries releases.
    pub(crate) failed: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    in_flight: usize,
    /// Releases never attempted, which wait for others to end.
    fresh: VecDeque<Release>,
    /// Releases that wait for the store, or for their time.
    later: VecDeque<Release>,
    given_up: Option<GivenUp>,
}

/// The number of releases given up since the last report, and the key of one of them.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub(crate) releases: usize,
    pub(crate) key: LockKey,
    pub(crate) lock: Cow<'static, str>,
}

impl Backlog {
    /// Returns the release if it may start now. Otherwise it waits for one in flight to end.
    pub(crate) fn start(&self, release: Release) -> Option<Release> {
        let mut queues = lock(&self.queues);
        if queues.in_flight >= IN_FLIGHT {
            queues.fresh.push_back(release);
            queues.give_up_surplus();
            return None;
        }
        queues.in_flight += 1;
        Some(release)
    }

    /// Starts a release that does not wait for others, because its caller waits for it.
    pub(crate) fn start_at_once(&self) {
        lock(&self.queues).in_flight += 1;
    }

    /// Stores a release that its holder sends, in case the holder stops running.
    pub(crate) fn leave_to_holder(&self, release: Release) {
        lock(&self.by_holders).insert(release.entry.owner, release);
    }

    /// Removes a release that its holder was to send. Only the first call gets it.
    pub(crate) fn take_from_holder(&self, owner: Owner) -> Option<Release> {
        lock(&self.by_holders).remove(&owner)
    }

    /// Schedules a retry. Returns the next waiting release, if the store `answers`.
    pub(crate) fn again(&self, release: Release, answers: bool) -> Option<Release> {
        let mut queues = lock(&self.queues);
        queues.later.push_back(release);
        queues.give_up_surplus();
        let next = queues.next(answers);
        drop(queues);
        self.failed.notify_one();
        next
    }

    /// Ends a release, and returns the next waiting one.
    pub(crate) fn done(&self) -> Option<Release> {
        lock(&self.queues).next(true)
    }

    /// Gives up a release. Returns the next waiting one, if the store `answers`.
    pub(crate) fn give_up(&self, release: &Release, answers: bool) -> Option<Release> {
        let mut queues = lock(&self.queues);
        queues.give_up(release);
        let next = queues.next(answers);
        drop(queues);
        self.failed.notify_one();
        next
    }

    pub(crate) fn count(&self) -> usize {
        let queues = lock(&self.queues);
        let by_holders = lock(&self.by_holders).len();
        queues.in_flight + queues.fresh.len() + queues.later.len() + by_holders
    }

    /// Returns true if no work is left, apart from releases in flight.
    pub(crate) fn is_at_rest(&self) -> bool {
        let queues = lock(&self.queues);
        // Releases in flight start fresh ones when they end.
        let waits = queues.in_flight == 0 && !queues.fresh.is_empty();
        queues.later.is_empty() && !waits && queues.given_up.is_none()
    }

    /// Starts as many due releases as the limit allows, those never attempted first.
    pub(crate) fn start_due(&self, now: Moment) -> Vec<Release> {
        lock(&self.queues).start_due(now)
    }

    /// Gives up releases that can have nothing left. Returns all given up since the last call.
    pub(crate) fn sweep(&self, is_past: impl Fn(&Release) -> bool) -> Option<GivenUp> {
        let mut queues = lock(&self.queues);
        let Queues { fresh, later, .. } = &mut *queues;
        let mut past = Vec::new();
        for queue in [later, fresh] {
            let (over, left): (VecDeque<_>, _) =
                std::mem::take(queue).into_iter().partition(&is_past);
            *queue = left;
            past.push(over);
        }
        for release in past.iter().flatten() {
            queues.give_up(release);
        }
        queues.given_up.take()
    }
}

impl Queues {
    fn next(&mut self, answers: bool) -> Option<Release> {
        let next = (answers && self.in_flight <= IN_FLIGHT)
            .then(|| self.fresh.pop_front())
            .flatten();
        if next.is_none() {
            self.in_flight -= 1;
        }
        next
    }

    fn start_due(&mut self, now: Moment) -> Vec<Release> {
        let room = IN_FLIGHT.saturating_sub(self.in_flight);
        let first = room.min(self.fresh.len());
        let mut due: Vec<_> = self.fresh.drain(..first).collect();
        for _ in 0..self.later.len() {
            if due.len() == room {
                break;
            }
            match self.later.pop_front() {
                Some(release) if release.due <= now => due.push(release),
                Some(release) => self.later.push_back(release),
                None => break,
            }
        }
        self.in_flight += due.len();
        due
    }

    fn give_up(&mut self, release: &Release) {
        let request = &release.entry.request;
        let given_up = self.given_up.get_or_insert_with(|| GivenUp {
            releases: 0,
            key: request.key.clone(),
            lock: request.name(),
        });
        given_up.releases += 1;
    }

    /// Gives up the oldest release if there are too many.
    fn give_up_surplus(&mut self) {
        if self.fresh.len() + self.later.len() > MOST
            && let Some(oldest) = self.later.pop_front().or_else(|| self.fresh.pop_front())
        {
            self.give_up(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::Options;
    use crate::protocol::acquisition::Acquisition;
    use crate::protocol::request::Request;
    use crate::protocol::rules::Rules;
    use tokio_util::task::TaskTracker;

    fn release(owner: Owner) -> Release {
        let (key, now) = (LockKey::new("k").unwrap(), Moment(0));
        let request = Arc::new(Request::new(key, Options::default(), now));
        let acquisition = Acquisition::unknown(request, Rules::ALL, now);
        let counter = TaskTracker::new();
        Release {
            entry: Entry::unknown(owner, acquisition, counter.token()),
            tell: None,
            due: now,
            is_first: true,
            _under_way: counter.token(),
        }
    }

    /// In an outage some releases were attempted, some not. Those given up are reported once.
    #[test]
    fn a_sweep_gives_up_what_is_past_in_both_queues() {
        let backlog = Backlog::default();
        let many = IN_FLIGHT as Owner;
        let started: Vec<_> = (0..many + 4)
            .filter_map(|owner| backlog.start(release(owner)))
            .collect();
        for release in started {
            assert!(backlog.again(release, false).is_none());
        }
        let is_odd = |release: &Release| release.entry.owner % 2 == 1;
        let given_up = || backlog.sweep(is_odd).map(|given_up| given_up.releases);
        assert_eq!((given_up(), given_up()), (Some(IN_FLIGHT / 2 + 2), None));
        let due = backlog.start_due(Moment(0));
        assert_eq!(due.len(), IN_FLIGHT / 2 + 2);
        for release in &due {
            assert!(backlog.give_up(release, false).is_none());
        }
        assert!(!backlog.is_at_rest(), "it is not reported yet");
        assert_eq!(given_up(), Some(due.len()));
        assert!(backlog.is_at_rest() && backlog.count() == 0);
        let started: Vec<_> = (0..=many)
            .filter_map(|owner| backlog.start(release(owner)))
            .collect();
        for release in &started {
            assert!(backlog.give_up(release, false).is_none());
        }
        let given_up = backlog.sweep(|_| false).map(|given_up| given_up.releases);
        assert_eq!(given_up, Some(IN_FLIGHT));
        assert!(
            !backlog.is_at_rest(),
            "nothing takes up the one that is left"
        );
    }
}
