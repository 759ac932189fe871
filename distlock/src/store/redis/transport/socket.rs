//! Sockets, encrypted or not, that count the data that arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::{fmt, io};

use once_cell::sync::OnceCell;
use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::config::tls::Tls;
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::net;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::reply_scanner::{self, ReplyScanner, TooLarge};
use crate::store::redis::wire::errors;

#[cfg(unix)]
use tokio::net::UnixStream;

#[cfg(feature = "tls")]
use crate::store::net::tls::{self, TlsFailure};

/// The settings of sockets to a server.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(crate) struct SocketConnector {
    tls: Option<Tls>,
    has_sharded_channels: bool,
}

impl SocketConnector {
    pub(crate) fn new(config: &RedisConfig) -> Self {
        SocketConnector {
            tls: config.tls.clone(),
            has_sharded_channels: config.has_sharded_channels,
        }
    }

    /// Connects. The name is resolved every time, because it may have moved to another server.
    pub(crate) async fn connect(&self, address: &ConnectionAddr) -> StoreResult<Stream> {
        let failed = |error: io::Error| errors::classify(&error.into());
        let socket: Box<dyn Socket> = match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = net::connect(host, *port).await.map_err(failed)?;
                net::set_options(&stream).map_err(failed)?;
                self.secure(host, stream).await?
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                Box::new(stream.map_err(failed)?)
            }
            _ => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        Ok(Stream {
            socket,
            activity: Arc::default(),
            fault: Fault::default(),
            replies: ReplyScanner::new(self.has_sharded_channels),
        })
    }

    #[cfg_attr(not(feature = "tls"), allow(unused_variables))]
    async fn secure(&self, host: &str, stream: TcpStream) -> StoreResult<Box<dyn Socket>> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let secured = tls::secure(tls, host, stream).await;
            let secured = secured.map_err(|failure| match failure {
                TlsFailure::PlainText => errors::plain_text_error(),
                TlsFailure::Io(error) => errors::classify(&error.into()),
                TlsFailure::Explained(error) => error,
            })?;
            return Ok(Box::new(secured));
        }
        Ok(Box::new(stream))
    }
}

/// The reason why a connection is unusable: this side ended it, or the server rejects our
/// certificate after TLS seemed to be established. Nothing that arrives afterwards is used.
pub(crate) type Fault = Arc<OnceCell<StoreError>>;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Box<dyn Socket>,
    /// A count of the data that the server has sent. Any data proves that the server is alive, so a
    /// client with many queued commands does not treat their delay as a dead connection.
    pub(crate) activity: Arc<AtomicU64>,
    pub(crate) fault: Fault,
    replies: ReplyScanner,
}

/// A TCP, Unix or TLS socket.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug> Socket for S {}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.activity.fetch_add(1, Ordering::Relaxed);
            if let Err(TooLarge) = this.replies.scan(&mut buffer.filled_mut()[before..]) {
                buffer.set_filled(before);
                let error = StoreError::new(Outage::Unreachable, reply_scanner::TOO_LARGE_MESSAGE);
                // An earlier fault is kept.
                let _ = this.fault.set(error);
                let error = io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    reply_scanner::TOO_LARGE_MESSAGE,
                );
                return Poll::Ready(Err(error));
            }
        }
        #[cfg(feature = "tls")]
        if let Poll::Ready(Err(error)) = &read
            && let Some(error) = tls::read_error(error)
        {
            // An earlier fault is kept.
            let _ = this.fault.set(error);
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
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
