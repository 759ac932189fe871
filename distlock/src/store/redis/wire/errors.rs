//! Classifies the errors of Redis.

use redis::{ErrorKind, RedisError};

use crate::error::Outage;
use crate::protocol::store_error::{StoreError, one_line};
use crate::store::StoreResult;

/// The meaning of a server's error, for errors on which a decision depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Other,
    /// Another node serves the slot. Carries the slot and the node's address, if both can be read.
    Moved(Option<(u16, Box<str>)>),
    /// The slot is being migrated, and the key is at the node with this address.
    Ask(Option<Box<str>>),
    /// The slot is being migrated, or no node serves it.
    TryAgain,
    CrossSlot,
    /// The server is a replica that has lost its primary.
    PrimaryDown,
    /// A key of the lock holds a value that distlock did not write.
    KeyConflict,
    NotAuthenticated,
    WrongPassword,
    NoPermission,
    UnknownCommand,
    /// The server accepts no more connections.
    TooManyClients,
    /// The client sent a password, and the server has none.
    NoPassword,
    /// The server is not a node of a cluster.
    NoCluster,
    /// The command does not work on the nodes of a cluster.
    OnlyOutsideClusters,
    /// The server has no append-only file.
    NoAppendOnly,
}

/// The code of an error that a server returned.
pub(crate) trait RedisCode {
    fn code(&self) -> &Code;
}

impl RedisCode for StoreError {
    fn code(&self) -> &Code {
        self.code_of_store().unwrap_or(&Code::Other)
    }
}

pub(crate) const CONFLICT: &str = "a key of the lock holds a value that distlock did not write";

pub(crate) fn classify(error: &RedisError) -> StoreError {
    let outage = match error.kind() {
        ErrorKind::AuthenticationFailed => Outage::Denied,
        ErrorKind::RESP3NotSupported => {
            return StoreError::new(
                Outage::Misconfigured,
                "the server does not support RESP3; use Redis 6.2 or later",
            );
        }
        _ if error.is_timeout() => Outage::TimedOut,
        ErrorKind::Io => Outage::Unreachable,
        _ if error.is_connection_dropped() || error.is_io_error() => Outage::Unreachable,
        _ => {
            let code = error.code().unwrap_or("ERR");
            let text = format!("{code} {}", error.detail().unwrap_or_default());
            return classify_text(&text).with_source(ServerError::of(error));
        }
    };
    let classified = StoreError::new(outage, error.to_string());
    if error.is_io_error() {
        classified.with_source(error.clone())
    } else {
        classified.with_source(ServerError::of(error))
    }
}

/// The source of an error that a server caused. Its text is cut and cleaned, because a source is
/// also shown with `{:?}`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ServerError(String);

impl ServerError {
    fn of(error: &RedisError) -> Self {
        ServerError(one_line(error.to_string()))
    }
}

/// Adds the remedy to a server's error about the user, the password or a permission.
pub(crate) fn with_remedy(error: StoreError) -> StoreError {
    if error.outage != Outage::Denied {
        return error;
    }
    let remedy = match error.code() {
        Code::NotAuthenticated => {
            "write the password into the URL (redis://user:password@host), or set `credentials`"
        }
        Code::NoPermission => GRANT,
        _ => "fix user and password in the URL, or in `credentials`",
    };
    error.with_remedy(remedy)
}

/// Names the permission that the user needs, or the command that the server does not know, if that
/// is the error. A permission begins with its command.
pub(crate) fn with_missing_permission(error: StoreError, permission: &str) -> StoreError {
    if *error.code() == Code::UnknownCommand {
        // The server's text repeats the arguments, so it is not used.
        let command = permission.split(' ').next().unwrap_or_default();
        let detail = format!("the server does not know {command}, without which locks cannot work");
        return StoreError::new(Outage::Misconfigured, detail)
            .with_remedy(RESTORE)
            .with_code(error.code().clone());
    }
    if error.outage != Outage::Denied {
        return error;
    }
    let detail = format!("the user needs {permission}: {}", error.detail);
    StoreError::new(error.outage, detail)
        .with_remedy(GRANT)
        .with_code(error.code().clone())
}

const GRANT: &str =
    "grant it to the user with `ACL SETUSER` (docs/internals/storage.md lists the permissions)";

const RESTORE: &str = "remove its `rename-command` from the server's configuration";

/// Known texts of errors without a code of their own.
const KNOWN_TEXTS: &[(&str, Outage, Code)] = &[
    ("unknown command", Outage::Other, Code::UnknownCommand),
    // The same in a script, as Redis and Valkey write it.
    (
        "command called from",
        Outage::Misconfigured,
        Code::UnknownCommand,
    ),
    (
        "max number of clients",
        Outage::NotReady,
        Code::TooManyClients,
    ),
    // A script was running in a slot that is being moved.
    ("access a non local key", Outage::NotReady, Code::Other),
    // Redis 6.2 and 7.0 deny a command of a script without a code.
    (
        "The user executing the script can't",
        Outage::Denied,
        Code::Other,
    ),
    ("no permissions", Outage::Denied, Code::Other),
    (
        "without any password configured",
        Outage::Other,
        Code::NoPassword,
    ),
    ("cluster support disabled", Outage::Other, Code::NoCluster),
    (
        "not allowed in cluster mode",
        Outage::Other,
        Code::OnlyOutsideClusters,
    ),
    ("appendonly", Outage::Other, Code::NoAppendOnly),
];

/// Returns the error for a text from Redis, which is a code, then words.
pub(crate) fn classify_text(text: &str) -> StoreError {
    let text = without_script_context(text);
    let mut words = text.split_ascii_whitespace();
    let (outage, code) = match words.next().unwrap_or_default() {
        "READONLY" => (Outage::ReadOnly, Code::Other),
        "OOM" => (Outage::OutOfMemory, Code::Other),
        "MISCONF" | "NOREPLICAS" => (Outage::WritesRejected, Code::Other),
        "LOADING" | "BUSY" => (Outage::NotReady, Code::Other),
        "MASTERDOWN" => (Outage::NotReady, Code::PrimaryDown),
        "CLUSTERDOWN" | "TRYAGAIN" => (Outage::NotReady, Code::TryAgain),
        "MOVED" => {
            let slot = words.next().and_then(|slot| slot.parse().ok());
            let to = words.next().map(Box::from);
            (Outage::NotReady, Code::Moved(slot.zip(to)))
        }
        "ASK" => (Outage::NotReady, Code::Ask(words.nth(1).map(Box::from))),
        "CROSSSLOT" => (Outage::Other, Code::CrossSlot),
        "NOPERM" => (Outage::Denied, Code::NoPermission),
        "NOAUTH" => (Outage::Denied, Code::NotAuthenticated),
        "WRONGPASS" => (Outage::Denied, Code::WrongPassword),
        "WRONGTYPE" | "FOREIGN" => (Outage::Other, Code::KeyConflict),
        _ => {
            let known = KNOWN_TEXTS.iter().find(|(known, ..)| text.contains(known));
            known.map_or((Outage::Other, Code::Other), |(_, outage, code)| {
                (*outage, code.clone())
            })
        }
    };
    let error = StoreError::new(outage, text);
    let error = match &code {
        Code::UnknownCommand if outage == Outage::Misconfigured => error.with_remedy(RESTORE),
        Code::TooManyClients => error.with_remedy(
            "raise the server's `maxclients`, or find the clients that open so many connections",
        ),
        _ => error,
    };
    error.with_code(code)
}

/// Removes what servers add about the script that failed. Redis 7 appends the script's hash. Redis
/// 6.2 puts it in front, so the code comes last: `ERR Error running script (call to f_...):
/// @user_script:19: @user_script: 19: -READONLY You can't write ...`.
fn without_script_context(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("ERR ").unwrap_or(text);
    let mut words = match inner.strip_prefix("Error running script (call to ") {
        Some(call) => call.split_once("): ").map_or(inner, |(_, words)| words),
        None => inner,
    };
    while let Some(rest) = after_line_number(words) {
        words = rest;
    }
    // Nothing was in front, so `ERR` is the server's own code.
    let text = if words.len() == inner.len() {
        text
    } else {
        words.strip_prefix('-').unwrap_or(words)
    };
    let suffix = text.rsplit_once(" script: ");
    match suffix {
        Some((message, script)) if script.contains(", on @user_script:") => message,
        _ => text,
    }
}

/// Returns the text after `user_script:19: `, as Lua and the server write it.
fn after_line_number(text: &str) -> Option<&str> {
    let text = text.strip_prefix('@').unwrap_or(text);
    let (line, rest) = text.strip_prefix("user_script:")?.split_once(": ")?;
    let line = line.trim_start();
    (!line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit())).then_some(rest)
}

/// Returns true if a cluster node does not run a command here, or now. The command did nothing.
pub(crate) fn is_redirect(error: &StoreError) -> bool {
    matches!(error.code(), Code::Moved(_) | Code::Ask(_) | Code::TryAgain)
}

/// Returns the error for a server that is used as a single one but belongs to a cluster.
pub(crate) fn wrong_topology(error: &StoreError) -> Option<StoreError> {
    let is_of_a_cluster = matches!(
        error.code(),
        Code::Moved(_) | Code::Ask(_) | Code::CrossSlot | Code::OnlyOutsideClusters
    );
    is_of_a_cluster.then(cluster_node_error)
}

/// Returns the error for a node that is used as a single server. It executes only commands for its
/// own slots, which may move away.
fn cluster_node_error() -> StoreError {
    let detail = "the server is a node of a cluster; write redis+cluster://host,host";
    StoreError::new(Outage::Misconfigured, detail)
}

/// Rejects a server that reports a mode in which it does not run alone. A node that is used as a
/// single server executes only commands for its own slots, which may move away.
pub(crate) fn check_mode(mode: Option<&str>) -> StoreResult<()> {
    match mode {
        Some("cluster") => Err(cluster_node_error()),
        _ => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text is as the server wrote it: from `redis.call`, from `redis.pcall`, or through Lua's
    /// `pcall`.
    #[test]
    fn errors_of_scripts_are_recognized_behind_any_prefix() {
        let call = "ERR Error running script (call to f_23bc4c26a479d1249ad51e2b72d3bc8cab3935b6): \
                    @user_script:2: @user_script: 2: ";
        let denied = "The user executing the script can't run this command or subcommand";
        let suffix = " script: 23bc4c26a479d1249ad51e2b72d3bc8cab3935b6, on @user_script:2.";
        for (message, outage) in [
            (
                "READONLY You can't write against a read only replica.",
                Outage::ReadOnly,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Outage::OutOfMemory,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                Outage::WritesRejected,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
                Outage::WritesRejected,
            ),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Outage::NotReady,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Outage::NotReady,
            ),
        ] {
            for text in [
                // 6.2
                format!("{call}-{message}"),
                format!("@user_script: 12: -{message}"),
                // 7.0
                format!("{message}{suffix}"),
                message.to_owned(),
            ] {
                let error = classify_text(&text);
                assert_eq!((error.outage, &*error.detail), (outage, message), "{text}");
            }
        }
        for text in [
            format!("{call}{denied}"),
            format!("@user_script: 1: {denied}"),
            format!("ERR {denied}{suffix}"),
            format!("ERR {denied}"),
            "NOPERM this user has no permissions to run".to_owned(),
            format!(
                "{call}The user executing the script can't access at least one of the keys mentioned in the command arguments"
            ),
            format!(
                "ERR The user executing the script can't publish to the channel mentioned in the command{suffix}"
            ),
        ] {
            assert_eq!(classify_text(&text).outage, Outage::Denied, "{text}");
        }
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let ours = "FOREIGN the fence key holds a foreign value";
        let wrapped = "ERR Error running script (call to f_d3c21d0c2b9ca22f82737626a27bcaf5d288f99f): @user_script:1: ";
        for (text, message) in [
            (format!("{wrapped}{wrong}"), wrong),
            (format!("{wrong}{suffix}"), wrong),
            (format!("{wrapped}user_script:1: {ours}"), ours),
            (format!("ERR user_script:1: {ours}{suffix}"), ours),
            (format!("user_script:1: {ours}"), ours),
        ] {
            let error = classify_text(&text);
            assert_eq!(*error.code(), Code::KeyConflict, "{text}");
            assert_eq!(error.detail, message, "{text}");
        }
        // Texts that only look similar stay unchanged.
        for text in [
            "ERR something else",
            "ERR a key that says WRONGTYPE or FOREIGN",
            "ERR Error running script (call to",
            "ERR user_script: x: -OOM",
            "user_script:",
            "-OOM",
            "",
        ] {
            assert_eq!(classify_text(text), StoreError::new(Outage::Other, text));
        }
    }
}
