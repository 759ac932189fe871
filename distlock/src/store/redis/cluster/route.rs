//! The route of one command to the node that has its slot.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::cluster::node_topology;
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::cluster::slots::Slot;
use crate::store::redis::node::Node;
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::util::backoff::Backoff;
use crate::util::clock::BootInstant;

/// Upper limit of redirects that are followed without a pause.
const MAX_IMMEDIATE_REDIRECTS: u32 = 3;

/// Initial pause before a slot in migration is retried.
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
const BACKOFF: Backoff = Backoff::new(INITIAL_BACKOFF, Duration::from_millis(100));

/// The route of one command, to as many nodes as necessary before its deadline. A redirect means
/// that the node did nothing.
pub(super) struct Route<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    /// Set if the command is sent over the connection for renewals.
    renews: bool,
    /// Set if the command follows a migrating slot to its target. A command that changes a queue
    /// must not: no client can be subscribed there yet, so all waiters would be treated as dead.
    follows_ask_redirect: bool,
    /// Timeout of one attempt.
    timeout: Duration,
    deadline: BootInstant,
    /// Set for a queue check. It does not wait for a lost node, because it would delay the checks
    /// on other nodes, and it is repeated anyway. It subscribes again if the subscription was lost.
    checks_queue: bool,
    /// Set if the route waits until the waiters in a slot that has just moved are subscribed again.
    /// A command that hands off a lock treats all waiters without a subscription as dead.
    awaits_resubscribe: bool,
    /// Until this instant, time to open a node for the first time does not count. Time for a lost
    /// node or a migrating slot counts, because it may be long.
    pub(super) open_deadline: BootInstant,
    /// The node that the last ASK redirect named, for one attempt.
    ask_target: Option<Address>,
    redirects: u32,
    backoff: Backoff,
    last_error: Option<StoreError>,
}

pub(super) fn slot(key: &LockKey) -> Slot {
    Slot::of(&key.tagged().to_string())
}

/// One attempt of a route at one node.
pub(super) struct RoutedAttempt {
    pub(super) node: Arc<Node>,
    address: Address,
    /// A command to send immediately before.
    preceding: Option<Cmd>,
    /// Timeout of this attempt.
    pub(super) timeout: Duration,
}

impl RoutedAttempt {
    /// Returns the command to send immediately before.
    pub(super) fn preceding(&self) -> Option<&Cmd> {
        self.preceding.as_ref()
    }
}

impl<'a> Route<'a> {
    /// Creates the route of a command that changes a queue, over the connection for commands.
    pub(super) fn new(nodes: &'a Nodes, key: &LockKey, timeout: Duration) -> Self {
        let deadline = nodes.topology.clock.now() + timeout;
        Route {
            nodes,
            slot: slot(key),
            renews: false,
            follows_ask_redirect: false,
            timeout,
            deadline,
            checks_queue: false,
            awaits_resubscribe: false,
            open_deadline: deadline,
            ask_target: None,
            redirects: 0,
            backoff: BACKOFF,
            last_error: None,
        }
    }

    /// Creates the route of a command about a hold or a record, which may be in migration.
    pub(super) fn of_entry(nodes: &'a Nodes, key: &LockKey, timeout: Duration) -> Self {
        Route {
            follows_ask_redirect: true,
            ..Self::new(nodes, key, timeout)
        }
    }

    /// Creates the route of a renewal, over its own connection.
    pub(super) fn of_renewal(nodes: &'a Nodes, key: &LockKey, timeout: Duration) -> Self {
        Route {
            renews: true,
            ..Self::of_entry(nodes, key, timeout)
        }
    }

    pub(super) fn of_queue_check(nodes: &'a Nodes, key: &LockKey, timeout: Duration) -> Self {
        Route {
            checks_queue: true,
            ..Self::new(nodes, key, timeout)
        }
    }

    /// Creates the route of a command that hands off a lock.
    pub(super) fn of_hand_off(nodes: &'a Nodes, key: &LockKey, timeout: Duration) -> Self {
        Route {
            awaits_resubscribe: true,
            ..Self::new(nodes, key, timeout)
        }
    }

    /// Runs a command on the node that has the slot, and follows redirects.
    pub(super) async fn send<T, Fut: Future<Output = StoreResult<T>>>(
        mut self,
        command: impl Fn(Arc<RoutedAttempt>) -> Fut,
    ) -> StoreResult<T> {
        loop {
            let attempt = Arc::new(self.next().await?);
            match command(attempt.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => self.handle_error(&attempt, error).await?,
            }
        }
    }

    /// Waits until the next node can be used, and returns the attempt to make there.
    pub(super) async fn next(&mut self) -> StoreResult<RoutedAttempt> {
        let topology = &self.nodes.topology;
        loop {
            if let Some(error) = topology.discovery_error() {
                return Err(error.mark_unsent());
            }
            let remaining = self.remaining();
            // An attempt without the time for a reply would hide the error of the previous one.
            let needed = match &self.last_error {
                Some(_) => self.backoff.peek_delay().min(self.timeout / 10),
                None => Duration::ZERO,
            };
            if remaining <= needed {
                return Err(self.timeout_error());
            }
            let mut changed = pin!(topology.state.changed.notified());
            changed.as_mut().enable();
            let ask_target = self.ask_target.take();
            let is_asking = ask_target.is_some();
            let Some(address) = ask_target.or_else(|| topology.primary_of(self.slot)) else {
                let detail = "no known node serves the key's slot";
                self.last_error = Some(StoreError::new(Outage::NotReady, detail));
                topology.request_refresh();
                // After a timeout, the loop returns the error above.
                let _ = tokio::time::timeout(remaining, changed).await;
                continue;
            };
            let resubscribe_grace = topology.resubscribe_grace(self.slot).min(remaining / 2);
            if self.awaits_resubscribe && !resubscribe_grace.is_zero() {
                // Only once, because the command itself needs the remaining time.
                self.awaits_resubscribe = false;
                tokio::time::sleep(resubscribe_grace).await;
                continue;
            }
            let node = self.nodes.get_or_open(&address)?;
            let connection = if self.renews {
                &node.renewals
            } else {
                &node.commands
            };
            let down = match connection.session() {
                Ok(session) => {
                    let preceding = match (is_asking, self.checks_queue) {
                        (true, _) => Some(redis::cmd("ASKING")),
                        (_, true) => node_topology::subscribe_command(&node, &session, self.slot),
                        _ => None,
                    };
                    return Ok(RoutedAttempt {
                        preceding,
                        node,
                        address,
                        timeout: self.timeout.min(remaining),
                    });
                }
                Err(down) => down.at(node.address()),
            };
            if !down.outage.is_transient() || self.checks_queue {
                return Err(down);
            }
            self.last_error = Some(down);
            // The time to open a node for the first time is not part of the call's.
            let started = topology.clock.now();
            let opening = if connection.is_opening() {
                self.open_deadline.since(started)
            } else {
                Duration::ZERO
            };
            let _ = tokio::time::timeout(remaining.max(opening), changed).await;
            let waited = topology.clock.now().since(started);
            self.deadline = self.deadline + waited.min(opening);
        }
    }

    /// Handles an error from a node. Returns an error, unless the route continues.
    pub(super) async fn handle_error(
        &mut self,
        attempt: &RoutedAttempt,
        error: StoreError,
    ) -> StoreResult<()> {
        let topology = &self.nodes.topology;
        let error = error.at(attempt.node.address());
        let moved = match error.code() {
            Code::Moved(Some((slot, to))) => {
                Slot::new(*slot).zip(Address::parse(to, &attempt.address))
            }
            _ => None,
        };
        // The slot is migrating to this node, and the key is there already.
        let ask_target = match error.code() {
            Code::Ask(Some(to)) if self.follows_ask_redirect => {
                Address::parse(to, &attempt.address)
            }
            _ => None,
        };
        if let Some((slot, to)) = moved {
            topology.assign_slot(slot, &to);
            self.redirects += 1;
        } else if ask_target.is_some() {
            self.ask_target = ask_target;
            self.redirects += 1;
        } else if errors::is_redirect(&error) {
            // The slot is migrating, or no node has it.
            topology.request_refresh();
            self.redirects = MAX_IMMEDIATE_REDIRECTS + 1;
        } else if !error.unsent {
            if error.is_unanswered() {
                topology.request_refresh();
            }
            return Err(error);
        }
        self.last_error = Some(error);
        if self.redirects > MAX_IMMEDIATE_REDIRECTS {
            tokio::time::sleep(self.backoff.next_delay().min(self.remaining())).await;
            self.redirects = 0;
        }
        Ok(())
    }

    fn remaining(&self) -> Duration {
        self.deadline.since(self.nodes.topology.clock.now())
    }

    fn timeout_error(&mut self) -> StoreError {
        let last_error = self.last_error.take();
        let last_error =
            last_error.unwrap_or_else(|| StoreError::new(Outage::TimedOut, "no time left"));
        last_error.mark_unsent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::cluster::slot_map::SlotMap;
    use crate::store::redis::conn::client::Client;
    use crate::store::redis::transport::config::RedisConfig;
    use crate::store::redis::wire::errors::classify_text;
    use crate::util::clock::TokioClock;

    /// The nodes of a cluster that cannot be reached.
    fn nodes() -> Arc<Nodes> {
        let timeout = Duration::from_secs(1);
        let config = RedisConfig::parse("redis+cluster://127.0.0.1:1", "n", timeout).unwrap();
        let client = Client::unconnected(Arc::new(TokioClock::new()));
        Nodes::new(config, client)
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_ends_the_route_or_delays_it() {
        let (nodes, timeout) = (nodes(), Duration::from_secs(1));
        let address = Address::new("127.0.0.1", 1);
        let attempt = RoutedAttempt {
            node: nodes.get_or_open(&address).unwrap(),
            address,
            preceding: None,
            timeout,
        };
        let unanswered = StoreError::timed_out(timeout);
        // Whether the route continues after each repetition of the error, and pauses before.
        let (ends, at_once, later) = (None, Some(false), Some(true));
        let redirected = &[at_once, at_once, at_once, later, at_once][..];
        for (error, expected) in [
            (unanswered.clone(), &[ends][..]),
            (classify_text("NOPERM"), &[ends]),
            (unanswered.mark_unsent(), &[at_once, at_once]),
            (classify_text("MOVED 1 127.0.0.1:1"), redirected),
            (classify_text("ASK 1 127.0.0.1:1"), redirected),
            (classify_text("MOVED 1 :1"), redirected),
            (classify_text("TRYAGAIN"), &[later, later]),
            (classify_text("CLUSTERDOWN"), &[later, later]),
            (classify_text("MOVED 16384 h:7"), &[later, later]),
            (classify_text("MOVED"), &[later, later]),
            (classify_text("ASK 1 h"), &[later, later]),
        ] {
            let mut route = Route::new(&nodes, &LockKey::new("k").unwrap(), timeout);
            route.follows_ask_redirect = true;
            for expected in expected {
                let started = tokio::time::Instant::now();
                let result = route.handle_error(&attempt, error.clone()).await;
                let has_paused = started.elapsed() >= INITIAL_BACKOFF;
                assert_eq!(result.ok().map(|()| has_paused), *expected, "{error}");
            }
        }
    }

    /// Until the deadline for opening it, the time for a new node does not count.
    #[tokio::test(start_paused = true)]
    async fn a_route_has_more_time_while_a_node_is_opened() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::new("127.0.0.1", silent.local_addr().unwrap().port());
        let (nodes, key) = (nodes(), LockKey::new("k").unwrap());
        let mut map = SlotMap::empty();
        map.assign(slot(&key), &address);
        nodes.topology.replace_map(map);
        let [timeout, opening] = [100, 500].map(Duration::from_millis);
        let mut route = Route::new(&nodes, &key, timeout);
        route.open_deadline = nodes.topology.clock.now() + opening;
        let started = tokio::time::Instant::now();
        assert!(route.next().await.is_err());
        assert!(started.elapsed() >= opening + timeout);
    }
}
