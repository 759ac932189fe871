//! What a connection must be able to do. The handshake, the reconnecting and the commands stand on
//! this, and on nothing that is below it.

pub(crate) mod config;
pub(crate) mod login;
pub(crate) mod multiplexed;
pub(crate) mod other_protocol;
pub(crate) mod reply_scanner;
pub(crate) mod request_numbers;
pub(crate) mod role;
pub(crate) mod sentinel;
pub(crate) mod socket;
pub(crate) mod sockets;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::protocol::trouble::Trouble;
use crate::store::BoxFuture;

/// Waits for a result up to `timeout`.
pub(crate) async fn in_time<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let done = tokio::time::timeout(timeout, work).await;
    done.unwrap_or_else(|_| Err(Trouble::timed_out(timeout)))
}

/// The way to one server.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// Opens a connection, which tells what it hears until it is dropped.
    fn open(&self, hears: Hears) -> BoxFuture<'_, Result<Arc<dyn Connection>, Trouble>>;

    /// Runs what keeps connections open.
    fn spawn(&self, keeper: BoxFuture<'static, ()>);
}

/// A connection to a server. Commands are sent when their futures are first polled, in that order,
/// and stay sent when those are dropped. The last clone closes it.
pub(crate) trait Connection: Send + Sync + fmt::Debug {
    fn send(&self, command: Cmd) -> BoxFuture<'_, RedisResult<Value>>;

    /// Sends several commands together. Each has its own answer.
    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>>;

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>>;

    /// Whether the server can tell it anything unasked.
    fn has_pushes(&self) -> bool {
        true
    }

    /// Counts the signs of life that the server has given.
    fn pulse(&self) -> u64;

    /// The server that it leads to, where that may be another one each time.
    fn peer(&self) -> Option<&str> {
        None
    }
}

/// What a connection hears without having asked.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message: the channel, and what was said on it.
    Message(Vec<Value>),
    /// A subscription to a channel of a slot has begun.
    Subscribed(Vec<Value>),
    /// The server has ended one.
    Unsubscribed(Vec<Value>),
    /// The connection has ended; why, if it was ended from this side.
    End(Option<Trouble>),
}

/// The receiver of what a connection hears. It must not block.
pub(crate) type Hears = Arc<dyn Fn(Heard) + Send + Sync>;
