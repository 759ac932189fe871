//! The Redis user of the workers. The supervisor has another user, which its faults spare.

use distlock_tests::RedisServerBuilder;

pub(crate) const USER: &str = "worker";
pub(crate) const PASSWORD: &str = "torture";

const PLACES: &[&str] = &["~distlock:*", "&distlock:client:*"];

/// The permissions that docs/internals/storage.md lists.
const PERMISSIONS: &[&str] = &[
    "eval",
    "evalsha",
    "subscribe",
    "time",
    "get",
    "mget",
    "set",
    "del",
    "exists",
    "pexpire",
    "pttl",
    "zadd",
    "zrem",
    "zrange",
    "zscore",
    "zcard",
    "hset",
    "hget",
    "hdel",
    "hmget",
    "hgetall",
    "hscan",
    "publish",
    "pubsub|numsub",
    "ping",
    "info",
];

/// The permissions listed for a cluster but not for a single server.
const MORE_IN_CLUSTER: &[&str] = &[
    "ssubscribe",
    "spublish",
    "pubsub|shardnumsub",
    "cluster|slots",
    "asking",
];

/// The permissions listed for a single server but not for a cluster.
const LESS_IN_CLUSTER: &[&str] = &["subscribe", "publish", "pubsub|numsub"];

/// The permissions at sentinels that docs/operations/topologies.md lists.
const SENTINEL_PERMISSIONS: &[&str] = &["sentinel|get-master-addr-by-name", "subscribe"];

/// Adds the user to a server, with `more` in addition to the usual permissions.
pub(super) fn at_server(server: RedisServerBuilder, more: &[&str]) -> RedisServerBuilder {
    has_user(server, PLACES, &[PERMISSIONS, more].concat())
}

/// Adds the user to a node of a cluster.
pub(super) fn in_cluster(node: RedisServerBuilder) -> RedisServerBuilder {
    let mut permissions = [PERMISSIONS, MORE_IN_CLUSTER].concat();
    permissions.retain(|permission| !LESS_IN_CLUSTER.contains(permission));
    has_user(node, PLACES, &permissions)
}

/// Adds the user to a sentinel.
pub(super) fn at_sentinel(sentinel: RedisServerBuilder) -> RedisServerBuilder {
    has_user(sentinel, &["&+switch-master"], SENTINEL_PERMISSIONS)
}

fn has_user(
    server: RedisServerBuilder,
    places: &[&str],
    permissions: &[&str],
) -> RedisServerBuilder {
    let password = format!(">{PASSWORD}");
    let permissions: Vec<_> = permissions
        .iter()
        .map(|permission| format!("+{permission}"))
        .collect();
    let begin = [
        "--user",
        USER,
        "on",
        &password,
        "resetkeys",
        "resetchannels",
    ];
    server
        .args(begin)
        .args(places.iter().copied())
        .args(["-@all"])
        .args(permissions.iter().map(String::as_str))
}

/// Returns true if a line of `CLIENT LIST` belongs to a worker.
pub(super) fn is_workers(line: &str) -> bool {
    line.split(' ')
        .any(|field| field.strip_prefix("user=") == Some(USER))
}

/// Returns `CLIENT KILL` for the workers' connections of a type.
pub(super) fn kill_command(kind: &str) -> [&str; 6] {
    ["CLIENT", "KILL", "TYPE", kind, "USER", USER]
}

/// Returns `ACL SETUSER` that grants (`+set`) or revokes (`-set`) one permission.
pub(super) fn permission_command(permission: &str) -> [&str; 4] {
    ["ACL", "SETUSER", USER, permission]
}
