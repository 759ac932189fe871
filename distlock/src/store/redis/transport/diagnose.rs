//! Diagnosis of a connect that failed: what listens at the addresses of the URL.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::net;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::{Host, format_host};
use crate::store::redis::wire::errors;

/// Timeout of a connection attempt, and of a reply.
const TIMEOUT: Duration = Duration::from_millis(250);

/// Proxies know only commands in RESP.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A ClientHello without content. A TLS server rejects it with an alert, and then closes the
/// connection cleanly.
const EMPTY_CLIENT_HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];

/// First bytes of an alert and of a handshake of TLS 1.0 to 1.3.
const TLS: [[u8; 2]; 2] = [[0x15, 3], [0x16, 3]];

/// The first bytes of all replies in RESP2 and RESP3.
const REPLY_TYPES: &[u8] = b"+-:$*_,#!=(%~>|";

/// Upper limit of the bytes of an unexpected reply that an error shows.
const MAX_SHOWN: usize = 40;

/// What a server does instead of replying as Redis does.
enum Finding {
    OtherProtocol(StoreError),
    NoReply(&'static str),
}

/// Returns the error of a connect, after its last attempt. Asks each server of the URL once, and
/// sends no secret.
pub(crate) async fn diagnose(config: &RedisConfig, mut error: StoreError) -> StoreError {
    let is_unclear = matches!(
        error.outage,
        Outage::Unreachable | Outage::TimedOut | Outage::Other
    );
    // The address may be wrong, or the scheme.
    if !is_unclear && error.outage != Outage::Misconfigured {
        return error;
    }
    let hosts = config.location.hosts();
    let probes = hosts.iter().map(|host| probe(host, config.tls.is_some()));
    let findings = join_all(probes).await;
    let mut no_reply = None;
    for (host, finding) in hosts.iter().zip(findings) {
        let host = format_host(host);
        match finding {
            Some(Finding::OtherProtocol(error)) => {
                return error.at(&format!("{}://{host}", config.scheme()));
            }
            Some(Finding::NoReply(found)) if no_reply.is_none() => no_reply = Some((host, found)),
            _ => {}
        }
    }
    if let Some((host, found)) = no_reply.filter(|_| is_unclear) {
        error.detail = format!(
            "{}: {host} accepts connections, and {found}; check that host and port in the URL are those of a Redis \
             server that runs",
            error.detail
        );
    }
    error
}

async fn probe(host: &Host, uses_tls: bool) -> Option<Finding> {
    if uses_tls {
        // Both kinds of server reply to this.
        let Ok(reply) = ask(host, b"PING\r\n").await? else {
            return Some(Finding::NoReply("does not reply"));
        };
        let is_plain = matches!(reply.first(), Some(b'+' | b'-'));
        return is_plain.then(|| Finding::OtherProtocol(errors::plain_text_error()));
    }
    let Ok(reply) = ask(host, PING).await? else {
        return Some(Finding::NoReply("does not reply"));
    };
    let speaks_tls = |reply: &[u8]| TLS.iter().any(|tls| reply.starts_with(tls));
    if reply.is_empty() {
        let hello = ask(host, EMPTY_CLIENT_HELLO).await;
        if hello.is_some_and(|reply| reply.is_ok_and(|reply| speaks_tls(&reply))) {
            return Some(Finding::OtherProtocol(errors::tls_required_error()));
        }
        return Some(Finding::NoReply("closes them without a reply"));
    }
    if speaks_tls(&reply) {
        return Some(Finding::OtherProtocol(errors::tls_required_error()));
    }
    if !REPLY_TYPES.contains(&reply[0]) {
        let text = String::from_utf8_lossy(&reply);
        let line = text.lines().next().unwrap_or_default();
        let error = errors::not_redis_error(&format!("its reply begins with `{line}`"));
        return Some(Finding::OtherProtocol(error));
    }
    let is_redis = reply.starts_with(b"-") || reply.starts_with(b"+P");
    (!is_redis).then_some(Finding::NoReply("does not reply as Redis does"))
}

/// Returns the beginning of the reply to `request` on a new connection. It is empty if the server
/// ends the connection, and an error if the server sends nothing. Returns `None` if no connection
/// is accepted.
async fn ask(
    (host, port): &Host,
    request: &[u8],
) -> Option<Result<Vec<u8>, tokio::time::error::Elapsed>> {
    let connected = tokio::time::timeout(TIMEOUT, net::connect(host, *port)).await;
    let stream = connected.ok()?.ok()?;
    let reply = async move { reply_to(&stream, request).await.unwrap_or_default() };
    Some(tokio::time::timeout(TIMEOUT, reply).await)
}

async fn reply_to(stream: &TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.writable().await?;
    // The send buffer of a new socket has room for a few bytes.
    stream.try_write(request)?;
    let mut reply = vec![0; MAX_SHOWN];
    let length = stream.peek(&mut reply).await?;
    reply.truncate(length);
    Ok(reply)
}
