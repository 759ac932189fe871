//! Decides when failed and slow renewals are logged: a few times, however many holds there are and
//! however long it lasts.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::protocol::messages::OwnerId;
use crate::util::clock::BootInstant;
use crate::util::sync::lock;

/// The ages at which a series of failures is logged. It is also logged once in the last third of a
/// lease.
const LOGGED_AGES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The interval of further lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The time without a failure that ends a series. Failed renewals are retried more often.
const MAX_GAP: Duration = Duration::from_secs(5);

/// The times at which failed and slow renewals were logged.
#[derive(Debug, Default)]
pub(crate) struct RenewalLogLimiter {
    failed: Mutex<Option<Series>>,
    slow_logged_at: Mutex<Option<BootInstant>>,
}

/// Failures of which each follows the previous one soon.
#[derive(Debug, Default)]
struct Series {
    began: BootInstant,
    last_failure: BootInstant,
    /// The holds since the last line.
    holds: BTreeSet<OwnerId>,
    logged_at: Option<BootInstant>,
    is_last_third_logged: bool,
}

impl RenewalLogLimiter {
    /// Records failed renewals. `in_last_third` is set if the lease of a hold has less than a third
    /// left. Returns the number of holds if a line is due.
    pub(crate) fn record_failed(
        &self,
        holds: impl Iterator<Item = OwnerId>,
        in_last_third: bool,
        now: BootInstant,
    ) -> Option<usize> {
        let mut failed = lock(&self.failed);
        // The holds of an earlier series have been renewed or lost since.
        failed.take_if(|series| now.since(series.last_failure) >= MAX_GAP);
        let series = failed.get_or_insert_with(|| Series {
            began: now,
            ..Series::default()
        });
        series.last_failure = now;
        series.holds.extend(holds);
        if !series.is_due(in_last_third, now) {
            return None;
        }
        series.logged_at = Some(now);
        series.is_last_third_logged |= in_last_third;
        Some(std::mem::take(&mut series.holds).len())
    }

    /// Returns true if slow renewals are to be logged, which were found now.
    pub(crate) fn is_slow_line_due(&self, now: BootInstant) -> bool {
        let mut logged_at = lock(&self.slow_logged_at);
        let is_due = logged_at.is_none_or(|at| now >= at + LOG_INTERVAL);
        if is_due {
            *logged_at = Some(now);
        }
        is_due
    }
}

impl Series {
    fn is_due(&self, in_last_third: bool, now: BootInstant) -> bool {
        let is_logged_since = |at| self.logged_at.is_some_and(|logged_at| logged_at >= at);
        let is_new = |at: BootInstant| now >= at && !is_logged_since(at);
        let mut ages = LOGGED_AGES.iter();
        ages.any(|age| is_new(self.began + *age))
            || in_last_third && !self.is_last_third_logged
            || self.logged_at.is_some_and(|at| now >= at + LOG_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    #[test]
    fn a_series_of_failures_is_logged_at_two_ages_in_the_last_third_and_every_minute() {
        let limiter = RenewalLogLimiter::default();
        let mut lines = Vec::new();
        // Two holds fail four times a second, and the first is lost after 20 s.
        for ms in (10_000..200_000).step_by(250) {
            let holds = [1, 2]
                .into_iter()
                .filter(|hold| *hold == 2 || ms < 30_000)
                .map(OwnerId);
            let in_last_third = (20_000..30_000).contains(&ms);
            if let Some(holds) = limiter.record_failed(holds, in_last_third, at(ms)) {
                lines.push((ms, holds));
            }
        }
        let expected = [
            (11_000, 2),
            (15_000, 2),
            (20_000, 2),
            (80_000, 2),
            (140_000, 1),
        ];
        assert_eq!(lines, expected);
        // A later series begins anew, without the holds of this one.
        let hold = || [OwnerId(7)].into_iter();
        assert_eq!(limiter.record_failed(hold(), false, at(300_000)), None);
        assert_eq!(limiter.record_failed(hold(), true, at(300_500)), Some(1));
        assert_eq!(limiter.record_failed(hold(), true, at(300_900)), None);
    }

    #[test]
    fn slow_renewals_are_logged_at_once_and_every_minute() {
        let limiter = RenewalLogLimiter::default();
        for (ms, is_due) in [
            (1_000, true),
            (2_000, false),
            (60_999, false),
            (61_000, true),
        ] {
            assert_eq!(limiter.is_slow_line_due(at(ms)), is_due, "{ms}");
        }
    }
}
