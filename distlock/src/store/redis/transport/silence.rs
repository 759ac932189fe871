//! Detection of servers that accept connections, and send no reply.

use futures_util::future::join_all;

use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::format_host;
use crate::store::redis::transport::{protocol_mismatch, socket};

/// Returns what a server of the URL does instead of replying to a Redis command, if one does.
pub(crate) async fn explain(config: &RedisConfig) -> Option<String> {
    if config.tls.is_some() {
        return None;
    }
    let hosts = config.location.hosts();
    let probes = hosts.iter().map(|host| async move {
        let connecting = socket::connect(&host.0, host.1);
        let silence = protocol_mismatch::silence(connecting).await?;
        let host = format_host(host);
        Some(format!(
            "{host} {silence}; check that host and port in the URL are those of a Redis server that runs"
        ))
    });
    join_all(probes).await.into_iter().flatten().next()
}
