//! The kinds of locks.

use crate::error::{Error, HoldKind, LockKind};
use crate::fencing::FencingToken;

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

/// The capacity of a readers-writer lock, and the weight of a write, which excludes everything
/// else. A read weighs 1. Part of the layout in the store, so it never changes.
const MAX_READERS: u32 = 1_000;

/// Upper limit of the permits of a semaphore.
const MAX_PERMITS: u32 = 1_000;

impl Kind {
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

    /// Returns the number of permits that a hold has; 1 for other locks.
    pub(crate) fn permits_held(self) -> u32 {
        match self {
            Kind::Permits { weight, .. } => weight,
            Kind::Mutex | Kind::Read | Kind::Write => 1,
        }
    }

    /// Returns the kind of a hold.
    pub(crate) fn hold_kind(self) -> HoldKind {
        match self {
            Kind::Mutex => HoldKind::Mutex,
            Kind::Read => HoldKind::Read,
            Kind::Write => HoldKind::Write,
            Kind::Permits { .. } => HoldKind::Semaphore,
        }
    }

    /// Returns the token that users see. A permit has none: a resource that rejects lower tokens
    /// would reject the permits next to it.
    pub(crate) fn public_token(self, token: FencingToken) -> Option<FencingToken> {
        (self.hold_kind() != HoldKind::Semaphore).then_some(token)
    }

    /// Checks the numbers of a semaphore. The weight is a value of the call.
    pub(crate) fn check(self, key: &str) -> Result<(), Error> {
        let Kind::Permits { permits, weight } = self else {
            return Ok(());
        };
        if !(1..=MAX_PERMITS).contains(&permits) {
            return Err(Error::config(format!(
                "lock `{key}`: permits is {permits}; set it to at least 1 and at most {MAX_PERMITS}"
            )));
        }
        if !(1..=permits).contains(&weight) {
            let detail = format!(
                "weight is {weight} for lock `{key}`; pass at least 1 and at most the number of permits, {permits}"
            );
            return Err(Error::invalid_value("weight", detail));
        }
        Ok(())
    }
}
