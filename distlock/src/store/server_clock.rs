//! A client's knowledge of the server's clock: enough to set the time by which a command must be
//! applied, and to date a pushed grant.

use std::sync::Mutex;
use std::time::Duration;

use crate::util::clock::{BootInstant, ServerTime};
use crate::util::sync::lock;

/// An upper bound of the server's clock: the local time was read before the server time.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sample: Option<Sample>,
    /// The latest result of `apply_by`.
    latest_apply_by: ServerTime,
    /// Set once a command was sent that is never too late.
    has_sent_undated: bool,
}

/// A local time, and a server time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    local: BootInstant,
    server: ServerTime,
}

/// Stands for the server's time while none is known. No command is then too late.
const UNKNOWN: ServerTime = ServerTime(1 << 52);

/// The longest step back of the server's clock for which a repeated release waits.
const MAX_STEP: Duration = Duration::from_secs(1);

/// Maximum age of a sample that is used to date a grant.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(1);

impl ServerClock {
    /// Records the server time in the reply to a command sent at `sent_at`.
    pub(crate) fn update(&self, sent_at: BootInstant, server: ServerTime) {
        let newest = &mut lock(&self.0).sample;
        if newest.is_none_or(|known| sent_at >= known.local) {
            let local = sent_at;
            *newest = Some(Sample { local, server });
        }
    }

    /// Returns the server's current time or a later one, unless its clock has moved. Returns `None`
    /// if nothing is known.
    pub(crate) fn upper_bound(&self, now: BootInstant) -> Option<ServerTime> {
        let Sample { local, server } = lock(&self.0).sample?;
        Some(server + now.since(local))
    }

    /// Returns the server time after which a command with this timeout is too late.
    pub(crate) fn apply_by(&self, now: BootInstant, timeout: Duration) -> ServerTime {
        let mut known = lock(&self.0);
        let Some(Sample { local, server }) = known.sample else {
            known.has_sent_undated = true;
            return UNKNOWN + timeout;
        };
        let age = now.since(local);
        // The clocks may have drifted apart since then. By more than this only after a long pause,
        // and then the command is repeated.
        let margin = (age / 1_000).min(timeout / 4);
        let apply_by = server + (age + timeout + margin);
        known.latest_apply_by = known.latest_apply_by.max(apply_by);
        apply_by
    }

    /// Returns the server time after which every command that was sent until now is too late.
    #[cfg(feature = "postgres")]
    pub(crate) fn latest_apply_by(&self) -> ServerTime {
        lock(&self.0).latest_apply_by
    }

    /// Returns the delay after which every command that was sent with at most this timeout, until
    /// the last reply, is too late. That is little more than the timeout if replies are on time,
    /// and longer if the server's clock was set back meanwhile.
    pub(crate) fn time_until_rejected(&self, now: BootInstant, timeout: Duration) -> Duration {
        let known = lock(&self.0);
        let unknown = 2 * timeout + timeout / 4;
        match known.sample {
            Some(Sample { local, server }) if !known.has_sent_undated => {
                // An old sample says nothing about a step since then.
                let is_fresh = now.since(local) <= timeout;
                let step = if is_fresh { MAX_STEP } else { Duration::ZERO };
                let delay = known.latest_apply_by.since(server) + timeout / 16;
                delay.min(unknown + step)
            }
            _ => unknown,
        }
    }

    /// Returns a local time that is not after a grant made at `granted` server time. The grant's
    /// age is then never underestimated.
    pub(crate) fn earliest_grant_time(
        &self,
        granted: ServerTime,
        received: BootInstant,
    ) -> Option<BootInstant> {
        let Sample { local, server } = lock(&self.0).sample?;
        if received.since(local) > MAX_SAMPLE_AGE {
            return None;
        }
        let bound = local + granted.since(server) - server.since(granted);
        // A grant from the future means that a clock has moved.
        (bound <= received).then_some(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    #[test]
    fn a_grants_age_is_never_underestimated() {
        let time = ServerClock::default();
        assert_eq!(
            time.earliest_grant_time(ServerTime(5_000_000), at(100)),
            None,
            "nothing known"
        );
        time.update(at(1_000), ServerTime(5_000_000));
        assert_eq!(
            time.earliest_grant_time(ServerTime(5_200_000), at(1_300)),
            Some(at(1_200))
        );
        assert_eq!(
            time.earliest_grant_time(ServerTime(4_900_000), at(1_300)),
            Some(at(900))
        );
        assert_eq!(
            time.earliest_grant_time(ServerTime(5_400_000), at(1_300)),
            None,
            "a grant from the future"
        );
        assert_eq!(
            time.earliest_grant_time(ServerTime(5_200_000), at(2_001)),
            None,
            "the sample is too old"
        );
    }

    #[test]
    fn a_nonsensical_server_clock_does_not_overflow() {
        let time = ServerClock::default();
        time.update(at(1_000), ServerTime(u64::MAX));
        let timeout = Duration::from_secs(1);
        assert_eq!(time.apply_by(at(1_100), timeout), ServerTime(u64::MAX));
    }

    #[test]
    fn an_older_reply_does_not_replace_a_newer_one() {
        let (time, timeout) = (ServerClock::default(), Duration::from_secs(1));
        time.update(at(1_000), ServerTime(5_000_000));
        time.update(at(900), ServerTime(1));
        assert_eq!(time.apply_by(at(1_500), timeout), ServerTime(6_500_500));
    }

    /// Also one that was sent with an older sample, which allowed for more drift.
    #[test]
    fn a_release_is_repeated_after_every_command_is_too_late() {
        let (time, timeout) = (ServerClock::default(), Duration::from_secs(1));
        let unknown = timeout * 2 + timeout / 4;
        assert_eq!(
            time.time_until_rejected(at(0), timeout),
            unknown,
            "nothing known"
        );
        time.update(at(1_000), ServerTime(5_000_000));
        let apply_by = time.apply_by(at(101_000), timeout);
        assert_eq!(apply_by, ServerTime(106_100_000), "a thousandth of 100 s");
        time.update(at(101_000), ServerTime(105_000_000));
        time.apply_by(at(101_000), timeout / 10);
        let delay = time.time_until_rejected(at(101_010), timeout);
        assert_eq!(delay, Duration::from_micros(1_100_000) + timeout / 16);
        // A clock that was set back reaches the deadlines later.
        time.update(at(101_100), ServerTime(104_600_000));
        let delay = time.time_until_rejected(at(101_110), timeout);
        assert_eq!(delay, Duration::from_micros(1_500_000) + timeout / 16);
        time.update(at(101_200), ServerTime(1_000_000));
        let delay = |now| time.time_until_rejected(at(now), timeout);
        assert_eq!(delay(101_210), unknown + MAX_STEP);
        assert_eq!(delay(109_000), unknown, "an old sample");
        time.update(at(101_300), ServerTime(105_300_000));
        // An hour without a reply allows for no more drift than that.
        assert_eq!(
            time.apply_by(at(3_701_300), timeout),
            ServerTime(3_706_550_000)
        );
    }
}
