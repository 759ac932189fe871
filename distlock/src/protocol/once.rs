//! Success records: at most one successful run per period or for a value (rules P1 to P21).

use std::time::{Duration, SystemTime};

use crate::config::options::{DEFAULT_RECORD_TTL, Options};
use crate::fencing::FencingToken;
use crate::key::escape;
use crate::protocol::rules::rule;
use crate::util::clock::ServerTime;

/// Upper limit of the slack, by which a run may start before its period has passed.
const MAX_SLACK: Duration = Duration::from_secs(60);

/// How much longer than necessary a record lasts: more than an unconfirmed grant, so that it does
/// not expire between a grant and its confirmation (P8).
const RECORD_GRACE: Duration = Duration::from_secs(2);

/// What a call does at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    /// The shortest time between the acquisitions of two recorded runs.
    pub(crate) gap: Duration,
    /// The TTL of the record, counted from the release.
    pub(crate) ttl: Duration,
    /// The escaped value; empty for a period.
    pub(crate) selector: String,
}

impl Once {
    /// Returns what a call with these options does at most once.
    pub(crate) fn of(options: &Options) -> Option<Self> {
        let for_value = |value: &String| {
            let record_ttl = options.record_ttl.unwrap_or(DEFAULT_RECORD_TTL);
            Once::for_value(escape(value), record_ttl)
        };
        let per = options.once_per.map(Once::per);
        let value = || options.once_for.as_ref()?.as_ref().ok();
        per.or_else(|| value().map(for_value))
    }

    /// At most one successful run in each period. The slack lets a timer run a little early (P7).
    fn per(period: Duration) -> Self {
        let slack = (period / 10).min(MAX_SLACK);
        let slack = if rule!(slack) { slack } else { Duration::ZERO };
        Once {
            gap: period.saturating_sub(slack),
            ttl: period.saturating_mul(2) + RECORD_GRACE,
            selector: String::new(),
        }
    }

    /// At most one successful run for a value, remembered for `record_ttl`.
    fn for_value(selector: String, record_ttl: Duration) -> Self {
        Once {
            gap: record_ttl,
            ttl: record_ttl + RECORD_GRACE,
            selector,
        }
    }
}

/// A success record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// When the run acquired the lock.
    pub(crate) since: ServerTime,
    /// The gap of the run's call.
    pub(crate) gap: Duration,
    pub(crate) token: FencingToken,
    /// When the run released the lock.
    pub(crate) finished: ServerTime,
    /// The name of the client, and the metadata of the hold.
    pub(crate) holder_name: String,
}

impl Record {
    pub(crate) fn last_success(&self) -> SystemTime {
        self.since.to_system_time()
    }

    /// Returns when a call with this gap may run again.
    pub(crate) fn next(&self, gap: Duration) -> SystemTime {
        let last = self.last_success();
        last.checked_add(gap).unwrap_or(last)
    }
}
