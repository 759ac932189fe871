//! Connections of the `redis` crate over sockets of our own.

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisConnectionInfo, RedisResult, Value,
};
use tokio::task::AbortHandle;

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::BoxFuture;
use crate::store::redis::ended;
use crate::store::redis::socket::{Pulse, Stream};
use crate::store::redis::transport::{Connection, Heard, Hears};
use crate::store::redis::trouble;

/// Requests that wait for the socket.
const PIPELINE: usize = 4_096;

/// A connection over a socket.
#[derive(Debug)]
pub(super) struct Multiplexed {
    connection: MultiplexedConnection,
    /// Where it leads, if that is not what the URL says.
    peer: Option<String>,
    pulse: Pulse,
    _driver: Driver,
}

impl Multiplexed {
    /// The same, which leads to this server.
    pub(super) fn leading_to(self, peer: String) -> Self {
        Multiplexed {
            peer: Some(peer),
            ..self
        }
    }

    /// Says hello, and who we are.
    pub(super) async fn begin(
        stream: Stream,
        settings: &RedisConnectionInfo,
        hears: Hears,
    ) -> Result<Self, Trouble> {
        let pulse = stream.pulse.clone();
        let objection = stream.objection.clone();
        let of_pushes = hears.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(move |push| {
                tell(&of_pushes, push);
                Ok::<(), redis::aio::SendError>(())
            });
        let connected = MultiplexedConnection::new_with_config(settings, stream, config).await;
        let (connection, driver) = connected.map_err(|error| {
            let objection = objection.get().cloned();
            objection.unwrap_or_else(|| refused(settings.db(), &error))
        })?;
        let at_end = TellsEnd(hears);
        let driver = tokio::spawn(async move {
            let _at_end = at_end;
            driver.await;
        });
        Ok(Multiplexed {
            connection,
            peer: None,
            pulse,
            _driver: Driver(driver.abort_handle()),
        })
    }
}

impl Connection for Multiplexed {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let answer = connection.send_packed_command(command).await?;
            answer.extract_error()
        })
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let mut pipe = redis::pipe();
            for command in commands {
                pipe.add_command(command.clone());
            }
            pipe.ignore_errors().query_async(&mut connection).await
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>> {
        let mut connection = self.connection.clone();
        Box::pin(async move { connection.subscribe(channel).await })
    }

    fn pulse(&self) -> u64 {
        self.pulse.count()
    }

    fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }
}

fn tell(hears: &Hears, push: PushInfo) {
    match push.kind {
        PushKind::Disconnection => hears(Heard::End),
        PushKind::Message | PushKind::SMessage => hears(Heard::Message(push.data)),
        PushKind::SSubscribe => hears(Heard::Subscribed(push.data)),
        PushKind::Other(name) if name == ended::RENAMED => hears(Heard::Unsubscribed(push.data)),
        _ => {}
    }
}

/// What a server says that does not let this client in.
fn refused(db: i64, error: &redis::RedisError) -> Trouble {
    // Which would repeat what was sent, the password with it.
    if error.to_string().contains("unknown command") {
        return Trouble::new(
            Outage::Denied,
            "the server does not know HELLO, and so does not speak RESP3; Redis 6.2 or later is needed",
        );
    }
    let trouble = trouble::of(error);
    if db != 0 && error.to_string().contains("refused to switch database") {
        let detail = format!(
            "the URL's database {db} cannot be selected: {} (is it below the server's `databases`, and \
             has the user the right +select?)",
            error.detail().unwrap_or_default()
        );
        return Trouble::new(Outage::Denied, detail);
    }
    trouble
}

/// The task that reads and writes a connection. It would wait for answers that never come, so it ends with
/// its connection.
#[derive(Debug)]
struct Driver(AbortHandle);

/// Tells that a connection has ended, also when its runtime is dropped, which the `redis` crate does not notice.
struct TellsEnd(Hears);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        (self.0)(Heard::End);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
