//! A client's knowledge of the server's clock: enough to set the time by which a command must be
//! applied, and to date a pushed grant.

use std::sync::Mutex;
use std::time::Duration;

use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// Bounds of the server's clock. In `upper`, the local time was read before the server time.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    upper: Mutex<Option<Sample>>,
    /// The closest sample so far whose local time was read after its server time.
    lower: Mutex<Option<Sample>>,
}

/// A local time, and a server time (µs).
#[derive(Clone, Copy, Debug)]
struct Sample {
    local: BootInstant,
    server: u64,
}

/// Maximum age of a sample that is used to date a grant.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(1);

impl ServerTime {
    /// Returns the server's current time or a later one, unless its clock has moved.
    pub(crate) fn upper_bound(&self, now: BootInstant) -> u64 {
        match *lock(&self.upper) {
            Some(Sample { local, server }) => server.saturating_add(as_micros(now.since(local))),
            // Without a sample, no command is too late.
            None => 1 << 52,
        }
    }

    /// Records the server time in a reply that has just arrived, to a command sent at `sent_at`.
    pub(crate) fn update(&self, sent_at: BootInstant, server_micros: u64, now: BootInstant) {
        let mut upper = lock(&self.upper);
        if upper.is_none_or(|known| sent_at >= known.local) {
            *upper = Some(Sample {
                local: sent_at,
                server: server_micros,
            });
        }
        drop(upper);
        let mut lower = lock(&self.lower);
        let known = lower.map(|known| lower_bound_at(known, now));
        // After the clock stepped back, the known bound is too late.
        let latest = server_micros.saturating_add(as_micros(now.since(sent_at)));
        if known.is_none_or(|known| known < server_micros || known > latest) {
            *lower = Some(Sample {
                local: now,
                server: server_micros,
            });
        }
    }

    /// Returns a lower bound of the server's current time, or `None` if nothing is known. It is
    /// hardly ever low by more than the shortest one-way latency of a reply.
    pub(crate) fn lower_bound(&self, now: BootInstant) -> Option<u64> {
        lock(&self.lower).map(|known| lower_bound_at(known, now))
    }

    /// Returns the server time after which a command with this timeout is too late. The margin
    /// grows with the age of the sample, because the clocks may have drifted apart.
    pub(crate) fn apply_by(&self, now: BootInstant, timeout: Duration) -> u64 {
        let age = (*lock(&self.upper)).map_or(Duration::ZERO, |sample| now.since(sample.local));
        self.upper_bound(now)
            .saturating_add(as_micros(timeout + age / 1_000))
    }

    /// Returns a local time that is not after a grant made at `granted` server time. The grant's
    /// age is then never underestimated.
    pub(crate) fn earliest_grant_time(
        &self,
        granted: u64,
        received: BootInstant,
    ) -> Option<BootInstant> {
        let Sample { local, server } = (*lock(&self.upper))?;
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

/// Allows for clocks that run at different rates.
fn lower_bound_at(known: Sample, now: BootInstant) -> u64 {
    let since = as_micros(now.since(known.local));
    known.server.saturating_add(since - since / 1_000)
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
        time.update(at(1_000), 5_000_000, at(1_000));
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
    fn lower_bound_uses_the_fastest_reply() {
        let time = ServerTime::default();
        assert_eq!(time.lower_bound(at(0)), None);
        time.update(at(1_000), 5_000_000, at(1_020));
        assert_eq!(time.lower_bound(at(1_020)), Some(5_000_000));
        // This reply took 1 ms to arrive, and the previous one 20 ms.
        time.update(at(1_100), 5_100_000, at(1_101));
        assert_eq!(time.lower_bound(at(1_101)), Some(5_100_000));
        time.update(at(1_200), 5_205_000, at(1_250));
        assert!(
            time.lower_bound(at(1_250))
                .is_some_and(|lower| lower > 5_248_000)
        );
        // The clock steps back.
        time.update(at(1_300), 1_000_000, at(1_301));
        assert_eq!(time.lower_bound(at(1_301)), Some(1_000_000));
    }

    #[test]
    fn a_nonsensical_server_time_does_not_overflow() {
        let time = ServerTime::default();
        time.update(at(1_000), u64::MAX, at(1_001));
        let timeout = Duration::from_secs(1);
        assert_eq!(time.apply_by(at(1_100), timeout), u64::MAX);
        assert_eq!(time.lower_bound(at(1_100)), Some(u64::MAX));
    }

    #[test]
    fn an_older_reply_does_not_replace_a_newer_one() {
        let time = ServerTime::default();
        time.update(at(1_000), 5_000_000, at(1_000));
        time.update(at(900), 1, at(900));
        assert_eq!(time.upper_bound(at(1_500)), 5_500_000);
    }
}
