//! A client's knowledge of the server's clock: enough to set the time by which a command must be
//! applied, and to date a pushed grant.

use std::sync::Mutex;
use std::time::Duration;

use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// An upper bound of the server's clock: the local time was read before the server time.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Sample>>);

/// A local time, and a server time (µs).
#[derive(Clone, Copy, Debug)]
struct Sample {
    local: BootInstant,
    server: u64,
}

/// Stands for the server's time while none is known. No command is then too late.
const UNKNOWN: u64 = 1 << 52;

/// Maximum age of a sample that is used to date a grant.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(1);

impl ServerTime {
    /// Returns the server's current time or a later one, unless its clock has moved. Returns `None`
    /// if nothing is known.
    pub(crate) fn upper_bound(&self, now: BootInstant) -> Option<u64> {
        let Sample { local, server } = (*lock(&self.0))?;
        Some(server.saturating_add(as_micros(now.since(local))))
    }

    /// Records the server time in the reply to a command sent at `sent_at`.
    pub(crate) fn update(&self, sent_at: BootInstant, server_micros: u64) {
        let mut newest = lock(&self.0);
        if newest.is_none_or(|known| sent_at >= known.local) {
            *newest = Some(Sample {
                local: sent_at,
                server: server_micros,
            });
        }
    }

    /// Returns the server time after which a command with this timeout is too late.
    pub(crate) fn apply_by(&self, now: BootInstant, timeout: Duration) -> u64 {
        let server_now = self.upper_bound(now).unwrap_or(UNKNOWN);
        server_now.saturating_add(as_micros(timeout + self.margin(now)))
    }

    /// Returns the delay after which every command that was sent until now, with at most this
    /// timeout, is too late. The upper bound may be ahead of the server's clock by the delay of one
    /// command.
    pub(crate) fn time_until_rejected(&self, now: BootInstant, timeout: Duration) -> Duration {
        2 * timeout + self.margin(now)
    }

    /// Returns how far the clocks may have drifted apart since the sample was taken.
    fn margin(&self, now: BootInstant) -> Duration {
        let age = (*lock(&self.0)).map_or(Duration::ZERO, |sample| now.since(sample.local));
        age / 1_000
    }

    /// Returns a local time that is not after a grant made at `granted` server time. The grant's
    /// age is then never underestimated.
    pub(crate) fn earliest_grant_time(
        &self,
        granted: u64,
        received: BootInstant,
    ) -> Option<BootInstant> {
        let Sample { local, server } = (*lock(&self.0))?;
        if received.since(local) > MAX_SAMPLE_AGE {
            return None;
        }
        let bound = match granted.checked_sub(server) {
            Some(later) => local + Duration::from_micros(later),
            None => local - Duration::from_micros(server - granted),
        };
        // A grant from the future means that a clock has moved.
        (bound <= received).then_some(bound)
    }
}

pub(crate) fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    #[test]
    fn a_grants_age_is_never_underestimated() {
        let time = ServerTime::default();
        assert_eq!(
            time.earliest_grant_time(5_000_000, at(100)),
            None,
            "nothing known"
        );
        time.update(at(1_000), 5_000_000);
        assert_eq!(
            time.earliest_grant_time(5_200_000, at(1_300)),
            Some(at(1_200))
        );
        assert_eq!(
            time.earliest_grant_time(4_900_000, at(1_300)),
            Some(at(900))
        );
        assert_eq!(
            time.earliest_grant_time(5_400_000, at(1_300)),
            None,
            "a grant from the future"
        );
        assert_eq!(
            time.earliest_grant_time(5_200_000, at(2_001)),
            None,
            "the sample is too old"
        );
    }

    #[test]
    fn a_nonsensical_server_time_does_not_overflow() {
        let time = ServerTime::default();
        time.update(at(1_000), u64::MAX);
        let timeout = Duration::from_secs(1);
        assert_eq!(time.apply_by(at(1_100), timeout), u64::MAX);
    }

    #[test]
    fn an_older_reply_does_not_replace_a_newer_one() {
        let time = ServerTime::default();
        time.update(at(1_000), 5_000_000);
        time.update(at(900), 1);
        assert_eq!(time.upper_bound(at(1_500)), Some(5_500_000));
    }
}
