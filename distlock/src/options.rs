//! What a lock is asked for, and every duration that follows from its lease.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;

pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(50);
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a token is remembered, unless set.
pub(crate) const FENCE_TTL: Duration = Duration::from_secs(2 * 60 * 60);
pub(crate) const FENCE_TTLS: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 60 * 60);

/// How often everything that this client waits for is looked at (design rule 5).
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A timer may sleep through a suspend: nothing that is held goes unchecked for longer.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// The options of a [`Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) label: Option<Cow<'static, str>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            lease: DEFAULT_LEASE,
            wait: DEFAULT_WAIT,
            max_hold: None,
            min_hold: None,
            label: None,
        }
    }
}

impl Options {
    /// Checks every duration and derives the timing.
    pub(crate) fn timing(&self, key: &str) -> Result<Timing, Error> {
        let refuse = |what: &str, value: Duration, bound: &str| {
            Err(Error::Config {
                detail: format!("lock `{key}`: {what} is {value:?}; set it to {bound}"),
            })
        };
        if self.lease < MIN_LEASE || self.lease > MAX_DURATION {
            return refuse("the lease", self.lease, "at least 50ms and at most 24h");
        }
        if self.wait > MAX_DURATION {
            return refuse("the wait", self.wait, "at most 24h (0s tries once)");
        }
        match self.max_hold {
            Some(limit) if limit.is_zero() => {
                return refuse(
                    "max_hold",
                    limit,
                    "more than zero, or leave it out for no limit",
                );
            }
            _ => {}
        }
        match (self.min_hold, self.max_hold) {
            (Some(shortest), Some(longest)) if shortest > longest => {
                let bound = format!("at most the max_hold of {longest:?}, or raise that");
                return refuse("min_hold", shortest, &bound);
            }
            _ => {}
        }
        match self.min_hold {
            Some(limit) if limit > MAX_DURATION => {
                return refuse("min_hold", limit, "at most 24h");
            }
            _ => {}
        }
        Ok(Timing::new(self.lease))
    }
}

/// Every duration that follows from a lease (design section 4, "Timers").
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

    /// The lease of a pushed grant that was not confirmed yet (design rule 4).
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
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ms: u64) -> Timing {
        Timing::new(Duration::from_millis(ms))
    }

    #[test]
    fn at_least_three_renewals_fit_before_the_safe_deadline() {
        for ms in [50, 51, 100, 300, 1_000, 15_000, 30_000, 600_000, 86_400_000] {
            let t = timing(ms);
            let attempts = (t.validity() - t.renew_every()).as_nanos()
                / (t.command_deadline() + t.retry_pause()).as_nanos();
            assert!(
                attempts >= 2,
                "lease {ms} ms: only {} renewals fit",
                attempts + 1
            );
            assert!(
                t.validity() < t.ttl(),
                "lease {ms} ms: believed longer than kept"
            );
            assert!(t.command_deadline() * 3 < t.lease);
        }
    }

    #[test]
    fn the_server_keeps_a_lock_beyond_the_lease() {
        assert_eq!(timing(50).ttl(), Duration::from_millis(300));
        assert_eq!(timing(15_000).ttl(), Duration::from_millis(16_500));
        assert_eq!(timing(86_400_000).grace(), Duration::from_secs(10));
    }

    #[test]
    fn a_lease_is_rounded_up_to_milliseconds() {
        assert_eq!(
            Timing::new(Duration::from_micros(50_001)).lease,
            Duration::from_millis(51)
        );
    }

    #[test]
    fn durations_out_of_bounds_say_what_to_set() {
        let check = |options: Options| options.timing("k").unwrap_err().to_string();
        let base = Options::default();
        let ms = Duration::from_millis;
        for (options, word) in [
            (
                Options {
                    lease: ms(49),
                    ..base.clone()
                },
                "at least 50ms",
            ),
            (
                Options {
                    lease: ms(86_400_001),
                    ..base.clone()
                },
                "at most 24h",
            ),
            (
                Options {
                    wait: ms(86_400_001),
                    ..base.clone()
                },
                "at most 24h",
            ),
            (
                Options {
                    max_hold: Some(ms(0)),
                    ..base.clone()
                },
                "max_hold",
            ),
            (
                Options {
                    min_hold: Some(ms(86_400_001)),
                    ..base
                },
                "min_hold",
            ),
        ] {
            let message = check(options);
            assert!(
                message.contains(word) && message.contains("`k`"),
                "{message}"
            );
        }
    }
}
