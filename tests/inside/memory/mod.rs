//! Behavior of the memory store that `tests/equivalence` does not compare with Redis: long times,
//! freed memory, long queues of dead waiters, and a grant that is used while it is delivered.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_tests::ms;

use super::hooks::{HandClock, target};
use super::{MemoryServer, MemoryStore};
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, AcquireReply, Grant, Inspection, OwnerId};
use crate::protocol::messages::{Confirm, Inspect, Release};
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::store::{LockStore, Settings, StoreEvent, StoreResult};
use crate::util::clock::{BootInstant, Clock};

const LEASE: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_secs(1);

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
        let store = self.store(max_waiters, move |grant| sink.lock().unwrap().push(grant));
        Client { store, grants }
    }

    fn store(
        &self,
        max_waiters: u32,
        granted: impl Fn(Grant) + Send + Sync + 'static,
    ) -> MemoryStore {
        MemoryStore::new(
            self.server.clone(),
            ClientId::new(),
            Settings {
                max_waiters,
                ..Settings::named("tester")
            },
            Arc::new(move |event| match event {
                StoreEvent::Granted(grant) => granted(grant),
                other => panic!("a memory store has nothing to reconnect: {other:?}"),
            }),
        )
    }
}

struct Client {
    store: MemoryStore,
    grants: Arc<Mutex<Vec<Grant>>>,
}

impl Client {
    fn acquire_with(
        &self,
        name: &str,
        owner: u64,
        lease: Duration,
        wait: Duration,
    ) -> StoreResult<AcquireReply> {
        let key = key(name);
        let request = Acquire {
            target: target(&key, Kind::Mutex, OwnerId(owner), Timing::new(lease)),
            wait,
            metadata: None,
            once: None,
        };
        at_once(self.store.acquire(&request, WITHIN))
    }

    fn acquire(&self, name: &str, owner: u64) -> AcquireReply {
        self.acquire_with(name, owner, LEASE, ms(10_000)).unwrap()
    }

    /// Acquires the lock, which must be free. Returns the token.
    fn take(&self, name: &str, owner: u64) -> u64 {
        match self.acquire(name, owner) {
            AcquireReply::Held(proof) => proof.token.get(),
            other => panic!("{name} is not free: {other:?}"),
        }
    }

    /// Queues for the lock, which must not be free.
    fn queue(&self, name: &str, owner: u64) {
        let reply = self.acquire(name, owner);
        assert!(
            matches!(reply, AcquireReply::Queued(_)),
            "{name}, {owner}: {reply:?}"
        );
    }

    fn release(&self, name: &str, owner: u64) -> bool {
        self.release_after(name, owner, None)
    }

    fn release_after(&self, name: &str, owner: u64, unanswered_until: Option<BootInstant>) -> bool {
        let key = key(name);
        let release = Release {
            target: target(&key, Kind::Mutex, OwnerId(owner), Timing::new(LEASE)),
            keep_for: Duration::ZERO,
            unanswered_until,
            success: None,
        };
        let released = at_once(self.store.release(&release, WITHIN));
        released.unwrap().was_held
    }

    fn inspect(&self, name: &str) -> Inspection {
        let key = &key(name);
        let max_listed = 10;
        let inspect = Inspect { key, max_listed };
        at_once(self.store.inspect(&inspect, WITHIN)).unwrap()
    }

    /// Returns the owners granted since the last call.
    fn granted(&self) -> Vec<u64> {
        let grants = std::mem::take(&mut *self.grants.lock().unwrap());
        grants.iter().map(|grant| grant.owner.0).collect()
    }
}

#[test]
fn every_key_expires() {
    let world = World::new();
    let a = world.client();
    for n in 0..1_000 {
        let name = format!("used once {n}");
        a.take(&name, n);
        a.release(&name, n);
    }
    assert_eq!(
        world.server.remembered(),
        1_000,
        "tokens are kept for two hours"
    );
    world.clock.advance(Duration::from_secs(2 * 3_600));
    // A quiet server needs some calls to notice; a server with only new keys does not grow forever.
    for n in 0..600 {
        a.inspect("another");
        assert!(world.server.remembered() <= 1_000 - n.min(500) * 2);
    }
    assert_eq!(world.server.remembered(), 0);
    for n in 0..20_000 {
        let name = format!("one of many {n}");
        a.take(&name, n);
        a.release(&name, n);
        world.clock.advance(Duration::from_secs(72)); // 100 tokens in two hours
        assert!(
            world.server.remembered() <= 300,
            "{n}: {}",
            world.server.remembered()
        );
    }
}

/// A shutdown may release for an owner whose acquire another thread is about to run.
#[test]
fn an_acquire_after_its_release_is_rejected() {
    let world = World::new();
    let a = world.client();
    let acquire = |owner| a.acquire_with("k", owner, LEASE, ms(0));
    let until = Some(world.clock.now() + WITHIN);
    assert!(!a.release_after("k", 1, until));
    assert!(acquire(1).unwrap_err().is_unanswered());
    assert_eq!(a.inspect("k").holders.len(), 0);
    a.take("k", 2);
    a.release("k", 2);
    world.clock.advance(Duration::from_secs(61));
    acquire(1).expect("the server has forgotten it");
}

#[test]
fn a_release_reaches_a_live_waiter_behind_any_number_of_dead_ones() {
    let world = World::new();
    let (a, dead, live) = (world.client(), world.client(), world.client());
    a.take("k", 1);
    for owner in 1..=250 {
        dead.queue("k", owner);
    }
    live.queue("k", 1);
    dead.store.close();
    a.release("k", 1);
    assert_eq!((dead.granted(), live.granted()), (vec![], vec![1]));
    let key = &key("k");
    let closed = at_once(dead.store.inspect(&Inspect { key, max_listed: 0 }, WITHIN));
    assert!(closed.is_err(), "it is closed");
}

#[test]
fn all_owners_find_room_among_dead_waiters() {
    for owner in 200..400 {
        let world = World::new();
        let (a, dead, live) = (world.client(), world.client(), world.client_with(251));
        a.take("k", 1);
        live.queue("k", 1);
        for waiter in 1..=250 {
            dead.queue("k", waiter);
        }
        dead.store.close();
        live.queue("k", owner);
    }
}

#[test]
fn a_forgotten_queue_ends() {
    let world = World::new();
    let a = world.client();
    for (owner, lease, wait) in [(1, 60_000, 0), (2, 30_000, 1), (3, 30_000, 0)] {
        a.acquire_with("k", owner, ms(lease), ms(wait)).unwrap();
    }
    world.clock.advance(ms(12_000));
    assert_eq!(a.inspect("k").queue_length, 1);
    world.clock.advance(ms(1));
    assert_eq!(a.inspect("k").queue_length, 0);
}

#[test]
fn a_grant_may_be_used_while_it_is_delivered() {
    let world = World::new();
    let holder = world.client();
    let confirmed = Arc::new(Mutex::new(None));
    let eager: Arc<OnceLock<Client>> = Arc::default();
    let (client, result) = (eager.clone(), confirmed.clone());
    let store = world.store(10_000, move |grant| {
        let confirm = Confirm {
            target: target(&grant.key, Kind::Mutex, grant.owner, Timing::new(LEASE)),
            once: None,
        };
        let store = &client.get().expect("it waits").store;
        *result.lock().unwrap() = at_once(store.confirm(&confirm, WITHIN)).unwrap().proof();
    });
    let grants = Arc::default();
    let eager = eager.get_or_init(|| Client { store, grants });
    holder.take("k", 1);
    eager.queue("k", 1);
    holder.release("k", 1);
    assert!(confirmed.lock().unwrap().is_some());
    eager.store.close(); // the sink owns the store that owns the server
}
