//! Assertions about what is held.

use std::fmt;

use crate::testing::locks::TestLocks;

/// Asserts that a lock is held at this moment by a call that uses these
/// [`TestLocks`](crate::testing::TestLocks). Whatever follows the key is told when it is not, as of
/// `assert!`.
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
/// If it is not held; the message lists what is.
#[doc(hidden)]
#[macro_export]
macro_rules! __testing_assert_locked {
    ($locks:expr, $key:expr $(,)?) => {
        $crate::testing::asserts::check(&$locks, ::core::convert::AsRef::as_ref(&$key), true, ::core::option::Option::None)
    };
    ($locks:expr, $key:expr, $($context:tt)+) => {
        $crate::testing::asserts::check(
            &$locks,
            ::core::convert::AsRef::as_ref(&$key),
            true,
            ::core::option::Option::Some(::core::format_args!($($context)+)),
        )
    };
}

/// Asserts that a lock is not held at this moment by any call that uses these
/// [`TestLocks`](crate::testing::TestLocks). Whatever follows the key is told when it is, as of
/// `assert!`.
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
/// If it is held.
#[doc(hidden)]
#[macro_export]
macro_rules! __testing_assert_not_locked {
    ($locks:expr, $key:expr $(,)?) => {
        $crate::testing::asserts::check(&$locks, ::core::convert::AsRef::as_ref(&$key), false, ::core::option::Option::None)
    };
    ($locks:expr, $key:expr, $($context:tt)+) => {
        $crate::testing::asserts::check(
            &$locks,
            ::core::convert::AsRef::as_ref(&$key),
            false,
            ::core::option::Option::Some(::core::format_args!($($context)+)),
        )
    };
}

/// What the macros do.
///
/// # Panics
///
/// If it is not as expected.
#[track_caller]
pub fn check(locks: &TestLocks, key: &str, expected: bool, context: Option<fmt::Arguments<'_>>) {
    if locks.hold(key).is_some() == expected {
        return;
    }
    let mut message = if expected {
        format!("lock `{key}` is not held")
    } else {
        format!("lock `{key}` is held, and should not be")
    };
    if let Some(context) = context {
        message = format!("{message}: {context}");
    }
    let before = match locks.acquired(key) {
        0 => "it was never acquired".to_owned(),
        1 => "it was acquired once".to_owned(),
        times => format!("it was acquired {times} times"),
    };
    panic!("{message} ({}; {before})", locks.account());
}
