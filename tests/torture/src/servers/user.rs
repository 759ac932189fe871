//! The Redis user of the workers. The supervisor has another user, which its faults spare.

use distlock_tests::RedisServerBuilder;
use distlock_tests::documents::{acl_rules, document};

pub(crate) const USER: &str = "worker";
pub(crate) const PASSWORD: &str = "torture";

/// The page with the commands that create the user at a server, and change it at a node.
const SERVERS: &str = "docs/internals/storage.md";
/// The page with the command that creates the user at a sentinel.
const SENTINELS: &str = "docs/operations/topologies.md";

/// The permissions for semaphores and readers-writer locks.
const COUNTED: &[&str] = &["hgetall", "hscan"];

/// Adds the user to a server, with `more` in addition to the usual permissions.
pub(super) fn at_server(server: RedisServerBuilder, more: &[&str]) -> RedisServerBuilder {
    has_user(server, (SERVERS, 1), &[COUNTED, more].concat())
}

/// Adds the user to a node of a cluster.
pub(super) fn in_cluster(node: RedisServerBuilder) -> RedisServerBuilder {
    has_user(node, (SERVERS, 2), COUNTED)
}

/// Adds the user to a sentinel.
pub(super) fn at_sentinel(sentinel: RedisServerBuilder) -> RedisServerBuilder {
    has_user(sentinel, (SENTINELS, 1), &[])
}

/// Adds the user as the first commands of a page do, with `more` permissions.
fn has_user(
    server: RedisServerBuilder,
    (page, commands): (&str, usize),
    more: &[&str],
) -> RedisServerBuilder {
    let (page, password) = (document(page), format!(">{PASSWORD}"));
    let rules = acl_rules(&page).into_iter().take(commands).flatten();
    let more = more.iter().map(|permission| format!("+{permission}"));
    let more: Vec<_> = more.collect();
    server
        .args(["--user", USER, "on", &password])
        .args(rules)
        .args(more.iter().map(String::as_str))
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
