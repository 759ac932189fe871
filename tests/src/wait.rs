//! Waiting for conditions instead of for time.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Short enough not to blur a measurement, long enough to leave the processor to the others.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns once `condition` holds.
///
/// # Panics
///
/// When it does not hold within `deadline`; the message names the caller's line.
#[track_caller]
pub fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(
            Instant::now() < end,
            "the condition did not hold within {deadline:?}"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Like [`eventually`], for conditions that await; the pauses are tokio's.
///
/// # Panics
///
/// When the condition does not hold within `deadline`, also when it hangs.
#[track_caller]
pub fn eventually_async<C>(deadline: Duration, mut condition: C) -> impl Future<Output = ()>
where
    C: AsyncFnMut() -> bool,
{
    let caller = Location::caller();
    async move {
        let met = async {
            while !condition().await {
                tokio::time::sleep(PAUSE).await;
            }
        };
        if tokio::time::timeout(deadline, met).await.is_err() {
            panic!("{caller}: the condition did not hold within {deadline:?}");
        }
    }
}

/// The output of `future`, which must come within `limit`.
///
/// # Panics
///
/// When it does not; the message names the caller's line.
#[track_caller]
pub fn within<F: Future>(limit: Duration, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match tokio::time::timeout(limit, future).await {
            Ok(output) => output,
            Err(_) => panic!("{caller}: nothing came within {limit:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        eventually(Duration::from_secs(5), || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    #[should_panic(expected = "did not hold within 20ms")]
    fn a_condition_that_never_holds_panics() {
        eventually(Duration::from_millis(20), || false);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "wait.rs")]
    async fn an_async_condition_that_hangs_panics_and_says_where() {
        eventually_async(Duration::from_secs(60), async || {
            std::future::pending().await
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_async_condition_may_borrow() {
        let mut asked = 0;
        eventually_async(Duration::from_secs(60), async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!(within(Duration::from_secs(1), async { asked }).await, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "nothing came within 1s")]
    async fn a_late_future_panics() {
        within(Duration::from_secs(1), std::future::pending::<()>()).await;
    }
}
