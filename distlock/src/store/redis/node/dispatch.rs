//! Script calls: the connection, the timeout, and the handling of missing replies.

use std::pin::pin;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::reconnecting_connection::{
    LIVENESS_CHECK_DELAY, ReconnectingConnection,
};
use crate::store::redis::conn::session::{Purpose, Session};
use crate::store::redis::node::Node;
use crate::store::redis::transport::OpenConnection;
use crate::store::redis::wire::call::{ScriptCall, ScriptContext};
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::redis::wire::scripts::{self, EncodeCommand, ScriptRef};
use crate::store::{BoxFuture, StoreResult};
use crate::util::clock::BootInstant;

impl Node {
    /// Runs a script over the connection for its purpose.
    pub(crate) async fn run<S: ScriptCall + ?Sized>(
        &self,
        script: &S,
        timeout: Duration,
    ) -> StoreResult<S::Reply> {
        self.run_after(None, script, timeout).await
    }

    /// The same, after a command in the same write.
    pub(crate) async fn run_after<S: ScriptCall + ?Sized>(
        &self,
        preceding: Option<&Cmd>,
        script: &S,
        timeout: Duration,
    ) -> StoreResult<S::Reply> {
        if !script.durability().is_none() {
            return self.run_with_acks(preceding, script, timeout).await;
        }
        let session = self.connection_for::<S>().session()?;
        self.send(&session, preceding, script, timeout).await
    }

    /// Sends a script over a connection, and reads its reply. A runtime connection has no timeout.
    pub(crate) async fn send<S: ScriptCall + ?Sized>(
        &self,
        session: &Session,
        preceding: Option<&Cmd>,
        script: &S,
        timeout: Duration,
    ) -> StoreResult<S::Reply> {
        let shared = &*self.shared;
        // The renewal connection does not subscribe, so the client id is that of the command
        // connection.
        let renewing = S::RENEWS.then(|| shared.id());
        let context = ScriptContext {
            is_proxied: session.is_proxied,
            run_id: session.run_id.as_deref().unwrap_or_default(),
            ..shared.script_context(renewing.as_ref().unwrap_or(&session.client))
        };
        let encode = |script_ref, sent_at| {
            let context = ScriptContext {
                apply_by: &|| shared.server_clock.apply_by(sent_at, timeout),
                ..context
            };
            script.encode(&context, script_ref)
        };
        let called = if session.purpose == Purpose::Runtime {
            let reply = self.by_hash_or_source(session, preceding, &encode).await;
            self.handle_failure(session, timeout, Some(reply))
        } else {
            let connection = self.connection_for::<S>();
            let called = self.call(connection, session, preceding, timeout, &encode);
            called.await
        };
        self.read(script, &context, session, called)
    }

    /// Runs a script with a write that counts only once its requirement is met.
    fn run_with_acks<'a, S: ScriptCall + ?Sized>(
        &'a self,
        preceding: Option<&'a Cmd>,
        script: &'a S,
        timeout: Duration,
    ) -> BoxFuture<'a, StoreResult<S::Reply>> {
        Box::pin(async move {
            // This connection does not subscribe, so the client id is that of the command
            // connection.
            let id = self.shared.id();
            let context = self.shared.script_context(&id);
            let encode = |script_ref, _| script.encode(&context, script_ref);
            let acks = self.acks.for_durability(script.durability())?;
            let (session, called) = acks.write(preceding, &encode, timeout).await?;
            let called = called.inspect_err(|error| self.end_sessions_if_demoted(&session, error));
            self.read(script, &context, &session, called)
        })
    }

    /// Reads the reply to a script, and uses what it reports besides.
    fn read<S: ScriptCall + ?Sized>(
        &self,
        script: &S,
        context: &ScriptContext<'_>,
        session: &Session,
        called: StoreResult<(BootInstant, Value)>,
    ) -> StoreResult<S::Reply> {
        let (sent_at, reply) = match called {
            Err(error) if *error.code() == Code::KeyConflict => {
                let reply = script.conflict_reply(context, &error.detail);
                return reply.ok_or(error);
            }
            called => called?,
        };
        let context = ScriptContext {
            sent_at,
            ..*context
        };
        let (at, reply) = script.decode(&context, reply)?;
        if let Some(at) = at {
            self.shared.server_clock.update(sent_at, at);
        }
        for error in S::failures(&reply) {
            self.end_sessions_if_demoted(session, error);
        }
        Ok(reply)
    }

    fn connection_for<S: ScriptCall + ?Sized>(&self) -> &ReconnectingConnection {
        if S::RENEWS {
            &self.renewals
        } else {
            &self.commands
        }
    }

    /// Runs a script with a timeout of our own, and sends `preceding` in the same write.
    pub(crate) fn call<'a>(
        &'a self,
        connection: &'a ReconnectingConnection,
        session: &'a Session,
        preceding: Option<&'a Cmd>,
        timeout: Duration,
        command: &'a EncodeCommand<'a>,
    ) -> BoxFuture<'a, StoreResult<(BootInstant, Value)>> {
        Box::pin(async move {
            let _permit = connection.permit(timeout).await?;
            let mut reply = pin!(self.by_hash_or_source(session, preceding, command));
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
    ) -> StoreResult<T> {
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
    async fn by_hash_or_source(
        &self,
        session: &Session,
        preceding: Option<&Cmd>,
        command: &EncodeCommand<'_>,
    ) -> RedisResult<(BootInstant, Value)> {
        let mut script_ref = ScriptRef::Hash;
        loop {
            let sent_at = self.shared.client.clock.now();
            let command = command(script_ref, sent_at);
            let reply = write(&*session.connection, preceding, command).await;
            match (script_ref, reply) {
                (ScriptRef::Hash, Err(error)) if scripts::is_noscript(&error) => {
                    script_ref = ScriptRef::Source;
                }
                (_, reply) => return reply.map(|reply| (sent_at, reply)),
            }
        }
    }

    /// Ends the sessions if `error` shows that the server is now a replica. It will not be the
    /// primary again soon, and another server may have its name.
    pub(crate) fn end_sessions_if_demoted(&self, session: &Session, error: &StoreError) {
        let is_demoted = error.outage == Outage::ReadOnly || *error.code() == Code::PrimaryDown;
        if is_demoted && !session.has_ended() {
            session.end_with(error);
            for session in self.sessions() {
                session.end_with(error);
            }
        }
    }
}

/// Writes a command after another, at once. The reply to the other is ignored, except for an error
/// that is not a redirect.
fn write<'a>(
    connection: &'a dyn OpenConnection,
    preceding: Option<&'a Cmd>,
    command: Cmd,
) -> BoxFuture<'a, RedisResult<Value>> {
    let Some(preceding) = preceding else {
        return connection.send(command);
    };
    Box::pin(async move {
        let mut replies = connection.send_all(&[preceding.clone(), command]).await?;
        let last = replies.pop();
        match replies.pop() {
            Some(Err(error)) if !errors::is_redirect(&errors::classify(&error)) => Err(error),
            _ => last.unwrap_or(Ok(Value::Nil)),
        }
    })
}
