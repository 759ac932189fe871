//! The store in Redis. This folder is the only place that knows the `redis` crate.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use redis::Cmd;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::report;
use crate::mutex::lock;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::{Trouble, one_line};
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Occupant, Owner, Proof, Released, Renewal,
    RenewalFailure, Renewed,
};
use crate::random::Random;
use crate::store::client_id::ClientId;
use crate::store::{BoxFuture, EventSink, IsIdle, LockStore, Settings, StoreEvent};

mod config;
mod dial;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/garbage.rs"]
mod garbage;
mod health;
mod link;
mod names;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/durations.rs"]
mod properties;
mod reply;
mod scripts;
pub(crate) mod server_time;
mod transport;
mod trouble;

pub(crate) use config::RedisConfig;
use dial::Dialer;
use health::{Cause, Health};
use link::{Link, Session};
use names::Names;
use reply::Reply;
use scripts::Script;
use server_time::ServerTime;

/// A connection that is silent for this long while it owes an answer is tested.
const LONGEST_SILENCE: Duration = Duration::from_millis(100);

/// Unanswered asks are forgotten with their release, or, when there are many, some time after nothing can
/// come of them.
const MANY_UNANSWERED: usize = 1_024;
const LONG_PAST: Duration = Duration::from_secs(60);

/// Whether the server evicts is asked at connect, but not waited for.
const ADVICE_WITHIN: Duration = Duration::from_millis(250);

/// One client of a Redis server: a connection for commands and pushed grants, one for renewals.
#[derive(Debug)]
pub(crate) struct RedisStore {
    shared: Arc<Shared>,
    /// Ask, cancel, release and look of one owner use one connection, so that they stay in order.
    commands: Link,
    /// A subscribed connection counts as `pubsub` for the server's output-buffer limits; renewals do
    /// not share its fate.
    renewals: Link,
}

/// What pushed messages and commands both need.
#[derive(Debug)]
struct Shared {
    names: Names,
    identity: String,
    address: String,
    client: RwLock<ClientId>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    server_time: ServerTime,
    unanswered: Mutex<HashMap<Owner, UnansweredAsk>>,
    /// Second releases that are still to be sent, under the present name.
    late_releases: AtomicUsize,
    health: Arc<Health>,
}

/// An ask whose answer never came. If its connection is lost and cannot be killed in the server, it may
/// still be applied until `apply_by`, so its release is sent twice (design rule 2).
#[derive(Clone, Copy, Debug)]
struct UnansweredAsk {
    epoch: u64,
    apply_by: u64,
}

/// Who uses a Redis store.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) is_idle: IsIdle,
}

impl RedisStore {
    /// Connects, on the runtime that is to run the connections, and tries until the configured time is
    /// over.
    pub(crate) async fn connect(config: RedisConfig, client: Client) -> Result<Self, Error> {
        let limit = config.connect_timeout;
        let clock = client.clock.clone();
        let started = clock.now();
        let (shared, dialers) = Self::prepare(&config, &client);
        let (commands, renewals) = dialers;
        let last = tokio::sync::watch::Sender::new(None);
        let opened = tokio::time::timeout(limit, async {
            tokio::try_join!(
                link::open_first(&commands, &last),
                link::open_first(&renewals, &last)
            )
        });
        let opened = opened.await.unwrap_or_else(|_| {
            let last = last.borrow().clone();
            Err(last.unwrap_or_else(|| Trouble::timed_out(limit)))
        });
        let (first, second) =
            opened.map_err(|trouble| config.refused(trouble, clock.now().since(started)))?;
        if let Ok(Some(policy)) = tokio::time::timeout(ADVICE_WITHIN, dial::evicts(&first)).await {
            report::eviction(&shared.identity, &policy);
        }
        let dialers = (commands, renewals);
        Ok(Self::keep(
            shared,
            dialers,
            (Some(first), Some(second)),
            client.events,
        ))
    }

    /// Opens the connections in the background, on the runtime that this is called on.
    pub(crate) fn connect_lazy(config: &RedisConfig, client: Client) -> Self {
        let (shared, dialers) = Self::prepare(config, &client);
        Self::keep(shared, dialers, (None, None), client.events)
    }

    fn prepare(config: &RedisConfig, client: &Client) -> (Arc<Shared>, (Dialer, Dialer)) {
        let health = Health::new(
            config.address(),
            client.clock.clone(),
            client.events.clone(),
        );
        let shared = Arc::new(Shared {
            names: Names::new(&config.namespace),
            identity: config.identity(),
            address: config.address(),
            client: RwLock::new(client.id.clone()),
            settings: client.settings.clone(),
            clock: client.clock.clone(),
            server_time: ServerTime::default(),
            unanswered: Mutex::default(),
            late_releases: AtomicUsize::new(0),
            health: Arc::new(health),
        });
        let commands = Dialer::commands(
            config,
            client.random.clone(),
            shared.clone(),
            client.events.clone(),
            client.is_idle.clone(),
        );
        let renewals = Dialer::renewals(config, client.random.clone(), shared.clone());
        (shared, (commands, renewals))
    }

    fn keep(
        shared: Arc<Shared>,
        (commands, renewals): (Dialer, Dialer),
        (first, second): (Option<Session>, Option<Session>),
        events: EventSink,
    ) -> Self {
        let health = shared.health.clone();
        let reconnected = events.clone();
        RedisStore {
            shared,
            commands: Link::keep(commands, first, health.clone(), move || {
                reconnected(StoreEvent::Reconnected);
            }),
            renewals: Link::keep(renewals, second, health, move || {
                events(StoreEvent::RenewalsReconnected);
            }),
        }
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<AskReply, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let mut unanswered = Unanswered {
            shared,
            owner: ask.owner,
            epoch: session.epoch,
            apply_by: AtomicU64::new(0),
        };
        let result = self
            .call(&self.commands, &session, &scripts::ASK, ask.within, |cmd| {
                let now = shared.clock.now();
                let apply_by = shared.server_time.latest(now, ask.within);
                unanswered.apply_by.store(apply_by, Ordering::Relaxed);
                shared.names.all(cmd, ask.key);
                cmd.arg(owner_of(&session.client, ask.owner))
                    .arg(millis(ask.timing.lease))
                    .arg(millis(ask.timing.ttl()))
                    .arg(millis(ask.wait))
                    .arg(apply_by)
                    .arg(session.client.as_str())
                    .arg(&shared.names.channels)
                    .arg(&shared.settings.name)
                    .arg(shared.settings.max_waiters)
                    .arg(millis(shared.settings.fence_ttl));
            })
            .await;
        if let Err(trouble) = &result {
            self.note_refusal(trouble);
        }
        let (sent, reply) = match result {
            Ok(answered) => answered,
            Err(trouble) if trouble::is_foreign(&trouble) => {
                unanswered.answered();
                return Ok(AskReply::Foreign(shared.foreign(ask.key, &trouble.detail)));
            }
            Err(trouble) => return Err(trouble),
        };
        unanswered.answered();
        let mut reply = Reply::list(reply)?;
        let verdict = reply.int()?;
        shared.server_time.learn(sent, reply.int()?);
        #[cfg(sabotage)]
        let sent = crate::sabotage::proven_at(sent, &*shared.clock);
        // What it wrote for this ask it did not refuse.
        if matches!(verdict, 1 | 2) {
            shared.health.recovers(Cause::Refusing);
        }
        Ok(match verdict {
            1 => AskReply::Held(Proof {
                sent,
                token: reply.token()?,
            }),
            4 => AskReply::Late,
            5 => AskReply::Foreign(shared.foreign(ask.key, trouble::FOREIGN_VALUE)),
            2 | 3 | 6 => {
                let value = reply.text()?;
                match (verdict, shared.occupant(&value)) {
                    // The script's pattern is wider than what we write.
                    (_, None) if !value.is_empty() => {
                        AskReply::Foreign(shared.foreign(ask.key, trouble::FOREIGN_VALUE))
                    }
                    (2, occupant) => AskReply::Queued(occupant),
                    (3, occupant) => AskReply::Busy(occupant),
                    (_, occupant) => AskReply::Full(occupant),
                }
            }
            other => return Err(reply::garbage(&format!("verdict {other}"))),
        })
    }

    async fn confirm(
        &self,
        key: &LockKey,
        owner: Owner,
        timing: Timing,
        within: Duration,
    ) -> Result<Option<Proof>, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let (sent, reply) = self
            .call(&self.commands, &session, &scripts::CONFIRM, within, |cmd| {
                shared.names.without_fence(cmd, key);
                cmd.arg(owner_of(&session.client, owner))
                    .arg(millis(timing.ttl()));
            })
            .await?;
        let mut reply = Reply::list(reply)?;
        let confirmed = reply.int()? == 1;
        shared.server_time.learn(sent, reply.int()?);
        if !confirmed {
            return Ok(None);
        }
        let token = reply.token()?;
        #[cfg(sabotage)]
        let sent = crate::sabotage::proven_at(sent, &*shared.clock);
        Ok(Some(Proof { sent, token }))
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Result<Renewed, Trouble> {
        let shared = &*self.shared;
        let session = self.renewals.session()?;
        let client = shared.client();
        let (sent, reply) = self
            .call(&self.renewals, &session, &scripts::RENEW, within, |cmd| {
                cmd.arg(batch.len());
                for renewal in batch {
                    cmd.arg(shared.names.lock(&renewal.key));
                }
                for renewal in batch {
                    let owner = owner_of(&client, renewal.owner);
                    cmd.arg(format!("{owner} {}", renewal.token))
                        .arg(millis(renewal.timing.ttl()));
                }
            })
            .await?;
        let mut reply = Reply::list(reply)?;
        let mut failures: Vec<(usize, RenewalFailure)> = Vec::new();
        while let Some(failure) = reply.next() {
            let mut failure = Reply::list(failure)?;
            let index = usize::try_from(failure.int()?).unwrap_or(usize::MAX);
            // In the order of the batch: whoever reads them passes each once.
            let rises = failures.last().is_none_or(|(last, _)| *last < index);
            if index >= batch.len() || !rises {
                return Err(reply::garbage("a renewal's index"));
            }
            let error = failure.text()?;
            failures.push(match error.as_str() {
                "" => (index, RenewalFailure::Gone),
                error => {
                    let trouble = trouble::of_text(error);
                    self.note_role(&session, &trouble);
                    (index, RenewalFailure::Trouble(trouble))
                }
            });
        }
        #[cfg(sabotage)]
        let sent = crate::sabotage::proven_at(sent, &*shared.clock);
        Ok(Renewed { sent, failures })
    }

    async fn release(
        &self,
        key: &LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Result<bool, Trouble> {
        let session = self.commands.session()?;
        let held = self.release_on(&session, key, owner, keep, within).await?;
        let unanswered = lock(&self.shared.unanswered).remove(&owner);
        if let Some(ask) = unanswered
            && ask.epoch != session.epoch
            && session.predecessor_lives
        {
            self.release_again(key.clone(), owner, ask, within);
        }
        Ok(held)
    }

    async fn release_on(
        &self,
        session: &Session,
        key: &LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Result<bool, Trouble> {
        let shared = &*self.shared;
        let mut was_held = false;
        let give_up = shared.clock.now() + within;
        loop {
            let (_, reply) = self
                .call(&self.commands, session, &scripts::RELEASE, within, |cmd| {
                    shared.names.all(cmd, key);
                    cmd.arg(owner_of(&session.client, owner))
                        .arg(session.client.as_str())
                        .arg(&shared.names.channels)
                        .arg(millis(keep))
                        .arg(millis(shared.settings.fence_ttl));
                })
                .await?;
            let mut reply = Reply::list(reply)?;
            was_held |= reply.int()? == 1;
            // So many dead waiters that one call was not enough to reach a live one. In the end they are
            // left to whoever looks next.
            if reply.int()? == 0 || shared.clock.now() >= give_up {
                return Ok(was_held);
            }
        }
    }

    /// The second release of an owner whose ask may still be applied by a connection that lives on in
    /// the server.
    fn release_again(&self, key: LockKey, owner: Owner, ask: UnansweredAsk, within: Duration) {
        let shared = self.shared.clone();
        let store = RedisStore {
            shared: shared.clone(),
            commands: self.commands.clone(),
            renewals: self.renewals.clone(),
        };
        shared.late_releases.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            let now = shared.server_time.estimate(shared.clock.now());
            let late = Duration::from_micros(ask.apply_by.saturating_sub(now));
            tokio::time::sleep(late + within).await;
            for _ in 0..10 {
                store.commands.ready().await;
                if let Ok(session) = store.commands.session() {
                    let again = store.release_on(&session, &key, owner, Duration::ZERO, within);
                    if again.await.is_ok() {
                        break;
                    }
                }
                // A server that refuses answers at once.
                tokio::time::sleep(within).await;
            }
            shared.late_releases.fetch_sub(1, Ordering::AcqRel);
        });
    }

    async fn look(&self, looks: &[Look], within: Duration) -> Result<Vec<LookReply>, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let (sent, reply) = self
            .call(&self.commands, &session, &scripts::LOOK, within, |cmd| {
                cmd.arg(4 * looks.len());
                for look in looks {
                    shared.names.each(cmd, &look.key);
                }
                cmd.arg(session.client.as_str())
                    .arg(&shared.names.channels)
                    .arg(millis(shared.settings.fence_ttl));
                for look in looks {
                    cmd.arg(look.owners.len());
                    for owner in &look.owners {
                        cmd.arg(owner_of(&session.client, *owner));
                    }
                }
            })
            .await?;
        let mut reply = Reply::list(reply)?;
        shared.server_time.learn(sent, reply.int()?);
        looks
            .iter()
            .map(|look| match reply.next() {
                Some(value) => {
                    let reply = shared.look_reply(look, value);
                    if let Ok(LookReply::Failed(trouble)) = &reply {
                        self.note_role(&session, trouble);
                    }
                    reply
                }
                None => Err(reply::garbage("a look that is too short")),
            })
            .collect()
    }

    async fn inspect(&self, key: &LockKey, within: Duration) -> Result<Inspection, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let result = self
            .call(&self.commands, &session, &scripts::INSPECT, within, |cmd| {
                let [lock, queue, _, fence] = shared.names.of(key);
                cmd.arg(3).arg(lock).arg(queue).arg(fence);
            })
            .await;
        let foreign = |detail: &str| Inspection {
            occupant: None,
            waiters: 0,
            last_token: None,
            foreign: Some(shared.foreign(key, detail)),
        };
        let (sent, reply) = match result {
            Ok(answered) => answered,
            Err(trouble) if trouble::is_foreign(&trouble) => return Ok(foreign(&trouble.detail)),
            Err(trouble) => return Err(trouble),
        };
        let mut reply = Reply::list(reply)?;
        shared.server_time.learn(sent, reply.int()?);
        let value = reply.text()?;
        let _ttl_left = reply.signed()?;
        let waiters = reply.int()?;
        let last = reply.text()?;
        let held = reply.int()? == 1;
        let occupant = shared.occupant(&value);
        if occupant.is_none() && held {
            return Ok(foreign(trouble::FOREIGN_VALUE));
        }
        Ok(Inspection {
            occupant,
            waiters,
            last_token: last.parse().ok().map(FencingToken::new),
            foreign: None,
        })
    }

    /// An outage says where it is.
    fn located<T>(&self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        result.map_err(|trouble| trouble.at(&self.shared.address))
    }

    /// Runs a script under our own deadline. The moment returned is before the command was sent.
    async fn call(
        &self,
        link: &Link,
        session: &Session,
        script: &Script,
        within: Duration,
        fill: impl Fn(&mut Cmd),
    ) -> Result<(Moment, redis::Value), Trouble> {
        let _place = link.place(within).await?;
        let loaded = session.scripts.loaded();
        let is_unknown = |answered: &Result<_, Failure>| matches!(answered, Err(Failure::Error(error)) if scripts::is_unknown(error));
        let attempt = |cmd| self.attempt(link, session, within, cmd, &fill);
        let mut answered = attempt(script.by_hash()).await;
        // Nothing was run: each of these has a deadline of its own.
        if is_unknown(&answered) {
            let mut connection = session.connection.clone();
            let loading = session.scripts.load_again(&mut connection, loaded);
            // What goes wrong here goes wrong again below.
            let _ = tokio::time::timeout(within, loading).await;
            answered = attempt(script.by_hash()).await;
        }
        if is_unknown(&answered) {
            answered = attempt(script.by_source()).await;
        }
        let trouble = match answered {
            Ok(answered) => return Ok(answered),
            Err(Failure::Error(error)) => trouble::of(&error),
            Err(Failure::TimedOut) => Trouble::timed_out(within),
        };
        self.note_role(session, &trouble);
        Err(trouble)
    }

    async fn attempt(
        &self,
        link: &Link,
        session: &Session,
        within: Duration,
        mut cmd: Cmd,
        fill: &impl Fn(&mut Cmd),
    ) -> Result<(Moment, redis::Value), Failure> {
        fill(&mut cmd);
        let mut connection = session.connection.clone();
        let sent = self.shared.clock.now();
        let mut query = pin!(cmd.query_async(&mut connection));
        // Who can wait longer goes on waiting, while the connection is being tested.
        let first = within.min(LONGEST_SILENCE);
        let mut answered = tokio::time::timeout(first, query.as_mut()).await;
        if answered.is_err() {
            link.suspect(within);
            if within > first {
                answered = tokio::time::timeout(within - first, query).await;
            }
        }
        match answered {
            Ok(Ok(value)) => Ok((sent, value)),
            Ok(Err(error)) => Err(Failure::Error(error)),
            Err(_) => Err(Failure::TimedOut),
        }
    }

    /// A server that is a replica now will not be a master again soon, and another one may have its name:
    /// both connections are opened anew.
    fn note_role(&self, session: &Session, trouble: &Trouble) {
        let demoted = trouble.outage == Outage::ReadOnly || trouble::lost_its_master(trouble);
        if demoted && session.end.tell(trouble.clone()) {
            for link in [&self.commands, &self.renewals] {
                if let Ok(session) = link.session() {
                    session.end.tell(trouble.clone());
                }
            }
        }
    }

    /// Notices a server that answers and refuses.
    fn note_refusal(&self, trouble: &Trouble) {
        if trouble.outage.is_refusal() {
            self.shared.health.suffers(Cause::Refusing, trouble);
        }
    }
}

/// Why there is no answer.
enum Failure {
    Error(redis::RedisError),
    TimedOut,
}

/// An ask that is remembered if it is dropped without an answer.
struct Unanswered<'a> {
    shared: &'a Shared,
    owner: Owner,
    epoch: u64,
    /// Zero: it was not sent, or it was answered.
    apply_by: AtomicU64,
}

impl Unanswered<'_> {
    fn answered(&mut self) {
        *self.apply_by.get_mut() = 0;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let apply_by = *self.apply_by.get_mut();
        if apply_by > 0 {
            // What an older connection left unanswered stays so.
            let mut asks = lock(&self.shared.unanswered);
            // Not at each one: only before the table grows.
            if asks.len() >= MANY_UNANSWERED && asks.len() == asks.capacity() {
                // The script refuses an ask after its time, so these can do nothing any more.
                let past = apply_by.saturating_sub(micros(LONG_PAST));
                asks.retain(|_, known| known.apply_by > past);
            }
            let ask = UnansweredAsk {
                epoch: self.epoch,
                apply_by,
            };
            let known = asks.entry(self.owner).or_insert(ask);
            known.apply_by = known.apply_by.max(apply_by);
        }
    }
}

impl LockStore for RedisStore {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move { self.located(self.ask(ask).await) })
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        Box::pin(async move { self.located(self.confirm(key, owner, timing, within).await) })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        Box::pin(async move { self.located(self.renew(batch, within).await) })
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<Released, Trouble>> {
        Box::pin(async move {
            let was_held = self.located(self.release(key, owner, keep, within).await)?;
            Ok(Released {
                was_held,
                again_after: None,
            })
        })
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        Box::pin(async move { self.located(self.look(looks, within).await) })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        Box::pin(async move { self.located(self.inspect(key, within).await) })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.commands.ready())
    }

    fn outage(&self) -> Option<Trouble> {
        self.located(self.commands.session()).err()
    }

    fn identity(&self) -> &str {
        &self.shared.identity
    }

    fn address(&self) -> Option<&str> {
        Some(&self.shared.address)
    }

    fn close(&self) {
        self.commands.close();
        self.renewals.close();
    }
}

impl Shared {
    /// Who stands in a lock's value; `None` for an empty or a foreign one.
    fn occupant(&self, value: &str) -> Option<Occupant> {
        let mut fields = value.splitn(5, ' ');
        let owner = fields.next()?;
        let (client, number) = owner.split_once(':')?;
        if !is_made_of(client, char::is_ascii_hexdigit) || !is_made_of(number, char::is_ascii_digit)
        {
            return None;
        }
        let (this_process, ours) = self.client().recognise(owner);
        let token = FencingToken::new(fields.next()?.parse().ok()?);
        let _ttl: u64 = fields.next()?.parse().ok()?;
        Some(Occupant {
            ours,
            this_process,
            token,
            since: fields.next()?.parse().ok()?,
            name: one_line(fields.next()?.to_owned()),
        })
    }

    /// What is said of something that is not ours, and where to find it.
    fn foreign(&self, key: &LockKey, what: &str) -> String {
        let [lock, queue, entry, fence] = self.names.of(key);
        format!("{what} (one of `{lock}`, `{queue}`, `{entry}`, `{fence}`)")
    }

    fn look_reply(&self, look: &Look, value: redis::Value) -> Result<LookReply, Trouble> {
        if !reply::is_list(&value) {
            let trouble = trouble::of_text(&Reply::one(value).text()?);
            return Ok(if trouble::is_foreign(&trouble) {
                LookReply::Foreign(self.foreign(&look.key, &trouble.detail))
            } else {
                LookReply::Failed(trouble)
            });
        }
        let mut fields = Reply::list(value)?;
        let value = fields.text()?;
        let occupant = self.occupant(&value);
        if occupant.is_none() && !value.is_empty() {
            let detail = self.foreign(&look.key, trouble::FOREIGN_VALUE);
            return Ok(LookReply::Foreign(detail));
        }
        let _ttl_left = fields.signed()?;
        let mut indices = Reply::list(fields.next().unwrap_or(redis::Value::Nil))?;
        let mut missing = Vec::new();
        while let Some(index) = indices.next() {
            let index = usize::try_from(Reply::one(index).int()?).unwrap_or(usize::MAX);
            let owner = look.owners.get(index);
            missing.push(*owner.ok_or_else(|| reply::garbage("a missing owner's index"))?);
        }
        Ok(LookReply::Seen { occupant, missing })
    }
}

/// An owner as it stands in the store.
fn owner_of(client: &ClientId, owner: Owner) -> String {
    format!("{}:{owner}", client.as_str())
}

fn is_made_of(text: &str, kind: fn(&char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(|c| kind(&c))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
