//! The waiters of one lock, in the order of arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerId;
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::util::clock::{BootInstant, ServerTime};

/// How long a queue is kept after its last deadline, because a grant made just before may be
/// unconfirmed.
const QUEUE_GRACE: Duration = Duration::from_secs(11);

/// The work of serving or removing an entry.
pub(super) const ENTRY_COST: i64 = 5;

/// How many entries of a full queue one request examines.
const MAX_EXAMINED: usize = 100;

/// An acquisition, unique among all clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner {
    pub(super) client: ClientId,
    pub(super) owner: OwnerId,
}

#[derive(Clone, Debug)]
pub(super) struct QueueEntry {
    pub(super) owner_id: Owner,
    /// The key as the waiter wrote it.
    pub(super) key: LockKey,
    pub(super) kind: Kind,
    pub(super) timing: Timing,
    pub(super) deadline: BootInstant,
    /// The time of arrival.
    pub(super) since: ServerTime,
    pub(super) name: Arc<str>,
}

/// A queue. Its head is removed when it is granted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Entries by arrival.
    pub(super) entries: BTreeMap<u64, QueueEntry>,
    order_by_owner: HashMap<Owner, u64>,
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

    pub(super) fn contains(&self, owner_id: &Owner) -> bool {
        self.order_by_owner.contains_key(owner_id)
    }

    pub(super) fn head(&self) -> Option<&QueueEntry> {
        self.entries.values().next()
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
                let order = last.map_or(0, |(order, _)| *order) + 1;
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
    pub(super) fn slice(&self, number: OwnerId) -> impl Iterator<Item = &QueueEntry> {
        let mut first = 0;
        if self.len() > MAX_EXAMINED {
            // As in `lua/enter.lua`, to the last bit.
            let section = ((number.0 % 1_000_000_000) as f64 * 0.618_033_988_749_894_9).fract();
            let end = (section * (self.len() + MAX_EXAMINED) as f64) as usize + 1;
            first = end
                .saturating_sub(MAX_EXAMINED)
                .min(self.len() - MAX_EXAMINED);
        }
        self.entries.values().skip(first).take(MAX_EXAMINED)
    }

    pub(super) fn remove(&mut self, owner_id: &Owner) {
        if let Some(order) = self.order_by_owner.remove(owner_id) {
            self.entries.remove(&order);
        }
    }

    pub(super) fn remove_head(&mut self) -> Option<QueueEntry> {
        let (_, entry) = self.entries.pop_first()?;
        self.order_by_owner.remove(&entry.owner_id);
        Some(entry)
    }
}
