//! The kinds of locks, as errors and inspections show them.

use std::fmt;

/// The kind of a lock.
///
/// ```
/// use distlock::LockKind;
///
/// assert_eq!(LockKind::Semaphore { permits: 3 }.to_string(), "semaphore with 3 permits");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Lock`](crate::Lock), with one holder at a time.
    Mutex,
    /// An [`RwLock`](crate::RwLock), with one writer or up to 1,000 readers at a time.
    ReadWrite,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore {
        /// The number of permits; in the state of a lock, that of the last call that was granted.
        permits: u32,
    },
}

impl LockKind {
    /// Returns true if both are the same kind. Semaphores may have different numbers of permits.
    pub(crate) fn is_same(self, other: LockKind) -> bool {
        self.without_number() == other.without_number()
    }

    /// Returns the kind without the number of permits, which may differ between the calls of one
    /// semaphore.
    pub(crate) fn without_number(self) -> Self {
        match self {
            LockKind::Semaphore { .. } => LockKind::Semaphore { permits: 0 },
            LockKind::Mutex | LockKind::ReadWrite => self,
        }
    }
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

/// The kind of a hold. The holds of a readers-writer lock are of two kinds.
///
/// ```
/// use distlock::HoldKind;
///
/// assert_eq!(HoldKind::Read.to_string(), "read");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HoldKind {
    /// The hold of a [`Lock`](crate::Lock).
    #[default]
    Mutex,
    /// A read of an [`RwLock`](crate::RwLock).
    Read,
    /// A write of an [`RwLock`](crate::RwLock).
    Write,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Semaphore,
}

impl HoldKind {
    /// Returns the value for a label: `mutex`, `read`, `write` or `semaphore`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HoldKind::Mutex => "mutex",
            HoldKind::Read => "read",
            HoldKind::Write => "write",
            HoldKind::Semaphore => "semaphore",
        }
    }
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
