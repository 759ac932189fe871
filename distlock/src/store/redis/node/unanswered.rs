//! Acquires that never got a reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::protocol::messages::OwnerNumber;
use crate::store::redis::conn::server_time::as_micros;
use crate::store::redis::node::runtime_connection::RuntimeConnectionId;
use crate::util::mutex::lock;

/// Once this many owners are recorded, those whose `apply_by` is more than `RETENTION` ago are
/// pruned before the table grows. Below that, an owner is removed only on release or on a
/// reply.
const PRUNE_THRESHOLD: usize = 1_024;
const RETENTION: Duration = Duration::from_secs(60);

/// The acquires that never got a reply, by owner.
#[derive(Debug, Default)]
pub(crate) struct UnansweredAcquires(Mutex<HashMap<OwnerNumber, Unanswered>>);

/// The acquires of one owner without a reply. If a connection on which one was sent is lost and
/// cannot be killed in the server, the acquire may still be applied until `apply_by`. Its release
/// is then sent twice (R2).
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered {
    /// Generation of the oldest command connection on which one was sent.
    pub(crate) generation: Option<u64>,
    /// The runtime connections on which one was sent.
    pub(crate) runtime_connections: Vec<Arc<RuntimeConnectionId>>,
    /// Server time, µs.
    pub(crate) apply_by: u64,
}

/// The connection on which an acquire was sent.
#[derive(Clone, Debug)]
pub(crate) enum SentOn {
    /// The command connection of this generation.
    Commands(u64),
    Runtime(Arc<RuntimeConnectionId>),
}

impl UnansweredAcquires {
    /// Returns the record of an acquire that is about to be sent.
    pub(crate) fn track(&self, owner: OwnerNumber, sent_on: SentOn) -> UnansweredGuard<'_> {
        UnansweredGuard {
            acquires: self,
            owner,
            sent_on,
            apply_by: AtomicU64::new(0),
        }
    }

    /// Returns the unanswered acquires of an owner.
    pub(crate) fn get(&self, owner: OwnerNumber) -> Option<Unanswered> {
        lock(&self.0).get(&owner).cloned()
    }

    /// Forgets an owner that was released.
    pub(crate) fn forget(&self, owner: OwnerNumber) {
        lock(&self.0).remove(&owner);
    }

    fn remember(&self, owner: OwnerNumber, sent_on: &SentOn, apply_by: u64) {
        let mut acquires = lock(&self.0);
        // Only before the table grows, not on every insert.
        if acquires.len() >= PRUNE_THRESHOLD && acquires.len() == acquires.capacity() {
            // The script rejects an acquire after its `apply_by`, so these can have no effect.
            let cutoff = apply_by.saturating_sub(as_micros(RETENTION));
            acquires.retain(|_, entry| entry.apply_by > cutoff);
        }
        let entry = acquires.entry(owner).or_default();
        entry.apply_by = entry.apply_by.max(apply_by);
        match sent_on {
            // An acquire that an older connection left unanswered remains unanswered.
            SentOn::Commands(generation) => drop(entry.generation.get_or_insert(*generation)),
            SentOn::Runtime(id) => {
                if !entry
                    .runtime_connections
                    .iter()
                    .any(|other| Arc::ptr_eq(other, id))
                {
                    entry.runtime_connections.push(id.clone());
                }
            }
        }
    }
}

/// An acquire that is remembered if it is dropped without a reply. On a runtime connection it is
/// also remembered while in flight, because its caller may never drop it.
pub(crate) struct UnansweredGuard<'a> {
    acquires: &'a UnansweredAcquires,
    owner: OwnerNumber,
    sent_on: SentOn,
    /// Zero if the acquire was not sent, or got a reply.
    apply_by: AtomicU64,
}

impl UnansweredGuard<'_> {
    pub(crate) fn mark_sent(&self, apply_by: u64) {
        self.apply_by.store(apply_by, Ordering::Relaxed);
        if matches!(self.sent_on, SentOn::Runtime(_)) {
            self.acquires.remember(self.owner, &self.sent_on, apply_by);
        }
    }

    pub(crate) fn mark_answered(&mut self) {
        let previous = std::mem::take(self.apply_by.get_mut());
        if previous > 0
            && let SentOn::Runtime(id) = &self.sent_on
        {
            let mut acquires = lock(&self.acquires.0);
            if let Some(entry) = acquires.get_mut(&self.owner) {
                entry
                    .runtime_connections
                    .retain(|other| !Arc::ptr_eq(other, id));
                if entry.runtime_connections.is_empty() && entry.generation.is_none() {
                    acquires.remove(&self.owner);
                }
            }
        }
    }
}

impl Drop for UnansweredGuard<'_> {
    fn drop(&mut self) {
        let apply_by = *self.apply_by.get_mut();
        if apply_by > 0 && matches!(self.sent_on, SentOn::Commands(_)) {
            self.acquires.remember(self.owner, &self.sent_on, apply_by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: OwnerNumber = 1;

    fn sent(acquires: &UnansweredAcquires, sent_on: SentOn, apply_by: u64) -> UnansweredGuard<'_> {
        let guard = acquires.track(OWNER, sent_on);
        guard.mark_sent(apply_by);
        guard
    }

    #[test]
    fn a_reply_settles_only_its_own_connection() {
        let acquires = UnansweredAcquires::default();
        let runtime_connections =
            [1, 2].map(|number| Arc::new(RuntimeConnectionId::new(number, None)));
        let [first, second] = runtime_connections.clone().map(SentOn::Runtime);
        let entry = || {
            let entry = acquires.get(OWNER)?;
            let runtime_connections: Vec<_> = entry
                .runtime_connections
                .iter()
                .map(|id| id.number)
                .collect();
            Some((entry.generation, runtime_connections, entry.apply_by))
        };
        sent(&acquires, SentOn::Commands(7), 10).mark_answered();
        drop(acquires.track(OWNER, SentOn::Commands(7)));
        drop(acquires.track(OWNER, first.clone()));
        assert_eq!(entry(), None, "answered, or never sent");
        let mut on_first = sent(&acquires, first.clone(), 20);
        assert_eq!(entry(), Some((None, vec![1], 20)), "in flight");
        on_first.mark_answered();
        assert_eq!(entry(), None);
        // The oldest command connection counts, and the latest time.
        drop(sent(&acquires, SentOn::Commands(3), 60));
        drop(sent(&acquires, SentOn::Commands(4), 30));
        let mut on_first = sent(&acquires, first, 40);
        let mut on_second = sent(&acquires, second, 50);
        on_first.mark_answered();
        assert_eq!(entry(), Some((Some(3), vec![2], 60)));
        on_second.mark_answered();
        sent(&acquires, SentOn::Commands(5), 70).mark_answered();
        assert_eq!(entry(), Some((Some(3), Vec::new(), 60)));
        acquires.forget(OWNER);
        assert_eq!(entry(), None);
    }
}
