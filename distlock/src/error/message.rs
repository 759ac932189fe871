//! The parts of the messages of errors.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::holder::Holder;
use crate::error::kind::HoldKind;
use crate::fencing::FencingToken;
use crate::util::visible::Visible;

/// The part of a message that explains contention and names the remedy.
pub(super) struct Contention<'a>(
    pub(super) Duration,
    pub(super) &'a [Holder],
    pub(super) &'a [String],
);

impl fmt::Display for Contention<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contention(waited, holders, held_keys) = *self;
        if !waited.is_zero() {
            write!(f, "waited {waited:.1?}, ")?;
        }
        if holders.is_empty() {
            f.write_str("other calls wait for it; ")?;
        }
        write!(f, "{}", Holders(holders))?;
        let remedy = match holders {
            [holder] if holder.kept_until.is_some() => {
                "`min_hold` keeps the key so that the work is not repeated: try again after that time"
            }
            _ if !waited.is_zero() && !held_keys.is_empty() => {
                f.write_str("this call tree held ")?;
                for (place, key) in held_keys.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}`{}`", Visible(key))?;
                }
                " meanwhile, for which the holder may wait: acquire all of these keys in one call, with `keys = [...]` \
                 or `lock_all`"
            }
            [holder] if holder.this_process && holder.kind != HoldKind::Semaphore => {
                "possible self-deadlock: re-enter within the holder's call tree, or release first; otherwise try again later"
            }
            _ if waited.is_zero() => "not retried because `wait` is 0",
            _ => "try again later, or allow a longer wait",
        };
        f.write_str(remedy)
    }
}

pub(super) struct Holders<'a>(pub(super) &'a [Holder]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|holder| write!(f, "{holder}; "))
    }
}

pub(super) struct TokenSuffix(pub(super) Option<FencingToken>);

impl fmt::Display for TokenSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(token) => write!(f, " (fencing token {token})"),
            None => Ok(()),
        }
    }
}

pub(super) struct KeyPrefix<'a>(pub(super) Option<&'a str>);

impl fmt::Display for KeyPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(f, "lock `{}`: ", Visible(key)),
            None => Ok(()),
        }
    }
}

/// A point in time, shown as date and time in UTC.
pub(crate) struct Timestamp(pub(crate) SystemTime);

/// The last second that has a date of four digits.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The time is a server's, which may be any number.
        let since_epoch = self.0.duration_since(SystemTime::UNIX_EPOCH);
        let shown = SystemTime::UNIX_EPOCH + since_epoch.unwrap_or_default().min(LAST_SECOND);
        write!(f, "{}", humantime::format_rfc3339_seconds(shown))
    }
}

/// The time for which a call tried.
pub(super) struct WaitedOrOnce(pub(super) Duration);

impl fmt::Display for WaitedOrOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => f.write_str("one attempt"),
            waited => write!(f, "{waited:.1?}"),
        }
    }
}
