#![doc = include_str!("../README.md")]
#![doc = include_str!("features.md")]

#[cfg(feature = "axum")]
mod axum;
mod backoff;
mod clock;
mod credentials;
mod error;
mod fencing;
mod from_lock_error;
mod guard;
mod held;
mod installed;
mod key;
mod lock;
mod loss;
mod manager;
#[cfg(feature = "metrics")]
#[path = "observer/metrics.rs"]
pub mod metrics;
mod mutex;
mod notified;
pub mod observer;
mod options;
mod protocol;
mod quorum;
mod random;
mod scope;
mod store;
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg_attr(not(feature = "tls"), allow(dead_code, unreachable_pub))]
// A URL that needs it is refused.
mod tls;
mod visible;

/// What the proofs of this project see of the inside, and its tests that need to be there. They
/// live below `tests/`, and the published package has none of it.
#[cfg(distlock_inside)]
#[doc(hidden)]
#[allow(missing_docs)]
#[path = "../../tests/inside/mod.rs"]
pub mod __inside;

#[doc(hidden)]
#[path = "attribute.rs"]
#[allow(missing_docs)]
pub mod __private;

#[doc(hidden)]
pub use __private::{AsManager, FromLockErrorBehindImpl, KeyValue};

#[doc(hidden)]
pub use manager::doctor as __doctor;

pub use credentials::Credentials;
pub use error::{Error, Holder, Outage};
pub use fencing::FencingToken;
pub use from_lock_error::FromLockError;
pub use guard::LockGuard;
pub use held::Held;
pub use installed::{install, installed, shutdown};
pub use key::escape;
pub use lock::Lock;
pub use loss::LossReason;
pub use manager::LockManager;
pub use manager::builder::LockManagerBuilder;
pub use manager::inspect::{KeyState, ServerState, Waiter};
pub use manager::unlock::{HowUnlocked, Unlock, Unlocked};
pub use quorum::Quorum;
pub use scope::{current, try_current, with_manager};
#[cfg(feature = "tls")]
pub use tls::Tls;

#[cfg(feature = "macros")]
#[doc = include_str!("uses.md")]
pub use distlock_macros::distributed_lock;
