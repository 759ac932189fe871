//! One client's way to the server: two connections, lost and opened again as the link to Redis does it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::fault::Fault;
use super::host::Host;
use super::network::{Millis, Network};
use super::op::{Answer, Op};
use super::server::FaultyServer;
use super::wire::{Answered, Fate, Role, Wire};
use crate::clock::{Clock, Moment};
use crate::error::Outage;
use crate::inside::seeded::SeededRandom;
use crate::mutex::lock;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Grant;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::redis::server_time::ServerTime;
use crate::store::{EventSink, StoreEvent};

/// A connection that is silent for this long while it owes an answer is tested.
const LONGEST_SILENCE: Duration = Duration::from_millis(100);

/// How long the answer to the test may take.
const PING_WITHIN: Millis = 500;
const LEAST_PATIENCE: Millis = 20;

/// What is on its way when a connection ends may still arrive, until the connection is killed.
pub(crate) struct Link {
    /// Which client of the simulation.
    pub(super) index: usize,
    client: ClientId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) host: Arc<Host>,
    pub(super) server: Arc<FaultyServer>,
    pub(super) network: Arc<Network>,
    random: SeededRandom,
    commands: Wire,
    renewals: Wire,
    events: EventSink,
    pub(super) server_time: ServerTime,
    /// The client as the server knows it, while its command connection is alive there.
    subscribed: Mutex<Option<MemoryStore>>,
    /// Until when nothing passes.
    partitioned_until: AtomicU64,
}

/// What a client's link needs of its surroundings.
pub(crate) struct Site {
    pub(crate) index: usize,
    pub(crate) client: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) host: Arc<Host>,
    pub(crate) server: Arc<FaultyServer>,
    pub(crate) network: Arc<Network>,
    pub(crate) random: SeededRandom,
}

impl Link {
    pub(super) fn open(site: Site, events: EventSink) -> Arc<Self> {
        let link = Arc::new(Link {
            index: site.index,
            client: site.client,
            clock: site.clock,
            host: site.host,
            server: site.server,
            network: site.network,
            random: site.random,
            commands: Wire::new(),
            renewals: Wire::new(),
            events,
            server_time: ServerTime::default(),
            subscribed: Mutex::new(None),
            partitioned_until: AtomicU64::new(0),
        });
        link.subscribe(1);
        link.server_time.learn(link.clock.now(), link.server.wall());
        link
    }

    pub(super) fn wire(&self, role: Role) -> &Wire {
        match role {
            Role::Commands => &self.commands,
            Role::Renewals => &self.renewals,
        }
    }

    fn note(&self, detail: fmt::Arguments<'_>) {
        self.server.witness.note(self.index, detail);
    }

    fn fault(&self, fault: Fault, detail: fmt::Arguments<'_>) {
        self.server.witness.fault(fault, Some(self.index), detail);
    }

    /// Sends a command and waits for its answer. It stays sent if the caller goes away.
    pub(super) async fn call(
        self: &Arc<Self>,
        role: Role,
        op: Op,
        within: Duration,
    ) -> Result<(Moment, Answer, u64), Trouble> {
        let (sent, mut answer) = self.send(role, op)?;
        // Who can wait longer goes on waiting, while the connection is being tested.
        let first = within.min(LONGEST_SILENCE);
        let mut answered = tokio::time::timeout(first, &mut answer).await;
        if answered.is_err() {
            self.suspect(role, within);
            if within > first {
                answered = tokio::time::timeout(within - first, &mut answer).await;
            }
        }
        match answered {
            Ok(Ok(Ok((Answer::Refused(trouble), _)))) => Err(trouble),
            Ok(Ok(Ok((answer, wall)))) => Ok((sent, answer, wall)),
            Ok(Ok(Err(trouble))) => Err(trouble),
            Ok(Err(_)) => Err(Trouble::new(Outage::Unreachable, "closed")),
            Err(_) => Err(Trouble::timed_out(within)),
        }
    }

    fn send(
        self: &Arc<Self>,
        role: Role,
        op: Op,
    ) -> Result<(Moment, oneshot::Receiver<Answered>), Trouble> {
        let mut state = self.wire(role).state();
        if !state.up || state.closed {
            return Err(Trouble::new(Outage::Unreachable, "no connection").unsent());
        }
        let sent = self.clock.now();
        let fate = self.fate(&op);
        let (call, answer) = state.call();
        if state.silent || fate.request == Some(Fault::DroppedRequest) {
            return Ok((sent, answer));
        }
        let overtaken = fate.request == Some(Fault::Reorder);
        let earliest = self.after(fate.request_takes);
        let arrives = state.request_arrives(&op, earliest, overtaken);
        let (link, epoch) = (self.clone(), state.epoch);
        self.network.at(arrives, move || {
            link.arrived(role, epoch, call, &op, fate);
        });
        Ok((sent, answer))
    }

    /// When a message that takes so long arrives.
    fn after(&self, takes: Millis) -> Millis {
        let healed = self.partitioned_until.load(Ordering::Relaxed);
        self.network.now().max(healed) + takes
    }

    fn fate(&self, op: &Op) -> Fate {
        let conditions = &self.server.conditions;
        let mut fate = Fate {
            request_takes: conditions.latency(&self.random),
            reply_takes: conditions.latency(&self.random),
            ..Fate::default()
        };
        if matches!(op, Op::Ping) {
            return fate;
        }
        let hit = |among: &[Fault]| {
            let mut faults = among.iter().copied();
            faults.find(|fault| conditions.hits(*fault, &self.random))
        };
        fate.request = hit(&[
            Fault::DroppedRequest,
            Fault::DelayedRequest,
            Fault::Reorder,
            Fault::Duplicate,
        ]);
        fate.reply = hit(&[Fault::DroppedReply, Fault::DelayedReply]);
        if let Some(Fault::DelayedRequest | Fault::Reorder) = fate.request {
            fate.request_takes += conditions.delay(&self.random);
        }
        if fate.reply == Some(Fault::DelayedReply) {
            fate.reply_takes += conditions.delay(&self.random);
        }
        if let Some(fault) = fate.request {
            self.fault(fault, format_args!("{op}, takes {}", fate.request_takes));
        }
        fate
    }

    /// A request is at the server.
    fn arrived(self: &Arc<Self>, role: Role, epoch: u64, call: u64, op: &Op, fate: Fate) {
        {
            let state = self.wire(role).state();
            if epoch <= state.dead || (state.silent && state.epoch == epoch) {
                return;
            }
        }
        let times = 1 + u64::from(fate.request == Some(Fault::Duplicate));
        let mut answer = Answer::Pong;
        for _ in 0..times {
            let subscribed = lock(&self.subscribed);
            answer = match &*subscribed {
                Some(store) => self.server.apply(self.index, store, op),
                // The connection for renewals does not depend on the subscribed one.
                None => {
                    let unheard = self.server.subscribe(&self.client, Arc::new(|_| {}));
                    self.server.apply(self.index, &unheard, op)
                }
            };
        }
        if fate.reply == Some(Fault::DroppedReply) {
            self.fault(Fault::DroppedReply, format_args!("{op}"));
            return;
        }
        if fate.reply == Some(Fault::DelayedReply) {
            self.fault(
                Fault::DelayedReply,
                format_args!("{op}, takes {}", fate.reply_takes),
            );
        }
        let wall = self.server.wall();
        let mut state = self.wire(role).state();
        let arrives = state.reply_arrives(self.after(fate.reply_takes));
        let link = self.clone();
        self.deliver(arrives, move || {
            link.answered(role, epoch, call, answer, wall)
        });
    }

    /// Does something in the client's process when a message arrives there, or later if the process
    /// does not run then.
    fn deliver(self: &Arc<Self>, when: Millis, what: impl FnOnce() + Send + 'static) {
        let link = self.clone();
        self.network.at(when, move || {
            if link.host.is_killed() {
                return;
            }
            match link.host.stopped_until() {
                Some(until) => link.deliver(until.max(when + 1), what),
                None => what(),
            }
        });
    }

    fn answered(&self, role: Role, epoch: u64, call: u64, answer: Answer, wall: u64) {
        let mut state = self.wire(role).state();
        if !state.up || state.epoch != epoch || state.silent {
            return;
        }
        let caller = state.answer(call);
        drop(state);
        if let Some(caller) = caller {
            // Its caller may have gone.
            let _ = caller.send(Ok((answer, wall)));
        }
    }

    /// Tests a connection on which a command went unanswered.
    fn suspect(self: &Arc<Self>, role: Role, within: Duration) {
        {
            let mut state = self.wire(role).state();
            if state.tested || !state.up || state.closed {
                return;
            }
            state.tested = true;
        }
        let least = match role {
            Role::Commands => PING_WITHIN,
            Role::Renewals => LEAST_PATIENCE,
        };
        let within = Millis::try_from(within.as_millis()).unwrap();
        let patience = within.clamp(least, PING_WITHIN);
        let epoch = self.wire(role).state().epoch;
        let Ok((_, mut pong)) = self.send(role, Op::Ping) else {
            return;
        };
        let link = self.clone();
        self.deliver(self.network.now() + patience, move || {
            if pong.try_recv().is_ok() {
                link.wire(role).state().tested = false;
            } else if link.wire(role).state().epoch == epoch {
                link.lose(role, false, "no answer to a ping");
            }
        });
    }

    /// The client loses a connection, and opens another one. Unless the server knows of the loss as
    /// well, it goes on with what was sent until the old connection is killed.
    pub(crate) fn lose(self: &Arc<Self>, role: Role, server_knows: bool, why: &str) {
        {
            let mut state = self.wire(role).state();
            if !state.up || state.closed {
                return;
            }
            if server_knows {
                state.dead = state.epoch;
            }
        }
        if server_knows && role == Role::Commands {
            self.unsubscribe();
        }
        self.note(format_args!("loses {role:?}: {why}"));
        self.wire(role).drop_connection(why);
        self.dial(role, 0);
    }

    /// Opens a new connection: the first command kills the old one, then it subscribes.
    fn dial(self: &Arc<Self>, role: Role, attempt: u32) {
        let link = self.clone();
        let takes = self.latency();
        self.deliver(self.network.now() + takes, move || {
            let sent = link.clock.now();
            if link.is_partitioned() {
                return link.dial_again(role, attempt);
            }
            {
                let mut state = link.wire(role).state();
                if state.closed {
                    return;
                }
                state.dead = state.epoch;
            }
            if role == Role::Commands {
                link.unsubscribe();
            }
            let subscribes = link.network.now() + link.latency() + link.latency();
            let dialing = link.clone();
            link.network.at(subscribes, move || {
                dialing.subscribes(role, attempt, sent);
            });
        });
    }

    fn subscribes(self: &Arc<Self>, role: Role, attempt: u32, sent: Moment) {
        if self.host.is_killed() || self.wire(role).state().closed {
            return;
        }
        if role == Role::Commands {
            let next = self.wire(role).state().epoch + 1;
            self.subscribe(next);
        }
        let wall = self.server.wall();
        let link = self.clone();
        self.deliver(self.after(self.latency()), move || {
            if link.is_partitioned() {
                return link.dial_again(role, attempt);
            }
            link.wire(role).replace_connection(link.network.now());
            link.server_time.learn(sent, wall);
            link.note(format_args!("has new {role:?}"));
            (link.events)(match role {
                Role::Commands => StoreEvent::Reconnected,
                Role::Renewals => StoreEvent::RenewalsReconnected,
            });
        });
    }

    fn dial_again(self: &Arc<Self>, role: Role, attempt: u32) {
        let pause = (250 << attempt.min(2)) + self.random.between(10, 20 << attempt.min(4));
        let link = self.clone();
        self.deliver(self.network.now() + pause, move || {
            link.dial(role, attempt + 1);
        });
    }

    fn latency(&self) -> Millis {
        self.server.conditions.latency(&self.random)
    }

    fn is_partitioned(&self) -> bool {
        self.network.now() < self.partitioned_until.load(Ordering::Relaxed)
    }

    /// The server's side of a new command connection. Its pushes go to that connection only.
    fn subscribe(self: &Arc<Self>, epoch: u64) {
        let link = Arc::downgrade(self);
        let sink: EventSink = Arc::new(move |event| {
            if let (Some(link), StoreEvent::Granted(grant)) = (Weak::upgrade(&link), event) {
                link.push(epoch, grant);
            }
        });
        self.unsubscribe();
        let store = self.server.subscribe(&self.client, sink);
        *lock(&self.subscribed) = Some(store);
    }

    fn unsubscribe(&self) {
        let store = lock(&self.subscribed).take();
        drop(store);
    }

    /// The server publishes a grant. Its message carries the server's time, and nothing else of it.
    fn push(self: &Arc<Self>, epoch: u64, grant: Grant) {
        let granted = self.server.wall();
        let conditions = &self.server.conditions;
        let owner = grant.owner;
        let hit = |fault| {
            let hit = conditions.hits(fault, &self.random);
            if hit {
                self.fault(fault, format_args!("grant #{owner}"));
            }
            hit
        };
        self.note(format_args!(
            "is granted {} #{owner} token {}",
            grant.key, grant.token
        ));
        if hit(Fault::DroppedPush) {
            return;
        }
        let takes = self.latency();
        let mut arrives = if hit(Fault::DelayedPush) {
            vec![self.after(takes + conditions.delay(&self.random))]
        } else {
            let earliest = self.after(takes);
            vec![self.wire(Role::Commands).state().reply_arrives(earliest)]
        };
        if hit(Fault::DuplicatePush) {
            arrives.push(arrives[0] + conditions.delay(&self.random));
        }
        for when in arrives {
            let (link, grant) = (self.clone(), grant.clone());
            self.deliver(when, move || link.pushed(epoch, granted, grant));
        }
    }

    fn pushed(&self, epoch: u64, granted: u64, grant: Grant) {
        let state = self.wire(Role::Commands).state();
        if !state.up || state.epoch != epoch || state.silent {
            return;
        }
        drop(state);
        let received = self.clock.now();
        let granted_at = self.server_time.bound(granted, received);
        self.note(format_args!(
            "hears of grant #{} token {}: {:?} old",
            grant.owner,
            grant.token,
            granted_at.map(|at| received.since(at))
        ));
        (self.events)(StoreEvent::Granted(Grant {
            granted_at,
            ..grant
        }));
    }

    /// A connection swallows everything, until it is replaced.
    pub(crate) fn silence(&self, role: Role) {
        self.wire(role).state().silent = true;
    }

    pub(crate) fn is_silent(&self, role: Role) -> bool {
        self.wire(role).state().silent
    }

    pub(crate) fn partition(&self, until: Millis) {
        self.partitioned_until.store(until, Ordering::Relaxed);
    }

    /// The process is gone, and the server sees it.
    pub(crate) fn crash(&self) {
        self.close();
        for role in [Role::Commands, Role::Renewals] {
            let mut state = self.wire(role).state();
            state.dead = state.epoch;
        }
        self.unsubscribe();
    }

    pub(super) fn close(&self) {
        for role in [Role::Commands, Role::Renewals] {
            let wire = self.wire(role);
            wire.state().closed = true;
            wire.drop_connection("closed");
        }
    }

    /// What is left of a closed connection in the server ends.
    pub(super) fn hang_up(self: &Arc<Self>) {
        let link = self.clone();
        let takes = self.latency();
        self.network.at(self.after(takes), move || link.crash());
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
