//! What a client knows of the server's clock: enough to say by when a command must be applied, and
//! how old a pushed grant is.

use std::sync::Mutex;
use std::time::Duration;

use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// What this client knows of the server's clock: a local time, and a server time that is not before
/// it.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    pair: Mutex<Option<Pair>>,
    /// A server time, and a local time that is not before it, as close together as they ever were.
    least: Mutex<Option<Pair>>,
}

/// A local time, and a server time (µs).
#[derive(Clone, Copy, Debug)]
struct Pair {
    local: Moment,
    server: u64,
}

/// A pair of times that is older says nothing about the age of a grant.
const FRESH: Duration = Duration::from_secs(1);

impl ServerTime {
    pub(crate) fn learn(&self, sent: Moment, server_micros: u64) {
        let mut pair = lock(&self.pair);
        if pair.is_none_or(|known| sent >= known.local) {
            *pair = Some(Pair {
                local: sent,
                server: server_micros,
            });
        }
    }

    /// The server's time now, never less than it is unless its clock moved.
    pub(crate) fn estimate(&self, now: Moment) -> u64 {
        match *lock(&self.pair) {
            Some(Pair { local, server }) => server.saturating_add(micros(now.since(local))),
            // Nothing is known: never too late.
            None => 1 << 52,
        }
    }

    /// An answer that says so has just arrived, to what was sent then.
    pub(crate) fn hear(&self, sent: Moment, server_micros: u64, now: Moment) {
        self.learn(sent, server_micros);
        let mut least = lock(&self.least);
        let known = least.map(|known| at_least(known, now));
        // A clock that stepped back makes all that was known too late.
        let latest = server_micros.saturating_add(micros(now.since(sent)));
        if known.is_none_or(|known| known < server_micros || known > latest) {
            *least = Some(Pair {
                local: now,
                server: server_micros,
            });
        }
    }

    /// What the server's time certainly is by now, and hardly ever less by more than the shortest
    /// way of an answer; `None` if nothing is known.
    pub(crate) fn least(&self, now: Moment) -> Option<u64> {
        lock(&self.least).map(|known| at_least(known, now))
    }

    /// The server's time after which a command with this deadline comes too late. The older what is
    /// known, the more the clocks may have drifted apart.
    pub(crate) fn latest(&self, now: Moment, within: Duration) -> u64 {
        let age = (*lock(&self.pair)).map_or(Duration::ZERO, |pair| now.since(pair.local));
        self.estimate(now) + micros(within + age / 1_000)
    }

    /// A local time before which a grant made at `granted` server time was not made later.
    pub(crate) fn bound(&self, granted: u64, received: Moment) -> Option<Moment> {
        let Pair { local, server } = (*lock(&self.pair))?;
        if received.since(local) > FRESH {
            return None;
        }
        let bound = match granted.checked_sub(server) {
            Some(later) => local + Duration::from_micros(later),
            None => local - Duration::from_micros(server - granted),
        };
        // A grant from the future: a clock moved.
        (bound <= received).then_some(bound)
    }
}

/// Clocks that run at different rates are allowed for.
fn at_least(known: Pair, now: Moment) -> u64 {
    let since = micros(now.since(known.local));
    known.server.saturating_add(since - since / 1_000)
}

pub(crate) fn micros(duration: Duration) -> u64 {
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
    fn the_least_is_that_of_the_quickest_answer() {
        let time = ServerTime::default();
        assert_eq!(time.least(at(0)), None);
        time.hear(at(1_000), 5_000_000, at(1_020));
        assert_eq!(time.least(at(1_020)), Some(5_000_000));
        // It took a millisecond back, and the one before twenty.
        time.hear(at(1_100), 5_100_000, at(1_101));
        assert_eq!(time.least(at(1_101)), Some(5_100_000));
        time.hear(at(1_200), 5_205_000, at(1_250));
        assert!(time.least(at(1_250)).is_some_and(|least| least > 5_248_000));
        // The clock steps back.
        time.hear(at(1_300), 1_000_000, at(1_301));
        assert_eq!(time.least(at(1_301)), Some(1_000_000));
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let time = ServerTime::default();
        time.learn(at(1_000), 5_000_000);
        time.learn(at(900), 1);
        assert_eq!(time.estimate(at(1_500)), 5_500_000);
    }
}
