//! Tells the errors of Redis apart.

use redis::{ErrorKind, RedisError};

use crate::error::Outage;
use crate::store::Trouble;

pub(super) const FOREIGN_VALUE: &str = "a value that distlock did not write stands at its keys";

pub(super) fn of(error: &RedisError) -> Trouble {
    let outage = match error.kind() {
        ErrorKind::AuthenticationFailed => Outage::Denied,
        ErrorKind::RESP3NotSupported => {
            return Trouble::new(
                Outage::Denied,
                "the server does not speak RESP3; Redis 6.2 or later is needed",
            );
        }
        _ if error.is_timeout() => Outage::TimedOut,
        ErrorKind::Io => Outage::Unreachable,
        _ if error.is_connection_dropped() || error.is_io_error() => Outage::Unreachable,
        _ => {
            let code = error.code().unwrap_or("ERR");
            return of_text(&format!("{code} {}", error.detail().unwrap_or_default()));
        }
    };
    Trouble::new(outage, error.to_string())
}

/// Tells an error apart by the text that Redis answers: a code, then words.
pub(super) fn of_text(text: &str) -> Trouble {
    let code = text.split(' ').next().unwrap_or_default();
    let outage = match code {
        "READONLY" => Outage::ReadOnly,
        "OOM" => Outage::OutOfMemory,
        "MISCONF" | "NOREPLICAS" => Outage::WritesRefused,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => Outage::NotReady,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => Outage::Denied,
        // Redis 7.0 denies a command inside of a script without a code.
        _ if text.contains("can't run this command") || text.contains("no permissions") => {
            Outage::Denied
        }
        _ => Outage::Other,
    };
    Trouble::new(outage, text.trim())
}

/// A replica that has no master is no master itself.
pub(super) fn lost_its_master(trouble: &Trouble) -> bool {
    trouble.detail.starts_with("MASTERDOWN")
}

/// Something else than ours stands at one of the lock's keys.
pub(super) fn is_foreign(trouble: &Trouble) -> bool {
    trouble.detail.contains("WRONGTYPE") || trouble.detail.contains("FOREIGN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_are_told_apart() {
        for (text, outage) in [
            (
                "READONLY You can't write against a read only replica.",
                Outage::ReadOnly,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Outage::OutOfMemory,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                Outage::WritesRefused,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                Outage::WritesRefused,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Outage::NotReady,
            ),
            ("NOPERM this user has no permissions to run", Outage::Denied),
            (
                "ERR The user executing the script can't run this command",
                Outage::Denied,
            ),
            ("ERR something else", Outage::Other),
        ] {
            assert_eq!(of_text(text).outage, outage, "{text}");
        }
        assert!(is_foreign(&of_text("WRONGTYPE Operation against a key")));
    }
}
