//! The parts of the messages of errors.

use std::time::{Duration, SystemTime};

use crate::error::holder::Holder;
use crate::error::kind::HoldKind;
use crate::fencing::FencingToken;
use crate::util::visible::Visible;

/// Returns the explanation of contention, with its remedy.
pub(super) fn contention(waited: Duration, holders: &[Holder], held_keys: &[String]) -> String {
    let tried_once = waited.is_zero();
    let mut text = String::new();
    if !tried_once {
        text += &format!("waited {waited:.1?}, ");
    }
    if holders.is_empty() {
        text += "other calls wait for it; ";
    }
    text += &holder_list(holders);
    let remedy = match holders {
        [holder] if holder.kept_until.is_some() => {
            "`min_hold` keeps the key so that the work is not repeated: try again after that time"
        }
        _ if !tried_once && !held_keys.is_empty() => {
            let keys = held_keys.iter().map(|key| format!("`{}`", Visible(key)));
            let keys: Vec<_> = keys.collect();
            text += &format!("this call tree held {}", keys.join(", "));
            " meanwhile, for which the holder may wait: acquire all of these keys in one call, with `keys = [...]` \
             or `lock_all`"
        }
        [holder] if holder.this_process && holder.kind != HoldKind::Semaphore => {
            "possible self-deadlock: re-enter within the holder's call tree, or release first; otherwise try again later"
        }
        _ if tried_once => "not retried because `wait` is 0",
        _ => "try again later, or allow a longer wait",
    };
    text + remedy
}

/// Returns the holders, each followed by a semicolon. Several of one client are listed once, with
/// the duration of the oldest hold.
pub(super) fn holder_list(holders: &[Holder]) -> String {
    if let [holder] = holders {
        return format!("{holder}; ");
    }
    let mut text = String::new();
    for holder in holders {
        let same = || holders.iter().filter(|other| other.is_same_client(holder));
        let oldest = same().min_by_key(|other| other.held_since);
        if oldest.is_some_and(|oldest| std::ptr::eq(oldest, holder)) {
            text += &holder.to_string();
            match same().count() {
                1 => text += "; ",
                holds => text += &format!(" ({holds} holds); "),
            }
        }
    }
    text
}

pub(super) fn token_suffix(token: Option<FencingToken>) -> String {
    token.map_or_else(String::new, |token| format!(" (fencing token {token})"))
}

pub(super) fn key_prefix(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("lock `{}`: ", Visible(key)))
}

/// The last second that has a date of four digits.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// Returns the date and time in UTC.
pub(crate) fn date_and_time(time: SystemTime) -> String {
    // The time is a server's, which may be any number.
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    let shown = SystemTime::UNIX_EPOCH + since_epoch.unwrap_or_default().min(LAST_SECOND);
    humantime::format_rfc3339_seconds(shown).to_string()
}

/// Returns the time for which a call tried.
pub(super) fn waited_or_once(waited: Duration) -> String {
    match waited {
        Duration::ZERO => "one attempt".into(),
        waited => format!("{waited:.1?}"),
    }
}
