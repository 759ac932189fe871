//! The release of an acquisition: of its lock, its queue entry, or an acquire without a reply.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::observer::event::RecordOutcome;
use crate::protocol::messages::ReleaseReply;
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::util::backoff::Backoff;
use crate::util::clock::BootInstant;

/// The pause before a rejected release is retried. It doubles every time, so that a release that is
/// always rejected does not hold up others.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

#[derive(Debug)]
pub(super) struct Releasing {
    /// How long the key stays taken, counted from `began`.
    keep_for: Duration,
    /// The token of the hold whose success is to be recorded. The same in every repeat (P10).
    succeeded_under: Option<FencingToken>,
    /// Set once it is known whether the success is recorded, or can no longer become known.
    is_record_decided: bool,
    began: BootInstant,
    /// The safe deadline of the hold that ends with this release, if it was still valid.
    safe_until: Option<BootInstant>,
    /// The time until which the store keeps the queue entry, if there may be one.
    queue_entry_expires_at: Option<BootInstant>,
    /// Set if a failed attempt may nevertheless have been applied.
    may_be_applied: bool,
    /// Set until the first reply if an acquire went unanswered. The release is then sent twice
    /// (R2).
    after_unanswered: bool,
    backoff: Backoff,
}

/// The result of an attempt to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseStep {
    /// The release is complete.
    Done,
    /// The lock was no longer this owner's, although its hold was valid (R30).
    NotHeld,
    /// The release is repeated at this time. No caller needs to wait for that.
    RepeatAt(BootInstant),
}

impl Releasing {
    pub(super) fn new(after_unanswered: bool, now: BootInstant) -> Self {
        Releasing {
            keep_for: Duration::ZERO,
            succeeded_under: None,
            is_record_decided: false,
            began: now,
            safe_until: None,
            queue_entry_expires_at: None,
            may_be_applied: false,
            after_unanswered,
            backoff: BACKOFF,
        }
    }

    /// Keeps the key for the rest of `min_hold`, and has the success recorded if the call runs at
    /// most once.
    pub(super) fn after_success(
        self,
        request: &Request,
        token: FencingToken,
        since: BootInstant,
    ) -> Self {
        let held_for = self.began.since(since);
        let min_hold = request.options.min_hold.unwrap_or_default();
        Releasing {
            keep_for: min_hold.saturating_sub(held_for),
            succeeded_under: request.once.as_ref().map(|_| token),
            ..self
        }
    }

    /// Sets the safe deadline of the hold that ends, if it was still valid.
    pub(super) fn with_valid_hold(self, safe_until: Option<BootInstant>) -> Self {
        Releasing { safe_until, ..self }
    }

    /// Sets the time until which the store may keep a queue entry.
    pub(super) fn with_queue_entry(self, expires_at: BootInstant) -> Self {
        Releasing {
            queue_entry_expires_at: Some(expires_at),
            ..self
        }
    }

    /// Returns how long a release that is sent now keeps the key. A repeated one keeps it no longer
    /// than the first would have.
    pub(super) fn keep_for(&self, now: BootInstant) -> Duration {
        self.keep_for.saturating_sub(now.since(self.began))
    }

    pub(super) fn is_after_unanswered(&self) -> bool {
        self.after_unanswered
    }

    pub(super) fn succeeded_under(&self) -> Option<FencingToken> {
        self.succeeded_under
    }

    /// Returns, once, whether the success is recorded, if the reply says so.
    pub(super) fn record_outcome(
        &mut self,
        reply: &Result<ReleaseReply, StoreError>,
    ) -> Option<RecordOutcome> {
        let outcome = match reply {
            Ok(released) if released.is_recorded => RecordOutcome::Recorded,
            // An earlier attempt may have recorded it, and a later run has replaced the record.
            Ok(released) if !released.was_held && self.may_be_applied => RecordOutcome::Unknown,
            Ok(_) => RecordOutcome::Refused,
            Err(_) => return None,
        };
        self.decide_record(outcome)
    }

    /// Ends the wait for a reply. Returns `Unknown` for a success that no reply has decided.
    pub(super) fn abandon_record(&mut self) -> Option<RecordOutcome> {
        self.decide_record(RecordOutcome::Unknown)
    }

    fn decide_record(&mut self, outcome: RecordOutcome) -> Option<RecordOutcome> {
        self.succeeded_under?;
        (!std::mem::replace(&mut self.is_record_decided, true)).then_some(outcome)
    }

    /// Returns true once all state in the store has expired.
    pub(super) fn has_expired(&self, ttl: Duration, now: BootInstant) -> bool {
        now >= self.began + ttl && self.queue_entry_expires_at.is_none_or(|at| now >= at)
    }

    pub(super) fn handle_reply(
        &mut self,
        reply: Result<ReleaseReply, StoreError>,
        now: BootInstant,
    ) -> ReleaseStep {
        match reply {
            Ok(released) => {
                self.after_unanswered = false;
                // If the hold is still valid and the first release did not find its lock, the lock
                // had already been lost. A hold that may have expired meanwhile proves nothing.
                let was_valid = self.safe_until.take().is_some_and(|at| now < at);
                if was_valid && !released.was_held && !self.may_be_applied {
                    return ReleaseStep::NotHeld;
                }
                match released.repeat_after {
                    Some(after) => ReleaseStep::RepeatAt(now + after),
                    None => ReleaseStep::Done,
                }
            }
            Err(error) => {
                self.may_be_applied |= !error.unsent;
                // All releases are retried once the store is back.
                if error.is_unanswered() {
                    return ReleaseStep::RepeatAt(now);
                }
                ReleaseStep::RepeatAt(now + self.backoff.next_delay())
            }
        }
    }
}

#[cfg(test)]
mod tests;
