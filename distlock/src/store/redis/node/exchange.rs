//! Script calls: the connection, the timeout, and the handling of missing replies.

use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::protocol::words::Owner;
use crate::store::BoxFuture;
use crate::store::redis::conn::reconnecting_connection::{
    LIVENESS_CHECK_DELAY, ReconnectingConnection,
};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::acks::Told;
use crate::store::redis::node::lane::Lane;
use crate::store::redis::node::way::Way;
use crate::store::redis::transport::Connection;
use crate::store::redis::wire::call::{Dated, Scope, ScriptCall};
use crate::store::redis::wire::errors;
use crate::store::redis::wire::scripts::{self, ScriptRef};
use crate::util::clock::Moment;

impl Node {
    /// Runs a script over its connection. `before` is sent in the same write.
    pub(crate) async fn run<S: ScriptCall + ?Sized>(
        &self,
        before: Option<Cmd>,
        script: &S,
        within: Duration,
    ) -> Result<S::Reply, Trouble> {
        let durability = script.durability();
        if !durability.is_none() {
            return self.run_durably(before, script, durability, within).await;
        }
        let way = Way {
            before,
            ..Way::over(self.link::<S>().session()?)
        };
        self.run_on(&way, script, within).await
    }

    /// Runs a script over `way`, and records the server time in its reply. An acquire without a
    /// reply is remembered.
    pub(crate) async fn run_on<S: ScriptCall + ?Sized>(
        &self,
        way: &Way,
        script: &S,
        within: Duration,
    ) -> Result<S::Reply, Trouble> {
        let (shared, session) = (&*self.shared, &*way.session);
        // The renewal connection does not subscribe, so the name is that of the command connection.
        let renewing = S::RENEWS.then(|| shared.id());
        let scope = Scope {
            run_id: session.run_id.as_deref().unwrap_or_default(),
            ..shared.scope(renewing.as_ref().unwrap_or(&session.client))
        };
        let asks = script.owner().filter(|_| script.is_acquire());
        let mut pending = asks.map(|owner| self.unanswered.ask(owner, way.carrier()));
        let command = |by| {
            let apply_by = match &pending {
                Some(pending) => {
                    let apply_by = shared.server_time.apply_by(shared.clock.now(), within);
                    pending.is_sent(apply_by);
                    apply_by
                }
                None => 0,
            };
            script.encode(&Scope { apply_by, ..scope }, by)
        };
        let answered = match (&way.lane, script.owner()) {
            (Some(lane), Some(owner)) => self.call_on(lane, owner, within, &command).await,
            _ => {
                let link = self.link::<S>();
                let before = way.before.as_slice();
                self.call(link, session, before, within, &command).await
            }
        };
        let id = shared.id();
        let scope = shared.scope(&id);
        let foreign = match &answered {
            Err(refusal) if refusal.code == Code::Foreign => {
                script.foreign(&scope, &refusal.detail)
            }
            _ => None,
        };
        let is_answered = match &answered {
            Ok(_) => true,
            Err(refusal) => foreign.is_some() || errors::is_redirect(refusal),
        };
        if let Some(pending) = pending.as_mut().filter(|_| is_answered) {
            pending.is_answered();
        }
        let (sent, answer) = match (answered, foreign) {
            (Ok(answered), _) => answered,
            (Err(_), Some(foreign)) => return Ok(foreign),
            (Err(refusal), None) => return Err(refusal),
        };
        let Dated { at, reply: said } = script.decode(&scope, sent, answer)?;
        if let Some(at) = at {
            self.learn(sent, at);
        }
        self.note_failures::<S>(session, &said);
        Ok(said)
    }

    /// Runs a script with a write that counts only once its requirement is met.
    fn run_durably<'a, S: ScriptCall + ?Sized>(
        &'a self,
        before: Option<Cmd>,
        script: &'a S,
        durability: Durability,
        within: Duration,
    ) -> BoxFuture<'a, Result<S::Reply, Trouble>> {
        Box::pin(async move {
            // This connection does not subscribe, so the name is that of the command connection.
            let id = self.shared.id();
            let scope = self.shared.scope(&id);
            let command = script.encode(&scope, ScriptRef::Hash);
            let acks = self.acks.of(durability)?;
            let Told { session, answer } = acks.write(before, command, within).await?;
            let (sent, answer) = answer.inspect_err(|trouble| self.note_role(&session, trouble))?;
            let said = script.decode(&scope, sent, answer)?.reply;
            self.note_failures::<S>(&session, &said);
            Ok(said)
        })
    }

    fn link<S: ScriptCall + ?Sized>(&self) -> &ReconnectingConnection {
        if S::RENEWS {
            &self.renewals
        } else {
            &self.commands
        }
    }

    fn note_failures<S: ScriptCall + ?Sized>(&self, session: &Session, reply: &S::Reply) {
        for trouble in S::failures(reply) {
            self.note_role(session, trouble);
        }
    }

    /// Runs a script on a runtime connection, without a timer of the caller's runtime. Boxed like
    /// `call`, so that it is compiled once instead of with every script.
    fn call_on<'a>(
        &'a self,
        lane: &'a Lane,
        owner: Owner,
        within: Duration,
        command: &'a Command<'a>,
    ) -> BoxFuture<'a, Result<(Moment, Value), Trouble>> {
        Box::pin(async move {
            let session = &lane.session;
            let loaded = session.scripts.reload_count();
            let heard = session.connection.activity();
            let attempt = |by| {
                let command = command(by);
                async move {
                    let sent = self.shared.clock.now();
                    let answer = session.connection.send(command);
                    match lane.answer(owner, sent, within, answer).await {
                        Some(Ok(value)) => Ok((sent, value)),
                        Some(Err(error)) => Err(Failure::Error(error)),
                        None => Err(Failure::TimedOut),
                    }
                }
            };
            let load = || async move {
                let now = self.shared.clock.now();
                let loading = session.scripts.reload(&*session.connection, loaded);
                lane.answer(owner, now, within, loading).await;
            };
            let answered = by_hash_or_source(attempt, load).await;
            if let Err(Failure::TimedOut) = answered {
                // The I/O thread checks whether the server is alive.
                self.commands.check_liveness(within);
                if session.connection.activity() == heard {
                    self.lanes.give_up(lane.name.number);
                }
            }
            self.or_trouble(session, within, answered)
        })
    }

    /// Runs a script with a timeout of our own, and sends `before` in the same write. The returned
    /// instant is before the command was sent.
    pub(crate) fn call<'a>(
        &'a self,
        link: &'a ReconnectingConnection,
        session: &'a Session,
        before: &'a [Cmd],
        within: Duration,
        command: &'a Command<'a>,
    ) -> BoxFuture<'a, Result<(Moment, Value), Trouble>> {
        Box::pin(async move {
            let _place = link.permit(within).await?;
            let loaded = session.scripts.reload_count();
            let attempt = |by| self.attempt(link, session, within, before, command(by));
            let load = || async move {
                let loading = session.scripts.reload(&*session.connection, loaded);
                // If loading takes too long, the next attempt fails and reports it.
                let _ = tokio::time::timeout(within, loading).await;
            };
            let answered = by_hash_or_source(attempt, load).await;
            self.or_trouble(session, within, answered)
        })
    }

    fn or_trouble<T>(
        &self,
        session: &Session,
        within: Duration,
        answered: Result<T, Failure>,
    ) -> Result<T, Trouble> {
        let trouble = match answered {
            Ok(answered) => return Ok(answered),
            Err(Failure::Error(error)) => errors::classify(&error),
            Err(Failure::TimedOut) => Trouble::timed_out(within),
        };
        if self.shared.group.cluster().is_none()
            && let Some(trouble) = errors::cluster_node_error(&trouble)
        {
            return Err(trouble);
        }
        self.note_role(session, &trouble);
        Err(match session.connection.peer() {
            Some(peer) => trouble.at(peer),
            None => trouble,
        })
    }

    async fn attempt(
        &self,
        link: &ReconnectingConnection,
        session: &Session,
        within: Duration,
        before: &[Cmd],
        command: Cmd,
    ) -> Result<(Moment, Value), Failure> {
        let sent = self.shared.clock.now();
        let mut query = send(&*session.connection, before, command);
        // A command with more time keeps waiting while the connection's liveness is checked.
        let first = within.min(LIVENESS_CHECK_DELAY);
        let mut answered = tokio::time::timeout(first, query.as_mut()).await;
        if answered.is_err() {
            link.check_liveness(within);
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

    /// Ends the sessions if `trouble` shows that the server is now a replica. It will not be the
    /// primary again soon, and another server may have its name.
    pub(crate) fn note_role(&self, session: &Session, trouble: &Trouble) {
        let demoted = trouble.outage == Outage::ReadOnly || trouble.code == Code::PrimaryDown;
        if demoted && session.end.set(trouble.clone()) {
            for session in self.sessions() {
                session.end.set(trouble.clone());
            }
        }
    }
}

/// Runs a script that the server may have forgotten. If so, the script is loaded and run again, or
/// sent as source. Every attempt has its own deadline, because earlier ones ran nothing.
async fn by_hash_or_source<T, F: Future<Output = Result<T, Failure>>, L: Future<Output = ()>>(
    attempt: impl Fn(ScriptRef) -> F,
    load: impl FnOnce() -> L,
) -> Result<T, Failure> {
    let answered = attempt(ScriptRef::Hash).await;
    if !is_unknown(&answered) {
        return answered;
    }
    // Otherwise the future of every command would reserve space for it across these rare steps.
    drop(answered);
    // If loading fails, the next attempt fails as well.
    load().await;
    let answered = attempt(ScriptRef::Hash).await;
    if !is_unknown(&answered) {
        return answered;
    }
    drop(answered);
    attempt(ScriptRef::Source).await
}

/// Sends a command after others in one write. The replies of the others are ignored, except for
/// errors that are not redirects.
fn send<'a>(
    connection: &'a dyn Connection,
    before: &'a [Cmd],
    command: Cmd,
) -> BoxFuture<'a, RedisResult<Value>> {
    if before.is_empty() {
        return connection.send(command);
    }
    Box::pin(async move {
        let mut together = before.to_vec();
        together.push(command);
        let mut answers = connection.send_all(&together).await?;
        let last = answers.pop();
        for answer in answers {
            match answer {
                Err(error) if !errors::is_redirect(&errors::classify(&error)) => return Err(error),
                _ => {}
            }
        }
        last.unwrap_or(Ok(Value::Nil))
    })
}

/// A function that encodes a command. Without a type parameter, its senders are compiled once.
pub(crate) type Command<'a> = dyn Fn(ScriptRef) -> Cmd + Sync + 'a;

/// The reason why an attempt failed.
enum Failure {
    Error(RedisError),
    TimedOut,
}

/// Returns true if the server does not know the script.
fn is_unknown<T>(answered: &Result<T, Failure>) -> bool {
    matches!(answered, Err(Failure::Error(error)) if scripts::is_noscript(error))
}
