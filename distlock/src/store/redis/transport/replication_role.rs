//! The replication role that a server reports.

use redis::from_redis_value;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::transport::OpenConnection;
use crate::store::redis::wire::decode::ReplyReader;
use crate::store::redis::wire::errors;

async fn replication_role(connection: &dyn OpenConnection) -> StoreResult<String> {
    let role = connection.send(redis::cmd("ROLE")).await;
    ReplyReader::from_list(role.map_err(|error| errors::classify(&error))?)?.text()
}

/// Rejects a server that the sentinels report as the primary, but that is a replica: it is about to
/// be promoted, or was just demoted.
pub(crate) async fn check_primary(connection: &dyn OpenConnection) -> StoreResult<()> {
    match replication_role(connection).await {
        Ok(role) if role == "master" => Ok(()),
        Ok(_) => Err(StoreError::new(
            Outage::ReadOnly,
            "the sentinels report it as the primary, but it is a replica: a failover is in progress",
        )),
        // Without permission for ROLE, a rejected write reveals the replica, unless replicas
        // accept writes.
        Err(error) if error.outage == Outage::Denied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Rejects a version without RESP3.
pub(crate) async fn check_version(connection: &dyn OpenConnection) -> StoreResult<()> {
    let mut info = redis::cmd("INFO");
    info.arg("server");
    let Ok(info) = connection.send(info).await else {
        return Ok(());
    };
    let info = from_redis_value::<String>(info).unwrap_or_default();
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match (version, major) {
        (Some(version), Some(..=5)) => Err(StoreError::new(
            Outage::Misconfigured,
            format!(
                "the server is Redis {version}, which does not support RESP3; use Redis 6.2 or later"
            ),
        )),
        _ => Ok(()),
    }
}

/// Rejects a sentinel. Called for a server that runs no scripts.
pub(crate) async fn check_not_sentinel(connection: &dyn OpenConnection) -> StoreResult<()> {
    match replication_role(connection).await.as_deref() {
        Ok("sentinel") => Err(StoreError::new(
            Outage::Misconfigured,
            "the server is a sentinel; write redis+sentinel://host,host/service, with the name of the service that it monitors",
        )),
        _ => Ok(()),
    }
}
