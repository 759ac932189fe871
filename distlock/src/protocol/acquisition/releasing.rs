//! The release of an acquisition: of its lock, its queue entry, or an acquire without a reply.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::observer::event::{RecordOutcome, ReleaseOutcome};
use crate::protocol::acquisition::acquiring;
use crate::protocol::hold::Hold;
use crate::protocol::messages::ReleaseReply;
use crate::protocol::outcome::Action;
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::util::backoff::Backoff;
use crate::util::clock::BootInstant;

/// The pause before a rejected release is retried. It doubles every time, so that a release that is
/// always rejected does not hold up others.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The least pause before a release without a reply is retried once more.
const MIN_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Releasing {
    next: ReleaseStep,
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
    /// Until when an acquire may be applied after the release. `None` once a release was answered
    /// (R2).
    unanswered_until: Option<BootInstant>,
    /// Until when such an acquire may be applied, by the store's reply.
    late_until: BootInstant,
    /// Set if an acquire was applied after the release in flight was sent.
    sends_again: bool,
    /// Set if a failed attempt may nevertheless have been applied.
    may_be_applied: bool,
    /// When the first attempt was sent, until its outcome is known.
    first_sent_at: Option<BootInstant>,
    /// How many attempts have ended.
    attempts: u32,
    backoff: Backoff,
}

/// The next step of the release.
#[derive(Clone, Copy, Debug)]
enum ReleaseStep {
    SendAt(BootInstant),
    /// A release that was sent at `sent_at` keeps the key for `keep_for`.
    AwaitReply {
        sent_at: BootInstant,
        keep_for: Duration,
        late_at: BootInstant,
    },
    /// `min_hold` keeps the key until this time. Then the lock is handed off.
    HandOffAt(BootInstant),
}

impl Releasing {
    pub(super) fn new(now: BootInstant) -> Self {
        Releasing {
            next: ReleaseStep::SendAt(now),
            keep_for: Duration::ZERO,
            succeeded_under: None,
            is_record_decided: false,
            began: now,
            safe_until: None,
            queue_entry_expires_at: None,
            unanswered_until: None,
            late_until: now,
            sends_again: false,
            may_be_applied: false,
            first_sent_at: None,
            attempts: 0,
            backoff: BACKOFF,
        }
    }

    /// Keeps the key for the rest of `min_hold`, and has the success recorded if the call runs at
    /// most once.
    pub(super) fn after_success(self, request: &Request, hold: &Hold) -> Self {
        let held_for = self.began.since(hold.since);
        let min_hold = request.options.min_hold.unwrap_or_default();
        Releasing {
            keep_for: min_hold.saturating_sub(held_for),
            succeeded_under: request.once.as_ref().map(|_| hold.token),
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

    /// Has the release repeated once no acquire can be applied any longer.
    pub(super) fn after_unanswered(self, unanswered_until: Option<BootInstant>) -> Self {
        Releasing {
            unanswered_until,
            ..self
        }
    }

    /// Returns the release command, if it is due. A repeated one keeps the key no longer than the
    /// first would have.
    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        match self.next {
            ReleaseStep::SendAt(at) if at <= now => {}
            _ => return None,
        }
        let timeout = request.timing().command_timeout();
        let keep_for = self.keep_for.saturating_sub(now.since(self.began));
        if self.attempts == 0 {
            self.first_sent_at = Some(now);
        }
        self.next = ReleaseStep::AwaitReply {
            sent_at: now,
            keep_for,
            late_at: acquiring::late_at(now, timeout),
        };
        Some(Action::Release {
            keep_for,
            succeeded_under: self.succeeded_under,
            unanswered_until: self.unanswered_until,
            timeout,
        })
    }

    /// Returns true while only `min_hold` keeps the key.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.next, ReleaseStep::HandOffAt(_))
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.next, ReleaseStep::AwaitReply { .. })
    }

    /// Returns true once the first attempt has ended.
    pub(super) fn was_attempted(&self) -> bool {
        self.attempts > 0
    }

    /// Returns, once, when the first attempt was sent.
    pub(super) fn take_first_sent_at(&mut self) -> Option<BootInstant> {
        self.first_sent_at.take()
    }

    /// Returns when the release may be sent.
    pub(super) fn send_at(&self) -> Option<BootInstant> {
        match self.next {
            ReleaseStep::SendAt(at) => Some(at),
            _ => None,
        }
    }

    /// Returns when the reply is late, the lock is handed off, or nothing is left to be released.
    pub(super) fn next_due(&self, request: &Request) -> BootInstant {
        match self.next {
            ReleaseStep::SendAt(_) => self.expires_at(request),
            ReleaseStep::AwaitReply { late_at, .. } => late_at,
            ReleaseStep::HandOffAt(at) => at,
        }
    }

    /// Begins the hand-off of a key that was kept long enough.
    pub(super) fn handle_time(&mut self, now: BootInstant) {
        if let ReleaseStep::HandOffAt(at) = self.next
            && now >= at
        {
            self.next = ReleaseStep::SendAt(at);
        }
    }

    /// Waits for the reply to the release in flight for as long as its sender does.
    pub(super) fn leave_timeout(&mut self) {
        if let ReleaseStep::AwaitReply { late_at, .. } = &mut self.next {
            *late_at = acquiring::NEVER;
        }
    }

    /// Returns true if the reply to the release in flight is late.
    pub(super) fn is_late(&self, now: BootInstant) -> bool {
        matches!(self.next, ReleaseStep::AwaitReply { late_at, .. } if now >= late_at)
    }

    /// Sends the release again without a pause: an acquire of this owner was applied after it.
    pub(super) fn send_now(&mut self, now: BootInstant) {
        match self.next {
            ReleaseStep::SendAt(at) => self.next = ReleaseStep::SendAt(at.min(now)),
            ReleaseStep::AwaitReply { .. } => self.sends_again = true,
            ReleaseStep::HandOffAt(_) => {}
        }
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

    /// Returns when all state in the store has expired.
    fn expires_at(&self, request: &Request) -> BootInstant {
        let lock_expires_at = self.began.max(self.late_until) + request.timing().ttl();
        self.queue_entry_expires_at
            .map_or(lock_expires_at, |at| at.max(lock_expires_at))
    }

    /// Returns true once all state in the store has expired, and no reply is awaited.
    pub(super) fn has_expired(&self, request: &Request, now: BootInstant) -> bool {
        matches!(self.next, ReleaseStep::SendAt(_)) && now >= self.expires_at(request)
    }

    /// Handles the reply to the release in flight, and returns its outcome. The release is over if
    /// no other step replaces the one in flight.
    pub(super) fn handle_reply(
        &mut self,
        reply: Result<ReleaseReply, StoreError>,
        now: BootInstant,
    ) -> ReleaseOutcome {
        self.attempts += 1;
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.may_be_applied |= !error.unsent;
                let pause = match error.is_unanswered() {
                    false => self.backoff.next_delay(),
                    // All releases are retried once the store is back.
                    true if self.attempts == 1 => Duration::ZERO,
                    true => MIN_PAUSE,
                };
                self.next = ReleaseStep::SendAt(now + pause);
                return ReleaseOutcome::Unconfirmed;
            }
        };
        self.unanswered_until = None;
        if let Some(after) = reply.repeat_after {
            self.late_until = now + after;
        }
        // If the hold is still valid and the first release did not find its lock, the lock had
        // already been lost. A hold that may have expired meanwhile proves nothing (R30).
        let was_valid = self.safe_until.take().is_some_and(|at| now < at);
        let is_lost = was_valid && !reply.was_held && !self.may_be_applied;
        if std::mem::take(&mut self.sends_again) {
            self.next = ReleaseStep::SendAt(now);
        } else if now < self.late_until {
            self.next = ReleaseStep::SendAt(self.late_until);
        } else if let ReleaseStep::AwaitReply {
            sent_at, keep_for, ..
        } = self.next
            && !is_lost
            && !keep_for.is_zero()
        {
            let handed_off_at = sent_at + keep_for;
            *self = Releasing {
                next: ReleaseStep::HandOffAt(handed_off_at),
                attempts: self.attempts,
                ..Releasing::new(handed_off_at)
            };
        }
        if is_lost {
            ReleaseOutcome::NotHeld
        } else {
            ReleaseOutcome::Released
        }
    }
}

#[cfg(test)]
mod tests;
