//! Assertions about held locks.

use std::fmt;

use crate::testing::locks::TestLocks;

/// Asserts that a call that uses these [`TestLocks`](crate::testing::TestLocks) holds the lock now.
/// Arguments after the key are a message, as in `assert!`.
///
/// ```
/// use distlock::testing::{TestLocks, assert_locked, assert_not_locked};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = TestLocks::new();
/// let guard = locks.manager().lock("inventory:7").acquire().await?;
/// assert_locked!(locks, "inventory:7");
/// guard.release().await?;
/// assert_not_locked!(locks, "inventory:7", "after {}", "the release");
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// Panics if the lock is not held. The message lists the held locks.
#[doc(hidden)]
#[macro_export]
macro_rules! __testing_assert_locked {
    ($locks:expr, $key:expr $(,)?) => {
        $crate::__testing_assert_locked!($locks, $key, "")
    };
    ($locks:expr, $key:expr, $($context:tt)+) => {
        $crate::testing::asserts::check(&$locks, &$key, true, ::core::format_args!($($context)+))
    };
}

/// Asserts that no call that uses these [`TestLocks`](crate::testing::TestLocks) holds the lock
/// now. Arguments after the key are a message, as in `assert!`.
///
/// ```
/// use distlock::testing::{TestLocks, assert_not_locked};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let locks = TestLocks::new();
/// assert_not_locked!(locks, "inventory:7");
/// # }
/// ```
///
/// # Panics
///
/// Panics if the lock is held.
#[doc(hidden)]
#[macro_export]
macro_rules! __testing_assert_not_locked {
    ($locks:expr, $key:expr $(,)?) => {
        $crate::__testing_assert_not_locked!($locks, $key, "")
    };
    ($locks:expr, $key:expr, $($context:tt)+) => {
        $crate::testing::asserts::check(&$locks, &$key, false, ::core::format_args!($($context)+))
    };
}

/// Panics unless the lock is held, or not held, as expected.
#[track_caller]
pub fn check(locks: &TestLocks, key: &str, expected: bool, context: fmt::Arguments<'_>) {
    if locks.hold(key).is_some() == expected {
        return;
    }
    let state = if expected {
        "is not held"
    } else {
        "is held, but should not be"
    };
    let context = match context.to_string() {
        context if context.is_empty() => context,
        context => format!(": {context}"),
    };
    let before = match locks.acquire_count(key) {
        0 => "it was never acquired".to_owned(),
        1 => "it was acquired once".to_owned(),
        times => format!("it was acquired {times} times"),
    };
    let held = locks.account();
    panic!("lock `{key}` {state}{context} ({held}; {before})");
}
