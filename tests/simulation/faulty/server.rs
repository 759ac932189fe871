//! The server: a memory store with a witness of every operation.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use redis::Value;

use super::fault::Conditions;
use super::op::{Answer, Op};
use super::wire::{self, REFUSAL, Reply};
use crate::__inside::simulation::oracle::Oracle;
use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::messages::{AcquireReply, OwnerId};
use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::memory::hooks::Snapshot;
use crate::store::memory::server::MemoryServer;
use crate::store::{EventSink, Settings};
use crate::util::clock::Clock;
use crate::util::sync::lock;

/// An operation and its effects.
pub(crate) struct Applied<'a> {
    pub(crate) client: usize,
    /// The id under which the client sent it.
    pub(crate) id: &'a ClientId,
    /// The receiver of grants to that id.
    pub(crate) grant_receiver: GrantReceiver,
    pub(crate) op: &'a Op,
    pub(crate) answer: &'a Answer,
    /// The state of each key of the operation, before and after.
    pub(crate) effects: Vec<(&'a LockKey, Snapshot, Snapshot)>,
}

impl Applied<'_> {
    /// Returns the owners that have acquired with this operation.
    pub(crate) fn holders(&self) -> Vec<OwnerId> {
        match self.answer {
            Answer::Acquired(AcquireReply::Held(_)) | Answer::AllAcquired(Some(_)) => {
                self.op.owners()
            }
            _ => Vec::new(),
        }
    }
}

/// The receiver of grants to the id under which a command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantReceiver {
    /// The connection on which the command was sent.
    SameConnection,
    /// Perhaps another connection; the command was sent on a runtime connection.
    OtherConnection,
    None,
}

/// The only server of a simulation.
pub(crate) struct FaultyServer {
    memory: MemoryServer,
    clock: Arc<dyn Clock>,
    pub(super) conditions: Arc<Conditions>,
    pub(super) witness: Arc<Oracle>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Hashes of all scripts ever sent; false once the server forgot them.
    scripts: HashMap<String, bool>,
    /// The number of connections ever accepted.
    accepted: u64,
}

impl FaultyServer {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        conditions: Arc<Conditions>,
        witness: Arc<Oracle>,
    ) -> Arc<Self> {
        Arc::new(FaultyServer {
            memory: MemoryServer::new(clock.clone()),
            clock,
            conditions,
            witness,
            state: Mutex::default(),
        })
    }

    pub(crate) fn snapshot(&self, key: &LockKey) -> Snapshot {
        self.memory.snapshot(key)
    }

    /// Deletes these keys, like FLUSHALL.
    pub(crate) fn forget(&self, keys: &[LockKey]) {
        for key in keys {
            self.memory.delete_all(key);
        }
    }

    /// Returns the server's time in µs.
    pub(crate) fn wall(&self) -> u64 {
        self.clock.wall_micros()
    }

    /// Forgets the scripts, like SCRIPT FLUSH or a restart.
    pub(crate) fn forgets_scripts(&self) {
        for known in lock(&self.state).scripts.values_mut() {
            *known = false;
        }
    }

    /// Returns the number of a new connection.
    pub(super) fn accepts(&self) -> u64 {
        let mut state = lock(&self.state);
        state.accepted += 1;
        state.accepted
    }

    /// Learns a script from its source. Fails if the script is named by an unknown hash.
    pub(super) fn knows(&self, hash: &str, by_hash: bool) -> Result<(), String> {
        let mut state = lock(&self.state);
        if !by_hash {
            state.scripts.insert(hash.to_owned(), true);
        } else if state.scripts.get(hash) != Some(&true) {
            let is_forgotten = state.scripts.contains_key(hash);
            self.witness.unknown_script(is_forgotten);
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        Ok(())
    }

    pub(super) fn probed(&self) -> Value {
        wire::probed(self.wall(), self.conditions.is_refusing())
    }

    /// Registers a client as connected, so that its waiters can be granted.
    pub(super) fn subscribe(&self, client: &ClientId, events: EventSink) -> MemoryStore {
        let settings = Settings::named(&client.as_str()[..6]);
        MemoryStore::new(self.memory.clone(), client.clone(), settings, events)
    }

    pub(super) fn apply(
        &self,
        client: usize,
        (id, op): (&ClientId, &Op),
        grant_receiver: GrantReceiver,
        store: &MemoryStore,
    ) -> Reply {
        let keys = op.keys();
        let before: Vec<_> = keys.iter().map(|key| self.snapshot(key)).collect();
        let wall = self.wall();
        let answer = if self.conditions.is_refusing() {
            Answer::Refused(StoreError::new(Outage::WritesRejected, REFUSAL))
        } else {
            op.apply(store, wall)
        };
        let effects = (keys.into_iter().zip(before))
            .map(|(key, before)| (key, before, self.snapshot(key)))
            .collect();
        let applied = Applied {
            client,
            id,
            grant_receiver,
            op,
            answer: &answer,
            effects,
        };
        self.witness.applied(&applied);
        wire::answer(&applied, wall)
    }
}

/// Returns the server's reply about itself.
pub(super) fn about() -> Value {
    wire::text("redis_version:7.0.15\r\nrun_id:0123456789abcdef\r\n")
}

impl fmt::Debug for FaultyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyServer").finish_non_exhaustive()
    }
}
