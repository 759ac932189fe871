//! Failed and late renewals, logged in at most one line per second, however many holds there are.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::protocol::messages::Owner;
use crate::util::clock::Moment;
use crate::util::mutex::lock;

const TELL_EVERY: Duration = Duration::from_secs(1);

/// The holds with failed or late renewals.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    /// Since the last report.
    failed: BTreeSet<Owner>,
    slow: BTreeSet<Owner>,
    /// The shortest remaining time of a slow hold.
    slack: Option<Duration>,
    told_at: Option<Moment>,
}

/// A summary of failed and late renewals, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The number of holds that could not be renewed.
    pub(crate) failed: usize,
    /// The number of holds that were renewed late.
    pub(crate) slow: usize,
    /// The shortest remaining time of a hold that was renewed late.
    pub(crate) slack: Duration,
}

impl Renewals {
    /// Records failed and late renewals. Returns a summary if one is to be logged now.
    pub(crate) fn trouble(
        &self,
        failed: impl Iterator<Item = Owner>,
        slow: impl Iterator<Item = (Owner, Duration)>,
        now: Moment,
    ) -> Option<Failing> {
        let mut untold = lock(&self.0);
        let since_told = untold.told_at.map(|told| now.since(told));
        // The holds of an earlier outage have been renewed or lost since.
        if since_told.is_none_or(|since| since >= TELL_EVERY * 2) {
            *untold = Untold {
                told_at: untold.told_at,
                ..Untold::default()
            };
        }
        untold.failed.extend(failed);
        for (owner, slack) in slow {
            untold.slow.insert(owner);
            untold.slack = Some(untold.slack.map_or(slack, |least| least.min(slack)));
        }
        if since_told.is_some_and(|since| since < TELL_EVERY) {
            return None;
        }
        let failing = Failing {
            failed: untold.failed.len(),
            slow: untold.slow.len(),
            slack: untold.slack.unwrap_or_default(),
        };
        *untold = Untold {
            told_at: Some(now),
            ..Untold::default()
        };
        Some(failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [Owner; 0] = [];

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    #[test]
    fn both_kinds_share_one_line_a_second() {
        let renewals = Renewals::default();
        let none = || std::iter::empty();
        let slack = Duration::from_millis(7);
        let slow = renewals.trouble(NOBODY.into_iter(), [(1, slack)].into_iter(), at(1_000));
        let failing = |failed| Failing {
            failed,
            slow: 1,
            slack,
        };
        assert_eq!(slow, Some(failing(0)));
        assert_eq!(renewals.trouble([2].into_iter(), none(), at(1_500)), None);
        assert_eq!(
            renewals.trouble([2, 3].into_iter(), none(), at(1_999)),
            None
        );
        let told = renewals.trouble([3].into_iter(), [(1, slack)].into_iter(), at(2_000));
        assert_eq!(told, Some(failing(2)));
        // Holds recorded in an outage that ended long ago do not count in the next one.
        assert_eq!(renewals.trouble([7].into_iter(), none(), at(2_100)), None);
        let told = renewals.trouble([8].into_iter(), none(), at(9_000));
        assert_eq!(told.map(|told| told.failed), Some(1));
    }
}
