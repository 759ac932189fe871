//! The waiters of one lock, in the order of arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerNumber;
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::util::clock::BootInstant;

/// How long a queue is kept after its last deadline, because a grant made just before may be
/// unconfirmed.
const QUEUE_GRACE: Duration = Duration::from_secs(11);

/// The work of removing an entry; looking at one counts as one.
pub(super) const REMOVAL_COST: i64 = 5;

/// How many entries of a full queue one request examines.
const MAX_EXAMINED: usize = 100;

/// An acquisition, unique among all clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OwnerId {
    pub(super) client: ClientId,
    pub(super) owner: OwnerNumber,
}

#[derive(Clone, Debug)]
pub(super) struct QueueEntry {
    pub(super) owner_id: OwnerId,
    /// The key as the waiter wrote it.
    pub(super) key: LockKey,
    pub(super) kind: Kind,
    pub(super) timing: Timing,
    pub(super) deadline: BootInstant,
    /// The time of arrival, wall time in µs.
    pub(super) since: u64,
    pub(super) name: Arc<str>,
}

/// A queue. The head of a mutex's queue is marked from when it was granted the lock until it
/// confirms. That of a counted lock is removed when it is granted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Entries by arrival, from 1. A negative sign is a mark, as in the Redis scripts.
    pub(super) entries: BTreeMap<i64, QueueEntry>,
    order_by_owner: HashMap<OwnerId, i64>,
    pub(super) expires_at: BootInstant,
}

impl Queue {
    /// Removes all entries once none of their callers can be waiting any longer.
    pub(super) fn remove_expired(&mut self, now: BootInstant) {
        if !self.is_empty() && self.expires_at <= now {
            *self = Queue::default();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, owner_id: &OwnerId) -> bool {
        self.order_by_owner.contains_key(owner_id)
    }

    /// Returns the first entry, and whether it is marked.
    pub(super) fn head(&self) -> Option<(&QueueEntry, bool)> {
        let (order, entry) = self.entries.first_key_value()?;
        Some((entry, *order < 0))
    }

    /// Returns the entry that was granted the lock and has not confirmed.
    pub(super) fn marked(&self) -> Option<&QueueEntry> {
        self.head()
            .and_then(|(entry, marked)| marked.then_some(entry))
    }

    /// Adds an entry at the end. A waiter keeps its position, and gets the new deadline and lease.
    pub(super) fn join(&mut self, mut entry: QueueEntry) {
        let expires_at = entry.deadline + QUEUE_GRACE;
        self.expires_at = if self.is_empty() {
            expires_at
        } else {
            self.expires_at.max(expires_at)
        };
        let order = match self.order_by_owner.get(&entry.owner_id) {
            Some(place) => *place,
            None => {
                let last = self.entries.last_key_value();
                let order = last.map_or(0, |(order, _)| order.abs()) + 1;
                self.order_by_owner.insert(entry.owner_id.clone(), order);
                order
            }
        };
        if let Some(known) = self.entries.get(&order) {
            entry.since = known.since;
        }
        self.entries.insert(order, entry);
    }

    /// Returns the waiters in a part of the queue, which depends on the number. Multiples of the
    /// golden section spread evenly, for any owners of a client.
    pub(super) fn slice(&self, number: OwnerNumber) -> impl Iterator<Item = &QueueEntry> {
        let mut first = 0;
        if self.len() > MAX_EXAMINED {
            // As in `lua/acquire.lua`, to the last bit.
            let section = ((number % 1_000_000_000) as f64 * 0.618_033_988_749_894_9).fract();
            let end = (section * (self.len() + MAX_EXAMINED) as f64) as usize + 1;
            first = end
                .saturating_sub(MAX_EXAMINED)
                .min(self.len() - MAX_EXAMINED);
        }
        let slice = self.entries.iter().skip(first).take(MAX_EXAMINED);
        // A marked entry is the holder's, or a purge's.
        slice
            .filter(|(order, _)| **order > 0)
            .map(|(_, entry)| entry)
    }

    pub(super) fn remove(&mut self, owner_id: &OwnerId) {
        if let Some(order) = self.order_by_owner.remove(owner_id) {
            self.entries.remove(&order);
        }
    }

    pub(super) fn remove_head(&mut self) -> Option<QueueEntry> {
        let (_, entry) = self.entries.pop_first()?;
        self.order_by_owner.remove(&entry.owner_id);
        Some(entry)
    }

    /// Marks the head, and returns it. It stays the head, because every other entry arrived later.
    pub(super) fn mark_head(&mut self) -> Option<QueueEntry> {
        let (order, entry) = self.entries.pop_first()?;
        let order = -order.abs();
        self.order_by_owner.insert(entry.owner_id.clone(), order);
        self.entries.insert(order, entry.clone());
        Some(entry)
    }

    /// Removes the entries of the marked head's client, after the position that the mark names.
    /// The head is removed last: while it stays, the next call knows that the client must be
    /// purged. Its mark names the position up to which that is done.
    pub(super) fn purge_client_of_head(&mut self, work: &mut i64) {
        let Some((order, head)) = self.entries.pop_first() else {
            return;
        };
        let mut place = order.abs();
        while *work > 0 {
            let Some((order, entry)) = self.entries.range(place + 1..).next() else {
                *work -= REMOVAL_COST;
                self.order_by_owner.remove(&head.owner_id);
                return;
            };
            place = *order;
            if entry.owner_id.client == head.owner_id.client {
                *work -= REMOVAL_COST;
                self.order_by_owner.remove(&entry.owner_id);
                self.entries.remove(&place);
            } else {
                *work -= 1;
            }
        }
        self.order_by_owner.insert(head.owner_id.clone(), -place);
        self.entries.insert(-place, head);
    }
}
