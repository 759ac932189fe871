//! The offset and the jumps of a server's clock, checked at most once a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::util::clock::{BootInstant, Clock};
use crate::util::mutex::lock;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Change of the offset that does not count as a jump, in µs. Clock rates differ slightly, and
/// clocks are adjusted by small steps.
const JUMP_TOLERANCE: i64 = 250_000;

#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    /// Replies to commands sent before this are not checked: nanoseconds, as in a `BootInstant`.
    next_check: AtomicU64,
    bounds: Mutex<Option<OffsetBounds>>,
}

/// Bounds of the server's clock minus the local time since boot, in microseconds.
#[derive(Clone, Copy, Debug)]
struct OffsetBounds {
    min: i64,
    max: i64,
    at: BootInstant,
}

/// The state of the server's clock according to one reply, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// How far the server's clock is ahead of the local one.
    pub(crate) offset: i64,
    /// How far the clock has certainly jumped since the previous check, if it has.
    pub(crate) jump: Option<i64>,
}

impl ClockWatch {
    /// Evaluates the server time in a reply to a command that was sent at `sent_at`. Returns `None`
    /// if the command was sent less than `CHECK_INTERVAL` after the previous check.
    pub(crate) fn check(
        &self,
        sent_at: BootInstant,
        server_micros: u64,
        clock: &dyn Clock,
    ) -> Option<ClockReading> {
        if sent_at.0 < self.next_check.load(Ordering::Relaxed) {
            return None;
        }
        let (now, wall) = (clock.now(), clock.wall_micros());
        self.next_check
            .store((now + CHECK_INTERVAL).0, Ordering::Relaxed);
        let server = micros(server_micros);
        let round_trip = micros(u64::try_from(now.since(sent_at).as_micros()).unwrap_or(u64::MAX));
        let bounds = OffsetBounds {
            min: server - micros(now.0 / 1_000),
            max: server - micros(sent_at.0 / 1_000),
            at: now,
        };
        let previous = lock(&self.bounds).replace(bounds);
        Some(ClockReading {
            offset: server - (micros(wall) - round_trip / 2),
            jump: previous.and_then(|previous| bounds.jump_since(previous)),
        })
    }
}

impl OffsetBounds {
    fn jump_since(self, previous: OffsetBounds) -> Option<i64> {
        let drift = micros(self.at.since(previous.at).as_micros() as u64 / 1_000);
        let allowed = JUMP_TOLERANCE + drift;
        let (forward, backward) = (self.min - previous.max, previous.min - self.max);
        if forward > allowed {
            Some(forward)
        } else if backward > allowed {
            Some(-backward)
        } else {
            None
        }
    }
}

/// Clamps a time so that differences cannot overflow, regardless of the time that a server reports.
fn micros(micros: u64) -> i64 {
    micros.min(i64::MAX as u64 / 4) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FixedClock(BootInstant, u64);

    impl Clock for FixedClock {
        fn now(&self) -> BootInstant {
            self.0
        }

        fn wall_micros(&self) -> u64 {
            self.1
        }
    }

    fn ms(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    /// Feeds the watch a reply. All times are in milliseconds, and the local clocks agree.
    fn check(watch: &ClockWatch, sent_at: u64, answered: u64, server: u64) -> Option<ClockReading> {
        watch.check(
            ms(sent_at),
            server * 1_000,
            &FixedClock(ms(answered), answered * 1_000),
        )
    }

    #[test]
    fn the_offset_is_reported_once_a_second() {
        let watch = ClockWatch::default();
        let reading = check(&watch, 1_000, 1_010, 4_005).expect("the first");
        assert_eq!(
            reading,
            ClockReading {
                offset: 3_000_000,
                jump: None
            }
        );
        assert_eq!(check(&watch, 2_000, 2_010, 5_005), None, "too soon");
        assert!(check(&watch, 2_010, 2_012, 5_005).is_some());
    }

    #[test]
    fn an_offset_that_a_slow_reply_explains_is_not_a_jump() {
        let watch = ClockWatch::default();
        check(&watch, 1_000, 1_010, 1_005);
        // The server paused for five seconds, before or after it applied the command.
        for server in [2_100, 7_090] {
            let reading = check(&watch, 2_100, 7_100, server).expect("a second later");
            assert_eq!(reading.jump, None);
            watch.next_check.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_jump_is_detected_in_both_directions() {
        let watch = ClockWatch::default();
        check(&watch, 1_000, 1_001, 1_000);
        let reading = check(&watch, 3_000, 3_001, 13_000).expect("later");
        assert_eq!(
            reading.jump,
            Some(9_999_000),
            "less the commands' round trips"
        );
        let reading = check(&watch, 5_000, 5_001, 5_000).expect("later");
        assert_eq!(reading.jump, Some(-9_999_000));
        let reading = check(&watch, 7_000, 7_001, 7_200).expect("later");
        assert_eq!(reading.jump, None, "a small adjustment is not a jump");
    }

    #[test]
    fn an_absurd_time_is_a_jump() {
        let watch = ClockWatch::default();
        for server in [0, i64::MAX as u64] {
            watch.next_check.store(0, Ordering::Relaxed);
            let reading = watch.check(ms(1_000), server, &FixedClock(ms(1_001), 0));
            assert_eq!(reading.unwrap().jump.is_some(), server > 0);
        }
    }
}
