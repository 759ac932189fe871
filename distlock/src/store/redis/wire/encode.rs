//! The wait for replicas, and arguments as the scripts expect them.

use std::time::Duration;

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::config::options::Durability;

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

/// Text that takes far fewer instructions than `format!`.
pub(crate) struct ArgText(String);

impl ArgText {
    pub(crate) fn new() -> Self {
        // Enough for most arguments.
        ArgText(String::with_capacity(96))
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.push_str(text);
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.push_str(itoa::Buffer::new().format(number));
        self
    }
}

impl ToRedisArgs for ArgText {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg(self.0.as_bytes());
    }
}
