//! Values as parameters of statements.

use std::time::Duration;

use crate::error::LockKind;
use crate::protocol::kind::Kind;

/// Returns the letter of a kind in the tables.
pub(super) fn kind_letter(kind: Kind) -> i8 {
    let letter = match kind.lock_kind() {
        LockKind::Mutex => b'm',
        LockKind::ReadWrite => b'r',
        LockKind::Semaphore { .. } => b'p',
    };
    letter.cast_signed()
}

/// Returns milliseconds, rounded up so that no hold is too short.
pub(super) fn long(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Returns milliseconds of at most 24 days, more than the longest lease.
pub(super) fn short(duration: Duration) -> i32 {
    i32::try_from(long(duration)).unwrap_or(i32::MAX)
}

pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
