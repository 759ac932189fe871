//! The locks as seen by successive queries: what changes from one to the next, and how fast.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use distlock::{HoldKind, LockState};

use crate::output;

/// Number of the last queries that count for rates.
const RATE_WINDOW: usize = 10;

/// A hold of a lock, as seen by one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) key: String,
    pub(crate) client: String,
    /// The client and, unless the lock is a mutex, its mode or its permits.
    pub(crate) holder: String,
    pub(crate) kind: HoldKind,
    pub(crate) weight: u32,
    pub(crate) since: SystemTime,
    /// The end of `min_hold`, if the work is finished.
    pub(crate) kept_until: Option<SystemTime>,
    pub(crate) token: Option<u64>,
    pub(crate) expires_in: Option<Duration>,
    /// The number of waiters; 0 for each hold after the first of the lock.
    pub(crate) queue_length: u64,
}

impl HeldLock {
    /// Returns the holds of a lock; none if it was free by the time it was queried.
    pub(crate) fn of(lock: &LockState) -> impl Iterator<Item = Self> {
        let holders = lock.holders.iter().enumerate();
        holders.map(|(place, holder)| HeldLock {
            key: lock.key.clone(),
            client: holder.client.clone(),
            holder: output::lock::client(lock, holder),
            kind: holder.kind,
            weight: holder.weight,
            since: holder.held_since,
            kept_until: holder.kept_until,
            token: holder.fencing_token.map(|token| token.get()),
            expires_in: lock.expires_in,
            queue_length: if place == 0 { lock.queue_length } else { 0 },
        })
    }

    /// Returns the hold's place in the view. A mutex has one place for all of its holders.
    fn place(&self) -> Place {
        let is_shared = self.kind != HoldKind::Mutex;
        let hold = is_shared.then(|| (self.since, self.holder.clone()));
        (self.key.clone(), hold, 0)
    }

    /// Returns true if it is the same hold.
    fn is_same(&self, other: &HeldLock) -> bool {
        (self.token, self.since, &self.holder) == (other.token, other.since, &other.holder)
    }
}

/// The key of a lock, what distinguishes its hold from other holds at the same time, and a number
/// if nothing does: one release can grant several holds to a client.
type Place = (String, Option<(SystemTime, String)>, usize);

fn by_place(holds: Vec<HeldLock>) -> BTreeMap<Place, HeldLock> {
    let mut places = BTreeMap::new();
    for hold in holds {
        let mut place = hold.place();
        while hold.kind != HoldKind::Mutex && places.contains_key(&place) {
            place.2 += 1;
        }
        places.insert(place, hold);
    }
    places
}

/// A change between two queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new hold has begun.
    Acquired(HeldLock),
    /// The work is finished, and `min_hold` keeps the key.
    Kept(HeldLock),
    /// The lock is no longer held.
    Freed(HeldLock),
    /// The number of waiters has changed.
    Queue(HeldLock),
}

/// The results of all queries.
#[derive(Debug, Default)]
pub(crate) struct Model {
    locks: BTreeMap<Place, HeldLock>,
    /// For each of the last queries, the time since the previous one, and the acquisitions seen.
    recent: VecDeque<(Duration, u32)>,
    /// How often each held lock changed hands while it was watched.
    hand_offs: BTreeMap<String, u32>,
    has_record: bool,
    /// Why the last query failed.
    error: Option<String>,
}

impl Model {
    /// Records the result of a query, `after` the previous one. Returns the changes.
    pub(crate) fn record(&mut self, seen: Vec<HeldLock>, after: Duration) -> Vec<Change> {
        self.error = None;
        let seen = by_place(seen);
        let freed = self
            .locks
            .iter()
            .filter(|(place, _)| !seen.contains_key(place));
        let mut changes: Vec<_> = freed.map(|(_, lock)| Change::Freed(lock.clone())).collect();
        let mut acquired = 0;
        for (place, lock) in &seen {
            let before = self.locks.get(place);
            let before = before.filter(|before| before.is_same(lock));
            let was_kept = before.is_some_and(|before| before.kept_until.is_some());
            if lock.kept_until.is_some() && !was_kept {
                changes.push(Change::Kept(lock.clone()));
            } else if before.is_none() {
                changes.push(Change::Acquired(lock.clone()));
            }
            if before.is_some_and(|before| before.queue_length != lock.queue_length) {
                changes.push(Change::Queue(lock.clone()));
            }
            if before.is_none() {
                acquired += 1;
                // The holds of the first query began before the watch.
                if self.has_record {
                    *self.hand_offs.entry(lock.key.clone()).or_default() += 1;
                }
            }
        }
        if self.has_record {
            self.recent.push_back((after, acquired));
            if self.recent.len() > RATE_WINDOW {
                self.recent.pop_front();
            }
        }
        let keys: BTreeSet<_> = seen.values().map(|lock| &lock.key).collect();
        self.hand_offs.retain(|key, _| keys.contains(key));
        self.locks = seen;
        self.has_record = true;
        changes
    }

    /// Records a failed query and keeps the last result. Returns true if the failure is new.
    pub(crate) fn record_failure(&mut self, error: String) -> bool {
        self.error.replace(error).is_none()
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the locks, those with the longest queues first.
    pub(crate) fn locks(&self) -> Vec<&HeldLock> {
        let mut locks: Vec<_> = self.locks.values().collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.queue_length));
        locks
    }

    pub(crate) fn held(&self) -> usize {
        self.locks.len()
    }

    pub(crate) fn waiting(&self) -> u64 {
        let waiters = self.locks.values().map(|lock| lock.queue_length);
        waiters.fold(0, u64::saturating_add)
    }

    /// Returns how often this lock changed hands.
    pub(crate) fn hand_offs(&self, key: &str) -> u32 {
        self.hand_offs.get(key).copied().unwrap_or(0)
    }

    /// Returns the acquisitions per second that the last queries saw. More may be between them.
    pub(crate) fn rate(&self) -> f64 {
        let time: Duration = self.recent.iter().map(|(after, _)| *after).sum();
        let count: u32 = self.recent.iter().map(|(_, acquired)| acquired).sum();
        if time.is_zero() {
            0.0
        } else {
            f64::from(count) / time.as_secs_f64()
        }
    }
}

#[cfg(test)]
pub(super) fn seen(key: &str, holder: &str, token: u64, queue_length: u64) -> HeldLock {
    HeldLock {
        key: key.into(),
        client: holder.into(),
        holder: holder.into(),
        kind: HoldKind::Mutex,
        weight: 1,
        since: SystemTime::UNIX_EPOCH,
        kept_until: None,
        token: Some(token),
        expires_in: Some(Duration::from_secs(9)),
        queue_length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_change_is_reported_once() {
        let first = seen("k", "a:1", 1, 0);
        let queued = seen("k", "a:1", 1, 2);
        let kept = HeldLock {
            kept_until: Some(SystemTime::UNIX_EPOCH + SECOND),
            ..queued.clone()
        };
        let next = seen("k", "b:2", 2, 1);
        let mut model = Model::default();
        for (found, change) in [
            (vec![first.clone()], Change::Acquired(first)),
            (vec![queued.clone()], Change::Queue(queued)),
            (vec![kept.clone()], Change::Kept(kept)),
            (vec![next.clone()], Change::Acquired(next.clone())),
            (vec![], Change::Freed(next)),
        ] {
            assert_eq!(model.record(found.clone(), SECOND), [change]);
            assert_eq!(model.record(found, SECOND), []);
        }
    }

    #[test]
    fn each_hold_of_a_shared_lock_changes_by_itself() {
        let hold = |kind, holder: &str, token, seconds| HeldLock {
            kind,
            token,
            since: SystemTime::UNIX_EPOCH + SECOND * seconds,
            ..seen("k", holder, 0, 0)
        };
        let permit = |seconds| hold(HoldKind::Semaphore, "a:1 (1 of 3)", None, seconds);
        let (early, late) = (permit(1), permit(2));
        let renewed = HeldLock {
            expires_in: Some(SECOND * 30),
            ..late.clone()
        };
        let write = hold(HoldKind::Write, "a:1 (write)", Some(3), 3);
        let read = hold(HoldKind::Read, "a:1 (read)", Some(4), 3);
        let (acquired, freed) = (Change::Acquired, Change::Freed);
        let mut model = Model::default();
        for (found, changes) in [
            // One release granted both.
            (
                vec![&early, &early],
                vec![acquired(early.clone()), acquired(early.clone())],
            ),
            (vec![&early, &early, &late], vec![acquired(late.clone())]),
            (vec![&early, &early, &renewed], vec![]),
            (vec![&early, &late], vec![freed(early.clone())]),
            (vec![&late], vec![freed(early.clone())]),
            // A downgrade.
            (
                vec![&write],
                vec![freed(late.clone()), acquired(write.clone())],
            ),
            (
                vec![&read],
                vec![freed(write.clone()), acquired(read.clone())],
            ),
        ] {
            let found = found.into_iter().cloned().collect();
            assert_eq!(model.record(found, SECOND), changes);
        }
    }

    #[test]
    fn rates_count_observed_changes() {
        let mut model = Model::default();
        model.record(vec![seen("k", "a:1", 1, 0)], SECOND);
        assert_eq!(model.rate(), 0.0);
        for token in 2..=5 {
            model.record(vec![seen("k", "a:1", token, 0)], SECOND / 2);
        }
        assert_eq!(model.rate(), 2.0);
        assert_eq!(model.hand_offs("k"), 4);
        for _ in 0..RATE_WINDOW {
            model.record(vec![seen("k", "a:1", 5, 0)], SECOND);
        }
        assert_eq!(model.rate(), 0.0);
    }

    #[test]
    fn the_longest_queue_comes_first() {
        let mut model = Model::default();
        let locks = [("a", 0), ("b", 7), ("c", 1)];
        let locks = locks.map(|(key, waiters)| seen(key, "x", 1, waiters));
        model.record(locks.to_vec(), SECOND);
        let keys: Vec<_> = model.locks().iter().map(|lock| &*lock.key).collect();
        assert_eq!(keys, ["b", "c", "a"]);
        assert_eq!((model.held(), model.waiting()), (3, 8));
    }

    #[test]
    fn an_outage_is_reported_once_and_keeps_the_last_view() {
        let mut model = Model::default();
        model.record(vec![seen("k", "a:1", 1, 0)], SECOND);
        assert!(model.record_failure("away".into()));
        assert!(!model.record_failure("away".into()));
        assert_eq!((model.held(), model.error()), (1, Some("away")));
        assert_eq!(model.record(vec![seen("k", "a:1", 1, 0)], SECOND), []);
        assert_eq!(model.error(), None);
    }
}
