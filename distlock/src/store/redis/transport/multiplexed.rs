//! Connections of the `redis` crate over sockets of our own.

use std::sync::{Arc, Mutex};
use std::{fmt, io};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisResult, Value,
};
use tokio::task::AbortHandle;

use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::BoxFuture;
use crate::store::redis::transport::other_protocol;
use crate::store::redis::transport::reply_scanner;
use crate::store::redis::transport::request_numbers::{RequestNumber, RequestNumbers};
use crate::store::redis::transport::socket::{Fault, Pulse, Stream};
use crate::store::redis::transport::{Connection, Heard, Hears};
use crate::store::redis::wire::trouble;
use crate::util::mutex::lock;

/// Upper limit of requests that wait for the socket.
const PIPELINE: usize = 4_096;

/// Bytes that one system call writes if enough requests wait. The default of 8 KiB is less than
/// twenty requests.
const WRITE_SIZE: usize = 64 << 10;

/// A connection over a socket.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    connection: MultiplexedConnection,
    /// The server it leads to, unless the URL names it.
    peer: Option<String>,
    has_pushes: bool,
    pulse: Pulse,
    numbers: RequestNumbers,
    gate: Arc<Gate>,
    driver: Driver,
}

impl Multiplexed {
    /// Sets the server that the connection leads to.
    pub(crate) fn leading_to(self, peer: String) -> Self {
        Multiplexed {
            peer: Some(peer),
            ..self
        }
    }

    /// Performs the handshake, including the credentials.
    pub(crate) async fn begin(
        stream: Stream,
        settings: &RedisConnectionInfo,
        hears: Hears,
    ) -> Result<Self, Refusal> {
        let pulse = stream.pulse.clone();
        let fault = stream.fault.clone();
        let has_pushes = settings.protocol() != ProtocolVersion::RESP2;
        let gate = Arc::new(Gate::before(hears, fault.clone()));
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_write_backpressure_boundary(WRITE_SIZE);
        if has_pushes {
            let of_pushes = gate.clone();
            config = config.set_push_sender(move |push| {
                of_pushes.tell(push);
                Ok::<(), redis::aio::SendError>(())
            });
        }
        let connected = MultiplexedConnection::new_with_config(settings, stream, config).await;
        let (connection, driver) = connected.map_err(|error| match fault.get() {
            Some(fault) => Refusal::For(fault.clone()),
            None if error.is_io_error() || is_no_hello(&error) => {
                Refusal::OfTheGreeting(refused(settings.db(), &error))
            }
            None => Refusal::For(refused(settings.db(), &error)),
        })?;
        let at_end = TellsEnd(gate.clone());
        let driver = tokio::spawn(async move {
            let _at_end = at_end;
            driver.await;
        });
        gate.open();
        Ok(Multiplexed {
            connection,
            peer: None,
            has_pushes,
            pulse,
            numbers: RequestNumbers::new(has_pushes),
            gate,
            driver: Driver(driver.abort_handle()),
        })
    }

    /// Returns the reply, unless it or an earlier one was to another request, or there is another
    /// fault. A mismatch ends the connection, and nothing that arrived on it is used any longer.
    fn check(&self, number: Option<RequestNumber>, reply: Value) -> RedisResult<Value> {
        let fault = &self.gate.fault;
        let checked = match number {
            Some(number) => number.remove_from(reply),
            None => Some(reply),
        };
        match checked {
            Some(reply) if fault.get().is_none() => return Ok(reply),
            Some(_) => {}
            None => {
                let detail = "the server's reply was to another request, so the connection was closed; is it a Redis \
                              server, and not a proxy that rewrites?";
                // An earlier fault is kept.
                let _ = fault.set(Trouble::new(Outage::Unreachable, detail));
                self.gate.tell_end();
                self.driver.0.abort();
            }
        }
        let detail = fault.get().map_or("", |fault| &fault.detail);
        Err(io::Error::new(io::ErrorKind::ConnectionReset, detail).into())
    }
}

impl Connection for Multiplexed {
    fn send(&self, mut command: Cmd) -> BoxFuture<'_, RedisResult<Value>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let number = self.numbers.append_to(&mut command);
            let answer = connection.send_packed_command(&command).await?;
            self.check(number, answer)?.extract_error()
        })
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let mut pipe = redis::pipe();
            // A numbered reply after the others shows that theirs, such as that of `WAIT`, are not
            // shifted either.
            let last = self.has_pushes.then(|| redis::cmd("PING"));
            let mut numbers = Vec::with_capacity(commands.len() + 1);
            for mut command in commands.iter().cloned().chain(last) {
                numbers.push(self.numbers.append_to(&mut command));
                pipe.add_command(command);
            }
            let sent = pipe.ignore_errors().query_async(&mut connection);
            let answers: Vec<RedisResult<Value>> = sent.await?;
            let mut checked = Vec::with_capacity(answers.len());
            for (number, answer) in numbers.into_iter().zip(answers) {
                checked.push(match answer {
                    Ok(answer) => Ok(self.check(number, answer)?),
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

    fn pulse(&self) -> u64 {
        self.pulse.count()
    }

    fn has_pushes(&self) -> bool {
        self.has_pushes
    }

    fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }
}

/// Events of a connection, withheld until the handshake completes, because it may be replaced.
struct Gate {
    hears: Hears,
    opened: Mutex<Opened>,
    fault: Fault,
}

#[derive(Clone, Copy)]
enum Opened {
    NotYet { has_ended: bool },
    Yes,
}

impl Gate {
    fn before(hears: Hears, fault: Fault) -> Self {
        Gate {
            hears,
            fault,
            opened: Mutex::new(Opened::NotYet { has_ended: false }),
        }
    }

    fn open(&self) {
        let before = std::mem::replace(&mut *lock(&self.opened), Opened::Yes);
        if let Opened::NotYet { has_ended: true } = before {
            (self.hears)(Heard::End(self.fault.get().cloned()));
        }
    }

    fn tell(&self, push: PushInfo) {
        match push.kind {
            PushKind::Disconnection => self.tell_end(),
            _ if self.fault.get().is_some() => {}
            PushKind::Message | PushKind::SMessage => (self.hears)(Heard::Message(push.data)),
            PushKind::SSubscribe => (self.hears)(Heard::Subscribed(push.data)),
            PushKind::Other(name) if name == reply_scanner::RENAMED => {
                (self.hears)(Heard::Unsubscribed(push.data));
            }
            _ => {}
        }
    }

    fn tell_end(&self) {
        match &mut *lock(&self.opened) {
            Opened::NotYet { has_ended } => {
                *has_ended = true;
                return;
            }
            Opened::Yes => {}
        }
        (self.hears)(Heard::End(self.fault.get().cloned()));
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// The reason why a connection cannot be used.
pub(crate) enum Refusal {
    For(Trouble),
    /// The greeting was not answered, or not understood.
    OfTheGreeting(Trouble),
}

impl Refusal {
    pub(crate) fn trouble(self) -> Trouble {
        let (Refusal::For(trouble) | Refusal::OfTheGreeting(trouble)) = self;
        trouble
    }
}

fn is_no_hello(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || trouble::of(error).code == Code::UnknownCommand
}

/// Returns the error of a server that rejects this client.
fn refused(db: i64, error: &redis::RedisError) -> Trouble {
    // The server's error text repeats the command with its password, so it is not used.
    if trouble::of(error).code == Code::UnknownCommand {
        return Trouble::new(
            Outage::Misconfigured,
            "the server does not know HELLO, and so does not speak RESP3; use Redis 6.2 or later",
        );
    }
    if error.kind() == ErrorKind::Parse {
        return other_protocol::misconfigured("its reply is not one of Redis");
    }
    if db != 0 && error.to_string().contains("refused to switch database") {
        return unknown_database(db, error.detail().unwrap_or_default());
    }
    trouble::with_remedy(trouble::of(error))
}

fn unknown_database(db: i64, said: &str) -> Trouble {
    let refused = format!("the URL's database {db} cannot be selected: {said}");
    let error = trouble::of_text(said);
    if error.code == Code::OnlyOutsideClusters {
        return trouble::node_of_cluster();
    }
    if error.outage == Outage::Denied {
        return Trouble::new(Outage::Denied, refused).with_remedy("grant the user +select");
    }
    Trouble::new(Outage::Misconfigured, refused)
        .with_remedy("name one below the server's `databases`")
}

/// The task that reads and writes a connection. It ends with the connection, because otherwise it
/// would wait for replies that never come.
#[derive(Debug)]
struct Driver(AbortHandle);

/// Reports the end of a connection on drop. This includes the drop of its runtime, which the
/// `redis` crate does not notice.
struct TellsEnd(Arc<Gate>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.tell_end();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
