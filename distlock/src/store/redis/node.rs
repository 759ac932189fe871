//! One server: the connections to it, and what is known of it. A store that spans several has a node for each.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::{Error, Outage};
use crate::key::LockKey;
use crate::mutex::lock;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal,
    RenewalFailure, Renewed,
};
use crate::store::StoreEvent;
use crate::store::redis::client::{Client, Shared};
use crate::store::redis::codec::decode;
use crate::store::redis::config::RedisConfig;
use crate::store::redis::handshake::{self, Dialer, Role};
use crate::store::redis::health::{Cause, Health};
use crate::store::redis::lane::LaneName;
use crate::store::redis::lanes::Lanes;
use crate::store::redis::link::{self, Link};
use crate::store::redis::polling::Polls;
use crate::store::redis::session::Session;
use crate::store::redis::transport::Transport;
use crate::store::redis::unanswered::UnansweredAsks;
use crate::store::redis::way::Way;

/// Whether the server evicts is asked at connect, but not waited for.
const ADVICE_WITHIN: Duration = Duration::from_millis(250);

/// One server, seen by one client: a connection for commands and pushed grants, one for renewals.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) shared: Arc<Shared>,
    health: Arc<Health>,
    unanswered: UnansweredAsks,
    pub(super) polls: Arc<Polls>,
    /// Ask, cancel, release and look of one owner use one connection, so that they stay in order.
    pub(super) commands: Link,
    /// A subscribed connection counts as `pubsub` for the server's output-buffer limits; renewals do
    /// not share its fate.
    pub(super) renewals: Link,
    pub(super) lanes: Arc<Lanes>,
    /// Told of each connection that was opened again.
    opened: watch::Sender<()>,
    closed: watch::Sender<bool>,
    address: String,
}

impl Node {
    /// Connects, on the runtime that is to run the connections, and tries until the configured time is
    /// over. The server's eviction policy, if it is one that removes locks, comes with it.
    pub(super) async fn connect(
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
        let opened = tokio::time::timeout(limit, async {
            tokio::try_join!(
                link::open_first(&commands, &last),
                link::open_first(&renewals, &last)
            )
        });
        let opened = opened.await.unwrap_or_else(|_| {
            let last = lock(&last).take();
            Err(last.unwrap_or_else(|| Trouble::timed_out(limit)))
        });
        let (first, second) =
            opened.map_err(|trouble| config.refused(trouble, shared.clock.now().since(started)))?;
        let policy = tokio::time::timeout(ADVICE_WITHIN, handshake::evicts(&first)).await;
        let dialers = (commands, renewals);
        let node = Self::keep(config, shared, dialers, (Some(first), Some(second)));
        Ok((node, policy.ok().flatten()))
    }

    /// Opens the connections in the background, on the runtime that this is called on.
    pub(super) fn connect_lazy(
        config: &RedisConfig,
        transport: Arc<dyn Transport>,
        client: Client,
    ) -> Self {
        let shared = Shared::new(&config.namespace, client);
        let shared = Arc::new(shared);
        let dialers = dialers(config, &transport, &shared);
        Self::keep(config, shared, dialers, (None, None))
    }

    fn keep(
        config: &RedisConfig,
        shared: Arc<Shared>,
        (commands, renewals): (Dialer, Dialer),
        (first, second): (Option<Session>, Option<Session>),
    ) -> Self {
        let health = Health::new(
            config.address(),
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
        let reconnected = tell(StoreEvent::Reconnected);
        let renewals_reconnected = tell(StoreEvent::RenewalsReconnected);
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
            opened,
            closed: watch::Sender::new(false),
            address: config.address(),
        }
    }

    /// The way by which callers on this runtime reach the server without a hop, if there is one.
    pub(super) fn lane(&self) -> Option<Way> {
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
        })
    }

    /// The way over the command connection.
    pub(super) fn home(&self) -> Result<Way, Trouble> {
        let session = self.commands.session()?;
        Ok(Way {
            session,
            lane: None,
        })
    }

    pub(super) async fn ask(&self, way: &Way, ask: &Ask<'_>) -> Result<AskReply, Trouble> {
        let shared = &*self.shared;
        let mut pending = self.unanswered.ask(ask.owner, way.carrier());
        let encoder = shared.encoder(&way.session.client);
        let asked = self.call_by(way, ask.owner, ask.within, |by| {
            let apply_by = shared.server_time.latest(shared.clock.now(), ask.within);
            pending.is_sent(apply_by);
            encoder.ask(by, ask, apply_by)
        });
        let asked = asked.await;
        let id = shared.id();
        let decoder = shared.decoder(&id);
        let (sent, answer) = match asked {
            Ok(answered) => answered,
            Err(refusal) => {
                self.note_refusal(&refusal);
                let said = decoder.refused_ask(ask.key, refusal)?;
                pending.is_answered();
                return Ok(said);
            }
        };
        pending.is_answered();
        let decoded = decoder.ask(ask.key, sent, answer)?;
        shared.server_time.learn(sent, decoded.at);
        if matches!(decoded.said, AskReply::Queued(_)) && way.session.client.is_polling() {
            self.polls.add(ask.key, ask.owner);
        }
        // What it wrote for this ask it did not refuse.
        if matches!(decoded.said, AskReply::Held(_) | AskReply::Queued(_)) {
            self.health.recovers(Cause::Refusing);
        }
        Ok(decoded.said)
    }

    pub(super) async fn confirm(
        &self,
        key: &LockKey,
        owner: Owner,
        timing: Timing,
        within: Duration,
    ) -> Result<Option<Proof>, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let confirmed = self.call(&self.commands, &session, within, |by| {
            encoder.confirm(by, key, owner, timing)
        });
        let (sent, answer) = confirmed.await?;
        let decoded = decode::confirm(sent, answer)?;
        shared.server_time.learn(sent, decoded.at);
        self.polls.forget(owner);
        Ok(decoded.said)
    }

    pub(super) async fn renew(
        &self,
        batch: &[Renewal],
        within: Duration,
    ) -> Result<Renewed, Trouble> {
        let session = self.renewals.session()?;
        // This connection does not listen: the name is that of the other.
        let id = self.shared.id();
        let encoder = self.shared.encoder(&id);
        let renewed = self.call(&self.renewals, &session, within, |by| {
            encoder.renew(by, batch)
        });
        let (sent, answer) = renewed.await?;
        let failures = decode::renew(batch, answer)?;
        for (_, failure) in &failures {
            if let RenewalFailure::Trouble(trouble) = failure {
                self.note_role(&session, trouble);
            }
        }
        Ok(Renewed { sent, failures })
    }

    /// Takes back whatever an owner has there. Its asks come before that: what was not answered on a lane is followed
    /// there, or the lane is killed (R2).
    pub(super) async fn release(
        &self,
        key: &LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        let home = self.home()?;
        let mut unanswered = self.unanswered.get(owner).unwrap_or_default();
        if !Rules::in_force().follow_lane {
            unanswered.lanes.clear();
        }
        let mut was_held = false;
        let mut may_come = unanswered
            .epoch
            .is_some_and(|epoch| epoch != home.session.epoch && home.session.predecessor_lives);
        for name in &unanswered.lanes {
            let mut is_followed = false;
            if let Some(lane) = self.lanes.find(name.number) {
                let way = Way {
                    session: home.session.clone(),
                    lane: Some(lane),
                };
                match self.release_by(&way, key, owner, keep, within).await {
                    Ok(held) => {
                        was_held |= held;
                        is_followed = true;
                    }
                    // It may have been applied: what is not there any more proves nothing.
                    Err(trouble) => was_held |= !trouble.unsent,
                }
            }
            if !is_followed {
                self.lanes.give_up(name.number);
                may_come |= !self.kill(name, &home.session, within).await?;
            }
        }
        was_held |= self.release_by(&home, key, owner, keep, within).await?;
        self.unanswered.forget(owner);
        self.polls.forget(owner);
        let again_after = may_come.then(|| {
            let now = self.shared.server_time.estimate(self.shared.clock.now());
            Duration::from_micros(unanswered.apply_by.saturating_sub(now)) + within
        });
        Ok(ReleaseReply {
            was_held,
            again_after,
        })
    }

    /// Releases what was asked for and answered; `None` if that cannot be said here, and home has to do it.
    pub(super) async fn release_answered(
        &self,
        way: &Way,
        key: &LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Option<Result<ReleaseReply, Trouble>> {
        if self.unanswered.get(owner).is_some() {
            return None;
        }
        let released = self.release_by(way, key, owner, keep, within).await;
        Some(released.map(|was_held| ReleaseReply {
            was_held,
            again_after: None,
        }))
    }

    /// Makes sure that nothing more of a lane is applied. `false` if that cannot be said.
    async fn kill(&self, lane: &LaneName, by: &Session, within: Duration) -> Result<bool, Trouble> {
        match tokio::time::timeout(within, lane.kill(by)).await {
            Ok(killed) => killed,
            Err(_) => {
                self.commands.suspect(within);
                Err(Trouble::timed_out(within))
            }
        }
    }

    /// Whether there was a lock.
    async fn release_by(
        &self,
        way: &Way,
        key: &LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Result<bool, Trouble> {
        let encoder = self.shared.encoder(&way.session.client);
        let give_up = self.shared.clock.now() + within;
        let mut was_held = false;
        loop {
            let released = self.call_by(way, owner, within, |by| {
                encoder.release(by, key, owner, keep)
            });
            let (_, answer) = released.await?;
            let removed = decode::release(answer)?;
            was_held |= removed.was_held;
            // So many dead waiters that one call was not enough to reach a live one. In the end they are
            // left to whoever looks next.
            if !removed.more || self.shared.clock.now() >= give_up {
                return Ok(was_held);
            }
        }
    }

    pub(super) async fn look(
        &self,
        looks: &[Look],
        within: Duration,
    ) -> Result<Vec<LookReply>, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let looked = self.call(&self.commands, &session, within, |by| {
            encoder.look(by, looks)
        });
        let (sent, answer) = looked.await?;
        let id = shared.id();
        let decoded = shared.decoder(&id).look(looks, answer)?;
        shared.server_time.learn(sent, decoded.at);
        for reply in &decoded.said {
            if let LookReply::Failed(trouble) = reply {
                self.note_role(&session, trouble);
            }
        }
        Ok(decoded.said)
    }

    pub(super) async fn inspect(
        &self,
        key: &LockKey,
        within: Duration,
    ) -> Result<Inspection, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let inspected = self.call(&self.commands, &session, within, |by| {
            encoder.inspect(by, key)
        });
        let inspected = inspected.await;
        let id = shared.id();
        let decoder = shared.decoder(&id);
        let (sent, answer) = match inspected {
            Ok(answered) => answered,
            Err(refusal) => return decoder.refused_inspection(key, refusal),
        };
        let decoded = decoder.inspect(key, answer)?;
        shared.server_time.learn(sent, decoded.at);
        Ok(decoded.said)
    }

    /// Whether nobody tells this client anything.
    pub(super) fn is_polling(&self) -> bool {
        let session = self.commands.session();
        session.is_ok_and(|session| session.client.is_polling())
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Resolves once commands can be sent, or never will be.
    pub(super) async fn ready(&self) {
        self.commands.ready().await;
    }

    /// Why no command can be sent at this moment.
    pub(super) fn outage(&self) -> Option<Trouble> {
        self.commands.session().err()
    }

    /// Whether no connection that is up leads elsewhere than to this server.
    pub(super) fn leads_only_to(&self, peer: &str) -> bool {
        let mut up = self.sessions();
        up.all(|session| session.connection.peer() == Some(peer))
    }

    /// Leaves every connection that leads elsewhere than to this server, which is the master now.
    pub(super) fn leave_others(&self, peer: &str) {
        for session in self.sessions() {
            if session.connection.peer() != Some(peer) {
                let why = format!("the sentinels say that {peer} is the master now");
                session.end.tell(Trouble::new(Outage::NotReady, why));
            }
        }
    }

    /// Changes with each connection that is opened from now on.
    pub(super) fn opens(&self) -> watch::Receiver<()> {
        self.opened.subscribe()
    }

    /// The two connections, as far as they are up.
    pub(super) fn sessions(&self) -> impl Iterator<Item = Arc<Session>> {
        let links = [&self.commands, &self.renewals];
        links.into_iter().filter_map(|link| link.session().ok())
    }

    pub(super) fn close(&self) {
        self.commands.close();
        self.renewals.close();
        self.lanes.close();
        self.closed.send_replace(true);
    }

    /// Resolves when the node is closed or dropped.
    pub(super) fn until_closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closed = self.closed.subscribe();
        async move {
            // An error: it was dropped.
            let _ = closed.wait_for(|closed| *closed).await;
        }
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
#[path = "../../../../tests/inside/garbage.rs"]
mod garbage;
