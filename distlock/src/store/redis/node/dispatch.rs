//! Script calls: the connection, the timeout, and the handling of missing replies.

use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::messages::OwnerNumber;
use crate::protocol::store_error::{Code, StoreError};
use crate::store::BoxFuture;
use crate::store::redis::conn::reconnecting_connection::{
    LIVENESS_CHECK_DELAY, ReconnectingConnection,
};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::chosen_connection::ChosenConnection;
use crate::store::redis::node::runtime_connection::RuntimeConnection;
use crate::store::redis::transport::Connection;
use crate::store::redis::wire::call::{Dated, ScriptCall, ScriptContext};
use crate::store::redis::wire::errors;
use crate::store::redis::wire::reply::TimedReply;
use crate::store::redis::wire::scripts::{self, EncodeCommand, ScriptRef};

impl Node {
    /// Runs a script over its connection. `preceding` is sent in the same write.
    pub(crate) async fn run<S: ScriptCall + ?Sized>(
        &self,
        preceding: Option<Cmd>,
        script: &S,
        timeout: Duration,
    ) -> Result<S::Reply, StoreError> {
        let durability = script.durability();
        if !durability.is_none() {
            return self
                .run_with_acks(preceding, script, durability, timeout)
                .await;
        }
        let chosen = ChosenConnection {
            preceding,
            ..ChosenConnection::new(self.connection_for::<S>().session()?)
        };
        self.run_on(&chosen, script, timeout).await
    }

    /// Runs a script on a connection, and records the server time in its reply.
    pub(crate) async fn run_on<S: ScriptCall + ?Sized>(
        &self,
        chosen: &ChosenConnection,
        script: &S,
        timeout: Duration,
    ) -> Result<S::Reply, StoreError> {
        let (shared, session) = (&*self.shared, &*chosen.session);
        // The renewal connection does not subscribe, so the client id is that of the command
        // connection.
        let renewing = S::RENEWS.then(|| shared.id());
        let context = ScriptContext {
            run_id: session.run_id.as_deref().unwrap_or_default(),
            ..shared.script_context(renewing.as_ref().unwrap_or(&session.client))
        };
        let command = |by| {
            let apply_by = if script.is_acquire() {
                (shared.server_time).apply_by(shared.client.clock.now(), timeout)
            } else {
                0
            };
            script.encode(
                &ScriptContext {
                    apply_by,
                    ..context
                },
                by,
            )
        };
        let result = match (&chosen.runtime_connection, script.owner()) {
            (Some(runtime_connection), Some(owner)) => {
                self.call_on_runtime_connection(runtime_connection, owner, timeout, &command)
                    .await
            }
            _ => {
                let connection = self.connection_for::<S>();
                let preceding = chosen.preceding.as_slice();
                self.call(connection, session, preceding, timeout, &command)
                    .await
            }
        };
        let id = shared.id();
        let context = shared.script_context(&id);
        let conflict_reply = match &result {
            Err(error) if error.code == Code::KeyConflict => {
                script.conflict_reply(&context, &error.detail)
            }
            _ => None,
        };
        let raw = match (result, conflict_reply) {
            (Ok(result), _) => result,
            (Err(_), Some(conflict_reply)) => return Ok(conflict_reply),
            (Err(error), None) => return Err(error),
        };
        let sent_at = raw.sent_at;
        let Dated { at, reply, event } = script.decode(&context, raw)?;
        if let Some(at) = at {
            shared.server_time.update(sent_at, at);
        }
        if let Some(event) = event {
            (shared.client.events)(event);
        }
        self.handle_failures::<S>(session, &reply);
        Ok(reply)
    }

    /// Runs a script with a write that counts only once its requirement is met.
    fn run_with_acks<'a, S: ScriptCall + ?Sized>(
        &'a self,
        preceding: Option<Cmd>,
        script: &'a S,
        durability: Durability,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<S::Reply, StoreError>> {
        Box::pin(async move {
            // This connection does not subscribe, so the client id is that of the command
            // connection.
            let id = self.shared.id();
            let context = self.shared.script_context(&id);
            let command = |script_ref| script.encode(&context, script_ref);
            let acks = self.acks.for_durability(durability)?;
            let (session, response) = acks.write(preceding, &command, timeout).await?;
            let raw =
                response.inspect_err(|error| self.end_sessions_if_demoted(&session, error))?;
            let reply = script.decode(&context, raw)?.reply;
            self.handle_failures::<S>(&session, &reply);
            Ok(reply)
        })
    }

    fn connection_for<S: ScriptCall + ?Sized>(&self) -> &ReconnectingConnection {
        if S::RENEWS {
            &self.renewals
        } else {
            &self.commands
        }
    }

    fn handle_failures<S: ScriptCall + ?Sized>(&self, session: &Session, reply: &S::Reply) {
        for error in S::failures(reply) {
            self.end_sessions_if_demoted(session, error);
        }
    }

    /// Runs a script on a runtime connection, without a timer of the caller's runtime. Boxed like
    /// `call`, so that it is compiled once instead of with every script.
    fn call_on_runtime_connection<'a>(
        &'a self,
        runtime_connection: &'a RuntimeConnection,
        owner: OwnerNumber,
        timeout: Duration,
        command: &'a EncodeCommand<'a>,
    ) -> BoxFuture<'a, Result<TimedReply, StoreError>> {
        Box::pin(async move {
            let session = &runtime_connection.session;
            let activity_before = session.connection.activity();
            let started_at = self.shared.client.clock.now();
            let reply = self.by_hash_or_source(session, &[], command);
            let result = runtime_connection
                .wait_for_reply(owner, started_at, timeout, reply)
                .await;
            if result.is_none() {
                // The I/O thread checks whether the server is alive.
                self.commands.check_liveness(timeout);
                if session.connection.activity() == activity_before {
                    self.runtime_connections.retire(runtime_connection.number);
                }
            }
            self.handle_failure(session, timeout, result)
        })
    }

    /// Runs a script with a timeout of our own, and sends `preceding` in the same write.
    pub(crate) fn call<'a>(
        &'a self,
        connection: &'a ReconnectingConnection,
        session: &'a Session,
        preceding: &'a [Cmd],
        timeout: Duration,
        command: &'a EncodeCommand<'a>,
    ) -> BoxFuture<'a, Result<TimedReply, StoreError>> {
        Box::pin(async move {
            let _permit = connection.permit(timeout).await?;
            let mut reply = self.by_hash_or_source(session, preceding, command);
            // A command with more time keeps waiting while the connection's liveness is checked.
            let first_timeout = timeout.min(LIVENESS_CHECK_DELAY);
            let mut result = tokio::time::timeout(first_timeout, reply.as_mut()).await;
            if result.is_err() {
                connection.check_liveness(timeout);
                result = tokio::time::timeout(timeout - first_timeout, reply).await;
            }
            self.handle_failure(session, timeout, result.ok())
        })
    }

    /// Handles the failure of a command, which is `None` if it had no reply in time.
    fn handle_failure<T>(
        &self,
        session: &Session,
        timeout: Duration,
        result: Option<RedisResult<T>>,
    ) -> Result<T, StoreError> {
        let error = match result {
            Some(Ok(result)) => return Ok(result),
            Some(Err(error)) => errors::classify(&error),
            None => StoreError::timed_out(timeout),
        };
        if let Some(error) = self.shared.client.hooks.explain(&error) {
            return Err(error);
        }
        self.end_sessions_if_demoted(session, &error);
        Err(match session.connection.peer() {
            Some(peer) => error.at(peer),
            None => error,
        })
    }

    /// Runs a script by its hash, or as source if the server does not know it: then nothing was
    /// run. The returned instant is before the command was sent.
    fn by_hash_or_source<'a>(
        &'a self,
        session: &'a Session,
        preceding: &'a [Cmd],
        command: &'a EncodeCommand<'a>,
    ) -> BoxFuture<'a, RedisResult<TimedReply>> {
        Box::pin(async move {
            let mut script_ref = ScriptRef::Hash;
            loop {
                let sent_at = self.shared.client.clock.now();
                let reply = send(&*session.connection, preceding, command(script_ref)).await;
                match (script_ref, reply) {
                    (ScriptRef::Hash, Err(error)) if scripts::is_noscript(&error) => {
                        script_ref = ScriptRef::Source;
                    }
                    (_, reply) => return reply.map(|value| TimedReply { sent_at, value }),
                }
            }
        })
    }

    /// Ends the sessions if `error` shows that the server is now a replica. It will not be the
    /// primary again soon, and another server may have its name.
    pub(crate) fn end_sessions_if_demoted(&self, session: &Session, error: &StoreError) {
        let is_demoted = error.outage == Outage::ReadOnly || error.code == Code::PrimaryDown;
        if is_demoted && session.end.set(error.clone()) {
            for session in self.sessions() {
                session.end.set(error.clone());
            }
        }
    }
}

/// Sends a command after others in one write. The replies of the others are ignored, except for
/// errors that are not redirects.
fn send<'a>(
    connection: &'a dyn Connection,
    preceding: &'a [Cmd],
    command: Cmd,
) -> BoxFuture<'a, RedisResult<Value>> {
    if preceding.is_empty() {
        return connection.send(command);
    }
    Box::pin(async move {
        let mut commands = preceding.to_vec();
        commands.push(command);
        let mut responses = connection.send_all(&commands).await?;
        let last = responses.pop();
        for response in responses {
            match response {
                Err(error) if !errors::is_redirect(&errors::classify(&error)) => return Err(error),
                _ => {}
            }
        }
        last.unwrap_or(Ok(Value::Nil))
    })
}
