//! One server: the connections to it, and what is known of it. A store that spans several has a
//! node for each.

pub(crate) mod acks;
pub(crate) mod at_once;
pub(crate) mod authentication;
pub(crate) mod durable;
pub(crate) mod exchange;
pub(crate) mod failover;
pub(crate) mod give_back;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod listing;
pub(crate) mod polling;
pub(crate) mod polls;
pub(crate) mod unanswered;
pub(crate) mod way;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::watch;

use crate::error::{Error, Outage};
use crate::observer::event::Event;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply};
use crate::store::redis::conn::client::{Client, Shared};
use crate::store::redis::conn::clock_watch::ClockWatch;
use crate::store::redis::conn::handshake::{self, Dialer, Role};
use crate::store::redis::conn::health::{Cause, Health};
use crate::store::redis::conn::link::{self, Connected, Link};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::acks::AcksByNeed;
use crate::store::redis::node::lanes::Lanes;
use crate::store::redis::node::polls::Polls;
use crate::store::redis::node::unanswered::UnansweredAsks;
use crate::store::redis::node::way::Way;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
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
    pub(crate) opened: watch::Sender<()>,
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
        let shared = Arc::new(Shared::new(config, client));
        let started = shared.clock.now();
        let [commands, renewals] = dialers(config, &transport, &shared);
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
        let sessions = (Some(first), Some(second));
        let node = Self::keep(config, shared, commands, renewals, sessions);
        Ok((node, policy.ok().flatten()))
    }

    /// Opens the connections in the background, on the runtime that this is called on.
    pub(crate) fn connect_lazy(
        config: &RedisConfig,
        transport: Arc<dyn Transport>,
        client: Client,
    ) -> Self {
        let shared = Arc::new(Shared::new(config, client));
        let [commands, renewals] = dialers(config, &transport, &shared);
        Self::keep(config, shared, commands, renewals, (None, None))
    }

    fn keep(
        config: &RedisConfig,
        shared: Arc<Shared>,
        commands: Dialer,
        renewals: Dialer,
        (first, second): (Option<Session>, Option<Session>),
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
        let lane = self.lanes.here(&session);
        Some(Way {
            lane: Some(lane?),
            ..Way::over(session)
        })
    }

    /// The way over the command connection.
    pub(crate) fn home(&self) -> Result<Way, Trouble> {
        self.commands.session().map(Way::over)
    }

    pub(crate) async fn ask(
        &self,
        way: &Way,
        ask: &Ask<'_>,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        let reply = self.run_on(way, ask, timeout).await;
        let reply = reply.inspect_err(|refusal| {
            // Notices a server that answers and refuses.
            if refusal.outage.is_refusal() && !trouble::is_redirect(refusal) {
                self.health.suffers(Cause::Refusing, refusal);
            }
        })?;
        if way.session.client.is_polling() {
            if let AskReply::Queued(_) = reply {
                self.polls.add(ask.key, ask.owner);
            } else {
                self.polls.forget(ask.owner);
            }
        }
        // What it wrote for this ask it did not refuse.
        if matches!(reply, AskReply::Held(_) | AskReply::Queued(_)) {
            self.health.recovers(Cause::Refusing);
        }
        Ok(reply)
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
        let trouble = self.commands.session().err()?;
        Some(trouble.at(&self.address))
    }

    /// Whether one of its two connections is away.
    pub(crate) fn is_lost(&self) -> bool {
        self.commands.session().is_err() || self.renewals.session().is_err()
    }

    /// The command that subscribes a connection in a slot, unless it is.
    pub(crate) fn subscribe(&self, session: &Session, slot: Slot) -> Option<Cmd> {
        let names = &self.shared.names;
        let is_subscribed = session.is_subscribed(slot);
        (!is_subscribed).then(|| names.subscribe(slot, &session.client))
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
    pub(crate) fn while_open(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
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
        if shared.group.is_quorum() {
            let now = shared.clock.now();
            shared.server_time.hear(sent, server_micros, now);
            return;
        }
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
}

impl Drop for Node {
    fn drop(&mut self) {
        self.lanes.close();
    }
}

/// Tells each time, or from the second time on.
fn but_for_the_first(is_first: bool, tell: impl Fn() + Send + Sync + 'static) -> Arc<Connected> {
    let is_first = AtomicBool::new(is_first);
    Arc::new(move || {
        if !is_first.swap(false, Ordering::AcqRel) {
            tell();
        }
    })
}

/// How the two connections are opened.
fn dialers(
    config: &RedisConfig,
    transport: &Arc<dyn Transport>,
    shared: &Arc<Shared>,
) -> [Dialer; 2] {
    [Role::Commands, Role::Renewals].map(|role| dialer(config, transport, shared, role))
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
        config.url_credentials(),
        config.credentials.clone(),
    )
}
