//! Failed and slow renewals, logged in at most one line per second, however many holds there are.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::protocol::messages::OwnerNumber;
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The holds with failed or slow renewals.
#[derive(Debug, Default)]
pub(crate) struct RenewalMonitor(Mutex<Unreported>);

#[derive(Debug, Default)]
struct Unreported {
    /// Since the last report.
    failed: BTreeSet<OwnerNumber>,
    slow: BTreeSet<OwnerNumber>,
    /// The shortest remaining time of a slow hold.
    slack: Option<Duration>,
    reported_at: Option<BootInstant>,
}

/// A summary of failed and slow renewals, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalProblems {
    /// The number of holds that could not be renewed.
    pub(crate) failed: usize,
    /// The number of holds with a slow renewal.
    pub(crate) slow: usize,
    /// The shortest remaining time of a hold with a slow renewal.
    pub(crate) slack: Duration,
}

impl RenewalMonitor {
    /// Records failed and slow renewals. Returns a summary if one is to be logged now.
    pub(crate) fn record(
        &self,
        failed: impl Iterator<Item = OwnerNumber>,
        slow: impl Iterator<Item = (OwnerNumber, Duration)>,
        now: BootInstant,
    ) -> Option<RenewalProblems> {
        let mut unreported = lock(&self.0);
        let since_report = unreported
            .reported_at
            .map(|reported_at| now.since(reported_at));
        // The holds of an earlier outage have been renewed or lost since.
        if since_report.is_none_or(|since| since >= LOG_INTERVAL * 2) {
            *unreported = Unreported {
                reported_at: unreported.reported_at,
                ..Unreported::default()
            };
        }
        unreported.failed.extend(failed);
        for (owner, slack) in slow {
            unreported.slow.insert(owner);
            unreported.slack = Some(
                unreported
                    .slack
                    .map_or(slack, |shortest| shortest.min(slack)),
            );
        }
        if since_report.is_some_and(|since| since < LOG_INTERVAL) {
            return None;
        }
        let problems = RenewalProblems {
            failed: unreported.failed.len(),
            slow: unreported.slow.len(),
            slack: unreported.slack.unwrap_or_default(),
        };
        *unreported = Unreported {
            reported_at: Some(now),
            ..Unreported::default()
        };
        Some(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_OWNERS: [OwnerNumber; 0] = [];

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    #[test]
    fn both_kinds_share_one_line_a_second() {
        let monitor = RenewalMonitor::default();
        let none = || std::iter::empty();
        let slack = Duration::from_millis(7);
        let slow = monitor.record(NO_OWNERS.into_iter(), [(1, slack)].into_iter(), at(1_000));
        let expected = |failed| RenewalProblems {
            failed,
            slow: 1,
            slack,
        };
        assert_eq!(slow, Some(expected(0)));
        assert_eq!(monitor.record([2].into_iter(), none(), at(1_500)), None);
        assert_eq!(monitor.record([2, 3].into_iter(), none(), at(1_999)), None);
        let problems = monitor.record([3].into_iter(), [(1, slack)].into_iter(), at(2_000));
        assert_eq!(problems, Some(expected(2)));
        // Holds recorded in an outage that ended long ago do not count in the next one.
        assert_eq!(monitor.record([7].into_iter(), none(), at(2_100)), None);
        let problems = monitor.record([8].into_iter(), none(), at(9_000));
        assert_eq!(problems.map(|problems| problems.failed), Some(1));
    }
}
