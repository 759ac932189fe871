//! Local time: a clock that includes suspend, and one for tests with paused time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on a local clock, in nanoseconds since that clock's origin.
///
/// `std::time::Instant` is unsuitable: on Linux it stops during suspend, and a lease does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(pub(crate) u64);

impl BootInstant {
    pub(crate) fn since(self, earlier: BootInstant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = BootInstant;

    fn sub(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_sub(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of time.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time that decides about leases. It never steps back.
    fn now(&self) -> BootInstant;

    /// Returns microseconds since the Unix epoch, for stores that are their own server.
    fn wall_micros(&self) -> u64;
}

/// The machine's time since boot, including suspend.
#[derive(Debug, Default)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // On Apple's systems CLOCK_MONOTONIC includes sleep.
        #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
        const BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

        let time = rustix::time::clock_gettime(BOOT);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        BootInstant(seconds * 1_000_000_000 + nanos)
    }

    fn wall_micros(&self) -> u64 {
        wall_micros()
    }
}

/// `tokio::time`, so that paused time controls everything.
#[derive(Debug)]
pub(crate) struct TokioClock {
    origin: tokio::time::Instant,
    wall_at_origin: u64,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        TokioClock {
            origin: tokio::time::Instant::now(),
            wall_at_origin: wall_micros(),
        }
    }

    fn elapsed(&self) -> Duration {
        tokio::time::Instant::now().duration_since(self.origin)
    }
}

impl Clock for TokioClock {
    fn now(&self) -> BootInstant {
        // An origin above zero leaves room for times before the last send.
        BootInstant(3_600_000_000_000) + self.elapsed()
    }

    fn wall_micros(&self) -> u64 {
        self.wall_at_origin + u64::try_from(self.elapsed().as_micros()).unwrap_or(0)
    }
}

/// A time of a server's clock, in microseconds since the Unix epoch. It must not be compared with a
/// [`BootInstant`]. The server of the memory store has the wall clock of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerTime(pub(crate) u64);

impl ServerTime {
    /// Returns the time from `earlier` to this; zero if it is not earlier.
    pub(crate) fn since(self, earlier: ServerTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_micros(self.0))
            .unwrap_or(UNIX_EPOCH)
    }
}

impl Add<Duration> for ServerTime {
    type Output = ServerTime;

    fn add(self, duration: Duration) -> ServerTime {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        ServerTime(self.0.saturating_add(micros))
    }
}

fn wall_micros() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time() {
        let clock = TokioClock::new();
        let (first, wall) = (clock.now(), clock.wall_micros());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now().since(first), Duration::from_secs(7));
        assert_eq!(clock.wall_micros() - wall, 7_000_000);
    }

    #[test]
    fn instants_saturate() {
        assert_eq!(BootInstant(5) - Duration::from_secs(1), BootInstant(0));
        assert_eq!(
            BootInstant(u64::MAX) + Duration::from_secs(1),
            BootInstant(u64::MAX)
        );
        assert_eq!(BootInstant(1).since(BootInstant(2)), Duration::ZERO);
    }
}
