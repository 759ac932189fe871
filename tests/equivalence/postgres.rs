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
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_tests::{PostgresServer, equal, eventually_async, within};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use super::op::{Act, Op, TIMINGS, WAIT};
use super::side::{
    Clients, END, ENTRY, Events, InMemory, MAX_WAITERS, NAMESPACE, Side, events, settings,
};
use super::step::{LIMIT, Step};
use super::{CLIENTS, KEYS};
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, Grant, OwnerId};
use crate::protocol::once::Record;
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::{
    EntrySnapshot, HandClock, HoldSnapshot, RecordSnapshot, ShareSnapshot, Snapshot, owner_text,
    target,
};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::config::PostgresConfig;
use crate::store::{LockStore, StoreEvent};
use crate::util::clock::{Clock, ServerTime};
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

/// The advisory lock of the client that is never connected.
const NO_LIVENESS_LOCK: i64 = 1;

/// Everything of a lock named `$1`: rows that begin with the table's name.
const READ: &str = "
    SELECT 'lock', token, distlock.us(expires) FROM distlock.lock WHERE key = $1;
    SELECT 'hold', client, owner, kind, weight, capacity, ttl, token, state, distlock.us(since), distlock.us(expires),
      name FROM distlock.hold WHERE key = $1 AND weight > 0 AND expires > clock_timestamp();
    SELECT 'queue', client, owner, kind, weight, capacity, ttl, distlock.us(deadline), name
      FROM distlock.queue WHERE key = $1 ORDER BY place;
    SELECT 'record', selector, distlock.us(since), gap, token, distlock.us(finished), distlock.us(expires), name
      FROM distlock.record WHERE key = $1 AND expires > clock_timestamp() ORDER BY selector";

pub(super) struct InPostgres {
    stores: Vec<Box<dyn LockStore>>,
    clients: Clients,
    events: Vec<Events>,
    clock: Arc<HandClock>,
    raw: Client,
    /// The connection of a transaction that checks in.
    pin: Client,
    is_pinned: bool,
    /// The entries that either store may have removed after this operation, as key and owner.
    stale: Vec<(usize, String)>,
    /// The cancelled owners, and the names of their locks.
    cancelled: HashSet<(String, String)>,
    _server: PostgresServer,
}

async fn connect(server: &PostgresServer) -> Client {
    let socket = TcpStream::connect(server.addr()).await.unwrap();
    let config: Config = server.url().parse().unwrap();
    let (client, connection) = config.connect_raw(socket, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn name(key: &LockKey) -> String {
    let key = key.as_str();
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    format!("{NAMESPACE}:lock:{}", inner.unwrap_or(key))
}

/// Returns the condition of the rows of an owner.
fn is_of(owner: &str) -> String {
    let (client, number) = owner.split_once(':').unwrap();
    let number: u64 = number.parse().unwrap();
    format!("client = '{client}' AND owner = {}", number.cast_signed())
}

fn is_client(owner: &str, client: &ClientId) -> bool {
    owner.split_once(':').unwrap().0 == client.as_str()
}

fn letter(kind: Kind) -> char {
    match kind.lock_kind() {
        LockKind::Mutex => 'm',
        LockKind::ReadWrite => 'r',
        LockKind::Semaphore { .. } => 'p',
    }
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
            raw: connect(&server).await,
            pin: connect(&server).await,
            is_pinned: false,
            stale: Vec::new(),
            cancelled: HashSet::new(),
            _server: server,
        }
    }

    async fn run(&self, text: &str) {
        let done = self.raw.batch_execute(text).await;
        done.unwrap_or_else(|error| panic!("{error:?} in {text}"));
    }

    /// Returns the columns of all rows.
    async fn rows(&self, text: &str) -> Vec<Vec<String>> {
        let messages = self.raw.simple_query(text).await;
        let messages = messages.unwrap_or_else(|error| panic!("{error:?} in {text}"));
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|i| row.get(i).unwrap().to_owned())
                    .collect(),
            ),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
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
            self.delete_entry(&keys[key], &owner).await;
        }
    }

    async fn delete_entry(&self, key: &LockKey, owner: &str) {
        let (name, owner) = (name(key), is_of(owner));
        self.run(&format!(
            "DELETE FROM distlock.queue WHERE key = '{name}' AND {owner}"
        ))
        .await;
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
        let granted = self.rows(&granted).await;
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
        self.run(&format!(
            "UPDATE distlock.hold SET expires = expires - interval '1 day' WHERE {live}"
        ))
        .await;
        self.is_pinned = true;
    }

    async fn unpin(&mut self) {
        if std::mem::take(&mut self.is_pinned) {
            self.pin.batch_execute("ROLLBACK").await.unwrap();
            self.run(
                "UPDATE distlock.hold SET expires = expires + interval '1 day'
                 WHERE expires < clock_timestamp() - interval '12 h'",
            )
            .await;
        }
    }

    /// Returns the statements that change what no client changes.
    fn changes(&mut self, keys: &[LockKey; KEYS], step: &Step) -> String {
        let of = |key: &usize| format!("key = '{}'", name(&keys[*key]));
        let live =
            |key: &usize| format!("{} AND weight > 0 AND expires > clock_timestamp()", of(key));
        let expire = |rows: &str| {
            // A grant that is gone is not one that expires unconfirmed.
            format!(
                "DELETE FROM distlock.hold WHERE {rows} AND state = 'g';
                 UPDATE distlock.hold SET expires = clock_timestamp() WHERE {rows}"
            )
        };
        let row = |key: &usize| {
            format!(
                "INSERT INTO distlock.lock AS l VALUES ('{}', 0, clock_timestamp() + interval '2 min') ON CONFLICT DO NOTHING",
                name(&keys[*key])
            )
        };
        match step {
            Step::Op(Op::DeleteHolds { key }) => expire(&live(key)),
            Step::Expire { key, owner, .. } => {
                expire(&format!("{} AND {}", live(key), is_of(owner)))
            }
            Step::Silent { key, owner, .. } => format!(
                "UPDATE distlock.hold SET expires = clock_timestamp() WHERE {} AND {}",
                of(key),
                is_of(owner)
            ),
            Step::Op(Op::DeleteAll { key }) => {
                self.cancelled
                    .retain(|(lock, _)| *lock != name(&keys[*key]));
                let tables = ["lock", "hold", "queue", "record"];
                let delete = |table| format!("DELETE FROM distlock.{table} WHERE {};", of(key));
                tables.map(delete).concat()
            }
            Step::Op(Op::Ahead { key }) => format!(
                "{}; UPDATE distlock.lock SET token = distlock.us(clock_timestamp()) + 3600000000,
                   expires = greatest(expires, clock_timestamp() + interval '3 h') WHERE {}",
                row(key),
                of(key)
            ),
            Step::Op(Op::ShiftHold { key, hours }) => format!(
                "UPDATE distlock.hold SET since = since + {hours} * interval '1 h' WHERE {} AND kind = 'm'",
                live(key)
            ),
            Step::Op(Op::ShiftRecords { key, hours }) => format!(
                "UPDATE distlock.record SET since = since + {hours} * interval '1 h' WHERE {}",
                of(key)
            ),
            Step::Op(Op::StepBack { key }) => format!(
                "UPDATE distlock.hold SET expires = expires + interval '1 h' WHERE {}",
                live(key)
            ),
            // Rows of holders that are gone, and of cancelled owners, count as holders.
            Step::Op(Op::AcquireAll { keys: several, .. }) => {
                let mut text = String::new();
                for key in *several {
                    self.cancelled
                        .retain(|(lock, _)| *lock != name(&keys[*key]));
                    let gone = "(weight = 0 OR expires <= clock_timestamp())";
                    write!(
                        text,
                        "DELETE FROM distlock.hold WHERE {} AND {gone};",
                        of(key)
                    )
                    .unwrap();
                }
                text
            }
            Step::Enter {
                key,
                client,
                kind,
                owners,
            } => {
                let first = owners.start.cast_signed();
                let last = owners.end.cast_signed() - 1;
                format!(
                    "{}; INSERT INTO distlock.queue SELECT '{}',
                       coalesce((SELECT max(place) FROM distlock.queue WHERE {}), 0) + 1 + o - {first}, '{}', o, '{}', {}, {},
                       {}, {}, coalesce((SELECT liveness FROM hand.liveness_locks d WHERE d.client = '{3}'), {NO_LIVENESS_LOCK}),
                       clock_timestamp() + interval '{} s', clock_timestamp(), 'entered' FROM generate_series({first}, {last}) o",
                    row(key),
                    name(&keys[*key]),
                    of(key),
                    client.as_str(),
                    letter(*kind),
                    kind.capacity(),
                    kind.weight(),
                    ENTRY.lease.as_millis(),
                    ENTRY.ttl().as_millis(),
                    WAIT.as_secs()
                )
            }
            Step::Lapse { key, owner } => format!(
                "UPDATE distlock.queue SET deadline = clock_timestamp() - interval '1 s' WHERE {} AND {}",
                of(key),
                is_of(owner)
            ),
            _ => String::new(),
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
                    self.delete_entry(key, &entry.owner).await;
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
                    self.run(&format!(
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
        let changes = self.changes(keys, step);
        self.run(&format!("SELECT setval('hand.clock', {now}); {changes}"))
            .await;
        if let Step::Acquire {
            key, pinned: true, ..
        } = step
        {
            self.pin(&name(&keys[*key])).await;
        }
    }

    async fn load(&mut self, functions: &str) {
        self.run(functions).await;
    }

    async fn settle(&mut self, keys: &[LockKey; KEYS], memory: &InMemory) {
        self.unpin().await;
        for (key, owner) in std::mem::take(&mut self.stale) {
            let (lock, rows) = (&keys[key], is_of(&owner));
            let waits = format!(
                "SELECT FROM distlock.queue WHERE key = '{}' AND {rows}",
                name(lock)
            );
            match (memory.waits(lock, &owner), self.rows(&waits).await.len()) {
                (true, 0) => memory.server.remove_entry(lock, &owner),
                (false, 1) => self.delete_entry(lock, &owner).await,
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
        self.run(&format!(
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
        let now = self.clock.wall_micros();
        let mut snapshot = Snapshot {
            hold: None,
            shares: Vec::new(),
            kind: None,
            phase: None,
            queue: Vec::new(),
            queue_left: Duration::ZERO,
            fence: None,
            fence_left: Duration::ZERO,
            records: Vec::new(),
        };
        let read = READ.replace("$1", &format!("'{}'", name(key)));
        for row in self.rows(&read).await {
            let number = |i: usize| row[i].parse::<i64>().unwrap();
            let positive = |i: usize| u64::try_from(number(i)).unwrap();
            let small = |i: usize| row[i].parse::<u32>().unwrap();
            let millis = |i: usize| Duration::from_millis(positive(i));
            let left = |i: usize| Duration::from_micros(positive(i).saturating_sub(now));
            let token = |i: usize| FencingToken::new(positive(i));
            let owner = || {
                let client = row[1].replace('-', "");
                owner_text(
                    &ClientId::from_str(&client),
                    OwnerId(number(2).cast_unsigned()),
                )
            };
            let kind = || match &*row[3] {
                "m" => LockKind::Mutex,
                "r" => LockKind::ReadWrite,
                _ => LockKind::Semaphore { permits: small(5) },
            };
            match &*row[0] {
                "lock" => {
                    snapshot.fence = Some(positive(1))
                        .filter(|token| *token > 0)
                        .map(FencingToken::new);
                    snapshot.fence_left = snapshot.fence.map_or(Duration::ZERO, |_| left(2));
                }
                "hold" if kind() == LockKind::Mutex => {
                    snapshot.hold = Some(HoldSnapshot {
                        owner: owner(),
                        token: token(7),
                        limit: millis(6),
                        since: positive(9),
                        name: row[11].clone(),
                        left: left(10),
                    });
                }
                "hold" => {
                    let is_reader = kind() == LockKind::ReadWrite && row[4] < row[5];
                    if is_reader && row[8] != "r" && snapshot.fence == Some(token(7)) {
                        snapshot.phase = snapshot.fence;
                    }
                    snapshot.kind = Some(kind());
                    snapshot.shares.push(ShareSnapshot {
                        owner: owner(),
                        weight: small(4),
                        flag: row[8].replace('g', "h").parse().unwrap(),
                        token: token(7),
                        since: positive(9),
                        name: row[11].clone(),
                        left: left(10),
                    });
                }
                "queue" => snapshot.queue.push(EntrySnapshot {
                    owner: owner(),
                    kind: kind(),
                    weight: small(4),
                    ttl: millis(6),
                    name: row[8].clone(),
                    left: left(7),
                }),
                _ => snapshot.records.push(RecordSnapshot {
                    selector: row[1].clone(),
                    record: Record {
                        since: ServerTime(positive(2)),
                        gap: millis(3),
                        token: token(4),
                        finished: ServerTime(positive(5)),
                        holder_name: row[7].clone(),
                    },
                    left: left(6),
                }),
            }
        }
        snapshot.shares.sort_by(|a, b| a.owner.cmp(&b.owner));
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
