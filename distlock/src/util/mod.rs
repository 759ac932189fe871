//! Utilities that are independent of locks.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod visible;
