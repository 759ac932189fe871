//! The kinds of locks, as errors and inspections show them.

use std::fmt;

/// The kind of a lock. Two semaphores with different numbers of permits are of different kinds.
///
/// ```
/// use distlock::LockKind;
///
/// assert_eq!(LockKind::Semaphore { permits: 3 }.to_string(), "semaphore with 3 permits");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Lock`](crate::Lock), with one holder at a time.
    Mutex,
    /// A lock with one writer, or any number of readers.
    ReadWrite,
    /// A semaphore.
    Semaphore {
        /// The number of permits.
        permits: u32,
    },
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockKind::Mutex => f.write_str("mutex"),
            LockKind::ReadWrite => f.write_str("readers-writer lock"),
            LockKind::Semaphore { permits: 1 } => f.write_str("semaphore with 1 permit"),
            LockKind::Semaphore { permits } => write!(f, "semaphore with {permits} permits"),
        }
    }
}
