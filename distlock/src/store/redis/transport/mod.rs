//! The interface of a connection. Handshake, reconnect and commands depend on it, and on nothing
//! below it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::protocol::store_error::StoreError;
use crate::store::{BoxFuture, StoreResult};

pub(crate) mod config;
pub(crate) mod diagnose;
pub(crate) mod dial_limiter;
pub(crate) mod login;
pub(crate) mod multiplexed;
pub(crate) mod replication_role;
pub(crate) mod reply_scanner;
pub(crate) mod request_numbers;
pub(crate) mod sentinel;
pub(crate) mod socket;
pub(crate) mod socket_transport;
pub(crate) mod url;

/// Waits for a result up to `timeout`.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    let done = tokio::time::timeout(timeout, work).await;
    done.unwrap_or_else(|_| Err(StoreError::timed_out(timeout)))
}

/// A factory of connections to one server.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// Opens a connection, which reports pushes and its end to `on_event` until it is dropped.
    fn open(
        &self,
        on_event: ConnectionEventHandler,
    ) -> BoxFuture<'_, StoreResult<Arc<dyn OpenConnection>>>;

    /// Spawns a task that keeps connections open.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Waits until the server can be dialed again, so that no fault makes a client dial too often.
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns true if a connection that can be spared may be opened now.
    fn has_spare(&self) -> bool {
        true
    }
}

/// A connection to a server. Commands are sent in the order in which their futures are first
/// polled, and remain sent if these are dropped. Dropping the last clone closes the connection.
pub(crate) trait OpenConnection: Send + Sync + fmt::Debug {
    fn send(&self, command: Cmd) -> BoxFuture<'_, RedisResult<Value>>;

    /// Sends several commands together. Every command has its own reply.
    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>>;

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>>;

    /// Returns true if the server can send pushes on it.
    fn has_pushes(&self) -> bool {
        true
    }

    /// Returns a count that grows whenever the server sends something.
    fn activity(&self) -> u64;

    /// Returns the server that it is connected to, if that may differ between connections.
    fn peer(&self) -> Option<&str> {
        None
    }
}

/// An event of a connection, other than a reply.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// A message, as its channel and its payload.
    Message(Vec<Value>),
    /// The start of a subscription to a channel of a slot.
    Subscribed(Vec<Value>),
    /// The end of a subscription, decided by the server.
    Unsubscribed(Vec<Value>),
    /// The end of the connection, with its fault if it had one.
    End(Option<StoreError>),
}

/// The receiver of a connection's events. It must not block.
pub(crate) type ConnectionEventHandler = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// Returns the handler of a connection that only asks questions. Its end concerns no other.
pub(crate) fn ignore_events() -> ConnectionEventHandler {
    Arc::new(|_| {})
}
