//! The rules of the memory store that depend on time or on its memory, tested with a manual clock.
//! `tests/equivalence` compares all others with Redis.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::hooks::HandClock;
use super::{MemoryServer, MemoryStore};
use crate::config::options::Durability;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, Grant, Inspection,
    OwnerNumber,
};
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Inspect, Release, StoreCommand};
use crate::store::{LockStore, Settings, StoreEvent, run};
use crate::util::random::SystemRandom;

mod holding;
mod waiting;

const LEASE: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_secs(1);
/// Lease and grace period of a pushed grant.
const GRANT: Duration = Duration::from_millis(1_250);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(key: &str) -> LockKey {
    LockKey::new(key).unwrap()
}

/// Returns the output of a ready future; the memory store never waits.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a memory store must answer at once"),
    }
}

struct World {
    clock: Arc<HandClock>,
    server: MemoryServer,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(HandClock::new());
        let server = MemoryServer::new(clock.clone());
        World { clock, server }
    }

    fn client(&self) -> Client {
        self.client_with(10_000)
    }

    fn client_with(&self, max_waiters: u32) -> Client {
        let grants = Arc::new(Mutex::new(Vec::new()));
        let sink = grants.clone();
        let store = MemoryStore::new(
            self.server.clone(),
            ClientId::new(&SystemRandom),
            Settings {
                max_waiters,
                ..Settings::named("tester")
            },
            Arc::new(move |event| match event {
                StoreEvent::Granted(grant) => sink.lock().unwrap().push(grant),
                other => panic!("a memory store has nothing to reconnect: {other:?}"),
            }),
        );
        Client { store, grants }
    }
}

struct Client {
    store: MemoryStore,
    grants: Arc<Mutex<Vec<Grant>>>,
}

impl Client {
    fn run<C: StoreCommand>(&self, command: C) -> C::Reply {
        at_once(run(&self.store, command, WITHIN)).unwrap()
    }

    fn acquire_with(
        &self,
        name: &str,
        owner: OwnerNumber,
        lease: Duration,
        wait: Duration,
    ) -> AcquireReply {
        let key = key(name);
        let request = Acquire {
            kind: Kind::Mutex,
            key: &key,
            owner,
            timing: Timing::new(lease),
            durability: Durability::NONE,
            wait,
            metadata: None,
            once: None,
        };
        self.run(request)
    }

    fn acquire(&self, name: &str, owner: OwnerNumber) -> AcquireReply {
        self.acquire_with(name, owner, LEASE, ms(10_000))
    }

    /// Acquires the lock, which must be free. Returns the token.
    fn take(&self, name: &str, owner: OwnerNumber) -> u64 {
        match self.acquire(name, owner) {
            AcquireReply::Held(proof) => proof.token.get(),
            other => panic!("{name} is not free: {other:?}"),
        }
    }

    /// Queues for the lock, which must not be free.
    fn queue(&self, name: &str, owner: OwnerNumber) {
        let reply = self.acquire(name, owner);
        assert!(
            matches!(reply, AcquireReply::Queued(_)),
            "{name}, {owner}: {reply:?}"
        );
    }

    fn release(&self, name: &str, owner: OwnerNumber) -> bool {
        let key = key(name);
        let release = Release {
            kind: Kind::Mutex,
            key: &key,
            owner,
            keep_for: Duration::ZERO,
            success: None,
        };
        self.run(release).was_held
    }

    fn confirm(&self, name: &str, owner: OwnerNumber) -> Option<u64> {
        let confirm = Confirm {
            kind: Kind::Mutex,
            key: &key(name),
            owner,
            timing: Timing::new(LEASE),
            durability: Durability::NONE,
            once: None,
        };
        match self.run(confirm) {
            Confirmation::Held(proof) => Some(proof.token.get()),
            _ => None,
        }
    }

    fn check_queue(
        &self,
        name: &str,
        owners: &[OwnerNumber],
    ) -> (Option<OwnerNumber>, Vec<OwnerNumber>) {
        let checks = [CheckQueue {
            is_counted: false,
            key: key(name),
            owners: owners.to_vec(),
        }];
        match self.run(&checks[..]).pop() {
            Some(CheckQueueReply::Checked {
                holding, missing, ..
            }) => (holding.first().copied(), missing),
            other => panic!("{other:?}"),
        }
    }

    fn inspect(&self, name: &str) -> Inspection {
        let key = &key(name);
        *self.run(Inspect {
            key,
            max_listed: 10,
        })
    }

    /// Returns the owners granted since the last call.
    fn granted(&self) -> Vec<OwnerNumber> {
        let grants = std::mem::take(&mut *self.grants.lock().unwrap());
        grants.iter().map(|grant| grant.owner).collect()
    }
}
