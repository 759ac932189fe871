//! The server: a memory store whose every operation is watched.

use std::fmt;
use std::sync::Arc;

use super::fault::{Conditions, Fault};
use super::op::{Answer, Op};
use crate::clock::Clock;
use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::Snapshot;
use crate::store::memory::{MemoryServer, MemoryStore};
use crate::store::{EventSink, Settings};

/// Sees what happens.
pub(crate) trait Witness: Send + Sync {
    /// A fault, and whom it hits; `None` is the server.
    fn fault(&self, fault: Fault, client: Option<usize>, detail: fmt::Arguments<'_>);

    /// Something else that is worth a line.
    fn note(&self, client: usize, detail: fmt::Arguments<'_>);

    fn applied(&self, applied: &Applied<'_>);
}

/// An operation, and what it did.
pub(crate) struct Applied<'a> {
    pub(crate) client: usize,
    pub(crate) op: &'a Op,
    pub(crate) answer: &'a Answer,
    /// For each of its keys, what was there before and after.
    pub(crate) effects: Vec<(&'a LockKey, Snapshot, Snapshot)>,
}

/// The only server of a simulation.
pub(crate) struct FaultyServer {
    memory: MemoryServer,
    clock: Arc<dyn Clock>,
    pub(super) conditions: Arc<Conditions>,
    pub(super) witness: Arc<dyn Witness>,
}

impl FaultyServer {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        conditions: Arc<Conditions>,
        witness: Arc<dyn Witness>,
    ) -> Arc<Self> {
        Arc::new(FaultyServer {
            memory: MemoryServer::new(clock.clone()),
            clock,
            conditions,
            witness,
        })
    }

    pub(crate) fn snapshot(&self, key: &LockKey) -> Snapshot {
        self.memory.snapshot(key)
    }

    /// FLUSHALL, for the keys that there are.
    pub(crate) fn forget(&self, keys: &[LockKey]) {
        for key in keys {
            self.memory.delete_all(key);
        }
    }

    /// The server's time, µs.
    pub(crate) fn wall(&self) -> u64 {
        self.clock.wall_micros()
    }

    /// A client that is there: its waiters can be granted.
    pub(super) fn subscribe(&self, client: &ClientId, events: EventSink) -> MemoryStore {
        let settings = Settings::named(&client.as_str()[..6]);
        MemoryStore::new(self.memory.clone(), client.clone(), settings, events)
    }

    pub(super) fn apply(&self, client: usize, store: &MemoryStore, op: &Op) -> Answer {
        let keys = op.keys();
        let before: Vec<_> = keys.iter().map(|key| self.snapshot(key)).collect();
        let wall = self.wall();
        let answer = if self.conditions.is_refusing() && !matches!(op, Op::Inspect(_) | Op::Ping) {
            Answer::Refused(Trouble::new(Outage::WritesRefused, "MISCONF"))
        } else {
            op.apply(store, wall)
        };
        let effects = (keys.into_iter().zip(before))
            .map(|(key, before)| (key, before, self.snapshot(key)))
            .collect();
        self.witness.applied(&Applied {
            client,
            op,
            answer: &answer,
            effects,
        });
        answer
    }
}

impl fmt::Debug for FaultyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyServer").finish_non_exhaustive()
    }
}
