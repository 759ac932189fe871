#![doc = include_str!("../README.md")]

mod clock;
mod error;
mod fencing;
mod guard;
mod held;
mod installed;
mod key;
mod lock;
mod manager;
mod mutex;
mod options;
mod protocol;
mod random;
mod scope;
mod store;
mod templates;

/// What breaks the lock on purpose; it lives below `tests/`.
#[cfg(any(sabotage, all(test, distlock_inside)))]
#[path = "../../tests/sabotage/mod.rs"]
#[cfg_attr(
    not(sabotage),
    allow(dead_code, reason = "its tests run in every build")
)]
mod sabotage;

/// Tests that need to see the inside; they live below `tests/`, outside of the package.
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../tests/inside/mod.rs"]
mod inside;

/// What the proofs of this project see of the inside. The published package does not have it.
#[cfg(distlock_inside)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod __inside {
    pub use crate::protocol::rules::Rules;
    #[cfg(sabotage)]
    pub use crate::sabotage::sabotaged;
}

#[doc(hidden)]
#[path = "attribute.rs"]
#[allow(missing_docs)]
pub mod __private;

#[doc(hidden)]
pub use __private::{AsManager, FromLockErrorBehindImpl, KeyValue};

pub use error::{Error, FromLockError, Holder, LossReason, Outage};
pub use fencing::FencingToken;
pub use guard::LockGuard;
pub use held::Held;
pub use installed::{install, installed, shutdown};
pub use key::escape;
pub use lock::Lock;
pub use manager::LockManager;
pub use manager::builder::LockManagerBuilder;
pub use manager::inspect::KeyState;
pub use scope::{current, try_current, with_manager};

#[cfg(feature = "macros")]
#[doc = include_str!("uses.md")]
pub use distlock_macros::distributed_lock;
