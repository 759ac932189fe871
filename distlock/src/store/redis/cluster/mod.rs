//! The store in a Redis Cluster. Each lock is on the node that has its slot.
//!
//! `topology` is the client's view of the cluster. It has the `slot_map` of the slots, which
//! `refresh` updates. `nodes` are the nodes in use; a `node_topology` returns the slots of a node
//! to its connections. A `route` runs a command on the node that has its slot, and follows each
//! redirect.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::FutureExt;
use tokio::task::AbortHandle;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, DeleteRecord,
    Downgrade, Inspect, Inspection, List, Proof, Release, ReleaseReply, RenewReply, Renewal,
    RevokeHolds, RevokeReply,
};
use crate::protocol::store_error::StoreError;
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::cluster::route::{Route, RoutedAttempt, slot};
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::{Node, fan_out};
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Host;
use crate::store::{Capabilities, LockStore, OpenedStore, StoreResult};
use crate::util::sync::wait_until;

mod node_topology;
mod nodes;
pub(super) mod refresh;
mod route;
pub(super) mod slot_map;
pub(super) mod slots;
pub(super) mod topology;

/// Time that a call gives a node to be opened for the first time, even if `wait` is 0.
const OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// One client of a cluster.
pub(super) struct ClusterStore {
    nodes: Arc<Nodes>,
    refresh: AbortHandle,
}

impl ClusterStore {
    /// Opens the connections in the background, on the current runtime.
    pub(super) fn connect_lazy(
        config: &RedisConfig,
        seeds: &[Host],
        client: Client,
    ) -> OpenedStore {
        let availability = client.availability(config);
        let nodes = Nodes::new(config.clone(), client);
        let seeds = seeds.iter();
        let seeds = seeds.map(|(host, port)| Address::new(host, *port));
        let refresh = refresh::run(Arc::downgrade(&nodes), seeds.collect(), availability);
        let store = ClusterStore {
            nodes,
            refresh: tokio::spawn(refresh).abort_handle(),
        };
        OpenedStore {
            system: "redis",
            store: Box::new(store),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            capabilities: Capabilities::default(),
        }
    }
}

impl ClusterStore {
    /// Sends an acquire command to a node. Returns `None` if the owner is queued and the connection
    /// is not subscribed in the slot.
    ///
    /// A waiter needs a subscription on the same connection. If the lock is taken, this subscribes
    /// and sends the command again in the same write.
    async fn acquire_at(
        &self,
        attempt: &RoutedAttempt,
        request: &Acquire<'_>,
    ) -> StoreResult<Option<AcquireReply>> {
        let (node, slot, mut timeout) = (&attempt.node, slot(request.target.key), attempt.timeout);
        let topology = &self.nodes.topology;
        let session = node.commands.session()?;
        let deadline = topology.clock.now() + timeout;
        let is_subscribed = || node_topology::is_subscribed(node, &session, slot);
        if request.wait.is_zero() {
            let reply = node.acquire_on(&session, None, request, timeout).await;
            return reply.map(Some);
        }
        if !is_subscribed() && !topology.has_waiters(slot) {
            let without_wait = Acquire {
                wait: Duration::ZERO,
                ..*request
            };
            let acquired = node.acquire_on(&session, None, &without_wait, timeout);
            match acquired.await? {
                AcquireReply::Busy(_) => timeout = deadline.since(topology.clock.now()),
                other => return Ok(Some(other)),
            }
        }
        topology.record_wait(slot, request.wait);
        let subscribe = node_topology::subscribe_command(node, &session, slot);
        let acquired = node.acquire_on(&session, subscribe.as_ref(), request, timeout);
        let reply = acquired.await?;
        let is_queued = matches!(reply, AcquireReply::Queued(_) | AcquireReply::Unfinished);
        let lacks_subscription = is_queued && !is_subscribed();
        Ok((!lacks_subscription).then_some(reply))
    }
}

#[async_trait]
impl LockStore for ClusterStore {
    async fn acquire(&self, request: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        let clock = &self.nodes.topology.clock;
        // A caller without a hold has time for a node that is opened for the first time.
        let open_timeout = match request.wait {
            Duration::ZERO => OPEN_TIMEOUT,
            wait => wait.min(OPEN_TIMEOUT),
        };
        let mut route = Route::new(&self.nodes, request.target.key, timeout);
        route.open_deadline = route.open_deadline.max(clock.now() + open_timeout);
        // Set once a node has replied that the owner is queued or holds the lock.
        let mut has_state = false;
        loop {
            let attempt = route.next().await.map_err(|mut error| {
                // An earlier reply reported state to release, so the error is not unsent.
                error.unsent &= !has_state;
                error
            })?;
            let result = match self.acquire_at(&attempt, request).await {
                // The owner is queued without a subscription: it acquires again, with the same id.
                Ok(None) => {
                    has_state = true;
                    continue;
                }
                Ok(Some(reply)) => {
                    has_state |= reply.left_state();
                    attempt
                        .node
                        .await_acks(request, reply, attempt.timeout)
                        .await
                }
                Err(error) => Err(error),
            };
            match result {
                // The owner asks again, and then knows that it has something to release.
                Ok(AcquireReply::AlreadyRan(_)) if has_state => {
                    let detail = "the work ran while the call moved to another connection";
                    return Err(StoreError::new(Outage::NotReady, detail));
                }
                Ok(reply) => return Ok(reply),
                Err(error) => route.handle_error(&attempt, error).await?,
            }
        }
    }

    /// Only of keys of one slot, because one command acquires all.
    async fn acquire_all(
        &self,
        acquires: &[Acquire<'_>],
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let Some(first) = acquires.first() else {
            return Ok(None);
        };
        if acquires
            .iter()
            .any(|other| slot(other.target.key) != slot(first.target.key))
        {
            return Ok(None);
        }
        let route = Route::new(&self.nodes, first.target.key, timeout);
        route
            .send(|to| async move { to.node.acquire_all(acquires, to.timeout).await })
            .await
    }

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        let route = Route::of_entry(&self.nodes, confirm.target.key, timeout);
        route
            .send(|to| async move { to.node.run_after(to.preceding(), confirm, to.timeout).await })
            .await
    }

    /// With one command for each hold, because none spans slots; written together.
    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply> {
        let clock = &*self.nodes.topology.clock;
        let renew = fan_out::renew(clock, batch.chunks(1).collect(), |one| {
            let route = Route::of_renewal(&self.nodes, one[0].target.key, timeout);
            let renew = move |to: Arc<RoutedAttempt>| async move {
                to.node.run_after(to.preceding(), one, to.timeout).await
            };
            route.send(renew).boxed()
        });
        renew.await
    }

    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let route = Route::of_hand_off(&self.nodes, downgrade.target.key, timeout);
        route
            .send(|to| async move { to.node.downgrade(downgrade, to.timeout).await })
            .await
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        let route = Route::of_hand_off(&self.nodes, release.target.key, timeout);
        let released = route.send(|to| async move { to.node.release(release, to.timeout).await });
        let mut reply = released.await?;
        // The attempt may have had less time than the acquires.
        reply.repeat_after = reply.repeat_after.map(|delay| delay.max(2 * timeout));
        Ok(reply)
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let check = fan_out::check_queues(checks.chunks(1), |one| {
            let route = Route::of_queue_check(&self.nodes, &one[0].key, timeout);
            let check = move |to: Arc<RoutedAttempt>| async move {
                to.node.run_after(to.preceding(), one, to.timeout).await
            };
            route.send(check).boxed()
        });
        check.await
    }

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection> {
        let route = Route::of_entry(&self.nodes, inspect.key, timeout);
        route
            .send(|to| async move { to.node.inspect(to.preceding(), inspect, to.timeout).await })
            .await
    }

    /// Returns the keys that are taken on each primary.
    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        let topology = &self.nodes.topology;
        if let Some(error) = topology.discovery_error() {
            return Err(error);
        }
        let mut keys = Vec::new();
        for address in topology.map().primaries() {
            let node = self.nodes.get_or_open(&address)?;
            // If the node does not become ready, the next command returns the error.
            let _ = tokio::time::timeout(OPEN_TIMEOUT, node.commands.ready()).await;
            keys.extend(node.list(list, timeout).await?);
        }
        Ok(keys)
    }

    /// Never deletes the hold. A holder that did not wait is subscribed in no slot, so no node
    /// knows whether it is connected. A released and kept lock is handed off.
    async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        let delete = false;
        let revoke = RevokeHolds { delete, ..*revoke };
        let route = Route::of_hand_off(&self.nodes, revoke.key, timeout);
        route
            .send(|to| async move { to.node.run(&revoke, to.timeout).await })
            .await
    }

    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        timeout: Duration,
    ) -> StoreResult<Result<bool, String>> {
        let route = Route::of_entry(&self.nodes, delete.key, timeout);
        route
            .send(|to| async move { to.node.run_after(to.preceding(), delete, to.timeout).await })
            .await
    }

    async fn ready(&self) {
        let topology = &self.nodes.topology;
        let is_known = || topology.discovery_error().is_none().then_some(());
        wait_until(&topology.state.changed, is_known).await;
    }

    /// Opens a primary, and the next one when the first attempt at the one before has failed.
    fn connected(&self) -> StoreResult<bool> {
        let topology = &self.nodes.topology;
        let mut last_error = topology.discovery_error();
        for primary in topology.map().primaries() {
            let node = self.nodes.get_or_open(&primary)?;
            last_error = node.disconnected();
            match &last_error {
                None => break,
                Some(error) if node.is_opening() || !error.outage.is_transient() => break,
                Some(_) => {}
            }
        }
        last_error.map_or(Ok(true), Err)
    }

    fn lacks_append_only_file(&self) -> bool {
        let lacks = |node: &Node| node.shared.lacks_append_only_file.load(Ordering::Relaxed);
        self.nodes.open_nodes().iter().any(|(_, node)| lacks(node))
    }

    fn unavailable(&self) -> Option<StoreError> {
        if let Some(error) = self.nodes.topology.discovery_error() {
            return Some(error);
        }
        // Unavailable only if no node at all can be used.
        let mut last_error = None;
        for (_, node) in self.nodes.open_nodes() {
            last_error = Some(node.unavailable()?);
        }
        last_error
    }

    fn close(&self) {
        self.refresh.abort();
        self.nodes.close();
    }
}
