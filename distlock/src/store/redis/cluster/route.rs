//! The way of one command to the node that has its slot.

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

/// So many redirects are followed at once.
const HOPS: u32 = 3;

/// The pauses before a slot that is being moved is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const BACKOFF: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_millis(100));

/// The way of one command, to as many nodes as it takes within its deadline. A redirect means that
/// nothing was done.
#[derive(Debug)]
pub(super) struct Route<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    /// Whether it goes over the connections for renewals.
    renews: bool,
    /// Whether it goes to where a slot is on its way to. What touches a queue must not: nobody can
    /// be subscribed there yet, and all who wait would be taken for dead.
    pub(super) follows_ask: bool,
    /// How long a command may take.
    within: Duration,
    give_up: Moment,
    /// Whether a node that is away is waited for.
    pub(super) is_patient: bool,
    /// Whether those who wait in a slot that has just moved are waited for: what passes a lock on
    /// finds those who are listening, and takes all others for dead.
    pub(super) is_considerate: bool,
    /// What it takes to open a node for the first time does not count until then. (One that was
    /// lost may stay away for long, and so may a slot that moves.)
    pub(super) opened_by: Moment,
    /// Who was named by the last answer, to be asked just this once.
    detour: Option<Address>,
    hops: u32,
    backoff: Backoff,
    last: Option<Trouble>,
}

/// The slot of a lock.
pub(super) fn slot(key: &LockKey) -> Slot {
    Slot::of(&key.tagged().to_string())
}

/// Where it goes next.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) node: Arc<Node>,
    address: Address,
    /// What is to be sent before it.
    pub(super) before: Option<Cmd>,
    /// How long it may take there.
    pub(super) within: Duration,
}

impl<'a> Route<'a> {
    /// The way of what touches a queue, over the connection for commands.
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

    /// Runs a script at the node that has the slot.
    pub(super) async fn send<S: ScriptCall + ?Sized>(
        mut self,
        script: &S,
    ) -> Result<S::Reply, Trouble> {
        self.renews = S::RENEWS;
        self.run(|hop| async move { hop.node.run(hop.before.clone(), script, hop.within).await })
            .await
    }

    /// Runs a command at the node that has the slot, and follows redirects.
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

    /// The node to go to, once it can be used.
    pub(super) async fn next(&mut self) -> Result<Hop, Trouble> {
        let topology = &self.nodes.topology;
        loop {
            if let Some(trouble) = topology.unknown() {
                return Err(trouble.unsent());
            }
            let left = self.left();
            // An attempt without the time for an answer would hide the reason of the one before it.
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
                // If there is none in time, that is found above.
                let _ = tokio::time::timeout(left, changed).await;
                continue;
            };
            let settles_in = topology.settles_in(self.slot).min(left / 2);
            if self.is_considerate && !settles_in.is_zero() {
                // Once: time must be left to go there.
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
                        // What is closed is ready, too.
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

    /// What a node has answered. An error, unless the way goes on.
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
