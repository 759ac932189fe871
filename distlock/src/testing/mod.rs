//! A test kit for services that use locks (feature `testing`): busy, unavailable and lost locks on
//! demand, and a record of acquisitions.
//!
//! ```toml
//! [dev-dependencies]
//! # After the release, `version = "0.2"` instead of `git`.
//! distlock = { git = "https://github.com/distlock/distlock", features = ["testing"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! [`TestLocks`] has a manager like any other, with an in-process store that replies as the test
//! sets. Everything else runs the same code as in production. A call waits for its `wait`, a body
//! is stopped at its next await, tokens increase, and a held lock excludes other calls. All time is
//! `tokio::time`, so under `start_paused = true` a wait of ten seconds takes no time.
//!
//! ```
//! use distlock::testing::{InjectedLoss, TestLocks, assert_locked, assert_not_locked, holder};
//! use distlock::{Outage, distributed_lock, with_manager};
//! use std::time::Duration;
//!
//! // The service.
//! #[distributed_lock(key = "inventory:<item_id>", wait = "5s")]
//! async fn reduce(item_id: u32) -> Result<u32, distlock::Error> {
//!     tokio::time::sleep(Duration::from_secs(1)).await;
//!     Ok(item_id)
//! }
//!
//! async fn handler(item_id: u32) -> u16 {
//!     match reduce(item_id).await {
//!         Ok(_) => 200,
//!         Err(error) if error.is_busy() => 423,
//!         Err(error) if error.is_lost() => 409,
//!         Err(error) if error.is_unavailable() => 503,
//!         Err(distlock::Error::ShutDown { .. }) => 503,
//!         Err(_) => 500,
//!     }
//! }
//!
//! # const _: &str = stringify!(
//! #[tokio::test(start_paused = true)]
//! # );
//! async fn the_handler_reports_lock_errors() {
//!     let locks = TestLocks::new();
//!     let status = |item_id| with_manager(locks.manager(), handler(item_id));
//!
//!     locks.on("inventory:7").once().busy(holder("worker-2"));
//!     assert_eq!(status(7).await, 423);
//!
//!     locks.on_all().once().unavailable(Outage::TimedOut);
//!     assert_eq!(status(7).await, 503);
//!
//!     locks.on_label("inventory:<item_id>").once().lost_after(Duration::from_millis(500), InjectedLoss::Gone);
//!     assert_eq!(status(7).await, 409);
//!
//!     assert_eq!(status(7).await, 200);
//!     assert_eq!(locks.acquire_count("inventory:7"), 2, "only what was lost, and the last");
//!     assert_not_locked!(locks, "inventory:7");
//! }
//!
//! # const _: &str = stringify!(
//! #[tokio::test(start_paused = true)]
//! # );
//! async fn the_handler_holds_its_lock() {
//!     let locks = TestLocks::new();
//!     let work = tokio::spawn(with_manager(locks.manager(), handler(7)));
//!     locks.wait_until_held("inventory:7").await;
//!     assert_locked!(locks, "inventory:7");
//!     locks.lose("inventory:7", InjectedLoss::Gone);
//!     assert_eq!(work.await.unwrap(), 409);
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() { the_handler_reports_lock_errors().await; the_handler_holds_its_lock().await; }
//! ```
//!
//! | the test sets | the call |
//! |---|---|
//! | [`busy`](Outcomes::busy) | waits, and fails with [`Error::Busy`](crate::Error::Busy) and that holder |
//! | [`unavailable`](Outcomes::unavailable) | retries, and fails with [`Error::Unavailable`](crate::Error::Unavailable); held locks are lost at their safe deadline |
//! | [`key_conflict`](Outcomes::key_conflict) | fails with [`Error::KeyConflict`](crate::Error::KeyConflict) |
//! | [`lost_after`](Outcomes::lost_after), [`lose`](TestLocks::lose) | acquires its lock and then fails with [`Error::Lost`](crate::Error::Lost), for the reason of the [`InjectedLoss`] |
//! | [`max_hold_exceeded_after`](Outcomes::max_hold_exceeded_after) | acquires its lock and then fails with [`Error::MaxHoldExceeded`](crate::Error::MaxHoldExceeded) |
//! | nothing | acquires its lock, or waits for another holder in this test |
//!
//! Every outcome is for [one key](TestLocks::on), [one label](TestLocks::on_label) or [all
//! locks](TestLocks::on_all). It applies [once](Outcomes::once), to [a number of
//! calls](Outcomes::times), [for a duration](Outcomes::for_duration), or until it is
//! [cleared](Outcomes::clear). `min_replicas` and `fsync` of a lock are always satisfied.
//!
//! [`error`] creates errors without a lock, for tests of a mapping of errors.

#[doc(hidden)]
pub mod asserts;
pub mod error;
mod locks;
mod loss;
mod outcomes;
mod record;
mod script;
mod store;

#[doc(inline)]
pub use crate::__testing_assert_locked as assert_locked;
#[doc(inline)]
pub use crate::__testing_assert_not_locked as assert_not_locked;
pub use locks::TestLocks;
pub use loss::InjectedLoss;
pub use outcomes::{Outcomes, holder};
pub use record::AcquireRecord;
