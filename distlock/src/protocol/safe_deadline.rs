//! The safe deadline of a hold (R9). No other module computes that of an acquisition.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::messages::Grant;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::util::clock::BootInstant;

/// Marks the safe deadline of a hold that has ended. It is never removed.
const CLOSED: u64 = 1 << 63;

/// Added to the safe deadline where rule R9 is broken, so that a hold never ends by itself.
const NEVER: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Returns the time from which the proof in a reply counts: the send of its command, because the
/// server may have applied the command at once (R10).
pub(crate) fn proven_from(rules: Rules, sent_at: BootInstant, now: BootInstant) -> BootInstant {
    if rules.deadline_from_send {
        sent_at
    } else {
        now
    }
}

/// Returns the safe deadline of a hold whose validity starts at `from`.
pub(crate) fn safe_until(from: BootInstant, timing: Timing) -> BootInstant {
    from + timing.validity()
}

/// Returns the time until which a pushed grant is valid without a confirmation (R12), or `None` if
/// less than half of its lease is left until then, or its age is unknown.
pub(crate) fn granted_until(
    rules: Rules,
    grant: &Grant,
    timing: Timing,
    now: BootInstant,
) -> Option<BootInstant> {
    let timing = Timing::new(grant.lease.min(timing.lease));
    let from = if rules.grant_age {
        grant.granted_at?
    } else {
        now
    };
    let safe_until = safe_until(from, timing);
    (safe_until.since(now) >= timing.lease / 2).then_some(safe_until)
}

/// The safe deadline of a hold. The acquisition uses it to decide when the hold ends, and every
/// check of whether the lock is held reads it. Such a check must cost next to nothing, so the
/// deadline is one atomic.
#[derive(Debug)]
pub(crate) struct SafeDeadline(AtomicU64);

impl SafeDeadline {
    /// Returns the safe deadline of a new hold: `safe_until`, or `limit` if that is earlier.
    pub(crate) fn new(rules: Rules, safe_until: BootInstant, limit: Option<BootInstant>) -> Self {
        let safe_until = limited(rules, safe_until, limit);
        SafeDeadline(AtomicU64::new(safe_until.0 & !CLOSED))
    }

    /// Moves the safe deadline to `safe_until`, but never to an earlier time. Returns false if the
    /// hold has ended: the proof then comes too late and changes nothing.
    pub(crate) fn extend(
        &self,
        rules: Rules,
        safe_until: BootInstant,
        limit: Option<BootInstant>,
        now: BootInstant,
    ) -> bool {
        let safe_until = limited(rules, safe_until, limit).0 & !CLOSED;
        // A later deadline is a greater number, and a closed one is greater than all that are open.
        self.check_valid(now) && self.0.fetch_max(safe_until, Ordering::AcqRel) < CLOSED
    }

    /// Moves the safe deadline to `until` if that is earlier and the hold has not ended.
    pub(crate) fn shorten(&self, until: BootInstant) {
        // An error means that the deadline is already early enough, or the hold has ended.
        let _ = (self.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
            (until.0 < current && current < CLOSED).then_some(until.0)
        });
    }

    /// Returns true if the hold is valid. Once false, it stays false: the first call that finds the
    /// deadline passed closes the hold, so that no proof that is just arriving can revive it.
    pub(crate) fn check_valid(&self, now: BootInstant) -> bool {
        let mut current = self.0.load(Ordering::Acquire);
        while current < CLOSED {
            if now.0 < current {
                return true;
            }
            match self.0.compare_exchange(
                current,
                current | CLOSED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return false,
                Err(other) => current = other,
            }
        }
        false
    }

    /// Returns the safe deadline without reading the clock, or `None` once the hold is closed.
    pub(crate) fn safe_until(&self) -> Option<BootInstant> {
        let current = self.0.load(Ordering::Acquire);
        (current < CLOSED).then_some(BootInstant(current))
    }

    /// Returns the safe deadline, even after the hold has ended.
    pub(crate) fn last_safe_until(&self) -> BootInstant {
        BootInstant(self.0.load(Ordering::Acquire) & !CLOSED)
    }

    /// Ends the hold. Returns its safe deadline if it was still valid.
    pub(crate) fn close(&self, now: BootInstant) -> Option<BootInstant> {
        let before = self.0.fetch_or(CLOSED, Ordering::AcqRel);
        (now.0 < before && before < CLOSED).then_some(BootInstant(before))
    }
}

/// Returns `safe_until`, or `limit` if that is earlier: no hold is valid beyond its limit.
fn limited(rules: Rules, safe_until: BootInstant, limit: Option<BootInstant>) -> BootInstant {
    match limit {
        Some(limit) => safe_until.min(limit),
        None if rules.safe_deadline => safe_until,
        None => safe_until + NEVER,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    fn begun(limit: Option<BootInstant>) -> SafeDeadline {
        SafeDeadline::new(Rules::ALL, at(1_300), limit)
    }

    #[test]
    fn a_hold_ends_at_its_safe_deadline_and_is_not_revived() {
        let safe_deadline = begun(None);
        assert!(safe_deadline.check_valid(at(1_299)));
        assert!(!safe_deadline.check_valid(at(1_300)));
        assert!(!safe_deadline.extend(Rules::ALL, at(9_000), None, at(1_250)));
        assert!(!safe_deadline.check_valid(at(1_200)), "lost stays lost");
        assert_eq!(safe_deadline.safe_until(), None);
    }

    #[test]
    fn a_proof_never_shortens_and_never_passes_the_limit() {
        let limit = Some(at(1_500));
        let safe_deadline = begun(limit);
        assert!(safe_deadline.extend(Rules::ALL, at(1_200), limit, at(1_000)));
        assert_eq!(safe_deadline.safe_until(), Some(at(1_300)));
        assert!(safe_deadline.extend(Rules::ALL, at(9_000), limit, at(1_000)));
        assert_eq!(safe_deadline.safe_until(), limit);
    }

    #[test]
    fn a_limit_shortens_a_hold_that_has_not_ended() {
        let safe_deadline = begun(None);
        for (until, expected) in [(1_200, 1_200), (1_250, 1_200)] {
            safe_deadline.shorten(at(until));
            assert_eq!(safe_deadline.safe_until(), Some(at(expected)));
        }
        safe_deadline.close(at(1_000));
        safe_deadline.shorten(at(1_100));
        assert_eq!(safe_deadline.last_safe_until(), at(1_200));
    }

    #[test]
    fn an_end_reports_whether_the_hold_was_valid() {
        assert_eq!(begun(None).close(at(1_299)), Some(at(1_300)));
        assert_eq!(begun(None).close(at(1_300)), None);
        let safe_deadline = begun(None);
        safe_deadline.close(at(1_000));
        assert_eq!(safe_deadline.close(at(1_000)), None);
    }

    #[test]
    fn a_grant_is_valid_by_its_age_while_half_of_it_remains() {
        let grant = |granted_at| Grant {
            is_counted: false,
            key: crate::key::LockKey::new("k").unwrap(),
            owner: 1,
            token: crate::fencing::FencingToken::new(7),
            granted_at,
            lease: Duration::from_secs(1),
        };
        let timing = Timing::new(Duration::from_secs(30));
        let valid = |granted_at, now| granted_until(Rules::ALL, &grant(granted_at), timing, now);
        let validity = Timing::new(Duration::from_secs(1)).validity();
        assert_eq!(valid(Some(at(500)), at(600)), Some(at(500) + validity));
        assert!(
            valid(Some(at(500)), at(988)).is_some(),
            "half of it is left"
        );
        assert_eq!(valid(Some(at(500)), at(989)), None, "too little is left");
        assert_eq!(valid(None, at(600)), None, "its age is not known");
    }
}
