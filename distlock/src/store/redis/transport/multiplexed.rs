//! Connections of the `redis` crate over sockets of our own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::{fmt, io};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisResult, Value,
};
use tokio::task::AbortHandle;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::store::client_id::ProcessId;
use crate::store::redis::transport::socket::{Fault, Stream};
use crate::store::redis::transport::{
    ConnectionEvent, ConnectionEventHandler, OpenConnection, reply_scanner, request_numbers,
};
use crate::store::redis::wire::errors::{self, Code, RedisCode};

/// Upper limit of requests that wait for the socket.
const PIPELINE_BUFFER_SIZE: usize = 4_096;

/// Bytes that one system call writes if enough requests wait. The default of 8 KiB is less than
/// twenty requests.
const WRITE_BUFFER_SIZE: usize = 64 << 10;

/// A connection over a socket.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    connection: MultiplexedConnection,
    /// The server that it is connected to, unless the URL names it.
    pub(crate) peer: Option<String>,
    has_pushes: bool,
    activity: Arc<AtomicU64>,
    /// The number of the next request that has one.
    next_number: AtomicU64,
    events: Arc<Events>,
    /// The task that reads and writes the connection.
    driver: AbortHandle,
}

impl Multiplexed {
    /// Performs the handshake, including the credentials.
    pub(crate) async fn connect(
        stream: Stream,
        settings: &RedisConnectionInfo,
        on_event: ConnectionEventHandler,
    ) -> Result<Self, HandshakeError> {
        let activity = stream.activity.clone();
        let fault = stream.fault.clone();
        let events = Arc::new(Events {
            on_event,
            fault: fault.clone(),
        });
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER_SIZE)
            .set_write_backpressure_boundary(WRITE_BUFFER_SIZE);
        if settings.protocol() != ProtocolVersion::RESP2 {
            let push_events = events.clone();
            config = config.set_push_sender(move |push| {
                push_events.forward(push);
                Ok::<(), redis::aio::SendError>(())
            });
        }
        let connected = MultiplexedConnection::new_with_config(settings, stream, config).await;
        let (connection, driver) = connected.map_err(|error| match fault.get() {
            Some(fault) => HandshakeError::Rejected(fault.clone()),
            None if error.is_io_error() || is_hello_unsupported(&error) => {
                HandshakeError::HelloFailed(handshake_error(settings.db(), &error))
            }
            None => HandshakeError::Rejected(handshake_error(settings.db(), &error)),
        })?;
        let driver = tokio::spawn(DriverTask {
            driver: Some(Box::pin(driver)),
            events: events.clone(),
            process: ProcessId::current(),
        });
        Ok(Multiplexed {
            connection,
            peer: None,
            has_pushes: settings.protocol() != ProtocolVersion::RESP2,
            activity,
            next_number: AtomicU64::new(request_numbers::first()),
            events,
            driver: driver.abort_handle(),
        })
    }

    /// Appends a number to a command, if its reply repeats it.
    fn append_number(&self, command: &mut Cmd) -> Option<u64> {
        request_numbers::is_numbered(command, self.has_pushes).then(|| {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            command.arg(number);
            number
        })
    }

    /// Returns the reply, unless it or an earlier one was to another request, or there is another
    /// fault. A mismatch ends the connection, and nothing that arrived on it is used any longer.
    fn check(&self, number: Option<u64>, reply: Value) -> RedisResult<Value> {
        let fault = &self.events.fault;
        let checked = match number {
            Some(number) => request_numbers::remove(number, reply),
            None => Some(reply),
        };
        match checked {
            Some(reply) if fault.get().is_none() => return Ok(reply),
            Some(_) => {}
            None => {
                let detail = "the server's reply was to another request, so the connection was closed; check that the \
                    URL points to a Redis server, not to a proxy that rewrites replies";
                // An earlier fault is kept.
                let _ = fault.set(StoreError::new(Outage::Unreachable, detail));
                self.events.report_end();
                self.driver.abort();
            }
        }
        let detail = fault.get().map_or("", |fault| &fault.detail);
        Err(io::Error::new(io::ErrorKind::ConnectionReset, detail).into())
    }
}

impl OpenConnection for Multiplexed {
    fn send(&self, mut command: Cmd) -> BoxFuture<'_, RedisResult<Value>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let number = self.append_number(&mut command);
            let reply = connection.send_packed_command(&command).await?;
            self.check(number, reply)?.extract_error()
        })
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let mut pipe = redis::pipe();
            let mut numbers = Vec::with_capacity(commands.len() + 1);
            for mut command in commands.iter().cloned() {
                numbers.push(self.append_number(&mut command));
                pipe.add_command(command);
            }
            // The numbered reply to a final PING shows that the replies before it without a number,
            // such as that of `WAIT`, are not shifted either.
            let mut ping = redis::cmd("PING");
            if let Some(number) = self.append_number(&mut ping) {
                numbers.push(Some(number));
                pipe.add_command(ping);
            }
            let sent = pipe.ignore_errors().query_async(&mut connection);
            let replies: Vec<RedisResult<Value>> = sent.await?;
            let mut checked = Vec::with_capacity(replies.len());
            for (number, reply) in numbers.into_iter().zip(replies) {
                checked.push(match reply {
                    Ok(reply) => Ok(self.check(number, reply)?),
                    Err(error) => Err(error),
                });
            }
            checked.truncate(commands.len());
            Ok(checked)
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>> {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.subscribe(channel).await })
    }

    fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    fn has_pushes(&self) -> bool {
        self.has_pushes
    }

    fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }
}

/// The events of a connection. There are none until its handshake has succeeded.
struct Events {
    on_event: ConnectionEventHandler,
    fault: Fault,
}

impl Events {
    fn forward(&self, push: PushInfo) {
        match push.kind {
            PushKind::Disconnection => self.report_end(),
            _ if self.fault.get().is_some() => {}
            PushKind::Message | PushKind::SMessage => {
                (self.on_event)(ConnectionEvent::Message(push.data))
            }
            PushKind::SSubscribe => (self.on_event)(ConnectionEvent::Subscribed(push.data)),
            PushKind::Other(name) if name == reply_scanner::RENAMED_SUNSUBSCRIBE => {
                (self.on_event)(ConnectionEvent::Unsubscribed(push.data));
            }
            _ => {}
        }
    }

    fn report_end(&self) {
        (self.on_event)(ConnectionEvent::End(self.fault.get().cloned()));
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The reason why a connection cannot be used.
pub(crate) enum HandshakeError {
    Rejected(StoreError),
    /// HELLO had no reply, or the server does not know it.
    HelloFailed(StoreError),
}

impl HandshakeError {
    pub(crate) fn into_error(self) -> StoreError {
        let (HandshakeError::Rejected(error) | HandshakeError::HelloFailed(error)) = self;
        error
    }
}

fn is_hello_unsupported(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || !is_of_select(error) && *errors::classify(error).code() == Code::UnknownCommand
}

fn is_of_select(error: &redis::RedisError) -> bool {
    error.to_string().contains("refused to switch database")
}

/// Returns the error of a server that rejects this client.
fn handshake_error(db: i64, error: &redis::RedisError) -> StoreError {
    // The server's error text repeats the command with its password, so it is not used.
    if !is_of_select(error) && *errors::classify(error).code() == Code::UnknownCommand {
        return StoreError::new(
            Outage::Misconfigured,
            "the server does not know HELLO, so it does not support RESP3; use Redis 6.2 or later",
        );
    }
    if error.kind() == ErrorKind::Parse {
        return errors::not_redis_error("its reply is not a Redis reply");
    }
    if db != 0 && is_of_select(error) {
        return unknown_database(db, error.detail().unwrap_or_default());
    }
    errors::with_remedy(errors::classify(error))
}

fn unknown_database(db: i64, reply_text: &str) -> StoreError {
    let detail = format!("the URL's database {db} cannot be selected: {reply_text}");
    let error = errors::classify_text(reply_text);
    if let Some(error) = errors::wrong_topology(&error) {
        return error;
    }
    if *error.code() == Code::UnknownCommand {
        let detail = "the server does not know SELECT; write a URL without a database";
        return StoreError::new(Outage::Misconfigured, detail);
    }
    if error.outage == Outage::Denied {
        return StoreError::new(Outage::Denied, detail).with_remedy("grant the user +select");
    }
    StoreError::new(Outage::Misconfigured, detail)
        .with_remedy("name one below the server's `databases`")
}

/// The task that reads and writes a connection. It reports the end of the connection on drop. This
/// includes the drop of its runtime, which the `redis` crate does not notice.
struct DriverTask<F> {
    /// Present until the drop.
    driver: Option<Pin<Box<F>>>,
    events: Arc<Events>,
    process: ProcessId,
}

impl<F: Future> Future for DriverTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let process = self.process;
        match &mut self.driver {
            // After `fork`, it would take the parent's replies, and send what is queued here.
            Some(driver) if !process.is_inherited() => driver.as_mut().poll(context).map(drop),
            _ => Poll::Pending,
        }
    }
}

impl<F> Drop for DriverTask<F> {
    fn drop(&mut self) {
        let driver = self.driver.take();
        if self.process.is_inherited() {
            // Its drop would remove the parent's socket from the poll set that both share.
            std::mem::forget(driver);
            return;
        }
        drop(driver);
        self.events.report_end();
    }
}

/// Ends the task, because otherwise it would wait for replies that never come.
impl Drop for Multiplexed {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
