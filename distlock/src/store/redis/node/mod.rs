//! One server: the connections to it, and what is known of it. A store that spans several has a
//! node for each.

pub(crate) mod acks;
pub(crate) mod at_once;
pub(crate) mod authentication;
pub(crate) mod durable;
pub(crate) mod exchange;
pub(crate) mod facts;
pub(crate) mod failover;
pub(crate) mod give_back;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod polling;
pub(crate) mod polls;
pub(crate) mod seen;
pub(crate) mod unanswered;
pub(crate) mod way;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;

use crate::config::options::Durability;
use crate::error::{Error, Outage};
use crate::observer::event::Event;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Look, LookReply, Proof, Renewal, RenewalFailure, Renewed,
};
use crate::store::command::Confirm;
use crate::store::redis::conn::client::{Client, Shared};
use crate::store::redis::conn::clock_watch::ClockWatch;
use crate::store::redis::conn::handshake::{self, Dialer, Role};
use crate::store::redis::conn::health::{Cause, Health};
use crate::store::redis::conn::link::{self, Link};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::acks::AcksByNeed;
use crate::store::redis::node::lanes::Lanes;
use crate::store::redis::node::polls::Polls;
use crate::store::redis::node::unanswered::UnansweredAsks;
use crate::store::redis::node::way::Way;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::wire::decode;
use crate::store::redis::wire::slots::Slot;
use crate::store::redis::wire::trouble;
use crate::store::{BoxFuture, Note, StoreEvent};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Whether the server evicts is asked at connect, but not waited for.
const ADVICE_WITHIN: Duration = Duration::from_millis(250);

/// One server, seen by one client: a connection for commands and pushed grants, one for renewals.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    health: Arc<Health>,
    pub(crate) unanswered: UnansweredAsks,
    pub(crate) polls: Arc<Polls>,
    /// Ask, cancel, release and look of one owner use one connection, so that they stay in order.
    pub(crate) commands: Link,
    /// A subscribed connection counts as `pubsub` for the server's output-buffer limits; renewals
    /// do not share its fate.
    pub(crate) renewals: Link,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) acks: AcksByNeed,
    /// Told of each connection that was opened again.
    opened: watch::Sender<()>,
    closed: watch::Sender<bool>,
    clock_watch: ClockWatch,
    address: String,
}

impl Node {
    /// Connects, on the runtime that is to run the connections, and tries until the configured time
    /// is over. The server's eviction policy, if it is one that removes locks, comes with it.
    pub(crate) async fn connect(
        config: &RedisConfig,
        transport: Arc<dyn Transport>,
        client: Client,
    ) -> Result<(Self, Option<String>), Error> {
        let limit = config.connect_timeout;
        let shared = Shared::new(&config.namespace, client);
        let shared = Arc::new(shared);
        let started = shared.clock.now();
        let (commands, renewals) = dialers(config, &transport, &shared);
        let last = Mutex::new(None);
        // Longer than one that begins with TLS may be silent.
        let each = limit / 4 * 3;
        let opened = tokio::time::timeout(limit, async {
            tokio::try_join!(
                link::open_first(&commands, each, &last),
                link::open_first(&renewals, each, &last)
            )
        });
        let opened = opened.await.unwrap_or_else(|_| {
            let last = lock(&last).take();
            Err(last.unwrap_or_else(|| Trouble::timed_out(limit)))
        });
        let (first, second) =
            opened.map_err(|trouble| config.refused(trouble, shared.clock.now().since(started)))?;
        let policy = tokio::time::timeout(ADVICE_WITHIN, handshake::evicts(&first)).await;
        let (first, second) = (Some(first), Some(second));
        let node = Self::keep(config, shared, commands, renewals, first, second);
        Ok((node, policy.ok().flatten()))
    }

    /// Opens the connections in the background, on the runtime that this is called on.
    pub(crate) fn connect_lazy(
        config: &RedisConfig,
        transport: Arc<dyn Transport>,
        client: Client,
    ) -> Self {
        let shared = Shared::new(&config.namespace, client);
        let shared = Arc::new(shared);
        let (commands, renewals) = dialers(config, &transport, &shared);
        Self::keep(config, shared, commands, renewals, None, None)
    }

    fn keep(
        config: &RedisConfig,
        shared: Arc<Shared>,
        commands: Dialer,
        renewals: Dialer,
        first: Option<Session>,
        second: Option<Session>,
    ) -> Self {
        let health = Health::new(
            config.address(),
            &config.namespace,
            shared.clock.clone(),
            shared.events.clone(),
        );
        let health = Arc::new(health);
        let opened = watch::Sender::new(());
        let tell = |event: StoreEvent| {
            let (events, opened) = (shared.events.clone(), opened.clone());
            move || {
                opened.send_replace(());
                events(event.clone());
            }
        };
        let lanes = dialer(config, &commands.transport, &shared, Role::Lane);
        let lanes = Lanes::new(config.lanes, lanes);
        (commands.transport).spawn(Box::pin(lanes.clone().keep()));
        let needed = config.connect_timeout;
        let acks = dialer(config, &commands.transport, &shared, Role::Acks);
        let again = Arc::new(tell(StoreEvent::RenewalsReconnected));
        let acks = AcksByNeed::new(acks, needed, health.clone(), again);
        // Nobody has anything at a node of a cluster that is used for the first time.
        let is_first = shared.group.cluster().is_some() && first.is_none();
        let reconnected = but_for_the_first(is_first, tell(StoreEvent::Reconnected));
        let renewals_reconnected =
            but_for_the_first(is_first, tell(StoreEvent::RenewalsReconnected));
        Node {
            commands: Link::keep(commands, first, needed, health.clone(), reconnected),
            renewals: Link::keep(
                renewals,
                second,
                needed,
                health.clone(),
                renewals_reconnected,
            ),
            unanswered: UnansweredAsks::default(),
            polls: Arc::default(),
            shared,
            health,
            lanes,
            acks,
            opened,
            closed: watch::Sender::new(false),
            clock_watch: ClockWatch::default(),
            address: config.address(),
        }
    }

    /// The way by which callers on this runtime reach the server without a hop, if there is one.
    pub(crate) fn lane(&self) -> Option<Way> {
        // Who cannot be told of a grant does not ask for one.
        let session = self.commands.session().ok()?;
        // A proxy may lead each connection to another server.
        if session.client.is_polling() {
            return None;
        }
        let lane = self.lanes.here(&session)?;
        Some(Way {
            session,
            lane: Some(lane),
            before: Vec::new(),
        })
    }

    /// The way over the command connection.
    pub(crate) fn home(&self) -> Result<Way, Trouble> {
        let session = self.commands.session()?;
        Ok(Way {
            session,
            lane: None,
            before: Vec::new(),
        })
    }

    pub(crate) async fn ask(
        &self,
        way: &Way,
        ask: &Ask<'_>,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        let shared = &*self.shared;
        let mut pending = self.unanswered.ask(ask.owner, way.carrier());
        let encoder = shared.encoder(&way.session.client);
        let asked = self.call_by(way, ask.owner, timeout, |by| {
            let apply_by = shared.server_time.latest(shared.clock.now(), timeout);
            pending.is_sent(apply_by);
            encoder.ask(by, ask, apply_by)
        });
        let asked = asked.await;
        let id = shared.id();
        let decoder = shared.decoder(&id);
        let (sent, answer) = match asked {
            Ok(answered) => answered,
            Err(refusal) if trouble::is_redirect(&refusal) => {
                pending.is_answered();
                return Err(refusal);
            }
            Err(refusal) => {
                self.note_refusal(&refusal);
                let said = decoder.refused_ask(ask.key, refusal)?;
                pending.is_answered();
                return Ok(said);
            }
        };
        pending.is_answered();
        let decoded = decoder.ask(ask.key, sent, answer)?;
        self.learn(sent, decoded.at);
        if way.session.client.is_polling() {
            if let AskReply::Queued(_) = decoded.said {
                self.polls.add(ask.key, ask.owner);
            } else {
                self.polls.forget(ask.owner);
            }
        }
        // What it wrote for this ask it did not refuse.
        if matches!(decoded.said, AskReply::Held(_) | AskReply::Queued(_)) {
            self.health.recovers(Cause::Refusing);
        }
        Ok(decoded.said)
    }

    /// `before` is sent in the same write: what a cluster needs.
    pub(crate) async fn confirm(
        &self,
        before: &[Cmd],
        confirm: &Confirm<'_>,
        timeout: Duration,
    ) -> Result<Option<Proof>, Trouble> {
        if !confirm.durability.is_none() {
            return self.confirm_durably(before, confirm, timeout).await;
        }
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let confirmed = self.call(&self.commands, &session, before, timeout, |by| {
            encoder.confirm(by, confirm)
        });
        let (sent, answer) = confirmed.await?;
        let decoded = decode::confirm(sent, answer)?;
        self.learn(sent, decoded.at);
        self.polls.forget(confirm.owner);
        Ok(decoded.said)
    }

    pub(crate) async fn renew(
        &self,
        before: &[Cmd],
        batch: &[Renewal],
        timeout: Duration,
    ) -> Result<Renewed, Trouble> {
        let needs = batch.iter().map(|renewal| renewal.durability);
        let durability = needs.fold(Durability::NONE, Durability::and);
        if !durability.is_none() {
            return (self.renew_durably(before, batch, durability, timeout)).await;
        }
        let session = self.renewals.session()?;
        // This connection does not listen: the name is that of the other.
        let id = self.shared.id();
        let encoder = self.shared.encoder(&id);
        let renewed = self.call(&self.renewals, &session, before, timeout, |by| {
            encoder.renew(by, batch)
        });
        let (sent, answer) = renewed.await?;
        self.renewed(batch, &session, sent, answer)
    }

    /// What came of a renewal.
    pub(crate) fn renewed(
        &self,
        batch: &[Renewal],
        session: &Session,
        sent: Moment,
        answer: Value,
    ) -> Result<Renewed, Trouble> {
        let failures = decode::renew(batch, answer)?;
        for (_, failure) in &failures {
            if let RenewalFailure::Trouble(trouble) = failure {
                self.note_role(session, trouble);
            }
        }
        Ok(Renewed { sent, failures })
    }

    pub(crate) async fn look(
        &self,
        before: &[Cmd],
        looks: &[Look],
        within: Duration,
    ) -> Result<Vec<LookReply>, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let looked = self.call(&self.commands, &session, before, within, |by| {
            encoder.look(by, looks)
        });
        let (sent, answer) = looked.await?;
        let id = shared.id();
        let decoded = shared.decoder(&id).look(looks, answer)?;
        self.learn(sent, decoded.at);
        for reply in &decoded.said {
            if let LookReply::Failed(trouble) = reply {
                self.note_role(&session, trouble);
            }
        }
        Ok(decoded.said)
    }

    /// Whether nobody tells this client anything.
    pub(crate) fn is_polling(&self) -> bool {
        let session = self.commands.session();
        session.is_ok_and(|session| session.client.is_polling())
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Resolves once commands can be sent, or never will be.
    pub(crate) async fn ready(&self) {
        self.commands.ready().await;
    }

    /// Why no command can be sent at this moment.
    pub(crate) fn outage(&self) -> Option<Trouble> {
        self.commands.session().err()
    }

    /// Whether one of its two connections is away.
    pub(crate) fn is_lost(&self) -> bool {
        self.commands.session().is_err() || self.renewals.session().is_err()
    }

    /// The command that subscribes a connection in a slot.
    pub(crate) fn subscribe(&self, session: &Session, slot: Slot) -> Cmd {
        self.shared.names.subscribe(slot, &session.client)
    }

    /// Whether no connection that is up leads elsewhere than to this server.
    pub(crate) fn leads_only_to(&self, peer: &str) -> bool {
        let mut up = self.sessions();
        up.all(|session| session.connection.peer() == Some(peer))
    }

    /// Leaves every connection that leads elsewhere than to this server, which is the master now.
    pub(crate) fn leave_others(&self, peer: &str) {
        for session in self.sessions() {
            if session.connection.peer() != Some(peer) {
                let why = format!("the sentinels say that {peer} is the master now");
                session.end.tell(Trouble::new(Outage::NotReady, why));
            }
        }
    }

    /// Changes with each connection that is opened from now on.
    pub(crate) fn opens(&self) -> watch::Receiver<()> {
        self.opened.subscribe()
    }

    /// The connections that are up, but for the lanes.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Arc<Session>> {
        let links = [&self.commands, &self.renewals];
        let home = links.into_iter().filter_map(|link| link.session().ok());
        home.chain(self.acks.sessions())
    }

    pub(crate) fn close(&self) {
        self.commands.close();
        self.renewals.close();
        self.acks.close();
        self.lanes.close();
        self.closed.send_replace(true);
    }

    /// What works for the node, until that is closed or dropped.
    pub(crate) fn while_open(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let mut closed = self.closed.subscribe();
        Box::pin(async move {
            tokio::select! {
                // An error: it was dropped.
                _ = closed.wait_for(|closed| *closed) => {}
                () = work => {}
            }
        })
    }

    /// Closes it for good: others have what it had.
    pub(crate) fn retire(&self) {
        self.close();
        self.health.ends();
    }

    /// An answer to what was sent then says what time it is there.
    pub(crate) fn learn(&self, sent: Moment, server_micros: u64) {
        let shared = &*self.shared;
        shared.server_time.learn(sent, server_micros);
        let Some(seen) = self.clock_watch.see(sent, server_micros, &*shared.clock) else {
            return;
        };
        let address: Arc<str> = self.address.as_str().into();
        if let Some(by) = seen.jump {
            let address = address.clone();
            (shared.events)(StoreEvent::Noted(Note::ClockJumped { address, by }));
        }
        let seconds = seen.offset as f64 / 1e6;
        (shared.events)(StoreEvent::Happened(Event::ClockOffset {
            address,
            seconds,
        }));
    }

    /// Notices a server that answers and refuses.
    fn note_refusal(&self, trouble: &Trouble) {
        if trouble.outage.is_refusal() {
            self.health.suffers(Cause::Refusing, trouble);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.lanes.close();
    }
}

/// Tells each time, or from the second time on.
fn but_for_the_first(is_first: bool, tell: impl Fn()) -> impl Fn() {
    let is_first = AtomicBool::new(is_first);
    move || {
        if !is_first.swap(false, Ordering::AcqRel) {
            tell();
        }
    }
}

/// How the two connections are opened.
fn dialers(
    config: &RedisConfig,
    transport: &Arc<dyn Transport>,
    shared: &Arc<Shared>,
) -> (Dialer, Dialer) {
    let dialer = |role| dialer(config, transport, shared, role);
    (dialer(Role::Commands), dialer(Role::Renewals))
}

fn dialer(
    config: &RedisConfig,
    transport: &Arc<dyn Transport>,
    shared: &Arc<Shared>,
    role: Role,
) -> Dialer {
    let (transport, shared) = (transport.clone(), shared.clone());
    Dialer::new(
        role,
        transport,
        shared,
        config.password(),
        config.credentials.clone(),
    )
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/garbage.rs"]
mod garbage;
