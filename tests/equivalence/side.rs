//! The memory store and Redis, each with three clients, and what a server must do to be compared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_tests::{RedisServer, Resp, within};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::keys::Keys;
use super::op::{By, Op, Pick, WAIT};
use super::step::{LIMIT, Step};
use super::{CLIENTS, KEYS};
use crate::config::options::DEFAULT_FENCE_TTL;
use crate::error::LockKind;
use crate::key::LockKey;
use crate::manager::builder::dependencies::Dependencies;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Grant, OwnerId};
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::memory::hooks::{HandClock, Snapshot, owner_text};
use crate::store::memory::server::MemoryServer;
use crate::store::redis::conn::client::Client;
use crate::store::redis::open;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{EventSink, LockStore, Settings, StoreEvent};

pub(super) const NAMESPACE: &str = "equivalence";
const NAME: &str = "a name of words";

/// Two clients with narrow queues, and one that never finds a queue full.
pub(super) const MAX_WAITERS: [u32; CLIENTS] = [10_000, 5, 3];

/// The owner in the grant that marks the end of the messages.
pub(super) const END: OwnerId = OwnerId(u64::MAX);

/// The timing of added entries.
pub(super) const ENTRY: Timing = Timing {
    lease: Duration::from_secs(20),
};

/// Returns the fields with which the entry of a counted lock names its kind.
fn kind_text(kind: Kind) -> String {
    match kind {
        Kind::Mutex => "mutex 1 1 ".to_owned(),
        Kind::Read => "rw 1000 1 ".to_owned(),
        Kind::Write => "rw 1000 1000 ".to_owned(),
        Kind::Permits { permits, weight } => format!("permits {permits} {weight} "),
    }
}

pub(super) fn settings(max_waiters: u32) -> Settings {
    Settings {
        max_waiters,
        // Different for each client, so that a fence shows which client wrote it.
        fence_ttl: DEFAULT_FENCE_TTL + Duration::from_secs(60 * u64::from(max_waiters)),
        ..Settings::named(NAME)
    }
}

/// The receiver of a client's events.
pub(super) type Events = UnboundedReceiver<StoreEvent>;

pub(super) fn events() -> (EventSink, Events) {
    let (sender, receiver) = unbounded_channel();
    let sink = move |event| {
        // The receiver is dropped when the test has ended.
        let _ = sender.send(event);
    };
    (Arc::new(sink), receiver)
}

/// A store on a server, which is compared with the memory store.
#[async_trait(?Send)]
pub(super) trait Side {
    fn stores(&self) -> &[Box<dyn LockStore>];

    fn clients(&self) -> &Clients;

    /// The clock of the memory store, and of a server that has no other.
    fn clock(&self) -> Arc<HandClock>;

    /// The kinds of replies that do not occur.
    fn lacks(&self) -> &'static [&'static str];

    /// Returns true if time passes on the server while operations run.
    fn has_own_time(&self) -> bool;

    /// Returns true if it rejects the late acquires of an owner that it did not know when that was
    /// released.
    fn remembers_cancelled(&self) -> bool {
        false
    }

    /// Returns true if it remembers the number of permits of the last grant.
    fn knows_last_permits(&self) -> bool {
        true
    }

    /// Returns true if an acquire of a mutex raises the token of a counted lock.
    fn raises_other_tokens(&self) -> bool {
        false
    }

    /// Returns what takes the place of an operation whose effect would differ by design.
    async fn adapt(&mut self, step: Step, _keys: &[LockKey; KEYS], _memory: &InMemory) -> Step {
        step
    }

    /// Applies an operation that no client does.
    async fn meddle(&mut self, keys: &[LockKey; KEYS], step: &Step);

    /// Replaces the functions of the server, if it has any.
    #[cfg(feature = "postgres")]
    async fn load(&mut self, _functions: &str) {}

    /// Removes what only one of the stores has removed by now, and may keep.
    async fn settle(&mut self, _keys: &[LockKey; KEYS], _memory: &InMemory) {}

    /// Returns the messages to a client since the last call.
    async fn messages(&mut self, client: usize) -> Vec<StoreEvent>;

    /// Returns the state of a lock, and changes what differs by design in that of the memory store.
    async fn snapshot(&mut self, key: &LockKey, in_memory: &mut Snapshot) -> Snapshot;
}

pub(super) struct InMemory {
    pub(super) stores: Vec<Box<dyn LockStore>>,
    pub(super) server: MemoryServer,
    clock: Arc<HandClock>,
    pub(super) clients: Vec<ClientId>,
    stranger: ClientId,
    events: Vec<Events>,
}

impl InMemory {
    pub(super) fn new(clients: &Clients, clock: Arc<HandClock>) -> Self {
        let server = MemoryServer::new(clock.clone());
        let (stores, events) = (clients.ids.iter().zip(MAX_WAITERS))
            .map(|(id, max_waiters)| {
                let (sink, events) = events();
                let settings = settings(max_waiters);
                let store = MemoryStore::new(server.clone(), id.clone(), settings, sink);
                (Box::new(store) as Box<dyn LockStore>, events)
            })
            .unzip();
        InMemory {
            stores,
            server,
            clock,
            clients: clients.ids.clone(),
            stranger: clients.stranger.clone(),
            events,
        }
    }

    /// Advances the clock, so that no two operations share a microsecond.
    pub(super) fn tick(&self) {
        self.clock.advance(Duration::from_micros(100));
    }

    pub(super) fn client(&self, number: Option<usize>) -> ClientId {
        number
            .map_or(&self.stranger, |number| &self.clients[number])
            .clone()
    }

    /// Returns a pick of the same owner by number.
    pub(super) fn by_number(&self, pick: Pick, key: &LockKey) -> Pick {
        let found = match pick.by {
            By::Holder(nth) => self.holder(nth, key),
            By::Waiting(nth) => self.waiting(nth, key),
            By::Number => None,
        };
        let ours = |owner: String| self.ours(&owner);
        let (client, owner) = (found.and_then(ours)).unwrap_or((pick.client, pick.owner));
        let by = By::Number;
        Pick { by, client, owner }
    }

    /// Returns the client and the number of an owner, unless it is a stranger's.
    pub(super) fn ours(&self, owner: &str) -> Option<(usize, OwnerId)> {
        let mut clients = self.clients.iter().enumerate();
        clients.find_map(|(client, id)| Some((client, id.recognize(owner).1?)))
    }

    pub(super) fn holder(&self, nth: usize, key: &LockKey) -> Option<String> {
        let Snapshot { hold, shares, .. } = self.snapshot(key);
        let mut owners: Vec<_> = shares.into_iter().map(|share| share.owner).collect();
        owners.extend(hold.map(|hold| hold.owner));
        let nth = nth.checked_rem(owners.len())?;
        Some(owners.swap_remove(nth))
    }

    /// Returns the kind as which a lock is in use.
    pub(super) fn kind(&self, key: &LockKey) -> Option<LockKind> {
        self.server.kind(key)
    }

    /// Returns true if all holds have the number of permits of the last grant of their lock.
    pub(super) fn has_plain_permits(&self, keys: &[LockKey; KEYS]) -> bool {
        keys.iter().all(|key| self.server.has_one_number(key))
    }

    pub(super) fn waiting(&self, nth: usize, key: &LockKey) -> Option<String> {
        let queue = self.snapshot(key).queue;
        Some(queue.into_iter().nth(nth)?.owner)
    }

    /// Applies an operation that no client does.
    pub(super) fn meddle(&self, keys: &[LockKey; KEYS], step: &Step) {
        match step {
            Step::Op(Op::DeleteHolds { key }) => self.server.delete_holds(&keys[*key]),
            Step::OfKinds(Op::Silence { client, key }, _) => {
                self.server.silence(&keys[*key], &self.clients[*client]);
            }
            Step::Expire { key, owner, .. } => self.server.expire_share(&keys[*key], owner),
            Step::Op(Op::DeleteAll { key }) => self.server.delete_all(&keys[*key]),
            Step::Op(Op::Ahead { key }) => self.server.put_token_ahead(&keys[*key]),
            Step::Op(Op::ShiftHold { key, hours }) => self.server.shift_hold(&keys[*key], *hours),
            Step::Op(Op::ShiftRecords { key, hours }) => {
                self.server.shift_records(&keys[*key], *hours);
            }
            Step::Enter {
                key,
                client,
                kind,
                owners,
            } => {
                for owner in owners.clone().map(OwnerId) {
                    self.server
                        .add_entry(&keys[*key], client, owner, *kind, ENTRY, WAIT);
                }
            }
            Step::Lapse { key, owner } => self.server.lapse(&keys[*key], owner),
            Step::Silent {
                key,
                owner,
                waiters,
                ..
            } => {
                self.server.expire_share(&keys[*key], owner);
                for waiter in waiters {
                    self.server.lapse(&keys[*key], waiter);
                }
            }
            _ => {}
        }
    }

    /// Returns true if a newcomer acquires while the queue is full.
    pub(super) fn finds_full(&self, keys: &[LockKey; KEYS], step: &Step) -> bool {
        let Step::Acquire { pick, key, .. } = *step else {
            return false;
        };
        let queue = self.snapshot(&keys[key]).queue;
        let owner = owner_text(&self.clients[pick.client], pick.owner);
        queue.len() >= MAX_WAITERS[pick.client] as usize
            && queue.iter().all(|entry| entry.owner != owner)
    }

    /// Returns why locks cannot be acquired in one step.
    pub(super) fn obstacles(&self, keys: &[LockKey; KEYS], step: &Step) -> Vec<&'static str> {
        let Step::Op(Op::AcquireAll { keys: several, .. }) = step else {
            return Vec::new();
        };
        let obstacle = |key: &usize| match self.snapshot(&keys[*key]) {
            Snapshot { hold: Some(_), .. } => Some("one of several held"),
            Snapshot { shares, .. } if !shares.is_empty() => Some("one of several counted"),
            Snapshot { queue, .. } if !queue.is_empty() => Some("one of several queued for"),
            _ => None,
        };
        let mut obstacles: Vec<_> = several.iter().filter_map(obstacle).collect();
        if obstacles.is_empty() {
            obstacles.push("one of several with a later token");
        } else if obstacles.len() < several.len() {
            obstacles.push("some of several free");
        }
        obstacles
    }

    /// Returns the number of waiters of all locks.
    pub(super) fn queued(&self, keys: &[LockKey; KEYS]) -> usize {
        keys.iter().map(|key| self.snapshot(key).queue.len()).sum()
    }

    /// Returns what a queue check left for the next: a free lock with more entries than its limit.
    pub(super) fn unfinished(&self, keys: &[LockKey; KEYS], step: &Step) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        if matches!(step, Step::OfKinds(Op::CheckQueue { .. }, _)) {
            for key in keys {
                let observed = self.snapshot(key);
                let is_free = observed.hold.is_none() && observed.shares.is_empty();
                if is_free && !observed.queue.is_empty() {
                    kinds.push("unfinished");
                }
            }
        }
        kinds
    }

    /// Returns the messages to a client since the last call.
    pub(super) fn messages(&mut self, client: usize) -> Vec<StoreEvent> {
        let events = &mut self.events[client];
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }

    pub(super) fn snapshot(&self, key: &LockKey) -> Snapshot {
        self.server.snapshot(key)
    }
}

/// The clients' ids, which are the same on both sides.
pub(super) struct Clients {
    pub(super) ids: Vec<ClientId>,
    /// A client that is never connected.
    pub(super) stranger: ClientId,
}

impl Clients {
    /// Creates ids with one process in all. Those of `ClientId::new` need not have that: the simulation
    /// makes so many in this process that the first of them are forgotten.
    pub(super) fn new() -> Self {
        let first = ClientId::new();
        let (process, _) = first.as_str().split_at(24);
        let id = |number| ClientId::from_str(&format!("{process}{number:08x}"));
        Clients {
            ids: (1..=CLIENTS).map(id).collect(),
            stranger: id(CLIENTS + 1),
        }
    }
}

pub(super) struct InRedis {
    stores: Vec<Box<dyn LockStore>>,
    clients: Clients,
    events: Vec<Events>,
    raw: Resp,
    clock: Arc<HandClock>,
    _server: RedisServer,
}

impl InRedis {
    pub(super) async fn start(scripts: Arc<Scripts>) -> Self {
        let server = RedisServer::start();
        let clients = Clients::new();
        let (mut stores, mut receivers) = (Vec::new(), Vec::new());
        for (id, max_waiters) in clients.ids.iter().zip(MAX_WAITERS) {
            let config = RedisConfig::parse(&server.url(), NAMESPACE, LIMIT).unwrap();
            let (sink, events) = events();
            let client = Client {
                id: id.clone(),
                scripts: scripts.clone(),
                ..Dependencies::default().client(settings(max_waiters), sink)
            };
            let opened = open::connect_lazy(&config, client);
            opened.store.ready().await;
            stores.push(opened.store);
            receivers.push(events);
        }
        InRedis {
            stores,
            clients,
            events: receivers,
            raw: server.client(),
            clock: Arc::new(HandClock::new()),
            _server: server,
        }
    }
}

#[async_trait(?Send)]
impl Side for InRedis {
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
        &["too late"]
    }

    fn has_own_time(&self) -> bool {
        true
    }

    fn raises_other_tokens(&self) -> bool {
        true
    }

    async fn meddle(&mut self, keys: &[LockKey; KEYS], step: &Step) {
        let keys = |key: &usize| Keys::new(NAMESPACE, &keys[*key]);
        let raw = &mut self.raw;
        match step {
            Step::Op(Op::DeleteHolds { key }) => keys(key).delete_holds(raw),
            Step::Op(Op::DeleteAll { key }) => keys(key).delete_all(raw),
            Step::Op(Op::Ahead { key }) => keys(key).ahead(raw),
            Step::Op(Op::ShiftHold { key, hours }) => keys(key).shift_hold(raw, *hours),
            Step::Op(Op::ShiftRecords { key, hours }) => keys(key).shift_records(raw, *hours),
            Step::Op(Op::StepBack { key }) => keys(key).step_back(raw),
            Step::OfKinds(Op::Silence { client, key }, _) => {
                keys(key).silence(raw, self.clients.ids[*client].as_str());
            }
            Step::Expire { key, owner, .. } => keys(key).expire(raw, owner),
            Step::Op(Op::AcquireAll { keys: several, .. }) => {
                several.iter().for_each(|key| keys(key).tidy(raw));
            }
            Step::Enter {
                key,
                client,
                kind,
                owners,
            } => {
                let ttl = ENTRY.ttl().as_millis();
                let owners: Vec<_> = (owners.clone())
                    .map(|owner| owner_text(client, OwnerId(owner)))
                    .collect();
                let entry = format!("{ttl} {}entered", kind_text(*kind));
                keys(key).enter(raw, WAIT, *kind != Kind::Mutex, &entry, &owners);
            }
            Step::Lapse { key, owner } => keys(key).lapse(raw, owner),
            _ => {}
        }
    }

    /// A channel's messages arrive in order, so receiving our own message shows that none is in
    /// flight.
    async fn messages(&mut self, client: usize) -> Vec<StoreEvent> {
        let id = &self.clients.ids[client];
        let message = format!(
            "mutex {} 1 1 1 {NAMESPACE}:lock:{{end}}",
            owner_text(id, END)
        );
        let channel = format!("{NAMESPACE}:client:{}", id.as_str());
        let receivers = self.raw.cmd(&["PUBLISH", &channel, &message]);
        assert_eq!(receivers.int(), 1, "each client is subscribed once");
        let mut messages = Vec::new();
        loop {
            match within(LIMIT, self.events[client].recv()).await.unwrap() {
                StoreEvent::Granted(Grant { owner: END, .. }) => return messages,
                message => messages.push(message),
            }
        }
    }

    async fn snapshot(&mut self, key: &LockKey, _in_memory: &mut Snapshot) -> Snapshot {
        Keys::new(NAMESPACE, key).read(&mut self.raw)
    }
}
