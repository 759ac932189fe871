//! Every duration that follows from a lease.

use std::time::Duration;

/// How often everything that this client waits for is looked at (R5).
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A timer may sleep through a suspend: nothing that is held goes unchecked for longer.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Every duration that follows from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
}

impl Timing {
    /// `lease` is rounded up to whole milliseconds, the unit of the store.
    pub(crate) fn new(lease: Duration) -> Self {
        let millis = lease.as_nanos().div_ceil(1_000_000);
        Timing {
            lease: Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)),
        }
    }

    /// How much longer than the lease the server keeps the key.
    pub(crate) fn grace(self) -> Duration {
        (self.lease / 10).clamp(Duration::from_millis(250), Duration::from_secs(10))
    }

    /// The TTL in the store.
    pub(crate) fn ttl(self) -> Duration {
        self.lease + self.grace()
    }

    /// What is subtracted for clocks that run at different rates, and for the time to stop.
    pub(crate) fn margin(self) -> Duration {
        self.lease / 100 + Duration::from_millis(2)
    }

    /// The part of the lease, counted from the send of the command, in which the hold is believed.
    pub(crate) fn validity(self) -> Duration {
        self.lease.saturating_sub(self.margin())
    }

    /// How long one command may take.
    pub(crate) fn command_deadline(self) -> Duration {
        (self.lease / 10)
            .clamp(Duration::from_millis(50), Duration::from_secs(1))
            .min(self.lease / 5)
    }

    pub(crate) fn renew_every(self) -> Duration {
        (self.lease / 3).min(Duration::from_secs(10))
    }

    /// The pause after a renewal that failed.
    pub(crate) fn retry_pause(self) -> Duration {
        (self.lease / 20).min(Duration::from_millis(250))
    }

    /// The lease of a pushed grant that was not confirmed yet (R4).
    pub(crate) fn grant(self) -> Timing {
        Timing {
            lease: self.lease.min(Duration::from_secs(1)),
        }
    }

    /// When a short grant is confirmed. A body that ends sooner saves the confirmation.
    pub(crate) fn confirm_after(self) -> Duration {
        self.grant().lease / 50
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
    }
}
