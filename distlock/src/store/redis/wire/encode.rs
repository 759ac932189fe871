//! Commands that are no scripts, and numbers as the scripts take them.

use std::fmt::Display;
use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::config::options::Durability;
use crate::store::redis::wire::names::Names;

/// Keys that one step of a scan looks at: the server does nothing else meanwhile.
const SCANNED_AT_ONCE: u32 = 1_000;

/// The keys that are taken, some at a time: from `cursor` on.
pub(crate) fn scan(names: &Names, cursor: &str) -> Cmd {
    let mut cmd = redis::cmd("SCAN");
    let pattern = format!("{}*", literally(&names.lock));
    cmd.arg(cursor).arg("MATCH").arg(pattern);
    cmd.arg("COUNT").arg(SCANNED_AT_ONCE);
    cmd
}

/// A text as a pattern that matches nothing else.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Waits for as many as need be, for so long: never for good, which is what zero would mean.
pub(crate) fn wait(need: Durability, within: Duration) -> Cmd {
    let mut cmd = if need.fsync {
        let mut cmd = redis::cmd("WAITAOF");
        cmd.arg(1);
        cmd
    } else {
        redis::cmd("WAIT")
    };
    cmd.arg(need.replicas).arg(millis(within).max(1));
    cmd
}

/// An argument that is written into its command without a string in between.
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> ToRedisArgs for Text<T> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/durations.rs"]
mod properties;
