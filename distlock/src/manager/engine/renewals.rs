//! Renewals that fail or come late, as they are told to who watches the log: in one line a second
//! at most, however many holds there are.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::protocol::words::Owner;
use crate::util::clock::Moment;
use crate::util::mutex::lock;

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Whose renewals fail or come late.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    /// Since that was last told.
    failed: BTreeSet<Owner>,
    slow: BTreeSet<Owner>,
    /// The least that one of the slow had left.
    slack: Option<Duration>,
    told_at: Option<Moment>,
}

/// What is to be told of renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// How many holds could not be renewed.
    pub(crate) failed: usize,
    /// How many were renewed late.
    pub(crate) slow: usize,
    /// The least that was left of a hold that was renewed late.
    pub(crate) slack: Duration,
}

impl Renewals {
    /// Renewals failed, or came late, with so much left at least. What is to be told of that now.
    pub(crate) fn trouble(
        &self,
        failed: impl Iterator<Item = Owner>,
        slow: impl Iterator<Item = (Owner, Duration)>,
        now: Moment,
    ) -> Option<Failing> {
        let mut untold = lock(&self.0);
        let since_told = untold.told_at.map(|told| now.since(told));
        // Those of an earlier outage have been renewed, or are lost.
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
        // What was noted in an outage that is long over is not told in the next one.
        assert_eq!(renewals.trouble([7].into_iter(), none(), at(2_100)), None);
        let told = renewals.trouble([8].into_iter(), none(), at(9_000));
        assert_eq!(told.map(|told| told.failed), Some(1));
    }
}
