//! A hold and its safe deadline (R9). No other module computes that of an acquisition.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fencing::FencingToken;
use crate::observer::event::AcquirePath;
use crate::protocol::kind::Kind;
use crate::protocol::messages::Grant;
use crate::protocol::rules::rule;
use crate::protocol::timing::Timing;
use crate::util::clock::BootInstant;

/// Marks the safe deadline of a hold that has ended. It is never removed.
const CLOSED: u64 = 1 << 63;

/// Returns the safe deadline of a hold whose validity starts at `from`.
pub(crate) fn safe_until(from: BootInstant, timing: Timing) -> BootInstant {
    from + timing.validity()
}

/// Returns the time until which a pushed grant is valid without a confirmation (R12), or `None` if
/// less than half of its lease is left until then, or its age is unknown.
pub(crate) fn granted_until(
    grant: &Grant,
    timing: Timing,
    now: BootInstant,
) -> Option<BootInstant> {
    let timing = Timing::new(grant.lease.min(timing.lease));
    let from = if rule!(grant_age) {
        grant.granted_at?
    } else {
        now
    };
    let safe_until = safe_until(from, timing);
    (safe_until.since(now) >= timing.lease / 2).then_some(safe_until)
}

/// A hold. The acquisition, and every handle of it, share it.
#[derive(Debug)]
pub(crate) struct Hold {
    /// That of the request, or a read after a downgrade.
    pub(crate) kind: Kind,
    pub(crate) token: FencingToken,
    pub(crate) since: BootInstant,
    pub(crate) origin: GrantOrigin,
    /// The safe deadline. One atomic, because every check of whether the lock is held reads it.
    safe_until: AtomicU64,
}

/// How and when a lock was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantOrigin {
    pub(crate) path: AcquirePath,
    /// The earliest possible time of the grant, if the lock was handed off and the time is known.
    pub(crate) granted_at: Option<BootInstant>,
}

impl GrantOrigin {
    /// The origin of a lock that was free.
    pub(crate) const FREE: GrantOrigin = GrantOrigin {
        path: AcquirePath::Free,
        granted_at: None,
    };
}

impl Hold {
    /// Returns a hold that is valid until `safe_until`.
    pub(crate) fn new(
        kind: Kind,
        token: FencingToken,
        since: BootInstant,
        origin: GrantOrigin,
        safe_until: BootInstant,
    ) -> Self {
        Hold {
            kind,
            token,
            since,
            origin,
            safe_until: AtomicU64::new(safe_until.0 & !CLOSED),
        }
    }

    /// Moves the safe deadline to `safe_until`, but never to an earlier time, and not if the hold
    /// has ended: the proof then comes too late.
    pub(crate) fn extend(&self, safe_until: BootInstant, now: BootInstant) {
        // A later deadline is a greater number, and a closed one is greater than all that are open.
        if self.check_and_close(now) {
            self.safe_until
                .fetch_max(safe_until.0 & !CLOSED, Ordering::AcqRel);
        }
    }

    /// Moves the safe deadline to `until` if that is earlier and the hold has not ended.
    pub(crate) fn shorten(&self, until: BootInstant) {
        // An error means that the deadline is already early enough, or the hold has ended.
        let _ = self
            .safe_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
                (until.0 < current && current < CLOSED).then_some(until.0)
            });
    }

    /// Returns true if the hold is valid. Once false, it stays false: the first call that finds the
    /// deadline passed closes the hold, so that no proof that is just arriving can revive it.
    pub(crate) fn check_and_close(&self, now: BootInstant) -> bool {
        let mut current = self.safe_until.load(Ordering::Acquire);
        while current < CLOSED {
            if now.0 < current {
                return true;
            }
            match self.safe_until.compare_exchange(
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
        let current = self.safe_until.load(Ordering::Acquire);
        (current < CLOSED).then_some(BootInstant(current))
    }

    /// Returns the safe deadline, even after the hold has ended.
    pub(crate) fn last_safe_until(&self) -> BootInstant {
        BootInstant(self.safe_until.load(Ordering::Acquire) & !CLOSED)
    }

    /// Ends the hold. Returns its safe deadline if it was still valid.
    pub(crate) fn close(&self, now: BootInstant) -> Option<BootInstant> {
        let before = self.safe_until.fetch_or(CLOSED, Ordering::AcqRel);
        (now.0 < before && before < CLOSED).then_some(BootInstant(before))
    }
}

/// Returns `safe_until`, or `limit` if that is earlier: no hold is valid beyond its limit.
pub(crate) fn limited(safe_until: BootInstant, limit: Option<BootInstant>) -> BootInstant {
    match limit {
        Some(limit) => safe_until.min(limit),
        #[cfg(sabotage)]
        None if !rule!(safe_deadline) => safe_until + std::time::Duration::from_secs(3_600),
        None => safe_until,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant(ms * 1_000_000)
    }

    fn begun() -> Hold {
        let token = FencingToken::new(7);
        Hold::new(Kind::Mutex, token, at(1_000), GrantOrigin::FREE, at(1_300))
    }

    #[test]
    fn a_hold_ends_at_its_safe_deadline_and_is_not_revived() {
        let hold = begun();
        assert!(hold.check_and_close(at(1_299)));
        assert!(!hold.check_and_close(at(1_300)));
        hold.extend(at(9_000), at(1_250));
        assert!(!hold.check_and_close(at(1_200)), "lost stays lost");
        assert_eq!(hold.safe_until(), None);
    }

    #[test]
    fn a_proof_never_shortens_and_never_passes_the_limit() {
        let hold = begun();
        hold.extend(at(1_200), at(1_000));
        assert_eq!(hold.safe_until(), Some(at(1_300)));
        let limit = Some(at(1_500));
        assert_eq!(limited(at(9_000), limit), at(1_500));
        assert_eq!(limited(at(1_400), limit), at(1_400));
    }

    #[test]
    fn a_limit_shortens_a_hold_that_has_not_ended() {
        let hold = begun();
        for (until, expected) in [(1_200, 1_200), (1_250, 1_200)] {
            hold.shorten(at(until));
            assert_eq!(hold.safe_until(), Some(at(expected)));
        }
        hold.close(at(1_000));
        hold.shorten(at(1_100));
        assert_eq!(hold.last_safe_until(), at(1_200));
    }

    #[test]
    fn an_end_reports_whether_the_hold_was_valid() {
        assert_eq!(begun().close(at(1_299)), Some(at(1_300)));
        assert_eq!(begun().close(at(1_300)), None);
        let hold = begun();
        hold.close(at(1_000));
        assert_eq!(hold.close(at(1_000)), None);
    }

    #[test]
    fn a_grant_is_valid_by_its_age_while_half_of_it_remains() {
        let grant = |granted_at| Grant {
            kind: Kind::Mutex,
            key: crate::key::LockKey::new("k").unwrap(),
            owner: crate::protocol::messages::OwnerId(1),
            token: crate::fencing::FencingToken::new(7),
            granted_at,
            lease: Duration::from_secs(1),
        };
        let timing = Timing::new(Duration::from_secs(30));
        let valid = |granted_at, now| granted_until(&grant(granted_at), timing, now);
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
