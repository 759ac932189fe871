//! The calls that a polling client checks, because it gets no pushes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{CheckQueue, OwnerNumber};
use crate::protocol::timing::QUEUE_CHECK_INTERVAL;
use crate::util::backoff::Backoff;
use crate::util::mutex::lock;

/// Delays of a call's queue checks, starting when it was queued.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), QUEUE_CHECK_INTERVAL);

/// Upper limit of owners in one script call.
const MAX_OWNERS: usize = 500;

/// The calls that a polling client checks.
#[derive(Debug, Default)]
pub(crate) struct CheckSchedule {
    by_owner: Mutex<HashMap<OwnerNumber, ScheduledCheck>>,
    pub(crate) added: Notify,
}

#[derive(Debug)]
struct ScheduledCheck {
    key: LockKey,
    is_counted: bool,
    due_at: Instant,
    backoff: Backoff,
}

impl CheckSchedule {
    pub(crate) fn add(&self, key: &LockKey, kind: Kind, owner: OwnerNumber) {
        let mut backoff = BACKOFF;
        let check = ScheduledCheck {
            key: key.clone(),
            is_counted: kind.is_counted(),
            due_at: Instant::now() + backoff.next_delay(),
            backoff,
        };
        lock(&self.by_owner).entry(owner).or_insert(check);
        self.added.notify_one();
    }

    /// Stops checking a call. Returns true if it was checked.
    pub(crate) fn remove(&self, owner: OwnerNumber) -> bool {
        lock(&self.by_owner).remove(&owner).is_some()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        lock(&self.by_owner)
            .values()
            .map(|check| check.due_at)
            .min()
    }

    /// Returns the due calls by lock. Doubles the delay of each, up to the limit of `BACKOFF`.
    pub(crate) fn take_due(&self, now: Instant) -> Vec<CheckQueue> {
        let mut due: HashMap<(LockKey, bool), Vec<OwnerNumber>> = HashMap::new();
        for (owner, check) in &mut *lock(&self.by_owner) {
            if check.due_at <= now {
                check.due_at = now + check.backoff.next_delay();
                let key = (check.key.clone(), check.is_counted);
                due.entry(key).or_default().push(*owner);
            }
        }
        let mut checks = Vec::with_capacity(due.len());
        for ((key, is_counted), owners) in due {
            let parts = owners.chunks(MAX_OWNERS).map(<[OwnerNumber]>::to_vec);
            checks.extend(parts.map(|owners| CheckQueue {
                key: key.clone(),
                is_counted,
                owners,
            }));
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_checked_with_growing_delays_until_it_is_removed() {
        let (schedule, key) = (CheckSchedule::default(), LockKey::new("k").unwrap());
        assert_eq!(schedule.next_due(), None);
        schedule.add(&key, Kind::Mutex, 1);
        for delay in [50, 100, 200] {
            let (now, delay) = (Instant::now(), Duration::from_millis(delay));
            assert_eq!(schedule.next_due(), Some(now + delay));
            assert!(schedule.take_due(now).is_empty());
            tokio::time::advance(delay).await;
            let due = schedule.take_due(now + delay);
            assert_eq!(due.len(), 1);
            assert_eq!(due[0].owners, [1]);
        }
        assert!(schedule.remove(1) && !schedule.remove(1));
        assert_eq!(schedule.next_due(), None);
    }
}
