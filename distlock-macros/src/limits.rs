//! The limits that the crate `distlock` has as well. `tests/tests/attribute/limits.rs` compares
//! them.

/// The largest size of a key, in bytes.
pub(crate) const MAX_KEY: usize = 512;

/// The largest number of keys.
pub(crate) const MAX_KEYS: usize = 64;

/// The largest number of permits.
pub(crate) const MAX_PERMITS: u32 = 1_000;

/// The largest size of metadata, in bytes.
pub(crate) const MAX_METADATA: usize = 256;

/// The largest size of a value of `once_for`, in bytes.
pub(crate) const MAX_ONCE_VALUE: usize = 128;

const DAY: u64 = 24 * 3_600_000;

/// The durations of an argument in milliseconds, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

pub(crate) const LEASE: Range = Range { min: 50, max: DAY };
pub(crate) const WAIT: Range = Range { min: 0, max: DAY };
pub(crate) const MAX_HOLD: Range = Range {
    min: 1,
    max: u64::MAX,
};
pub(crate) const MIN_HOLD: Range = Range { min: 1, max: DAY };
/// Of `once_per` and `record_ttl`.
pub(crate) const RECORD: Range = Range {
    min: 1_000,
    max: 366 * DAY,
};

/// Returns true for a character that names must not contain: it ends a line, or sets the direction
/// of text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
