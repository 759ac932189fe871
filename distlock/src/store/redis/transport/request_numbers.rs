//! Replies that name their request.
//!
//! RESP assigns replies to requests by order alone. If a reply is lost or inserted on an open
//! connection, every later reply reaches the wrong caller. That caller would take another's hold
//! for its own. So every request with a reply that matters carries a number as its last argument,
//! and the reply repeats it.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Arg, Cmd, Value};

/// The numbers of one connection's requests.
#[derive(Debug)]
pub(crate) struct RequestNumbers {
    next: AtomicU64,
    /// False where a proxy may reject a `PING` that has an argument.
    includes_ping: bool,
}

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestNumber(u64);

impl RequestNumbers {
    /// Starts at a random number, so that a reply to another client does not match either. It has
    /// 32 bits, because a longer text costs the server more.
    pub(crate) fn new(includes_ping: bool) -> Self {
        RequestNumbers {
            next: AtomicU64::new(RandomState::new().hash_one(0) >> 32),
            includes_ping,
        }
    }

    /// Appends a number to a script call or a `PING`. Returns `None` for other commands.
    pub(crate) fn append_to(&self, command: &mut Cmd) -> Option<RequestNumber> {
        let mut words = command.args_iter();
        let is_numbered = match words.next() {
            Some(Arg::Simple(b"EVALSHA" | b"EVAL")) => true,
            Some(Arg::Simple(b"PING")) => self.includes_ping,
            _ => false,
        };
        drop(words);
        is_numbered.then(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            command.arg(number);
            RequestNumber(number)
        })
    }
}

impl RequestNumber {
    /// Removes the number from a reply. Returns `None` if the reply is to another request. An error
    /// repeats no number. It is returned unchanged, because it neither grants nor extends a hold.
    pub(crate) fn remove_from(self, reply: Value) -> Option<Value> {
        match reply {
            Value::Array(mut values) => {
                let last = values.pop()?;
                matches!(last, Value::BulkString(text) if self.is(&text))
                    .then_some(Value::Array(values))
            }
            Value::BulkString(mut text) => {
                let space = text.iter().rposition(|byte| *byte == b' ');
                let start = space.map_or(0, |space| space + 1);
                let is_ours = self.is(&text[start..]);
                text.truncate(space.unwrap_or(0));
                is_ours.then_some(Value::BulkString(text))
            }
            Value::ServerError(_) => Some(reply),
            _ => None,
        }
    }

    fn is(self, text: &[u8]) -> bool {
        let number = text.iter().try_fold(0_u64, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        });
        !text.is_empty() && number == Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: impl ToString) -> Value {
        Value::BulkString(text.to_string().into_bytes())
    }

    fn numbered(words: &[&str], includes_ping: bool) -> Option<RequestNumber> {
        RequestNumbers::new(includes_ping).append_to(Cmd::new().arg(words))
    }

    #[test]
    fn scripts_are_numbered_and_pings_where_no_proxy_rejects_them() {
        for (words, with_ping, without_ping) in [
            (&["EVALSHA", "hash", "1", "key"][..], true, true),
            (&["EVAL", "return 0", "1", "key"], true, true),
            (&["PING"], true, false),
            (&["WAIT", "1", "100"], false, false),
        ] {
            assert_eq!(numbered(words, true).is_some(), with_ping, "{words:?}");
            assert_eq!(numbered(words, false).is_some(), without_ping, "{words:?}");
        }
    }

    #[test]
    fn only_a_reply_to_the_same_request_is_used() {
        let number = RequestNumber(17);
        let array = |values: &[Value]| Value::Array(values.to_vec());
        for (reply, used) in [
            (text("held 5 17"), Some(text("held 5"))),
            (text("17"), Some(text(""))),
            (array(&[text(17)]), Some(array(&[]))),
            (
                array(&[Value::Int(2), text(17)]),
                Some(array(&[Value::Int(2)])),
            ),
            (text("held 5"), None),
            (text("held 5 16"), None),
            (text("held 5 17 "), None),
            (array(&[]), None),
            (array(&[Value::Int(17)]), None),
            (array(&[text(16)]), None),
            (array(&[array(&[text(17)])]), None),
            (Value::Okay, None),
            (Value::Int(17), None),
            (Value::Nil, None),
        ] {
            assert_eq!(number.remove_from(reply.clone()), used, "{reply:?}");
        }
    }
}
