//! The clocks of a simulated world. Timers are tokio's; clocks can advance while timers do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::util::clock::{BootInstant, Clock};

const HOUR: i128 = 3_600_000_000_000;

/// 2023-11-14, in nanoseconds since the Unix epoch.
const EPOCH: i128 = 1_700_000_000_000_000_000;

/// The time shared by all machines.
#[derive(Debug)]
pub(crate) struct WorldTime {
    origin: Instant,
    /// Nanoseconds for which the machines slept.
    slept: AtomicU64,
    /// Nanoseconds by which the server's clock was set forward.
    stepped: AtomicI64,
}

impl WorldTime {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(WorldTime {
            origin: Instant::now(),
            slept: AtomicU64::new(0),
            stepped: AtomicI64::new(0),
        })
    }

    /// Returns the time since the beginning, including sleep.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed() + Duration::from_nanos(self.slept.load(Ordering::Relaxed))
    }

    pub(crate) fn sleep(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap();
        self.slept.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn step_server(&self, millis: i64) {
        self.stepped
            .fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

/// The wall clock of the server, on which all times of the server depend.
#[derive(Debug)]
pub(crate) struct ServerClock(pub(crate) Arc<WorldTime>);

impl ServerClock {
    fn nanos(&self) -> i128 {
        let elapsed = i128::try_from(self.0.elapsed().as_nanos()).unwrap();
        elapsed + i128::from(self.0.stepped.load(Ordering::Relaxed))
    }
}

impl Clock for ServerClock {
    fn now(&self) -> BootInstant {
        BootInstant(u64::try_from(HOUR + self.nanos()).unwrap())
    }

    fn wall_micros(&self) -> u64 {
        u64::try_from((EPOCH + self.nanos()) / 1_000).unwrap()
    }
}

/// The boot clock of a client's machine, with its own origin and rate.
#[derive(Debug)]
pub(crate) struct BootClock {
    pub(crate) time: Arc<WorldTime>,
    pub(crate) origin: Duration,
    /// The excess of the clock's rate, in millionths.
    pub(crate) drift: i128,
}

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        let elapsed = i128::try_from(self.time.elapsed().as_nanos()).unwrap();
        let origin = i128::try_from(self.origin.as_nanos()).unwrap();
        let nanos = origin + elapsed + elapsed * self.drift / 1_000_000;
        BootInstant(u64::try_from(nanos).unwrap())
    }

    fn wall_micros(&self) -> u64 {
        u64::try_from(EPOCH / 1_000).unwrap() + self.now().0 / 1_000
    }
}
