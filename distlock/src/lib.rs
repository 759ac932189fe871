#![doc = include_str!("../README.md")]

mod acquire;
mod builder;
mod clock;
mod counted;
mod engine;
mod error;
mod fencing;
mod guard;
mod hold;
mod installed;
mod io;
mod key;
mod lock;
mod manager;
mod options;
mod random;
mod releases;
mod report;
#[cfg(any(sabotage, test))]
#[cfg_attr(
    not(sabotage),
    allow(dead_code, reason = "its tests run in every build")
)]
mod sabotage;
mod scope;
#[cfg(test)]
mod simulation;
mod store;
mod templates;
mod waiters;
mod watchdog;

#[doc(hidden)]
#[path = "private.rs"]
#[allow(missing_docs)]
pub mod __private;

#[doc(hidden)]
pub use __private::{AsManager, FromLockErrorBehindImpl, KeyValue};

pub use builder::Builder;
pub use error::{Error, FromLockError, Holder, LossReason, Outage};
pub use fencing::FencingToken;
pub use guard::{Held, LockGuard};
pub use installed::{install, installed, shutdown};
pub use key::escape;
pub use lock::Lock;
pub use manager::{KeyState, LockManager};
pub use scope::{current, try_current, with_manager};

#[cfg(feature = "macros")]
#[doc = include_str!("uses.md")]
pub use distlock_macros::distributed_lock;
