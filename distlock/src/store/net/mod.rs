//! TCP connections of the stores, and TLS over them.

use std::io;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

#[cfg(feature = "tls")]
pub(crate) mod tls;

const KEEPALIVE_TIME: Duration = Duration::from_secs(10);

/// Time after which a dead peer is noticed, regardless of the kernel's default.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the first of a name's addresses that accepts. All are tried at once, so that an
/// address that never accepts does not hide the others.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let mut attempts: FuturesUnordered<_> = addresses.map(TcpStream::connect).collect();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Sets the options with which a dead peer is noticed.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}
