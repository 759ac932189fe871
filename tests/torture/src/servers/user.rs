//! The Redis user of the workers. The supervisor has another user, which its faults spare.

use distlock_tests::RedisServerBuilder;

pub(crate) const USER: &str = "worker";
pub(crate) const PASSWORD: &str = "torture";

const PLACES: &[&str] = &["~distlock:*", "&distlock:client:*"];

/// The rights that docs/internals/storage.md lists.
const RIGHTS: &[&str] = &[
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
    "publish",
    "pubsub|numsub",
    "ping",
    "client|info",
    "client|kill",
    "info",
];

/// The rights listed for a cluster but not for a single server.
const MORE_IN_CLUSTER: &[&str] = &[
    "ssubscribe",
    "spublish",
    "pubsub|shardnumsub",
    "cluster|slots",
    "asking",
];

/// The rights listed for a single server but not for a cluster.
const LESS_IN_CLUSTER: &[&str] = &["subscribe", "publish", "pubsub|numsub"];

/// The rights at sentinels that docs/operations/topologies.md lists.
const SENTINEL_RIGHTS: &[&str] = &["sentinel|get-master-addr-by-name", "subscribe"];

/// Adds the user to a server, with `more` in addition to the usual rights.
pub(super) fn at_server(server: RedisServerBuilder, more: &[&str]) -> RedisServerBuilder {
    has_user(server, PLACES, &[RIGHTS, more].concat())
}

/// Adds the user to a node of a cluster.
pub(super) fn in_cluster(node: RedisServerBuilder) -> RedisServerBuilder {
    let mut rights = [RIGHTS, MORE_IN_CLUSTER].concat();
    rights.retain(|right| !LESS_IN_CLUSTER.contains(right));
    has_user(node, PLACES, &rights)
}

/// Adds the user to a sentinel.
pub(super) fn at_sentinel(sentinel: RedisServerBuilder) -> RedisServerBuilder {
    has_user(sentinel, &["&+switch-master"], SENTINEL_RIGHTS)
}

fn has_user(server: RedisServerBuilder, places: &[&str], rights: &[&str]) -> RedisServerBuilder {
    let password = format!(">{PASSWORD}");
    let rights: Vec<_> = rights.iter().map(|right| format!("+{right}")).collect();
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
        .args(rights.iter().map(String::as_str))
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

/// Returns `ACL SETUSER` that grants (`+set`) or revokes (`-set`) one right.
pub(super) fn right_command(right: &str) -> [&str; 4] {
    ["ACL", "SETUSER", USER, right]
}
