//! Replies that name their request.
//!
//! RESP assigns replies to requests by order alone. If a reply is lost or inserted on an open
//! connection, every later reply reaches the wrong caller. That caller would take another's hold
//! for its own. So every request with a reply that matters carries a number as its last argument,
//! and the reply repeats it.

use std::hash::{BuildHasher as _, RandomState};

use redis::{Arg, Cmd, Value};

/// Returns the number of the first request on a connection. It is random, so that a reply to
/// another client does not match either. It has 32 bits, because a longer text costs the server
/// more.
pub(crate) fn first() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

/// Returns true for a script call and a `PING`. `includes_ping` is false where a proxy may reject a
/// `PING` that has an argument.
pub(crate) fn is_numbered(command: &Cmd, includes_ping: bool) -> bool {
    match command.args_iter().next() {
        Some(Arg::Simple(b"EVALSHA" | b"EVAL")) => true,
        Some(Arg::Simple(b"PING")) => includes_ping,
        _ => false,
    }
}

/// Removes the number from a reply. Returns `None` if the reply is to another request. An error
/// repeats no number. It is returned unchanged, because it neither grants nor extends a hold.
pub(crate) fn remove(number: u64, reply: Value) -> Option<Value> {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    match reply {
        Value::Array(mut values) => {
            let last = values.pop()?;
            matches!(last, Value::BulkString(text) if text == digits)
                .then_some(Value::Array(values))
        }
        Value::BulkString(mut text) => {
            let space = text.iter().rposition(|byte| *byte == b' ');
            let is_ours = text[space.map_or(0, |space| space + 1)..] == *digits;
            text.truncate(space.unwrap_or(0));
            is_ours.then_some(Value::BulkString(text))
        }
        Value::ServerError(_) => Some(reply),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: impl ToString) -> Value {
        Value::BulkString(text.to_string().into_bytes())
    }

    #[test]
    fn scripts_are_numbered_and_pings_where_no_proxy_rejects_them() {
        for (words, with_ping, without_ping) in [
            (&["EVALSHA", "hash", "1", "key"][..], true, true),
            (&["EVAL", "return 0", "1", "key"], true, true),
            (&["PING"], true, false),
            (&["WAIT", "1", "100"], false, false),
        ] {
            let mut command = Cmd::new();
            command.arg(words);
            assert_eq!(is_numbered(&command, true), with_ping, "{words:?}");
            assert_eq!(is_numbered(&command, false), without_ping, "{words:?}");
        }
    }

    #[test]
    fn only_a_reply_to_the_same_request_is_used() {
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
            (text("held 5 017"), None),
            (array(&[]), None),
            (array(&[Value::Int(17)]), None),
            (array(&[text(16)]), None),
            (array(&[array(&[text(17)])]), None),
            (Value::Okay, None),
            (Value::Int(17), None),
            (Value::Nil, None),
        ] {
            assert_eq!(remove(17, reply.clone()), used, "{reply:?}");
        }
    }
}
