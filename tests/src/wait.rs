//! Waits for conditions instead of for fixed times.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Short enough not to distort a measurement, long enough to leave the processor to other threads.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns a duration in milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The result of a condition that was evaluated once: a `bool`, or the result of [`equal`].
pub trait Condition {
    /// Returns true if the condition holds.
    fn holds(&self) -> bool;

    /// Returns the measured and the expected value, as far as the condition knows both.
    fn difference(&self) -> String;
}

impl Condition for bool {
    fn holds(&self) -> bool {
        *self
    }

    fn difference(&self) -> String {
        format!("last: {self}, expected: true")
    }
}

impl Condition for Result<(), String> {
    fn holds(&self) -> bool {
        self.is_ok()
    }

    fn difference(&self) -> String {
        self.clone().err().unwrap_or_default()
    }
}

/// Compares a measured value with the expected one, for [`eventually`] and [`eventually_async`].
/// Their messages then contain both.
///
/// ```
/// # use distlock_tests::{equal, eventually};
/// # use std::time::Duration;
/// let mut queued = 0..=3;
/// eventually(Duration::from_secs(5), || equal(queued.next(), Some(3)));
/// ```
///
/// # Errors
///
/// Both values, if they are not equal.
pub fn equal<M: PartialEq<E> + Debug, E: Debug>(measured: M, expected: E) -> Result<(), String> {
    if measured == expected {
        return Ok(());
    }
    Err(format!("last: {measured:?}, expected: {expected:?}"))
}

/// Waits until `condition` holds.
///
/// # Panics
///
/// Panics if the condition does not hold within `deadline`. The message contains the caller's line
/// and the last measured value.
#[track_caller]
pub fn eventually<C: Condition>(deadline: Duration, mut condition: impl FnMut() -> C) {
    let end = Instant::now() + deadline;
    for count in 1.. {
        let last = condition();
        if last.holds() {
            return;
        }
        assert!(
            Instant::now() < end,
            "{}",
            not_met(deadline, count, Some(&last))
        );
        std::thread::sleep(PAUSE);
    }
}

/// Like [`eventually`], for conditions that await; it pauses with tokio's timer.
///
/// # Panics
///
/// Panics if the condition does not hold within `deadline`, also if it hangs.
#[track_caller]
pub fn eventually_async<F, C>(deadline: Duration, mut condition: F) -> impl Future<Output = ()>
where
    F: AsyncFnMut() -> C,
    C: Condition,
{
    let caller = Location::caller();
    async move {
        let (mut count, mut last) = (0, None);
        let met = async {
            loop {
                let outcome = condition().await;
                if outcome.holds() {
                    return;
                }
                (count, last) = (count + 1, Some(outcome));
                tokio::time::sleep(PAUSE).await;
            }
        };
        if tokio::time::timeout(deadline, met).await.is_err() {
            panic!("{caller}: {}", not_met(deadline, count, last.as_ref()));
        }
    }
}

fn not_met<C: Condition>(deadline: Duration, count: u64, last: Option<&C>) -> String {
    let last = last.map_or_else(|| "no result".to_owned(), C::difference);
    let load = load();
    format!(
        "the condition did not hold within {deadline:?} (evaluated {count} times, {last}{load})"
    )
}

/// Returns the output of `future`, waiting up to `limit`.
///
/// # Panics
///
/// Panics if `future` takes longer. The message has the caller's line and the output's type.
#[track_caller]
pub fn within<F: Future>(limit: Duration, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match tokio::time::timeout(limit, future).await {
            Ok(output) => output,
            Err(_) => panic!(
                "{caller}: nothing came within {limit:?} (expected: {}{})",
                std::any::type_name::<F::Output>(),
                load()
            ),
        }
    }
}

/// Returns the machine's load averages, if available: a high load often causes a timeout.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .map(|load| format!(", load of the machine: {}", load.trim()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "last: 7, expected: 8")]
    fn the_message_contains_the_measured_and_the_expected_value() {
        eventually(Duration::from_millis(20), || equal(7, 8));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "wait.rs")]
    async fn an_async_condition_that_hangs_panics_with_its_location() {
        eventually_async(Duration::from_secs(60), async || {
            std::future::pending::<bool>().await
        })
        .await;
    }
}
