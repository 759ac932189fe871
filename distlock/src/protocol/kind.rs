//! The kinds of locks.

use crate::error::LockKind;

/// What a call acquires under its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    #[default]
    Mutex,
    Read,
    Write,
    Permits {
        permits: u32,
        weight: u32,
    },
}

/// The capacity of a readers-writer lock, and the weight of a write, which excludes everything else.
/// A read weighs 1. Part of the layout in the store, so it never changes.
const MAX_READERS: u32 = 1_000;

impl Kind {
    /// Returns true for a kind with a capacity, of which several holders may each hold a weight.
    pub(crate) fn is_counted(self) -> bool {
        self != Kind::Mutex
    }

    /// Returns the kind of the lock, which all of its holders and waiters share.
    pub(crate) fn lock_kind(self) -> LockKind {
        match self {
            Kind::Mutex => LockKind::Mutex,
            Kind::Read | Kind::Write => LockKind::ReadWrite,
            Kind::Permits { permits, .. } => LockKind::Semaphore { permits },
        }
    }

    /// Returns the sum of the weights that may be held at the same time.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Kind::Mutex => 1,
            Kind::Read | Kind::Write => MAX_READERS,
            Kind::Permits { permits, .. } => permits,
        }
    }

    /// Returns the part of the capacity that a hold takes.
    pub(crate) fn weight(self) -> u32 {
        match self {
            Kind::Mutex | Kind::Read => 1,
            Kind::Write => MAX_READERS,
            Kind::Permits { weight, .. } => weight,
        }
    }
}
