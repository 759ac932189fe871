//! A client's knowledge of the server's clock: enough to set the time by which a command must be
//! applied, and to date a pushed grant.

use std::sync::Mutex;
use std::time::Duration;

use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Bounds of the server's clock. `pair` is a local time, and a server time that is not before it.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    pair: Mutex<Option<Pair>>,
    /// A server time, and a local time that is not before it: the closest pair so far.
    least: Mutex<Option<Pair>>,
}

/// A local time, and a server time (µs).
#[derive(Clone, Copy, Debug)]
struct Pair {
    local: Moment,
    server: u64,
}

/// Maximum age of a pair that is used to date a grant.
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

    /// Returns the server's current time or a later one, unless its clock has moved.
    pub(crate) fn estimate(&self, now: Moment) -> u64 {
        match *lock(&self.pair) {
            Some(Pair { local, server }) => server.saturating_add(micros(now.since(local))),
            // Without a pair, no command is too late.
            None => 1 << 52,
        }
    }

    /// Records the server time in a reply that has just arrived, to a command sent at `sent`.
    pub(crate) fn hear(&self, sent: Moment, server_micros: u64, now: Moment) {
        self.learn(sent, server_micros);
        let mut least = lock(&self.least);
        let known = least.map(|known| at_least(known, now));
        // After the clock stepped back, the known bound is too late.
        let latest = server_micros.saturating_add(micros(now.since(sent)));
        if known.is_none_or(|known| known < server_micros || known > latest) {
            *least = Some(Pair {
                local: now,
                server: server_micros,
            });
        }
    }

    /// Returns a lower bound of the server's current time, or `None` if nothing is known. It is
    /// hardly ever low by more than the shortest one-way latency of a reply.
    pub(crate) fn least(&self, now: Moment) -> Option<u64> {
        lock(&self.least).map(|known| at_least(known, now))
    }

    /// Returns the server time after which a command with this timeout is too late. The margin
    /// grows with the age of the pair, because the clocks may have drifted apart.
    pub(crate) fn latest(&self, now: Moment, within: Duration) -> u64 {
        let age = (*lock(&self.pair)).map_or(Duration::ZERO, |pair| now.since(pair.local));
        self.estimate(now) + micros(within + age / 1_000)
    }

    /// Returns a local time that is not after a grant made at `granted` server time. The grant's
    /// age is then never underestimated.
    pub(crate) fn bound(&self, granted: u64, received: Moment) -> Option<Moment> {
        let Pair { local, server } = (*lock(&self.pair))?;
        if received.since(local) > FRESH {
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
        // This reply took 1 ms to arrive, and the previous one 20 ms.
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
