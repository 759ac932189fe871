//! Commands that are not scripts, and numbers as the scripts expect them.

use std::time::Duration;

use redis::Cmd;

use crate::config::options::Durability;
use crate::store::redis::wire::names::Names;

/// The number of keys that one step of a scan visits. The server does nothing else meanwhile.
const SCAN_COUNT: u32 = 1_000;

/// Returns the command that lists some of the locks' keys, starting at `cursor`.
pub(crate) fn scan(names: &Names, cursor: &str) -> Cmd {
    let mut cmd = redis::cmd("SCAN");
    let pattern = format!("{}*", escape_pattern(&names.lock_prefix));
    cmd.arg(cursor).arg("MATCH").arg(pattern);
    cmd.arg("COUNT").arg(SCAN_COUNT);
    cmd
}

/// Escapes a string for a pattern that matches nothing else.
fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Encodes WAIT or WAITAOF. A timeout of 0 would block forever, so it is at least 1 ms.
pub(crate) fn wait(durability: Durability, timeout: Duration) -> Cmd {
    let mut cmd = if durability.fsync {
        let mut cmd = redis::cmd("WAITAOF");
        cmd.arg(1);
        cmd
    } else {
        redis::cmd("WAIT")
    };
    cmd.arg(durability.replicas).arg(millis(timeout).max(1));
    cmd
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/durations.rs"]
mod properties;
