//! A clock that all processes of this machine read alike, so that what they did can be drawn in one picture.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started. It never steps, which the time of day does.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let started = std::time::Instant::now();
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        let passed = now() - before;
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
        assert!(passed <= started.elapsed(), "{passed:?}");
    }
}
