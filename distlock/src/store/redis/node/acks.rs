//! Writes that count only once replicas, or disks, have them. `WAIT` blocks its connection and
//! counts only that connection's writes, so they use separate connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::time::{self, Instant};

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::reconnecting_connection::{ReconnectingConnection, closed_error};
use crate::store::redis::conn::session::Session;
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::redis::wire::scripts::{self, EncodeCommand, ScriptRef};
use crate::store::redis::wire::{decode, encode};
use crate::store::{BoxFuture, StoreResult};
use crate::util::clock::BootInstant;
use crate::util::sync::lock;

/// The connections of one server for writes that require acknowledgments. Every requirement has its
/// own connection, so a `WAIT` for two replicas does not delay writes that need one. A connection
/// is opened on first use.
pub(crate) struct AckConnections {
    /// `None` once closed for good.
    connections: Mutex<Option<Vec<Arc<AckConnection>>>>,
    dialer: Dialer,
}

impl AckConnections {
    /// Opens no connection yet.
    pub(crate) fn new(dialer: Dialer) -> Self {
        AckConnections {
            connections: Mutex::new(Some(Vec::new())),
            dialer,
        }
    }

    /// Returns the connection for `durability`. Its tasks run on the runtime of the first call.
    pub(crate) fn for_durability(&self, durability: Durability) -> StoreResult<Arc<AckConnection>> {
        let mut connections = lock(&self.connections);
        let connections = connections
            .as_mut()
            .ok_or_else(|| closed_error().mark_unsent())?;
        if let Some(acks) = connections
            .iter()
            .find(|acks| acks.durability == durability)
        {
            return Ok(acks.clone());
        }
        let acks = Arc::new(AckConnection {
            connection: ReconnectingConnection::spawn(self.dialer.clone()),
            durability,
            turn: Arc::default(),
            activity_before: AtomicU64::default(),
        });
        connections.push(acks.clone());
        Ok(acks)
    }

    /// Returns the sessions that are up.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let connections = lock(&self.connections);
        let acks = connections.iter().flatten();
        acks.filter_map(|acks| acks.connection.session().ok())
            .collect()
    }

    pub(crate) fn close(&self) {
        let connections = lock(&self.connections).take();
        for acks in connections.iter().flatten() {
            acks.connection.close();
        }
    }
}

/// A connection for writes with the same requirement, of which one is in flight at a time.
pub(crate) struct AckConnection {
    connection: ReconnectingConnection,
    durability: Durability,
    /// Locked from the send of a write until the reply to its `WAIT`.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The connection's activity count before the last write was sent.
    activity_before: AtomicU64,
}

/// The session over which a write was sent, and its result.
pub(crate) type Sent = (Arc<Session>, StoreResult<(BootInstant, Value)>);

impl AckConnection {
    /// Sends an idempotent write, and waits until its requirement is met. On any error after
    /// sending, the write may have been applied.
    pub(crate) fn write<'a>(
        &'a self,
        preceding: Option<&'a Cmd>,
        command: &'a EncodeCommand<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, StoreResult<Sent>> {
        Box::pin(async move {
            let deadline = Instant::now() + timeout;
            let _permit = self.connection.permit(timeout).await?;
            // The first write opens the connection.
            let _ = time::timeout_at(deadline, self.connection.ready()).await;
            self.connection.session()?;
            let mut script_ref = ScriptRef::Hash;
            loop {
                // These commands have no deadline in the server.
                let command = command(script_ref, BootInstant(0));
                let commands = preceding.into_iter().cloned().chain([command]);
                let sending = self.send_in_turn(commands.collect(), deadline);
                let (session, sent_at, mut replies) =
                    match time::timeout_at(deadline, sending).await {
                        Ok(sent) => sent?,
                        Err(_) if self.is_acknowledging() => {
                            return Err(too_few_acks_error(self.durability, timeout));
                        }
                        Err(_) => {
                            self.connection.check_liveness(timeout);
                            return Err(StoreError::timed_out(timeout));
                        }
                    };
                let mut last = || replies.pop().unwrap_or(Ok(Value::Nil));
                let (wait, reply) = (last(), last());
                let response = match (script_ref, reply) {
                    (ScriptRef::Hash, Err(error)) if scripts::is_noscript(&error) => {
                        script_ref = ScriptRef::Source;
                        continue;
                    }
                    (_, Err(error)) => Err(errors::classify(&error)),
                    (_, Ok(value)) => match self.is_acknowledged(wait) {
                        Ok(true) => Ok((sent_at, value)),
                        Ok(false) => Err(too_few_acks_error(self.durability, timeout)),
                        Err(error) => Err(error),
                    },
                };
                return Ok((session, response));
            }
        })
    }

    /// Sends commands with a `WAIT`, once the one before has its reply. If the caller leaves, a
    /// task keeps the turn until the reply, because otherwise the server would run one `WAIT` after
    /// another for callers that have left.
    async fn send_in_turn(
        &self,
        mut commands: Vec<Cmd>,
        deadline: Instant,
    ) -> StoreResult<(Arc<Session>, BootInstant, Vec<RedisResult<Value>>)> {
        let turn = self.turn.clone().lock_owned().await;
        let session = self.connection.session()?;
        let remaining = deadline.saturating_duration_since(Instant::now());
        // Sent together, so that `WAIT` covers no other writes, and last, so that it covers this.
        commands.push(encode::wait(self.durability, remaining));
        let activity_before = session.connection.activity();
        self.activity_before
            .store(activity_before, Ordering::Relaxed);
        let dialer = self.connection.dialer();
        let sent_at = dialer.shared.client.clock.now();
        let (reply_to, replies) = oneshot::channel();
        let used = session.clone();
        dialer.transport.spawn(Box::pin(async move {
            let _turn = turn;
            let replies = tokio::select! {
                biased;
                replies = used.connection.send_all(&commands) => {
                    replies.map_err(|error| errors::classify(&error))
                }
                error = used.end.wait() => Err(error.clone()),
            };
            // The caller may have left.
            let _ = reply_to.send(replies);
        }));
        let replies = replies.await.unwrap_or_else(|_| Err(closed_error()));
        Ok((session, sent_at, replies?))
    }

    /// Returns true if the server has sent data since the last write, so only `WAIT` is pending.
    fn is_acknowledging(&self) -> bool {
        let activity_before = self.activity_before.load(Ordering::Relaxed);
        let session = self.connection.session();
        session.is_ok_and(|session| session.connection.activity() != activity_before)
    }

    fn is_acknowledged(&self, wait: RedisResult<Value>) -> StoreResult<bool> {
        match wait {
            Ok(response) => decode::is_acknowledged(self.durability, response),
            Err(error) => Err(explain_rejection(self.durability, errors::classify(&error))),
        }
    }
}

fn too_few_acks_error(durability: Durability, timeout: Duration) -> StoreError {
    let Durability { replicas, fsync } = durability;
    let detail = match (replicas, fsync) {
        (n, false) => {
            format!(
                "fewer than {n} replicas acknowledged within {timeout:?}; check `INFO replication` on the server, \
                or lower `min_replicas`"
            )
        }
        (0, true) => format!(
            "not on the server's disk within {timeout:?} (`fsync`); set `appendfsync always` on the server"
        ),
        (n, true) => format!(
            "not on the disks of the server and {n} replicas within {timeout:?} (`fsync` and `min_replicas`); set \
             `appendonly yes` and `appendfsync always` on all of them"
        ),
    };
    StoreError::new(Outage::TooFewReplicas, detail)
}

/// Returns why the server rejected the `WAIT` or `WAITAOF`.
fn explain_rejection(durability: Durability, error: StoreError) -> StoreError {
    let (command, permission, setting, since) = if durability.fsync {
        ("WAITAOF", "waitaof", "fsync", " (Redis 7.2, Valkey 8)")
    } else {
        ("WAIT", "wait", "min_replicas", "")
    };
    let server_text = &error.detail;
    let (outage, detail) = match (error.outage, error.code()) {
        (Outage::Denied, _) => (
            Outage::Denied,
            format!(
                "the user needs +{permission} for `{setting}` ({server_text}); grant it with `ACL SETUSER`"
            ),
        ),
        (_, Code::UnknownCommand) => (
            Outage::Unsupported,
            format!(
                "`{setting}` needs the command {command}{since}, which the server does not know; use a server that \
                 has it, or remove `{setting}`"
            ),
        ),
        (_, Code::NoAppendOnly) => (
            Outage::Unsupported,
            format!(
                "`{setting}` needs an append-only file on the server ({server_text}); set `appendonly yes` there"
            ),
        ),
        _ => return error,
    };
    StoreError::new(outage, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `fsync`, the disks of the replicas count as well as the server's own.
    #[test]
    fn wait_commands_request_the_durability_and_count_acknowledgments() {
        for (fsync, replicas, command, enough, too_few) in [
            (false, 2, "WAIT 2 5", vec![2], vec![1]),
            (true, 0, "WAITAOF 1 0 5", vec![1, 0], vec![0, 2]),
            (true, 2, "WAITAOF 1 2 5", vec![1, 2], vec![1, 1]),
            (true, 2, "WAITAOF 1 2 5", vec![1, 3], vec![0, 2]),
        ] {
            let durability = Durability { replicas, fsync };
            let sent = encode::wait(durability, Duration::from_millis(5)).get_packed_command();
            let sent = String::from_utf8(sent).unwrap();
            let words: Vec<_> = sent.split("\r\n").skip(2).step_by(2).collect();
            assert_eq!(words.join(" "), command);
            let is_enough = |counts: Vec<i64>| {
                let response = match counts[..] {
                    [count] => Value::Int(count),
                    _ => Value::Array(counts.into_iter().map(Value::Int).collect()),
                };
                decode::is_acknowledged(durability, response).unwrap()
            };
            assert!(is_enough(enough) && !is_enough(too_few), "{command}");
        }
    }
}
