//! Writes that count only once replicas, or disks, have them. `WAIT` blocks its connection and
//! counts only that connection's writes, so they use separate connections. Writes that arrive while
//! a `WAIT` is in flight share the next one.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant};

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::store_error::{Code, StoreError};
use crate::store::BoxFuture;
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::health::Health;
use crate::store::redis::conn::reconnecting_connection::{
    LIVENESS_CHECK_DELAY, MAX_IN_FLIGHT, OnConnected, ReconnectingConnection,
};
use crate::store::redis::conn::session::Session;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::reply::TimedReply;
use crate::store::redis::wire::scripts;
use crate::store::redis::wire::{decode, encode};
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// The connections of one server for writes that require acknowledgments. Every requirement has its
/// own connection, so a `WAIT` for two replicas does not delay writes that need one. A connection
/// is opened on first use.
pub(crate) struct AckConnections {
    /// `None` once closed for good.
    connections: Mutex<Option<Vec<Arc<AckConnection>>>>,
    dialer: Dialer,
    connect_timeout: Duration,
    health: Arc<Health>,
    connected: Arc<OnConnected>,
}

impl AckConnections {
    /// Opens no connection yet. A reconnect attempt may take as long as `connect_timeout` to
    /// connect, because a distant server needs that long again.
    pub(crate) fn new(
        dialer: Dialer,
        connect_timeout: Duration,
        health: Arc<Health>,
        connected: Arc<OnConnected>,
    ) -> Self {
        AckConnections {
            connections: Mutex::new(Some(Vec::new())),
            dialer,
            connect_timeout,
            health,
            connected,
        }
    }

    /// Returns the connection for `durability`. Its tasks run on the runtime of the first call.
    pub(crate) fn for_durability(
        &self,
        durability: Durability,
    ) -> Result<Arc<AckConnection>, StoreError> {
        let mut connections = lock(&self.connections);
        let connections = connections.as_mut().ok_or_else(closed_error)?;
        if let Some(acks) = connections
            .iter()
            .find(|acks| acks.durability == durability)
        {
            return Ok(acks.clone());
        }
        let acks = Arc::new(AckConnection::open(self, durability));
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

impl fmt::Debug for AckConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckConnections")
            .field(&self.connections)
            .finish()
    }
}

/// A connection for writes with the same requirement.
#[derive(Debug)]
pub(crate) struct AckConnection {
    connection: Arc<ReconnectingConnection>,
    durability: Durability,
    writes: mpsc::UnboundedSender<Write>,
    in_flight: Arc<Mutex<Option<BatchInFlight>>>,
}

/// A queued write, for which a caller waits.
#[derive(Debug)]
struct Write {
    /// A command sent before the write; its reply is discarded.
    preceding: Option<Cmd>,
    command: Cmd,
    timeout: Duration,
    deadline: Instant,
    reply_to: oneshot::Sender<Result<WriteResult, StoreError>>,
}

/// The result of a write that was sent.
#[derive(Debug)]
pub(crate) struct WriteResult {
    pub(crate) session: Arc<Session>,
    pub(crate) response: Result<TimedReply, StoreError>,
}

/// A batch of writes in flight, with its `WAIT`.
#[derive(Debug)]
struct BatchInFlight {
    session: Arc<Session>,
    /// The connection's activity count before the batch was sent.
    activity_before: u64,
}

impl AckConnection {
    fn open(connections: &AckConnections, durability: Durability) -> Self {
        let dialer = connections.dialer.with_new_generation();
        let (transport, shared) = (dialer.transport.clone(), dialer.shared.clone());
        let connection = ReconnectingConnection::spawn(
            dialer,
            connections.connect_timeout,
            connections.health.clone(),
            connections.connected.clone(),
        );
        let connection = Arc::new(connection);
        let in_flight = Arc::default();
        let (writes, queue) = mpsc::unbounded_channel();
        let writer = Writer {
            connection: connection.clone(),
            durability,
            in_flight: Arc::clone(&in_flight),
            now: Box::new(move || shared.clock.now()),
        };
        transport.spawn(Box::pin(writer.run(queue)));
        AckConnection {
            connection,
            durability,
            writes,
            in_flight,
        }
    }

    /// Sends an idempotent write, and waits until its requirement is met. On any error after
    /// sending, the write may have been applied.
    pub(crate) fn write(
        &self,
        preceding: Option<Cmd>,
        command: Cmd,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<WriteResult, StoreError>> {
        Box::pin(async move {
            let deadline = Instant::now() + timeout;
            let _permit = self.connection.permit(timeout).await?;
            // The first write opens the connection.
            let _ = time::timeout_at(deadline, self.connection.ready()).await;
            self.connection.session()?;
            let (reply_to, response) = oneshot::channel();
            let write = Write {
                preceding,
                command,
                timeout,
                deadline,
                reply_to,
            };
            self.writes.send(write).map_err(|_| closed_error())?;
            match time::timeout_at(deadline, response).await {
                Ok(response) => response.unwrap_or_else(|_| Err(closed_error().mark_sent())),
                Err(_) if self.is_acknowledging() => {
                    Err(too_few_acks_error(self.durability, timeout))
                }
                Err(_) => Err(StoreError::timed_out(timeout)),
            }
        })
    }

    /// Returns true if the server has sent data since the batch, so only `WAIT` is still pending.
    fn is_acknowledging(&self) -> bool {
        let in_flight = lock(&self.in_flight);
        (in_flight.as_ref())
            .is_some_and(|batch| batch.session.connection.activity() != batch.activity_before)
    }
}

/// The task that sends the queued writes in batches of up to `MAX_IN_FLIGHT`.
struct Writer {
    connection: Arc<ReconnectingConnection>,
    durability: Durability,
    in_flight: Arc<Mutex<Option<BatchInFlight>>>,
    now: Box<dyn Fn() -> BootInstant + Send + Sync>,
}

impl Writer {
    async fn run(self, mut queue: mpsc::UnboundedReceiver<Write>) {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, MAX_IN_FLIGHT).await > 0 {
            // A caller that has gone has released what it had, so its write is not sent.
            batch.retain(|write| !write.reply_to.is_closed());
            let unknown = self.send(mem::take(&mut batch)).await;
            // The scripts are loaded now.
            let unknown = self.send(unknown).await;
            fail_all(unknown, || {
                StoreError::new(
                    Outage::Other,
                    "the server lost its scripts again right after they were loaded; check for a client that runs SCRIPT FLUSH",
                )
            });
        }
    }

    /// Sends writes with one `WAIT`, and delivers their results. Loads the scripts if the server
    /// does not know one, and returns the writes that need it.
    async fn send(&self, batch: Vec<Write>) -> Vec<Write> {
        let last_deadline = batch.iter().map(|write| write.deadline).max();
        let Some(last_deadline) = last_deadline else {
            return batch;
        };
        let session = match self.connection.session() {
            Ok(session) => session,
            Err(error) => {
                fail_all(batch, || error.clone());
                return Vec::new();
            }
        };
        let reloads_before = session.scripts.reload_count();
        let mut commands = Vec::with_capacity(batch.len() + 1);
        for write in &batch {
            commands.extend(write.preceding.clone());
            commands.push(write.command.clone());
        }
        let remaining = last_deadline.saturating_duration_since(Instant::now());
        // Sent together, so that `WAIT` covers no other writes, and last, so that it covers these.
        commands.push(encode::wait(self.durability, remaining));
        let sent_at = (self.now)();
        let (replies, wait) = match self.send_batch(&session, &commands, remaining).await {
            Ok(replies) => replies,
            Err(error) => {
                fail_all(batch, || error.clone());
                return Vec::new();
            }
        };
        let mut replies = replies.into_iter();
        let mut unknown = Vec::new();
        for write in batch {
            let Some(reply) = replies.nth(usize::from(write.preceding.is_some())) else {
                break;
            };
            let response = match (reply, &wait) {
                (Err(error), _) if scripts::is_noscript(&error) => {
                    unknown.push(write);
                    continue;
                }
                (Err(error), _) => Err(errors::classify(&error)),
                (Ok(value), Ok(true)) => Ok(TimedReply { sent_at, value }),
                (Ok(_), Ok(false)) => Err(too_few_acks_error(self.durability, write.timeout)),
                (Ok(_), Err(error)) => Err(error.clone()),
            };
            let session = session.clone();
            // The caller may have gone.
            let _ = write.reply_to.send(Ok(WriteResult { session, response }));
        }
        if !unknown.is_empty() {
            let loading = session.scripts.reload(&*session.connection, reloads_before);
            // If loading fails, the next attempt fails as well.
            let _ = time::timeout_at(last_deadline, loading).await;
        }
        unknown
    }

    /// Returns the replies to writes, and whether their requirement is met.
    async fn send_batch(
        &self,
        session: &Arc<Session>,
        commands: &[Cmd],
        timeout: Duration,
    ) -> Result<(Vec<Result<Value, RedisError>>, Result<bool, StoreError>), StoreError> {
        let connection = &session.connection;
        let activity_before = connection.activity();
        *lock(&self.in_flight) = Some(BatchInFlight {
            session: session.clone(),
            activity_before,
        });
        let mut sent = connection.send_all(commands);
        let mut silence = std::pin::pin!(time::sleep(LIVENESS_CHECK_DELAY));
        let mut was_silent = false;
        let replies = loop {
            tokio::select! {
                biased;
                replies = &mut sent => break replies.map_err(|error| errors::classify(&error)),
                error = self.connection.session_ended(session) => break Err(error),
                () = &mut silence, if !was_silent => {
                    was_silent = true;
                    // A server that has replied to the writes only waits for acknowledgments.
                    if connection.activity() == activity_before {
                        self.connection.check_liveness(timeout);
                    }
                }
            }
        };
        *lock(&self.in_flight) = None;
        let mut replies = replies?;
        let wait = match replies.pop() {
            Some(Ok(response)) => decode::is_acknowledged(self.durability, response),
            Some(Err(error)) => Err(explain_rejection(self.durability, errors::classify(&error))),
            None => Err(StoreError::new(Outage::Other, "the server did not reply")),
        };
        Ok((replies, wait))
    }
}

fn closed_error() -> StoreError {
    StoreError::new(Outage::Unreachable, "the connection was closed").mark_unsent()
}

fn fail_all(batch: Vec<Write>, new_error: impl Fn() -> StoreError) {
    for write in batch {
        // The caller may have gone.
        let _ = write.reply_to.send(Err(new_error()));
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
    let (outage, detail) = match (error.outage, &error.code) {
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
