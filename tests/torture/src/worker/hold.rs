//! A hold of any kind, as bodies and the observer see it.

use std::time::Duration;

use distlock::{Error, HeldLock, HeldPermit};

#[derive(Clone, Debug)]
pub(super) enum Hold {
    Lock(HeldLock),
    Permit(HeldPermit),
}

impl From<HeldLock> for Hold {
    fn from(held: HeldLock) -> Self {
        Hold::Lock(held)
    }
}

impl From<HeldPermit> for Hold {
    fn from(held: HeldPermit) -> Self {
        Hold::Permit(held)
    }
}

impl Hold {
    /// Returns the fencing token. Permits have none, and the history shows zero.
    pub(super) fn token(&self) -> u64 {
        match self {
            Hold::Lock(held) => held.fencing_token().get(),
            Hold::Permit(_) => 0,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match self {
            Hold::Lock(held) => held.remaining(),
            Hold::Permit(held) => held.remaining(),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        match self {
            Hold::Lock(held) => held.is_held(),
            Hold::Permit(held) => held.is_held(),
        }
    }

    pub(super) async fn lost(&self) -> Error {
        match self {
            Hold::Lock(held) => held.lost().await,
            Hold::Permit(held) => held.lost().await,
        }
    }
}
