//! Changes as lines, for output without a terminal.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::output::table::{printable, shorten};
use crate::output::time::{kept_until, rfc3339};
use crate::watch::model::{Change, HeldLock};

/// The width to which a key is shortened, so that the rest of the line fits.
const KEY_WIDTH: usize = 19;

/// The same for a lock that `min_hold` keeps.
const KEPT_KEY_WIDTH: usize = 16;

/// The width to which a client's name is shortened.
const CLIENT_WIDTH: usize = 15;

/// Returns a change as a line.
pub(crate) fn line(at: SystemTime, change: &Change) -> String {
    let at = rfc3339(at);
    // Cuts off the milliseconds.
    let at = at.get(..19).unwrap_or(&at);
    let (word, lock) = words(change);
    let holder = shorten(&printable(&lock.holder), CLIENT_WIDTH);
    let (width, detail) = match (change, lock.kept_until) {
        (Change::Kept(_), Some(until)) => (KEPT_KEY_WIDTH, kept_until(until)),
        (Change::Queue(_), _) => (KEY_WIDTH, format!("{} wait", lock.queue_length)),
        (Change::Acquired(_), _) if lock.queue_length > 0 => {
            (KEY_WIDTH, format!("{holder}, {} wait", lock.queue_length))
        }
        _ => (KEY_WIDTH, holder),
    };
    let key = shorten(&printable(&lock.key), width);
    format!("{at}Z  {word:<8}  {key}  {detail}")
}

/// Returns a change as an object.
pub(crate) fn as_json(at: SystemTime, change: &Change) -> Value {
    let (word, lock) = words(change);
    json!({
        "at": rfc3339(at),
        "change": word,
        "key": lock.key,
        "holder": lock.client,
        "kind": lock.kind.as_str(),
        "weight": lock.weight,
        "held_since": rfc3339(lock.since),
        "kept_until": lock.kept_until.map(rfc3339),
        "fencing_token": lock.token,
        "queue_length": lock.queue_length,
    })
}

fn words(change: &Change) -> (&'static str, &HeldLock) {
    match change {
        Change::Acquired(lock) => ("acquired", lock),
        Change::Kept(lock) => ("kept", lock),
        Change::Freed(lock) => ("freed", lock),
        Change::Queue(lock) => ("queue", lock),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::output::table::WIDTH;
    use crate::watch::model::seen;

    #[test]
    fn a_change_is_a_line_of_80_columns() {
        let at = SystemTime::UNIX_EPOCH;
        let lock = seen("shop:1", "host:7", 5, 2);
        assert_eq!(
            line(at, &Change::Acquired(lock.clone())),
            "1970-01-01T00:00:00Z  acquired  shop:1  host:7, 2 wait"
        );
        assert_eq!(
            line(at, &Change::Queue(lock.clone())),
            "1970-01-01T00:00:00Z  queue     shop:1  2 wait"
        );
        let long = seen(&"k".repeat(512), &"h".repeat(128), 5, 9_999);
        let kept = HeldLock {
            kept_until: Some(at),
            ..long.clone()
        };
        let of_kept = line(at, &Change::Kept(kept.clone()));
        assert!(
            of_kept.ends_with("  until 00:00:00Z, work finished"),
            "{of_kept}"
        );
        for change in [
            Change::Kept(kept),
            Change::Acquired(long.clone()),
            Change::Freed(long.clone()),
            Change::Queue(long),
        ] {
            let line = line(at, &change);
            assert!(line.width() <= WIDTH, "{line}");
        }
    }
}
