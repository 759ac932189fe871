//! What a client knows to be in its store: the fence of a key that it acquired, and the success
//! records that it wrote or found.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::config::options::DEFAULT_FENCE_TTL;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::Inspection;
use crate::protocol::request::Request;
use crate::util::clock::BootInstant;
use crate::util::sync::lock;

/// Upper limit of the success records that a client remembers.
const MAX_SUCCESSES: usize = 256;

/// How much the clocks of a client and of its store may differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(300);

/// A key, the token with which it was acquired, and an instant before that.
pub(crate) type Acquired = (LockKey, FencingToken, BootInstant);

/// What a client knows to be in its store.
#[derive(Debug)]
pub(crate) struct KnownData {
    fence_ttl: Duration,
    last_acquired: Mutex<Option<Acquired>>,
    /// The key and the selector of success records, with an instant before the run.
    successes: Mutex<VecDeque<(LockKey, String, BootInstant)>>,
    /// When a loss was reported, which covers everything that was acquired before.
    lost_at: Mutex<BootInstant>,
    pub(crate) has_warned_of_persistence: AtomicBool,
}

impl KnownData {
    pub(crate) fn new(fence_ttl: Duration) -> Self {
        KnownData {
            fence_ttl,
            last_acquired: Mutex::default(),
            successes: Mutex::default(),
            lost_at: Mutex::default(),
            has_warned_of_persistence: AtomicBool::new(false),
        }
    }

    pub(crate) fn record_acquired(&self, request: &Request, token: FencingToken) {
        // Any recent acquisition will do, so no call waits for another one here.
        if let Ok(mut last_acquired) = self.last_acquired.try_lock() {
            *last_acquired = Some((request.key.clone(), token, request.started));
        }
    }

    pub(crate) fn last_acquired(&self) -> Option<Acquired> {
        lock(&self.last_acquired).clone()
    }

    /// Returns true if an inspection of a key shows that the fence of its acquisition is lost, or
    /// replaced by that of an earlier one. A loss is reported once.
    pub(crate) fn is_lost(
        &self,
        acquired: &Acquired,
        found: &Inspection,
        now: BootInstant,
    ) -> bool {
        let (_, token, acquired_at) = acquired;
        // A quorum reports a server that lost its data itself.
        let is_readable = found.servers.is_empty() && found.key_conflict.is_none();
        // Another client may have set the default TTL.
        let fence_ttl = self.fence_ttl.min(DEFAULT_FENCE_TTL);
        let is_kept = now < *acquired_at + fence_ttl / 10 * 9;
        let mut lost_at = lock(&self.lost_at);
        let is_new = *acquired_at > *lost_at;
        let is_lost = is_readable && is_kept && is_new && found.last_token < Some(*token);
        *lost_at = if is_lost { now } else { *lost_at };
        is_lost
    }

    /// Records that the store has a success record of this call, whose run began after `since`.
    pub(crate) fn record_success(&self, request: &Request, since: BootInstant) {
        if let Some(once) = &request.once {
            self.forget_success(&request.key, &once.selector);
            let mut successes = lock(&self.successes);
            successes.truncate(MAX_SUCCESSES - 1);
            successes.push_front((request.key.clone(), once.selector.clone(), since));
        }
    }

    /// Forgets a success record, and returns an instant before its run.
    pub(crate) fn forget_success(&self, key: &LockKey, selector: &str) -> Option<BootInstant> {
        let mut successes = lock(&self.successes);
        let at = successes
            .iter()
            .position(|it| it.0 == *key && it.1 == selector)?;
        successes.remove(at).map(|(_, _, since)| since)
    }

    /// Returns true if the record of an earlier success must be gone, because this call acquired
    /// its lock although that success was not long ago.
    pub(crate) fn is_record_gone(&self, request: &Request, now: BootInstant) -> bool {
        let Some(once) = &request.once else {
            return false;
        };
        let since = self.forget_success(&request.key, &once.selector);
        let margin = (once.gap / 10).max(CLOCK_MARGIN);
        since.is_some_and(|since| now + margin < since + once.gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::Options;
    use crate::protocol::kind::Kind;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn request(started: BootInstant, value: Option<&str>) -> Request {
        let options = Options {
            once_per: value.is_none().then_some(HOUR),
            once_for: value.map(|value| Ok(value.to_owned())),
            ..Options::default()
        };
        Request::new(LockKey::new("k").unwrap(), Kind::Mutex, options, started)
    }

    /// The fence of a later acquisition proves that the data is there.
    #[test]
    fn a_loss_is_a_fence_that_is_gone_or_lower_before_it_expires() {
        let (known, at, token) = (KnownData::new(HOUR), BootInstant(1), FencingToken::new);
        let is_lost = |acquired: u64, last_token, at, now| {
            let acquired = (LockKey::new("k").unwrap(), token(acquired), at);
            let found = Inspection {
                last_token,
                ..Inspection::default()
            };
            known.is_lost(&acquired, &found, now)
        };
        assert!(!is_lost(7, Some(token(7)), at, at) && !is_lost(7, Some(token(8)), at, at));
        assert!(!is_lost(7, None, at, at + HOUR), "it has expired");
        assert!(is_lost(7, Some(token(6)), at, at));
        assert!(!is_lost(7, None, at, at), "it was reported");
        assert!(is_lost(9, None, at + HOUR, at + HOUR));
    }

    #[test]
    fn a_record_is_gone_if_its_work_runs_again_within_the_period() {
        let (known, at) = (KnownData::new(HOUR), BootInstant(1));
        let (periodic, of_value) = (request(at, None), request(at, Some("v")));
        known.record_success(&periodic, at);
        assert!(!known.is_record_gone(&of_value, at));
        assert!(known.is_record_gone(&periodic, at));
        assert!(!known.is_record_gone(&periodic, at), "it was reported");
        known.record_success(&periodic, at);
        assert!(!known.is_record_gone(&periodic, at + HOUR), "it was time");
        for n in 0..=MAX_SUCCESSES {
            known.record_success(&request(at, Some(&n.to_string())), at);
        }
        assert!(!known.is_record_gone(&request(at, Some("0")), at));
        assert!(known.is_record_gone(&request(at, Some("1")), at));
    }
}
