//! The hold of an acquisition: its proofs, its renewals, and its end by time.

use std::sync::Arc;

use crate::loss::LossReason;
use crate::observer::event::AcquirePath;
use crate::protocol::hold::{self, GrantOrigin, Hold};
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Confirmation, Grant, Proof, RenewalFailure};
use crate::protocol::outcome::{Action, HoldEnd};
use crate::protocol::request::Request;
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

#[derive(Clone, Debug)]
pub(super) struct Holding {
    hold: Arc<Hold>,
    /// When the hold reaches its `max_hold`.
    limit: Option<BootInstant>,
    /// A short grant is confirmed before it is renewed: until then the server counts it as short.
    is_confirmed: bool,
    attempt: RenewalAttempt,
    /// The last error of a command for the hold since the last proof.
    last_error: Option<String>,
}

/// The next attempt to renew or confirm.
#[derive(Clone, Copy, Debug)]
enum RenewalAttempt {
    At(BootInstant),
    InFlight,
    /// The hold is already valid up to its limit.
    NoMore,
}

impl Holding {
    /// Returns the hold that a reply proves, or `None` if the reply came too late. Its token is
    /// that of the proof, never that of an older push (R13), and it counts from the send of its
    /// command (R10). A read hold that replaces `write`
    /// counts its time, and its `max_hold`, from the start of that hold.
    pub(super) fn proven(
        request: &Request,
        proof: Proof,
        origin: GrantOrigin,
        write: Option<&Holding>,
        now: BootInstant,
    ) -> Option<Self> {
        let (kind, since, limit) = match write {
            Some(write) => (Kind::Read, write.hold.since, write.limit),
            None => (request.kind, now, first_limit(request, now)),
        };
        let sent_at = proof.sent_at;
        let from = if rule!(deadline_from_send) {
            sent_at
        } else {
            now
        };
        let safe_until = hold::safe_until(from, request.timing());
        if now >= safe_until {
            return None;
        }
        let safe_until = hold::limited(safe_until, limit);
        let mut held = Holding {
            hold: Arc::new(Hold::new(kind, proof.token, since, origin, safe_until)),
            limit,
            is_confirmed: true,
            attempt: RenewalAttempt::NoMore,
            last_error: None,
        };
        held.attempt = held.next_renewal(request, from);
        Some(held)
    }

    /// Returns the hold of a pushed grant, or `None` if the grant must be confirmed first. A lock
    /// with `min_replicas` or `fsync` always must (R38), and a call that runs at most once (P3).
    pub(super) fn granted(request: &Request, grant: &Grant, now: BootInstant) -> Option<Self> {
        let is_checked_first = request.once.is_some() && rule!(confirm_once);
        if !request.options.durability().is_none() || is_checked_first {
            return None;
        }
        let limit = first_limit(request, now);
        let safe_until = hold::granted_until(grant, request.timing(), now)?;
        let safe_until = hold::limited(safe_until, limit);
        let origin = GrantOrigin {
            path: AcquirePath::HandedOff,
            granted_at: grant.granted_at,
        };
        Some(Holding {
            hold: Arc::new(Hold::new(
                request.kind,
                grant.token,
                now,
                origin,
                safe_until,
            )),
            limit,
            is_confirmed: false,
            attempt: RenewalAttempt::At(now + request.timing().confirm_delay()),
            last_error: None,
        })
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    pub(super) fn note_failure(&mut self, error: &StoreError) {
        self.last_error = Some(error.to_string());
    }

    /// Returns when the hold must next be renewed or confirmed, or ends.
    pub(super) fn next_due(&self) -> BootInstant {
        // A hold is due at once if another caller has found that it ended.
        let safe_until = self.hold.safe_until().unwrap_or(BootInstant(0));
        match self.attempt {
            RenewalAttempt::At(at) => at.min(safe_until),
            RenewalAttempt::InFlight | RenewalAttempt::NoMore => safe_until,
        }
    }

    /// Returns the time by which the call must claim the hold (R37): within the time of two
    /// commands, and before half of its validity has passed.
    pub(super) fn claim_by(&self, request: &Request) -> BootInstant {
        let safe_until = self.hold.safe_until().unwrap_or(BootInstant(0));
        let half = BootInstant(self.hold.since.0.midpoint(safe_until.0));
        half.min(self.hold.since + request.timing().command_timeout() * 2)
    }

    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        match self.attempt {
            RenewalAttempt::At(at) if at <= now => {}
            _ => return None,
        }
        if self.is_confirmed {
            self.attempt = RenewalAttempt::InFlight;
            return Some(Action::Renew);
        }
        // The next attempt does not wait for this one to time out, because a short grant leaves no
        // time for that. The first reply counts.
        let timeout = self.hold.safe_until()?.since(now);
        self.attempt =
            RenewalAttempt::At(now + request.timing().short_grant_timing().command_timeout());
        Some(Action::Confirm { timeout })
    }

    /// Handles the reply to a confirmation. Returns the reason if it is the end of the hold.
    pub(super) fn handle_confirmation(
        &mut self,
        request: &Request,
        reply: Result<Confirmation, StoreError>,
        now: BootInstant,
    ) -> Option<LossReason> {
        match reply {
            // If the token differs, this grant had expired. The store granted the lock again later,
            // and no body ran under that grant.
            Ok(Confirmation::Held(proof))
                if rule!(token_of_proof) && proof.token != self.hold.token =>
            {
                // A repeated confirmation of a write can cross its downgrade.
                let was_downgraded = self.is_confirmed && request.kind == Kind::Write;
                return (!was_downgraded).then_some(LossReason::Gone);
            }
            Ok(Confirmation::Held(proof)) => {
                self.is_confirmed = true;
                self.prove(request, proof.sent_at, now);
            }
            Ok(Confirmation::NotHeld | Confirmation::AlreadyRan(_)) => {
                return Some(LossReason::Gone);
            }
            // The next attempt is already scheduled.
            Err(error) => self.note_failure(&error),
        }
        None
    }

    /// Handles the reply to a renewal. Returns the reason if it is the end of the hold.
    pub(super) fn handle_renewal(
        &mut self,
        request: &Request,
        reply: Result<(), RenewalFailure>,
        sent_at: BootInstant,
        now: BootInstant,
    ) -> Option<LossReason> {
        match reply {
            Ok(()) => self.prove(request, sent_at, now),
            Err(RenewalFailure::Gone) => return Some(LossReason::Gone),
            Err(RenewalFailure::Revoked) => return Some(LossReason::Revoked { by: None }),
            Err(RenewalFailure::Error(error)) => {
                self.note_failure(&error);
                let retry_at = sent_at + request.timing().renew_retry_interval();
                self.attempt = RenewalAttempt::At(retry_at.max(now));
            }
        }
        None
    }

    /// Makes the first confirmation due. A repeated one keeps its time, because its predecessor may
    /// still get a reply.
    pub(super) fn confirm_now(&mut self, request: &Request, now: BootInstant) {
        let first = self.hold.since + request.timing().confirm_delay();
        if !self.is_confirmed && matches!(self.attempt, RenewalAttempt::At(at) if at == first) {
            self.attempt = RenewalAttempt::At(now);
        }
    }

    /// Makes the next attempt due at once after a reconnect. A renewal in flight keeps its timeout.
    pub(super) fn renew_now(&mut self, now: BootInstant) {
        if matches!(self.attempt, RenewalAttempt::At(_)) {
            self.attempt = RenewalAttempt::At(now);
        }
    }

    /// Sets when the hold reaches its `max_hold`.
    pub(super) fn set_limit(&mut self, limit: BootInstant) {
        self.limit = Some(limit);
        self.hold.shorten(limit);
    }

    /// Returns how the hold ended, if it expired or reached its limit.
    pub(super) fn check_end(&self, now: BootInstant) -> Option<HoldEnd> {
        if self.hold.check_and_close(now) {
            return None;
        }
        let safe_until = self.hold.last_safe_until();
        Some(match self.limit {
            // The limit was the safe deadline. An earlier one has ended the hold before its limit.
            Some(limit) if safe_until >= limit => HoldEnd::MaxHold,
            _ => HoldEnd::Lost(LossReason::NotRenewed {
                last_error: self.last_error.clone(),
                overdue: now.since(safe_until),
            }),
        })
    }

    /// The proof counts from the send of its command, because the server may have applied the
    /// command at once (R10).
    fn prove(&mut self, request: &Request, sent_at: BootInstant, now: BootInstant) {
        let from = if rule!(deadline_from_send) {
            sent_at
        } else {
            now
        };
        let safe_until = hold::safe_until(from, request.timing());
        // A proof that comes too late changes nothing, because a lost hold stays lost (R15).
        let safe_until = hold::limited(safe_until, self.limit);
        self.hold.extend(safe_until, now);
        self.attempt = self.next_renewal(request, from);
        self.last_error = None;
    }

    /// Returns when to renew, rounded down so that holds taken in succession are renewed together.
    fn next_renewal(&self, request: &Request, proven: BootInstant) -> RenewalAttempt {
        if self.limit.is_some() && self.hold.safe_until() >= self.limit {
            return RenewalAttempt::NoMore;
        }
        let every = request.timing().renew_interval();
        let grid = u64::try_from((every / 16).as_nanos()).unwrap_or(1).max(1);
        let next = proven + every;
        RenewalAttempt::At(BootInstant(next.0 - next.0 % grid))
    }
}

/// Returns when a hold that begins now reaches its `max_hold`, unless its body starts that.
fn first_limit(request: &Request, now: BootInstant) -> Option<BootInstant> {
    let options = &request.options;
    let max_hold = options
        .max_hold
        .filter(|_| !options.inherited.max_hold_from_start)?;
    Some(now + max_hold)
}

#[cfg(test)]
mod tests;
