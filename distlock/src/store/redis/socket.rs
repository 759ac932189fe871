//! Connections of the `redis` crate over sockets of our own, on which signs of life are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use once_cell::sync::OnceCell;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, PushInfo, PushKind, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::{AbortHandle, JoinSet};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use crate::credentials::Source;
use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::BoxFuture;
use crate::store::redis::config::RedisConfig;
use crate::store::redis::ended::{self, Renames};
use crate::store::redis::login;
#[cfg(feature = "tls")]
use crate::store::redis::tls;
use crate::store::redis::transport::{Connection, Heard, Hears, Transport};
use crate::store::redis::trouble;
use crate::tls::Tls;

/// Requests that wait for the socket.
const PIPELINE: usize = 4_096;

const KEEPALIVE: Duration = Duration::from_secs(10);

/// A dead peer is noticed after this long, whatever the kernel's default.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The way to a server over TCP, with or without TLS, or a Unix socket.
#[derive(Debug)]
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(crate) struct Sockets {
    client: Client,
    tls: Option<Tls>,
    credentials: Option<Source>,
    /// How long a server may take to begin with TLS: so long that it can be asked twice while connecting.
    tls_within: Duration,
    in_cluster: bool,
}

impl Sockets {
    pub(super) fn new(config: &RedisConfig) -> Self {
        Sockets {
            client: config.client.clone(),
            tls: config.tls.clone(),
            credentials: config.credentials.clone(),
            tls_within: config.connect_timeout / 2,
            in_cluster: config.in_cluster,
        }
    }

    async fn connect(&self, hears: Hears) -> Result<OverSocket, Trouble> {
        let pulse = Pulse::default();
        let info = self.client.get_connection_info();
        let socket = self.open(info.addr()).await?;
        let objection = Arc::new(OnceCell::new());
        let stream = Stream {
            socket,
            pulse: pulse.clone(),
            objection: objection.clone(),
            renames: self.in_cluster.then(Renames::new),
        };
        let of_pushes = hears.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(move |push| {
                tell(&of_pushes, push);
                Ok::<(), redis::aio::SendError>(())
            });
        let mut settings = info.redis_settings().clone();
        if let Some(source) = &self.credentials {
            let credentials = login::ask(source).await?;
            if let Some(user) = credentials.user() {
                settings = settings.set_username(user);
            }
            settings = settings.set_password(credentials.reveal());
        }
        let connected = MultiplexedConnection::new_with_config(&settings, stream, config).await;
        let (connection, driver) = connected.map_err(|error| {
            let objection = objection.get().cloned();
            objection.unwrap_or_else(|| refused(settings.db(), &error))
        })?;
        let at_end = TellsEnd(hears);
        let driver = tokio::spawn(async move {
            let _at_end = at_end;
            driver.await;
        });
        Ok(OverSocket {
            connection,
            pulse,
            _driver: Driver(driver.abort_handle()),
        })
    }
}

impl Sockets {
    /// Connects. A name is looked up each time, for it may have moved to another server.
    async fn open(&self, address: &ConnectionAddr) -> Result<Socket, Trouble> {
        let failed = |error: io::Error| trouble::of(&error.into());
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect(host, *port).await.map_err(failed)?;
                tune(&stream).map_err(failed)?;
                self.secure(host, stream).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                Ok(Socket::Unix(stream.map_err(failed)?))
            }
            _ => Err(failed(io::ErrorKind::Unsupported.into())),
        }
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, host: &str, stream: TcpStream) -> Result<Socket, Trouble> {
        Ok(match &self.tls {
            None => Socket::Tcp(stream),
            Some(tls) => {
                let secured = tls::secure(tls, host, stream, self.tls_within);
                Socket::Tls(Box::new(secured.await?))
            }
        })
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, _: &str, stream: TcpStream) -> Result<Socket, Trouble> {
        Ok(Socket::Tcp(stream))
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

impl Transport for Sockets {
    fn open(&self, hears: Hears) -> BoxFuture<'_, Result<Arc<dyn Connection>, Trouble>> {
        Box::pin(async move {
            let connection: Arc<dyn Connection> = Arc::new(self.connect(hears).await?);
            Ok(connection)
        })
    }

    fn spawn(&self, keeper: BoxFuture<'static, ()>) {
        tokio::spawn(keeper);
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

/// A connection over a socket.
#[derive(Debug)]
struct OverSocket {
    connection: MultiplexedConnection,
    pulse: Pulse,
    _driver: Driver,
}

impl Connection for OverSocket {
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

/// Counts what a server has said. Whatever it says, it is alive: a client whose own commands stand in a
/// long line must not take their delay for a dead connection.
#[derive(Clone, Debug, Default)]
struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connected socket.
#[derive(Debug)]
struct Stream {
    socket: Socket,
    pulse: Pulse,
    /// What the other side has against our certificate, which it says when we believe to be connected already.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    objection: Arc<OnceCell<Trouble>>,
    /// In a cluster.
    renames: Option<Renames>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to whichever of a name's addresses answers first: one that swallows everything must not hide
/// the others.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in tokio::net::lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(ended) => failed = io::Error::other(ended),
        }
    }
    Err(failed)
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = match &mut this.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            this.pulse.beat();
            if let Some(renames) = &mut this.renames {
                renames.read(&mut buffer.filled_mut()[before..]);
            }
        }
        #[cfg(feature = "tls")]
        if let Poll::Ready(Err(error)) = &read
            && let Some(trouble) = tls::objection(error)
        {
            // The first one counts.
            let _ = this.objection.set(trouble);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
