#![doc = include_str!("../README.md")]
#![doc = include_str!("doc/features.md")]

#[allow(missing_docs)]
mod attribute;
#[cfg(feature = "axum")]
mod axum;
mod config;
mod error;
mod fencing;
mod key;
mod lock;
mod loss;
mod manager;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod observer;
mod protocol;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod util;

/// Internals for the proofs of this project, and for its tests that need access to them. They are
/// below `tests/`, and the published package does not contain them.
#[cfg(distlock_inside)]
#[doc(hidden)]
#[allow(missing_docs)]
#[path = "../../tests/inside/mod.rs"]
pub mod __inside;

/// The items that generated code calls.
#[doc(hidden)]
pub mod __private {
    pub use crate::attribute::*;
}

#[doc(hidden)]
pub use attribute::{FromLockErrorBehindImpl, KeyValue};

#[doc(hidden)]
pub use manager::admin::doctor as __doctor;

pub use attribute::as_lock_manager::AsLockManager;
pub use attribute::from_lock_error::FromLockError;
pub use config::credentials::Credentials;
pub use config::quorum::Quorum;
#[cfg(feature = "tls")]
pub use config::tls::Tls;
pub use error::{BodyState, Error, Holder, Outage};
pub use fencing::FencingToken;
pub use key::escape;
pub use lock::Lock;
pub use lock::guard::LockGuard;
pub use lock::installed::{install, installed, shutdown};
pub use lock::scope::{current, try_current, with_manager};
pub use loss::LossReason;
pub use manager::LockManager;
pub use manager::admin::inspect::{LockState, ServerState, Waiter};
pub use manager::admin::revoke::{Revocation, Revoke, RevokeOutcome};
pub use manager::builder::LockManagerBuilder;
pub use manager::engine::held::HeldLock;

#[cfg(feature = "macros")]
#[doc = include_str!("doc/uses.md")]
pub use distlock_macros::distributed_lock;
