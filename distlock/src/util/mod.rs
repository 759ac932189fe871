//! Utilities that are independent of locks.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod notify;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod visible;
