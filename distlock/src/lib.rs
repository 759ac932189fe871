//! A distributed lock over Redis, Valkey or PostgreSQL: calls with the same key run one at a time,
//! across tasks, processes and machines.
//!
//! Put the attribute [`distributed_lock`] on an `async fn`. Each call waits for the lock of its
//! key, runs the body while a watchdog renews the lock, and releases the lock. If the lock is lost,
//! the body is dropped at its next `.await`, and the call returns an [`Error`], unless you set
//! `on_lost = "finish"`.
//!
//! ```
//! use distlock::{LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "stock:<item>", wait = "5s")]
//! async fn take(item: u64, amount: u32) -> Result<i64, distlock::Error> {
//!     // On all machines together, calls for one item run here one at a time.
//!     println!("took {amount} of item {item}");
//!     Ok(distlock::current().fencing_token().as_i64())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock::Error> {
//! // Once, at start-up. A store in this process; in production "redis://127.0.0.1:6379".
//! distlock::install(LockManager::connect("memory:").await?)?;
//!
//! let (first, second) = tokio::join!(take(42, 1), take(42, 2)); // one after the other
//! assert_ne!(first?, second?, "each acquisition has a token of its own");
//!
//! distlock::shutdown().await; // releases what is held, before `main` returns
//! # Ok(()) }
//! ```
//!
//! `wait` limits the waiting (default 10 s), and `max_hold` the work (default: no limit). The lease
//! limits neither, because it is renewed: see [options].
//!
//! # Choose your path
//!
//! | you have | use | when the lock is lost |
//! |---|---|---|
//! | a function with calls that must exclude each other | [`distributed_lock`] | the body is stopped |
//! | a block, or a key that is computed at run time | [`Lock::run`] | the body is stopped |
//! | work on several keys at once | `keys = [...]`, or [`LockManager::lock_all`] | as for one key |
//! | a limit on how many calls run at a time | `permits = 3`, or [`LockManager::semaphore`] | the body is stopped |
//! | calls that only read, and calls that write | `mode = "read"` and `"write"`, or [`LockManager::rw_lock`] | the body is stopped |
//! | a lock that outlives a block, or is kept in a struct | [`Lock::acquire`], which returns a [`LockGuard`] | your code must check [`is_held`](LockGuard::is_held), or wait for [`lost`](LockGuard::lost) |
//! | work to skip if another call is doing it | `on_busy = "skip"`, [`Lock::try_run`], or [`Lock::try_acquire`] | as above |
//! | a job that every replica starts | `on_busy = "skip"` and `min_hold`: see the [cron recipe] | the body is stopped |
//! | code that a locked body calls | [`current`], which returns a [`HeldLock`]; move a clone of it into spawned tasks | [`HeldLock::check`] returns an error |
//! | tests of your service | [`LockManager::in_memory`], and [`testing`] for busy, unavailable and lost locks | you decide |
//! | an operator's tool | [`LockManager::list`], [`inspect`](LockManager::inspect), [`revoke`](LockManager::revoke), or the [command line] | |
//! | monitoring | [the module `metrics`](crate::metrics), [`observer`], spans and log lines through `tracing` | |
//!
//! Each of them needs a [`LockManager`], the client of one store. [`LockManager::connect`] takes a
//! URL, [`LockManager::from_env`] reads it from `DISTLOCK_URL`, and [`LockManager::builder`] has
//! all options. An annotated function uses the manager of its argument `manager`, otherwise of the
//! surrounding [`with_manager`], otherwise the [`install`]ed one.
//!
//! # What a lock cannot do
//!
//! No lock can stop code that is already running. Code between two awaits, or in a paused process,
//! can run on after its lock was lost. Let the resource reject it by its [`FencingToken`]. If the
//! lock is in the PostgreSQL database that the code writes to, `HeldLock::check_in` in the
//! transaction (feature `postgres`) rejects it without a token. A server that loses the key can
//! grant the lock twice. [Safety] shows which of these failures can affect
//! you, and [SAFETY.md] states every guarantee with its conditions.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `macros` | the attribute [`distributed_lock`] | on |
//! | `axum` | [`Error`] is a response of axum 0.8, [with its status](Error#impl-IntoResponse-for-Error) | off |
//! | `metrics` | metrics of every manager, through [the facade](https://docs.rs/metrics) of that name, and [bounds for histograms](crate::metrics::BUCKETS) | off |
//! | `serde` | [`FencingToken`], [`Holder`], [`LockState`], [`ServerState`], [`SuccessRecord`] and [`Waiter`] implement `Serialize` and `Deserialize` | off |
//! | `postgres` | [locks in PostgreSQL]: `postgres://` URLs, and `HeldLock::check_in` and `LockGuard::commit` for transactions of tokio-postgres 0.7 | off |
//! | `sqlx` | `postgres`, and the same for transactions of sqlx 0.8 | off |
//! | `testing` | the test kit [`testing`] | off |
//! | `tls-native-roots` | `rediss://` URLs, and `sslmode=verify-full` of PostgreSQL, with the certificates that the system trusts | off |
//! | `tls-webpki-roots` | the same with Mozilla's certificates, which are built in | off |
//! | `tls` | the same without any: each [`Tls`] needs a CA file | off |
//!
//! # Errors
//!
//! Each message names a remedy, and the key if the error has one.
//!
//! | predicate | variants | cause, and what became of the work |
//! |---|---|---|
//! | [`is_busy`](Error::is_busy) | [`Busy`](Error::Busy), [`QueueFull`](Error::QueueFull) | other calls hold the lock or wait for it; the body did not run |
//! | [`is_unavailable`](Error::is_unavailable) | [`Unavailable`](Error::Unavailable) | the store could not be used; the body did not run |
//! | [`is_lost`](Error::is_lost) | [`Lost`](Error::Lost), [`MaxHoldExceeded`](Error::MaxHoldExceeded) | the hold ended too early; [`BodyState`] shows how far the body came |
//! | [`is_retryable`](Error::is_retryable) | those of the first row, and outages that can end by themselves | the body did not run, and the same call may succeed later |
//! | none | all others | misuse, a manager that was shut down, or a false `run_if` |
//!
//! The predicates describe one locked call. A body that makes a second one may be half done.
//!
//! # Cancel safety
//!
//! - A call that is dropped while it waits leaves neither a lock nor a queue entry behind. It gives
//!   up its place in the queue.
//! - A call that is dropped while its body runs drops the body at its current await. The lock is
//!   released in the background.
//! - A dropped [`LockGuard`] releases its lock in the background, even outside a runtime.
//! - A release and a [`shutdown`] continue if their futures are dropped.
//! - A spawned task inherits neither the lock nor the manager of [`with_manager`].
//!
//! [Cancellation, tasks and blocking code][cancellation] has every case, and most waiting methods
//! have a section of their own.
//!
//! [cancellation]: https://github.com/distlock/distlock/blob/main/docs/guide/cancellation.md
//! [cron recipe]: https://github.com/distlock/distlock/blob/main/docs/recipes/jobs.md
//! [options]: https://github.com/distlock/distlock/blob/main/docs/guide/options.md
//! [locks in PostgreSQL]: https://github.com/distlock/distlock/blob/main/docs/guide/postgres.md
//! [command line]: https://github.com/distlock/distlock/blob/main/docs/operations/command-line.md
//! [Safety]: https://github.com/distlock/distlock/blob/main/docs/safety.md
//! [SAFETY.md]: https://github.com/distlock/distlock/blob/main/SAFETY.md
//!
//! [The book](https://github.com/distlock/distlock/blob/main/docs/README.md) explains how to choose
//! keys and options, how to operate distlock, and how it compares.
#![cfg_attr(docsrs, feature(doc_cfg))]

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

/// Compiles and runs the code of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The items that generated code calls.
#[doc(hidden)]
pub mod __private {
    pub use crate::attribute::*;
}

#[doc(hidden)]
pub use attribute::{
    FromLockErrorBehindImpl, KeyFnOwner, KeyValue, MetadataText, OnceForValue, SkipValue,
};

#[doc(hidden)]
pub use manager::admin::doctor as __doctor;

pub use attribute::as_lock_manager::AsLockManager;
pub use attribute::from_lock_error::FromLockError;
pub use config::credentials::Credentials;
pub use config::quorum::Quorum;
#[cfg(feature = "tls")]
pub use config::tls::Tls;
pub use error::{BodyState, Error, HoldKind, Holder, LockKind, Outage};
pub use fencing::FencingToken;
pub use key::escape;
pub use lock::Lock;
pub use lock::guard::LockGuard;
pub use lock::held::HeldLock;
pub use lock::installed::{install, installed, shutdown};
pub use lock::multi::MultiLock;
pub use lock::multi_guard::MultiLockGuard;
pub use lock::outcome::{RunOutcome, SkipReason};
pub use lock::permit::{HeldPermit, SemaphorePermit, current_permit, try_current_permit};
pub use lock::rw_guards::{RwLockReadGuard, RwLockWriteGuard};
pub use lock::rw_lock::RwLock;
pub use lock::scope::{
    current, current_at, current_for, try_current, try_current_at, try_current_for, with_manager,
};
pub use lock::semaphore::Semaphore;
#[cfg(feature = "postgres")]
pub use lock::transaction::PgTransaction;
pub use loss::LossReason;
pub use manager::LockManager;
pub use manager::admin::inspect::{LockState, ServerState, SuccessRecord, Waiter};
pub use manager::admin::revoke::{Revocation, Revoke, RevokeOutcome};
pub use manager::builder::LockManagerBuilder;

#[cfg(feature = "macros")]
#[doc = include_str!("doc/uses.md")]
pub use distlock_macros::distributed_lock;
