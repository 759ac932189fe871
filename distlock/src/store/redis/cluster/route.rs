//! The route of one command to the node that has its slot.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::store::redis::cluster::map::Address;
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::node::Node;
use crate::store::redis::wire::call::ScriptCall;
use crate::store::redis::wire::slots::Slot;
use crate::util::backoff::Backoff;
use crate::util::clock::Moment;

/// Number of redirects that are followed without a pause.
const HOPS: u32 = 3;

/// Initial pause before a slot in migration is retried.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const BACKOFF: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_millis(100));

/// The route of one command, to as many nodes as necessary before its deadline. A redirect means
/// that the node did nothing.
#[derive(Debug)]
pub(super) struct Route<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    /// Set if the command is sent over the connection for renewals.
    renews: bool,
    /// Set if the command follows a migrating slot to its target. A command that changes a queue
    /// must not: no client can be subscribed there yet, so all waiters would be taken for dead.
    pub(super) follows_ask: bool,
    /// Timeout of one attempt.
    within: Duration,
    give_up: Moment,
    /// Set if the route waits for a node that is lost.
    pub(super) is_patient: bool,
    /// Set if the route waits until the waiters in a slot that has just moved are subscribed again.
    /// A command that hands a lock on takes all waiters without a subscription for dead.
    pub(super) is_considerate: bool,
    /// Until this instant, time to open a node for the first time does not count. Time for a lost
    /// node or a migrating slot counts, because it may be long.
    pub(super) opened_by: Moment,
    /// The node that the last ASK redirect named, for one attempt.
    detour: Option<Address>,
    hops: u32,
    backoff: Backoff,
    last: Option<Trouble>,
}

pub(super) fn slot(key: &LockKey) -> Slot {
    Slot::of(&key.tagged().to_string())
}

/// One attempt of a route at one node.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) node: Arc<Node>,
    address: Address,
    /// A command to send immediately before.
    pub(super) before: Option<Cmd>,
    /// Timeout of this attempt.
    pub(super) within: Duration,
}

impl<'a> Route<'a> {
    /// Creates the route of a command that changes a queue, over the connection for commands.
    pub(super) fn new(nodes: &'a Nodes, key: &LockKey, within: Duration) -> Self {
        let give_up = nodes.topology.clock.now() + within;
        Route {
            nodes,
            slot: slot(key),
            renews: false,
            follows_ask: false,
            within,
            give_up,
            is_patient: true,
            is_considerate: false,
            opened_by: give_up,
            detour: None,
            hops: 0,
            backoff: BACKOFF,
            last: None,
        }
    }

    /// Runs a script on the node that has the slot.
    pub(super) async fn send<S: ScriptCall + ?Sized>(
        mut self,
        script: &S,
    ) -> Result<S::Reply, Trouble> {
        self.renews = S::RENEWS;
        self.run(|hop| async move { hop.node.run(hop.before.clone(), script, hop.within).await })
            .await
    }

    /// Runs a command on the node that has the slot, and follows redirects.
    pub(super) async fn run<T, F: Future<Output = Result<T, Trouble>>>(
        mut self,
        command: impl Fn(Arc<Hop>) -> F,
    ) -> Result<T, Trouble> {
        loop {
            let hop = Arc::new(self.next().await?);
            match command(hop.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(trouble) => self.refused(&hop, trouble).await?,
            }
        }
    }

    /// Waits until the next node can be used, and returns the attempt to make there.
    pub(super) async fn next(&mut self) -> Result<Hop, Trouble> {
        let topology = &self.nodes.topology;
        loop {
            if let Some(trouble) = topology.unknown() {
                return Err(trouble.unsent());
            }
            let left = self.left();
            // An attempt without the time for a reply would hide the error of the previous one.
            let needed = match &self.last {
                Some(_) => self.backoff.peek().min(self.within / 10),
                None => Duration::ZERO,
            };
            if left <= needed {
                return Err(self.is_over());
            }
            let mut changed = pin!(topology.changed.notified());
            changed.as_mut().enable();
            let detour = self.detour.take();
            let is_detour = detour.is_some();
            let Some(address) = detour.or_else(|| topology.owner(self.slot)) else {
                let nobody = "no node is known to have the key's slot";
                self.last = Some(Trouble::new(Outage::NotReady, nobody));
                topology.doubt();
                // After a timeout, the loop returns the error above.
                let _ = tokio::time::timeout(left, changed).await;
                continue;
            };
            let settles_in = topology.settles_in(self.slot).min(left / 2);
            if self.is_considerate && !settles_in.is_zero() {
                // Only once, because the command itself needs the remaining time.
                self.is_considerate = false;
                tokio::time::sleep(settles_in).await;
                continue;
            }
            let node = self.nodes.at(&address)?;
            let link = if self.renews {
                &node.renewals
            } else {
                &node.commands
            };
            let Err(down) = link.session() else {
                let before = is_detour.then(|| redis::cmd("ASKING"));
                return Ok(Hop {
                    before,
                    node,
                    address,
                    within: self.within.min(left),
                });
            };
            let down = down.at(node.address());
            if !down.outage.is_transient() || !self.is_patient {
                return Err(down);
            }
            self.last = Some(down);
            let waiting = async {
                tokio::select! {
                    () = changed => {}
                    () = async {
                        link.ready().await;
                        // `ready` also returns for a closed connection, hence the pause.
                        tokio::time::sleep(FIRST_PAUSE).await;
                    }, if link.session().is_err() => {}
                }
            };
            let (is_opening, began) = (link.is_opening(), topology.clock.now());
            let opening = self.opened_by.since(began);
            let limit = if is_opening { left.max(opening) } else { left };
            let _ = tokio::time::timeout(limit, waiting).await;
            if is_opening {
                let waited = topology.clock.now().since(began);
                self.give_up = self.give_up + waited.min(opening);
            }
        }
    }

    /// Handles an error from a node. Returns an error, unless the route continues.
    pub(super) async fn refused(&mut self, hop: &Hop, trouble: Trouble) -> Result<(), Trouble> {
        let topology = &self.nodes.topology;
        let redirect = Redirect::of(&trouble, &hop.address);
        let here = trouble.at(hop.node.address());
        match redirect {
            Some(Redirect::Moved(slot, to)) => {
                topology.learn_one(slot, &to);
                self.hops += 1;
            }
            Some(Redirect::Ask(to)) if self.follows_ask => {
                self.detour = Some(to);
                self.hops += 1;
            }
            Some(_) => {
                topology.doubt();
                self.hops = HOPS + 1;
            }
            None if here.unsent => {}
            None => {
                if here.is_no_answer() {
                    topology.doubt();
                }
                return Err(here);
            }
        }
        self.last = Some(here);
        if self.hops > HOPS {
            tokio::time::sleep(self.backoff.pause().min(self.left())).await;
            self.hops = 0;
        }
        Ok(())
    }

    fn left(&self) -> Duration {
        self.give_up.since(self.nodes.topology.clock.now())
    }

    fn is_over(&mut self) -> Trouble {
        let last = self.last.take();
        let last = last.unwrap_or_else(|| Trouble::new(Outage::TimedOut, "no time was left"));
        last.unsent()
    }
}
