//! The text of an argument.

use redis::{RedisWrite, ToRedisArgs};

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
