//! Detection of servers that speak a different protocol from the one that the URL names.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;

/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);

/// The first bytes of all replies in RESP2 and RESP3.
const REPLY_TYPES: &[u8] = b"+-:$*_,#!=(%~>|";

/// A ClientHello without content. A TLS server rejects it with an alert, and then closes the
/// connection cleanly.
const EMPTY_CLIENT_HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];

/// First bytes of an alert and of a handshake of TLS 1.0 to 1.3.
const TLS: [[u8; 2]; 2] = [[0x15, 3], [0x16, 3]];

/// Upper limit of the bytes of an unexpected reply that an error shows.
const MAX_SHOWN: usize = 40;

/// Returns the error of a server if its first bytes are not those of a Redis reply.
pub(crate) fn from_first_bytes(bytes: &[u8]) -> Option<StoreError> {
    if REPLY_TYPES.contains(bytes.first()?) {
        return None;
    }
    if TLS.iter().any(|tls| bytes.starts_with(tls)) {
        return Some(tls_required_error());
    }
    let shown = &bytes[..bytes.len().min(MAX_SHOWN)];
    let shown = String::from_utf8_lossy(shown);
    let line = shown.lines().next().unwrap_or_default();
    Some(not_redis_error(&format!("its reply begins with `{line}`")))
}

/// Returns the error of a server that does not speak RESP.
pub(crate) fn not_redis_error(reason: &str) -> StoreError {
    StoreError::new(
        Outage::Misconfigured,
        format!(
            "the server does not speak the Redis protocol ({reason}); fix host and port in the URL"
        ),
    )
}

/// Returns the error of a plain connection to a port for TLS.
pub(crate) fn tls_required_error() -> StoreError {
    StoreError::new(
        Outage::Misconfigured,
        "the server expects TLS; write rediss:// instead of redis://, or use the server's plain `port`",
    )
}

/// Returns the error of a TLS connection to a plain port.
pub(crate) fn plain_text_error() -> StoreError {
    StoreError::new(
        Outage::Misconfigured,
        "the server replies in plain text, not in TLS; write redis:// instead of rediss://, or use the server's `tls-port`",
    )
}

/// Returns true if the server behind a new connection speaks TLS.
pub(crate) async fn speaks_tls(connecting: impl Future<Output = io::Result<TcpStream>>) -> bool {
    let reply = probe(connecting, EMPTY_CLIENT_HELLO).await;
    reply.is_some_and(|reply| TLS.contains(&reply))
}

/// Returns true if the server behind a new connection replies to a plain PING, even with an error.
/// No secret is sent.
pub(crate) async fn speaks_plain_text(
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> bool {
    let reply = probe(connecting, b"PING\r\n").await;
    reply.is_some_and(|reply| matches!(reply, [b'+' | b'-', _]))
}

/// Returns what the server behind a new connection does instead of replying to PING as Redis does.
pub(crate) async fn silence(
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Option<&'static str> {
    let connected = tokio::time::timeout(PROBE_TIMEOUT, connecting).await;
    // Proxies know only commands in RESP.
    let reply = reply_to(connected.ok()?.ok()?, b"*1\r\n$4\r\nPING\r\n");
    match tokio::time::timeout(PROBE_TIMEOUT, reply).await {
        Ok(Ok((_, [b'-', _] | [b'+', b'P']))) => None,
        Ok(Ok((1.., _))) => Some("accepts connections, and does not reply as Redis does"),
        Ok(_) => Some("accepts connections, and closes them without a reply"),
        Err(_) => Some("accepts connections, and does not reply"),
    }
}

/// Returns the first two bytes of the reply to `bytes`.
async fn probe(
    connecting: impl Future<Output = io::Result<TcpStream>>,
    bytes: &[u8],
) -> Option<[u8; 2]> {
    let probed = async { reply_to(connecting.await?, bytes).await };
    let replied = tokio::time::timeout(PROBE_TIMEOUT, probed).await;
    let (length, reply) = replied.ok()?.ok()?;
    (length == reply.len()).then_some(reply)
}

/// Returns how many bytes of the reply have arrived, up to two, and these.
async fn reply_to(stream: TcpStream, bytes: &[u8]) -> io::Result<(usize, [u8; 2])> {
    stream.writable().await?;
    // The send buffer of a new socket has room for a few bytes.
    stream.try_write(bytes)?;
    let mut reply = [0; 2];
    let length = stream.peek(&mut reply).await?;
    Ok((length, reply))
}
