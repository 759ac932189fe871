//! PostgreSQL, as it is compared with the memory store.
//!
//! Time stands still in its database, unless the test moves it: `hand.clock_timestamp` is found
//! before the function of that name in `pg_catalog`, and reads the memory store's clock. So times
//! are compared to the milliseconds, and the true text of `sql/functions.sql` runs.
//!
//! What differs by design, and what becomes of it here; everything else is compared:
//!
//! | difference | reason | here |
//! |---|---|---|
//! | no reply is `Unfinished` | one statement removes any number of entries | few enough entries are added |
//! | no `KeyConflict` | columns have types | no operation makes a foreign value |
//! | an entry that is dead or overdue goes earlier | one statement removes all of a dead client, and all that are overdue | `settle` removes it in the other store, and fails if an entry is gone that was alive |
//! | an overdue waiter that acquires again is at the end | the same | its entry is removed before |
//! | a client is silent when its grant expires, and not from the next reply on | a grant is a row with a state of its own (R6, K13) | a grant expires, its client's waiters are overdue in memory, and another client checks the queue |
//! | expired rows stay until the next verb | nothing runs in the background | they are no part of a state |
//! | a mutex ends by the TTL of its last write | as a counted lock does (R21) | the time left is compared if that TTL is the one of its acquire, and not that of a grant |
//! | the last token is never forgotten earlier | no write shortens the life of its row | only a shorter life is a difference |
//! | a queue has no TTL of its own | its entries have | not compared |
//! | several keys are taken although a last token is ahead | one statement raises all of them | not done |
//! | readers share the last token, and no other | there is no column for their phase | no last token is put ahead of theirs |
//! | a read phase ends with its last reader, although revoked ones hold | the same | it ends in memory, and no reader waits meanwhile |
//! | a waiter that acquires again has its new lease | so do holders | it has its first lease |
//! | an owner that holds or waits is not asked for its kind | no call acquires as two kinds | not done |
//! | permits in use have the highest number of those held | there is no column for that of the last grant, which decides nothing (K17) | not compared while holds differ in it, or a waiter may be granted first |
//! | a late acquire is rejected for one lock, if its release found nothing | the owner's row says so (R2) | the memory store only checks the queue then |
//! | a hold is not taken over while a transaction has checked it in | only a database can (D-3) | it does not expire in memory |
//!
//! `LISTEN` on demand is not compared: each client waits once in the beginning, and by this clock
//! it has then waited a moment ago.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_tests::{PostgresServer, equal, eventually_async, within};
use tokio_postgres::Client;
use uuid::Uuid;

use super::op::{Act, Op, TIMINGS};
use super::side::{
    Clients, END, ENTRY, Events, InMemory, MAX_WAITERS, NAMESPACE, Side, events, settings,
};
use super::step::{LIMIT, Step};
use super::tables::{self, Tables, is_of, name};
use super::{CLIENTS, KEYS};
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, Grant, OwnerId};
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::{HandClock, Snapshot, owner_text, target};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::config::PostgresConfig;
use crate::store::{LockStore, StoreEvent};
use crate::util::clock::Clock;
use crate::util::random::SystemRandom;

/// Returns a file of `sql`.
pub(super) fn source(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("sql")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A clock that only moves by `setval`, in µs.
const CLOCK: &str = "
    CREATE SCHEMA hand;
    CREATE SEQUENCE hand.clock;
    CREATE FUNCTION hand.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
    DECLARE us bigint;
    BEGIN
      SELECT c.last_value INTO us FROM hand.clock c;
      RETURN 'epoch'::timestamptz + us * interval '1 microsecond';
    END $$;";

/// The number of entries that one operation adds at most: a call of the memory store removes them.
const MAX_ENTERED: u64 = 12;

/// The TTL of a grant that is not confirmed, unless its lease is shorter.
const MAX_SHORT_TTL: Duration = Duration::from_millis(1_250);

pub(super) struct InPostgres {
    stores: Vec<Box<dyn LockStore>>,
    clients: Clients,
    events: Vec<Events>,
    clock: Arc<HandClock>,
    tables: Tables,
    /// The connection of a transaction that checks in.
    pin: Client,
    is_pinned: bool,
    /// The entries that either store may have removed after this operation, as key and owner.
    stale: Vec<(usize, String)>,
    /// The cancelled owners, and the names of their locks.
    cancelled: HashSet<(String, String)>,
    _server: PostgresServer,
}

fn is_client(owner: &str, client: &ClientId) -> bool {
    owner.split_once(':').unwrap().0 == client.as_str()
}

impl InMemory {
    /// Returns the entries whose deadline has passed, or whose client is not connected.
    fn stale(&self, keys: &[LockKey; KEYS]) -> Vec<(usize, String)> {
        let mut stale = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            for entry in self.snapshot(key).queue {
                let is_alive = self.clients.iter().any(|id| is_client(&entry.owner, id));
                if !is_alive || entry.left.is_zero() {
                    stale.push((at, entry.owner));
                }
            }
        }
        stale
    }

    fn waits(&self, key: &LockKey, owner: &str) -> bool {
        let queue = self.snapshot(key).queue;
        queue.iter().any(|entry| entry.owner == owner)
    }

    fn holds(&self, key: &LockKey, owner: &str) -> bool {
        let snapshot = self.snapshot(key);
        snapshot.holds().any(|(its_owner, ..)| its_owner == owner)
    }
}

impl InPostgres {
    pub(super) async fn start() -> Self {
        let server = PostgresServer::builder()
            .setting("synchronous_commit", "off")
            .setting("search_path", "hand, pg_catalog")
            .start();
        let clock = Arc::new(HandClock::new());
        let set_clock = format!("SELECT setval('hand.clock', {})", clock.wall_micros());
        let (schema, functions) = (source("schema.sql"), source("functions.sql"));
        for text in [CLOCK, &set_clock, &schema, &functions] {
            server.sql(text);
        }
        let clients = Clients::new();
        let (mut stores, mut receivers) = (Vec::new(), Vec::new());
        for (id, max_waiters) in clients.ids.iter().zip(MAX_WAITERS) {
            let (sink, events) = events();
            let mut client = PostgresClient::new(
                PostgresConfig::parse(&server.url(), NAMESPACE, LIMIT).unwrap(),
                settings(max_waiters),
                clock.clone(),
                Arc::new(SystemRandom),
                (sink, Arc::new(|_| {})),
                Arc::default(),
            );
            client.uuid = Uuid::parse_str(id.as_str()).unwrap();
            client.id = id.clone();
            let store = PostgresStore::connect_lazy(client).store;
            eventually_async(LIMIT, async || equal(store.connected(), Ok(true))).await;
            // From now on it listens.
            store.check_queues(&[], LIMIT).await.unwrap();
            // Its hold shows its liveness lock.
            let key = LockKey::new(&format!("liveness lock {max_waiters}")).unwrap();
            let acquire = Acquire {
                target: target(&key, Kind::Mutex, OwnerId(1), ENTRY),
                wait: Duration::ZERO,
                metadata: None,
                once: None,
            };
            store.acquire(&acquire, LIMIT).await.unwrap();
            stores.push(store);
            receivers.push(events);
        }
        server
            .sql("CREATE TABLE hand.liveness_locks AS SELECT client, liveness FROM distlock.hold");
        InPostgres {
            stores,
            clients,
            events: receivers,
            clock,
            tables: Tables::connect(&server).await,
            pin: tables::connect(&server).await,
            is_pinned: false,
            stale: Vec::new(),
            cancelled: HashSet::new(),
            _server: server,
        }
    }

    /// Removes the overdue entries of a client from both stores.
    async fn forget_overdue(&mut self, client: usize, keys: &[LockKey; KEYS], memory: &InMemory) {
        let id = self.clients.ids[client].clone();
        let is_its = |(_, owner): &(usize, String)| is_client(owner, &id);
        let (overdue, stale) = self.stale.drain(..).partition(is_its);
        self.stale = stale;
        let overdue: Vec<(usize, String)> = overdue;
        for (key, owner) in overdue {
            memory.server.remove_entry(&keys[key], &owner);
            self.tables.delete_entry(&keys[key], &owner).await;
        }
    }

    /// Lets a grant to a client expire that it has not confirmed, and another client check the queue.
    async fn silence(
        &mut self,
        (client, key, kinds): (usize, usize, [Kind; KEYS]),
        keys: &[LockKey; KEYS],
        memory: &InMemory,
    ) -> Step {
        let granted = format!(
            "SELECT replace(client::text, '-', ''), owner FROM distlock.hold WHERE key = '{}' AND state = 'g'
             AND expires > clock_timestamp() ORDER BY since DESC LIMIT 1",
            name(&keys[key])
        );
        let granted = self.tables.rows(&granted).await;
        let Some([id, owner]) = granted.first().map(|row| &row[..]) else {
            return Step::Nothing;
        };
        let (id, owner): (_, i64) = (ClientId::from_str(id), owner.parse().unwrap());
        let queue = memory.snapshot(&keys[key]).queue;
        let waiters = queue.into_iter().map(|entry| entry.owner);
        let waiters: Vec<_> = waiters.filter(|waiter| is_client(waiter, &id)).collect();
        let mut others = (0..CLIENTS).map(|n| (client + n) % CLIENTS);
        let client = others.find(|n| self.clients.ids[*n] != id).unwrap();
        self.forget_overdue(client, keys, memory).await;
        self.stale
            .extend(waiters.iter().map(|waiter| (key, waiter.clone())));
        Step::Silent {
            key,
            owner: owner_text(&id, OwnerId(owner.cast_unsigned())),
            waiters,
            check: Op::CheckQueue { client },
            kinds,
        }
    }

    /// Makes the holders of a lock expire while a transaction has checked them in.
    async fn pin(&mut self, name: &str) {
        let live = format!("key = '{name}' AND expires > clock_timestamp()");
        let check_in =
            format!("ROLLBACK; BEGIN; SELECT FROM distlock.hold WHERE {live} FOR KEY SHARE");
        self.pin.batch_execute(&check_in).await.unwrap();
        self.tables
            .run(&format!(
                "UPDATE distlock.hold SET expires = expires - interval '1 day' WHERE {live}"
            ))
            .await;
        self.is_pinned = true;
    }

    async fn unpin(&mut self) {
        if std::mem::take(&mut self.is_pinned) {
            self.pin.batch_execute("ROLLBACK").await.unwrap();
            self.tables
                .run(
                    "UPDATE distlock.hold SET expires = expires + interval '1 day'
                 WHERE expires < clock_timestamp() - interval '12 h'",
                )
                .await;
        }
    }
}

#[async_trait(?Send)]
impl Side for InPostgres {
    fn stores(&self) -> &[Box<dyn LockStore>] {
        &self.stores
    }

    fn clients(&self) -> &Clients {
        &self.clients
    }

    fn clock(&self) -> Arc<HandClock> {
        self.clock.clone()
    }

    fn lacks(&self) -> &'static [&'static str] {
        &["unfinished", "one of several with a later token"]
    }

    fn has_own_time(&self) -> bool {
        false
    }

    fn remembers_cancelled(&self) -> bool {
        true
    }

    fn knows_last_permits(&self) -> bool {
        false
    }

    async fn adapt(&mut self, mut step: Step, keys: &[LockKey; KEYS], memory: &InMemory) -> Step {
        for key in keys {
            let Snapshot {
                phase,
                shares,
                queue,
                ..
            } = memory.snapshot(key);
            if phase.is_some() && shares.iter().any(|share| share.flag == 'r') {
                for entry in queue {
                    memory.server.remove_entry(key, &entry.owner);
                    self.tables.delete_entry(key, &entry.owner).await;
                }
            }
        }
        self.stale = memory.stale(keys);
        let snapshot = |key: usize| memory.snapshot(&keys[key]);
        match &mut step {
            Step::Enter { owners, .. } => owners.end = owners.end.min(owners.start + MAX_ENTERED),
            Step::Op(Op::Ahead { key }) if snapshot(*key).phase.is_some() => return Step::Nothing,
            Step::Op(Op::AcquireAll { keys: several, .. }) => {
                let now = FencingToken::new(self.clock.wall_micros());
                if several.iter().any(|key| snapshot(*key).fence >= Some(now)) {
                    return Step::Nothing;
                }
            }
            Step::OfKinds(Op::Silence { client, key }, kinds) => {
                let silence = (*client, *key, *kinds);
                return self.silence(silence, keys, memory).await;
            }
            Step::OfKinds(Op::CheckQueue { client }, _) => {
                self.forget_overdue(*client, keys, memory).await;
            }
            Step::Acquire {
                pick,
                key,
                kind,
                timing,
                pinned,
                ..
            } => {
                self.forget_overdue(pick.client, keys, memory).await;
                let (lock, owner) = (
                    &keys[*key],
                    owner_text(&self.clients.ids[pick.client], pick.owner),
                );
                let holds = memory.holds(lock, &owner);
                let in_use = memory.kind(lock).unwrap_or(kind.lock_kind());
                if (holds || memory.waits(lock, &owner)) && !in_use.is_same(kind.lock_kind()) {
                    return Step::Nothing;
                }
                *pinned &= !holds;
                let mut queue = snapshot(*key).queue.into_iter();
                if let Some(entry) = queue.find(|entry| entry.owner == owner) {
                    let known = TIMINGS.into_iter().find(|known| known.ttl() == entry.ttl);
                    *timing = known.unwrap_or(ENTRY);
                }
                if self.cancelled.contains(&(name(lock), owner)) {
                    return Step::Cancelled {
                        pick: *pick,
                        key: *key,
                        kind: *kind,
                        in_use,
                    };
                }
            }
            Step::OfKinds(
                Op::Act {
                    pick,
                    key,
                    act:
                        Act::Release {
                            unanswered: true,
                            keep_for,
                            ..
                        },
                },
                _,
            ) => {
                let (lock, owner) = (
                    &keys[*key],
                    owner_text(&self.clients.ids[pick.client], pick.owner),
                );
                let holds = memory.holds(lock, &owner);
                let (name, rows) = (name(lock), is_of(&owner));
                if !holds {
                    // An expired hold would be found.
                    self.tables.run(&format!(
                        "DELETE FROM distlock.hold WHERE key = '{name}' AND {rows} AND weight > 0"
                    ))
                    .await;
                }
                // A hold that `min_hold` keeps rejects a late acquire itself.
                if !holds || keep_for.is_zero() {
                    self.cancelled.insert((name, owner));
                }
            }
            _ => {}
        }
        step
    }

    async fn meddle(&mut self, keys: &[LockKey; KEYS], step: &Step) {
        let now = self.clock.wall_micros();
        let forgotten = match step {
            Step::Op(Op::DeleteAll { key }) => std::slice::from_ref(key),
            Step::Op(Op::AcquireAll { keys, .. }) => keys,
            _ => &[],
        };
        for key in forgotten {
            self.cancelled
                .retain(|(lock, _)| *lock != name(&keys[*key]));
        }
        let changes = tables::changes(keys, step);
        self.tables
            .run(&format!("SELECT setval('hand.clock', {now}); {changes}"))
            .await;
        if let Step::Acquire {
            key, pinned: true, ..
        } = step
        {
            self.pin(&name(&keys[*key])).await;
        }
    }

    async fn load(&mut self, functions: &str) {
        self.tables.run(functions).await;
    }

    async fn settle(&mut self, keys: &[LockKey; KEYS], memory: &InMemory) {
        self.unpin().await;
        for (key, owner) in std::mem::take(&mut self.stale) {
            let (lock, rows) = (&keys[key], is_of(&owner));
            let waits = format!(
                "SELECT FROM distlock.queue WHERE key = '{}' AND {rows}",
                name(lock)
            );
            match (
                memory.waits(lock, &owner),
                self.tables.rows(&waits).await.len(),
            ) {
                (true, 0) => memory.server.remove_entry(lock, &owner),
                (false, 1) => self.tables.delete_entry(lock, &owner).await,
                _ => {}
            }
        }
        for key in keys {
            let Snapshot { phase, shares, .. } = memory.snapshot(key);
            let mut of_phase = shares
                .iter()
                .filter(|share| Some(share.token) == phase && share.flag != 'r');
            if phase.is_some() && of_phase.next().is_none() {
                memory.server.end_phase(key);
            }
        }
    }

    /// Messages arrive in the order of their transactions.
    async fn messages(&mut self, client: usize) -> Vec<StoreEvent> {
        let id = self.clients.ids[client].as_str();
        let message = format!(
            "granted {} 1 1 1 m {NAMESPACE}:lock:end",
            END.0.cast_signed()
        );
        self.tables
            .run(&format!(
                "SELECT pg_notify('distlock:' || '{id}'::uuid, '{message}')"
            ))
            .await;
        let mut messages = Vec::new();
        loop {
            match within(LIMIT, self.events[client].recv()).await.unwrap() {
                StoreEvent::Granted(Grant { owner: END, .. }) => return messages,
                message => messages.push(message),
            }
        }
    }

    async fn snapshot(&mut self, key: &LockKey, in_memory: &mut Snapshot) -> Snapshot {
        let mut snapshot = self.tables.read(key, self.clock.wall_micros()).await;
        // See the table above.
        in_memory.queue_left = Duration::ZERO;
        snapshot.fence_left = snapshot.fence_left.min(in_memory.fence_left);
        if let (Some(LockKind::Semaphore { .. }), Some(LockKind::Semaphore { .. })) =
            (snapshot.kind, in_memory.kind)
        {
            snapshot.kind = in_memory.kind;
        }
        if let (Some(here), Some(there)) = (&mut snapshot.hold, &mut in_memory.hold)
            && (here.limit != there.limit || there.left <= MAX_SHORT_TTL)
        {
            (here.limit, here.left) = (there.limit, there.left);
        }
        snapshot
    }
}
