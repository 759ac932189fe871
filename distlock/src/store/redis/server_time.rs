//! What a client knows of the server's clock: enough to say by when a command must be applied, and how old
//! a pushed grant is.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Moment;
use crate::mutex::lock;

/// What this client knows of the server's clock: a local time, and a server time that is not before it.
#[derive(Debug, Default)]
pub(super) struct ServerTime(Mutex<Option<(Moment, u64)>>);

/// A pair of times that is older says nothing about the age of a grant.
const FRESH: Duration = Duration::from_secs(1);

impl ServerTime {
    pub(super) fn learn(&self, sent: Moment, server_micros: u64) {
        let mut pair = lock(&self.0);
        if pair.is_none_or(|(known, _)| sent >= known) {
            *pair = Some((sent, server_micros));
        }
    }

    /// The server's time now, never less than it is unless its clock moved.
    pub(super) fn estimate(&self, now: Moment) -> u64 {
        match *lock(&self.0) {
            Some((sent, server)) => server.saturating_add(micros(now.since(sent))),
            // Nothing is known: never too late.
            None => 1 << 52,
        }
    }

    /// The server's time after which a command with this deadline comes too late. The older what is
    /// known, the more the clocks may have drifted apart.
    pub(super) fn latest(&self, now: Moment, within: Duration) -> u64 {
        let age = (*lock(&self.0)).map_or(Duration::ZERO, |(sent, _)| now.since(sent));
        self.estimate(now) + micros(within + age / 1_000)
    }

    /// A local time before which a grant made at `granted` server time was not made later.
    pub(super) fn bound(&self, granted: u64, received: Moment) -> Option<Moment> {
        let (sent, server) = (*lock(&self.0))?;
        if received.since(sent) > FRESH {
            return None;
        }
        let bound = match granted.checked_sub(server) {
            Some(later) => sent + Duration::from_micros(later),
            None => sent - Duration::from_micros(server - granted),
        };
        // A grant from the future: a clock moved.
        (bound <= received).then_some(bound)
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    #[test]
    fn a_grants_age_is_never_underestimated() {
        let time = ServerTime::default();
        assert_eq!(time.bound(5_000_000, at(100)), None, "nothing known");
        time.learn(at(1_000), 5_000_000);
        assert_eq!(time.bound(5_200_000, at(1_300)), Some(at(1_200)));
        assert_eq!(time.bound(4_900_000, at(1_300)), Some(at(900)));
        assert_eq!(
            time.bound(5_400_000, at(1_300)),
            None,
            "a grant from the future"
        );
        assert_eq!(
            time.bound(5_200_000, at(2_001)),
            None,
            "the pair is too old"
        );
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let time = ServerTime::default();
        time.learn(at(1_000), 5_000_000);
        time.learn(at(900), 1);
        assert_eq!(time.estimate(at(1_500)), 5_500_000);
    }
}
