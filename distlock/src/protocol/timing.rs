//! The durations of the protocol, most of which follow from a lease.

use std::time::Duration;

/// Interval of the queue checks of a client that waits (R5).
pub(crate) const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Longest sleep of the watchdog while a lock is held: a timer may sleep through a suspend (R11).
pub(crate) const MAX_WATCHDOG_SLEEP: Duration = Duration::from_millis(250);

/// Upper limit of a lease, so that no duration that follows from it overflows.
const MAX_LEASE: Duration = Duration::from_millis(u64::MAX);

/// A lease, and every duration that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
}

impl Timing {
    /// Rounds `lease` up to whole milliseconds, the unit of the store.
    pub(crate) fn new(lease: Duration) -> Self {
        let round_up = Duration::from_nanos(999_999);
        let lease = lease.saturating_add(round_up).min(MAX_LEASE);
        Timing {
            lease: Duration::new(lease.as_secs(), lease.subsec_millis() * 1_000_000),
        }
    }

    /// Returns how much longer than the lease the server keeps the key.
    pub(crate) fn grace(self) -> Duration {
        (self.lease / 10).clamp(Duration::from_millis(250), Duration::from_secs(10))
    }

    /// Returns the TTL in the store.
    pub(crate) fn ttl(self) -> Duration {
        self.lease + self.grace()
    }

    /// Returns the safety margin for clock drift and for stopping the body.
    pub(crate) fn margin(self) -> Duration {
        self.lease / 100 + Duration::from_millis(2)
    }

    /// Returns how long a hold is valid, counted from the send of the proving command.
    pub(crate) fn validity(self) -> Duration {
        self.lease.saturating_sub(self.margin())
    }

    /// Returns the timeout of one command.
    pub(crate) fn command_timeout(self) -> Duration {
        (self.lease / 10)
            .clamp(Duration::from_millis(50), Duration::from_secs(1))
            .min(self.lease / 5)
    }

    pub(crate) fn renew_interval(self) -> Duration {
        (self.lease / 3).min(Duration::from_secs(10))
    }

    /// Returns the pause after a failed renewal, counted from the start of that renewal.
    pub(crate) fn renew_retry_interval(self) -> Duration {
        (self.lease / 20).min(Duration::from_millis(250))
    }

    /// Returns the timing of a pushed grant that is not yet confirmed (R4).
    pub(crate) fn short_grant_timing(self) -> Timing {
        Timing {
            lease: self.lease.min(Duration::from_secs(1)),
        }
    }

    /// Returns how long a short grant is held before it is confirmed. A body that ends sooner saves
    /// the round trip of the confirmation.
    pub(crate) fn confirm_delay(self) -> Duration {
        self.short_grant_timing().lease / 50
    }
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../tests/inside/timing.rs"]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ms: u64) -> Timing {
        Timing::new(Duration::from_millis(ms))
    }

    #[test]
    fn the_server_keeps_a_lock_beyond_the_lease() {
        assert_eq!(timing(50).ttl(), Duration::from_millis(300));
        assert_eq!(timing(15_000).ttl(), Duration::from_millis(16_500));
        assert_eq!(timing(86_400_000).grace(), Duration::from_secs(10));
        assert_eq!(timing(3_000).command_timeout(), Duration::from_millis(300));
    }
}
