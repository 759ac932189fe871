//! A store over independent servers: a call holds a lock once a majority of the servers has granted
//! it.
//!
//! Each server is a `Node` with the scripts of `lua/quorum`. `conn/reached_servers.rs` ensures that
//! no server counts twice. An `attempt` takes the lock on all nodes;
//! `grants` decides, without I/O, whether it has succeeded, and `acquire` repeats it. `renew` and
//! `release` combine the replies of all nodes, and `admin` serves inspection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::task::{AbortHandle, JoinHandle};

use crate::config;
use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, DeleteRecord,
    Downgrade, Inspect, Inspection, List, OwnerId, Proof, Release, ReleaseReply, RenewReply,
    Renewal, RevokeHolds, RevokeReply,
};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::connecting::StoreState;
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::Node;
use crate::store::redis::quorum::attempt::{Attempt, QuorumHold, Token};
use crate::store::redis::quorum::hooks::QuorumHooks;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::{Host, ServerLocation, StoreLocation};
use crate::store::{BoxFuture, EventSink, LockStore, OpenedStore, StoreEvent, StoreResult};
use crate::util::clock::{BootInstant, Clock, ServerTime};
use crate::util::random::Random;
use crate::util::sync::{lock, wait_until};

mod acquire;
mod admin;
mod attempt;
pub(crate) mod capabilities;
mod commands;
mod grants;
pub(crate) mod hooks;
mod release;
mod renew;

pub(super) struct QuorumStore {
    nodes: Vec<Arc<Node>>,
    quorum_size: usize,
    state: Arc<StoreState>,
    config: config::quorum::Quorum,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    events: EventSink,
    /// The runtime that sends all commands, regardless of the caller's.
    runtime: Handle,
    acquisitions: Mutex<HashMap<OwnerId, CallerState>>,
    /// The turns of this client's calls, for each key that they wait for or hold.
    turns: Mutex<HashMap<LockKey, Weak<tokio::sync::Mutex<Turn>>>>,
}

/// What a call that waits needs to send acquires, and keeps until it releases. The value is true if
/// other clients want the lock: the next call then gives them a chance.
type Turn = bool;

/// What a caller has here, from its acquire to its release.
#[derive(Debug, Default)]
struct CallerState {
    /// The last attempt. Every earlier one is released.
    attempt: Option<Arc<Attempt>>,
    /// When the caller first released. There are no further attempts then.
    released_at: Option<BootInstant>,
    /// The token of the hold, once the attempt has succeeded.
    token: Option<Token>,
    /// The task that attempts again and again.
    waiting: Option<AbortHandle>,
    /// Ends the turn of this caller when it is dropped.
    turn: Option<OwnedMutexGuard<Turn>>,
}

impl CallerState {
    /// Begins an attempt. Returns false if the caller has released.
    fn begin(&mut self, attempt: Arc<Attempt>) -> bool {
        let is_wanted = self.released_at.is_none();
        if is_wanted {
            self.attempt = Some(attempt);
        }
        is_wanted
    }

    /// Ends the attempts. Returns the last one.
    fn end(&mut self, now: BootInstant) -> Option<Arc<Attempt>> {
        self.released_at.get_or_insert(now);
        if let Some(waiting) = self.waiting.take() {
            waiting.abort();
        }
        self.attempt.clone()
    }
}

impl QuorumStore {
    /// Opens the connections in the background, on the current runtime.
    pub(super) fn connect_lazy(
        config: &RedisConfig,
        hosts: &[Host],
        client: Client,
    ) -> OpenedStore {
        OpenedStore {
            system: "redis",
            store: Box::new(Self::open(config, hosts, client)),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            capabilities: capabilities::of_quorum(config.quorum.max_lease),
        }
    }

    fn open(config: &RedisConfig, hosts: &[Host], client: Client) -> Arc<Self> {
        let majority = hosts.len() / 2 + usize::from(rule!(majority));
        let events = client.events.clone();
        let node_client = Client {
            scripts: Arc::new(hooks::scripts(&client.scripts)),
            hooks: Arc::new(QuorumHooks),
            // What waits attempts again anyway, and no single server grants a lock.
            events: Arc::new(move |event| {
                if matches!(event, StoreEvent::RenewNow | StoreEvent::Revoked(_)) {
                    events(event);
                }
            }),
            // A hold spans several nodes, so the client's id must be the same on all of them,
            // forever.
            is_idle: Arc::new(|| false),
            ..client.clone()
        };
        let open_node = |(host, port): &Host| {
            let server = ServerLocation::tcp(host, *port);
            let config = RedisConfig {
                location: StoreLocation::Single(server.clone()),
                max_runtime_connections: 0,
                ..config.clone()
            };
            let transport = (client.transport_factory)(SocketTransport::new(&config, &server));
            Node::connect_lazy(&config, transport, node_client.clone())
        };
        Arc::new(QuorumStore {
            nodes: hosts.iter().map(open_node).collect(),
            quorum_size: config.quorum.size.unwrap_or(majority),
            state: client.state.clone(),
            config: config.quorum.clone(),
            clock: client.clock,
            random: client.random,
            events: client.events,
            runtime: Handle::current(),
            acquisitions: Mutex::default(),
            turns: Mutex::default(),
        })
    }

    /// Returns the newest time that a node has reached, or a later one, as far as is known.
    fn newest_time(&self) -> ServerTime {
        let times = self.nodes.iter().filter_map(|node| {
            let shared = &*node.shared;
            shared.server_clock.upper_bound(shared.client.clock.now())
        });
        times.max().unwrap_or_default()
    }

    /// Spawns work on the runtime that sends commands, boxed like the executor's work.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let work: BoxFuture<'static, ()> = Box::pin(work);
        self.runtime.spawn(work)
    }

    /// Registers a caller. Releases that got no reply may have been given up meanwhile.
    fn register(&self, caller: OwnerId) {
        let (mut acquisitions, now) = (lock(&self.acquisitions), self.clock.now());
        // Only before the table grows, not on every insert.
        if acquisitions.len() == acquisitions.capacity() {
            acquisitions.retain(|_, known| {
                let expires_at = known.released_at.zip(known.attempt.as_ref());
                expires_at.is_none_or(|(at, attempt)| now < at + attempt.longest_rest())
            });
        }
        acquisitions.entry(caller).or_default();
    }

    /// Ends the turns of callers that have lost this lock, but have not released it yet. `holder`
    /// is the token of the present hold.
    fn end_turns(&self, key: &LockKey, holder: Option<Token>) {
        for acquisition in lock(&self.acquisitions).values_mut() {
            let is_of_key = |attempt: &Arc<Attempt>| attempt.key.same_lock(key);
            if acquisition.attempt.as_ref().is_some_and(is_of_key)
                && acquisition.token.is_some()
                && acquisition.token != holder
            {
                acquisition.turn = None;
            }
        }
    }

    /// Changes what a caller has. Returns `None` if it has nothing.
    fn update<T>(&self, caller: OwnerId, change: impl FnOnce(&mut CallerState) -> T) -> Option<T> {
        lock(&self.acquisitions).get_mut(&caller).map(change)
    }

    /// Forgets what a caller had, and ends its turn.
    fn forget(&self, caller: OwnerId) {
        lock(&self.acquisitions).remove(&caller);
    }

    fn knows(&self, caller: OwnerId) -> bool {
        lock(&self.acquisitions).contains_key(&caller)
    }

    fn find_hold(&self, caller: OwnerId) -> Option<QuorumHold> {
        let acquisitions = lock(&self.acquisitions);
        let CallerState { attempt, token, .. } = acquisitions.get(&caller)?;
        Some(QuorumHold {
            attempt: attempt.clone()?,
            token: (*token)?,
        })
    }

    /// Returns the lock by which the calls of this client that want a key take turns.
    fn turns_of(&self, key: &LockKey) -> Arc<tokio::sync::Mutex<Turn>> {
        let mut turns = lock(&self.turns);
        if let Some(known) = turns.get(key).and_then(Weak::upgrade) {
            return known;
        }
        // Only before the table grows, not on every insert.
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}

/// A quorum has no step for several keys, no readers-writer locks, and no success records.
#[async_trait]
impl LockStore for Arc<QuorumStore> {
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        QuorumStore::acquire(self, acquire, timeout).await
    }

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        Ok(QuorumStore::confirm(self, confirm.target.owner, timeout)
            .await?
            .into())
    }

    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply> {
        Ok(QuorumStore::renew(self, batch, timeout).await)
    }

    async fn downgrade(&self, _: &Downgrade<'_>, _: Duration) -> StoreResult<Option<Proof>> {
        Ok(None)
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        QuorumStore::release(self, release.target.owner, release.keep_for, timeout).await
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        Ok(QuorumStore::check_queues(self, checks, timeout).await)
    }

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection> {
        QuorumStore::inspect(self, inspect, timeout).await
    }

    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        QuorumStore::list(self, list, timeout).await
    }

    /// Never deletes the lock, because a client that is connected to one node may be disconnected
    /// from all others.
    async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        let delete = false;
        QuorumStore::revoke(self, &RevokeHolds { delete, ..*revoke }, timeout).await
    }

    async fn delete_record(
        &self,
        _: &DeleteRecord<'_>,
        _: Duration,
    ) -> StoreResult<Result<bool, String>> {
        Ok(Ok(false))
    }

    async fn ready(&self) {
        let is_usable = || self.unavailable().is_none().then_some(());
        wait_until(&self.state.changed, is_usable).await;
    }

    fn connected(&self) -> StoreResult<bool> {
        let errors = self.nodes.iter().filter_map(|node| node.disconnected());
        let Some(error) = errors.min_by_key(|error| error.outage.is_transient()) else {
            return Ok(true);
        };
        if !error.outage.is_transient() {
            return Err(error);
        }
        self.unavailable().map_or(Ok(false), Err)
    }

    fn unavailable(&self) -> Option<StoreError> {
        let errors = self.nodes.iter().filter_map(|node| node.unavailable());
        let errors: Vec<_> = errors.map(|error| error.to_string()).collect();
        let up = self.nodes.len() - errors.len();
        (up < self.quorum_size).then(|| {
            StoreError::new(
                Outage::Unreachable,
                format!(
                    "{up} of {} servers usable, {} required: {}",
                    self.nodes.len(),
                    self.quorum_size,
                    errors.join("; ")
                ),
            )
        })
    }

    fn close(&self) {
        for node in &self.nodes {
            node.close();
        }
    }
}
