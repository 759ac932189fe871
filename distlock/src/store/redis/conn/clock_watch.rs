//! The offset and the jumps of a server's clock, checked at most once a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::util::clock::{Clock, Moment};
use crate::util::mutex::lock;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Change of the offset that does not count as a jump, in µs. Clock rates differ slightly, and
/// clocks are adjusted by small steps.
const NO_JUMP: i64 = 250_000;

#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    /// Replies to commands sent before this are not checked: nanoseconds, as in a `Moment`.
    next: AtomicU64,
    known: Mutex<Option<Known>>,
}

/// Bounds of the server's clock minus the local time since boot, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Known {
    least: i64,
    most: i64,
    at: Moment,
}

/// The state of the server's clock according to one reply, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How far the server's clock is ahead of the local one.
    pub(crate) offset: i64,
    /// How far the clock has certainly jumped since the previous check, if it has.
    pub(crate) jump: Option<i64>,
}

impl ClockWatch {
    /// Evaluates the server time in a reply to a command that was sent at `sent`. Returns `None` if
    /// the command was sent less than `LOOK_EVERY` after the previous check.
    pub(crate) fn see(&self, sent: Moment, server_micros: u64, clock: &dyn Clock) -> Option<Seen> {
        if sent.0 < self.next.load(Ordering::Relaxed) {
            return None;
        }
        let (now, wall) = (clock.now(), clock.wall_micros());
        self.next.store((now + LOOK_EVERY).0, Ordering::Relaxed);
        let server = micros(server_micros);
        let took = micros(u64::try_from(now.since(sent).as_micros()).unwrap_or(u64::MAX));
        let seen = Known {
            least: server - micros(now.0 / 1_000),
            most: server - micros(sent.0 / 1_000),
            at: now,
        };
        let before = lock(&self.known).replace(seen);
        Some(Seen {
            offset: server - (micros(wall) - took / 2),
            jump: before.and_then(|before| seen.jump_since(before)),
        })
    }
}

impl Known {
    fn jump_since(self, before: Known) -> Option<i64> {
        let drift = micros(self.at.since(before.at).as_micros() as u64 / 1_000);
        let allowed = NO_JUMP + drift;
        let (forward, backward) = (self.least - before.most, before.least - self.most);
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
    struct At(Moment, u64);

    impl Clock for At {
        fn now(&self) -> Moment {
            self.0
        }

        fn wall_micros(&self) -> u64 {
            self.1
        }
    }

    fn ms(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    /// Feeds the watch a reply. All times are in milliseconds, and the local clocks agree.
    fn see(watch: &ClockWatch, sent: u64, answered: u64, server: u64) -> Option<Seen> {
        watch.see(
            ms(sent),
            server * 1_000,
            &At(ms(answered), answered * 1_000),
        )
    }

    #[test]
    fn the_offset_is_told_once_a_second() {
        let watch = ClockWatch::default();
        let seen = see(&watch, 1_000, 1_010, 4_005).expect("the first");
        assert_eq!(
            seen,
            Seen {
                offset: 3_000_000,
                jump: None
            }
        );
        assert_eq!(see(&watch, 2_000, 2_010, 5_005), None, "too soon");
        assert!(see(&watch, 2_010, 2_012, 5_005).is_some());
    }

    #[test]
    fn what_a_slow_answer_explains_is_no_jump() {
        let watch = ClockWatch::default();
        see(&watch, 1_000, 1_010, 1_005);
        // The server paused for five seconds, before or after it applied the command.
        for server in [2_100, 7_090] {
            let seen = see(&watch, 2_100, 7_100, server).expect("a second later");
            assert_eq!(seen.jump, None);
            watch.next.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_jump_is_seen_both_ways() {
        let watch = ClockWatch::default();
        see(&watch, 1_000, 1_001, 1_000);
        let seen = see(&watch, 3_000, 3_001, 13_000).expect("later");
        assert_eq!(seen.jump, Some(9_999_000), "but for the commands' time");
        let seen = see(&watch, 5_000, 5_001, 5_000).expect("later");
        assert_eq!(seen.jump, Some(-9_999_000));
        let seen = see(&watch, 7_000, 7_001, 7_200).expect("later");
        assert_eq!(seen.jump, None, "it was set by a little");
    }

    #[test]
    fn an_absurd_time_is_a_jump() {
        let watch = ClockWatch::default();
        for server in [0, i64::MAX as u64] {
            watch.next.store(0, Ordering::Relaxed);
            let seen = watch.see(ms(1_000), server, &At(ms(1_001), 0));
            assert_eq!(seen.unwrap().jump.is_some(), server > 0);
        }
    }
}
