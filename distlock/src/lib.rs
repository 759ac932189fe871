#![doc = include_str!("../README.md")]

mod clock;
mod error;
mod fencing;
mod guard;
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

#[doc(hidden)]
#[path = "attribute.rs"]
#[allow(missing_docs)]
pub mod __private;

#[doc(hidden)]
pub use __private::{AsManager, FromLockErrorBehindImpl, KeyValue};

pub use error::{Error, FromLockError, Holder, LossReason, Outage};
pub use fencing::FencingToken;
pub use guard::{Held, LockGuard};
pub use installed::{install, installed, shutdown};
pub use key::escape;
pub use lock::Lock;
pub use manager::builder::Builder;
pub use manager::{KeyState, LockManager};
pub use scope::{current, try_current, with_manager};

#[cfg(feature = "macros")]
#[doc = include_str!("uses.md")]
pub use distlock_macros::distributed_lock;
