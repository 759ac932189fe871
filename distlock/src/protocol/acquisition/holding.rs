//! The hold of an acquisition: its proofs, its renewals, and its end by time.

use std::sync::Arc;

use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Confirmation, Grant, Proof, RenewalFailure};
use crate::protocol::outcome::{Action, HoldEnd};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::safe_deadline::{self, SafeDeadline};
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

#[derive(Debug)]
pub(super) struct Holding {
    token: FencingToken,
    since: BootInstant,
    /// When the hold reaches its `max_hold`.
    limit: Option<BootInstant>,
    safe_deadline: Arc<SafeDeadline>,
    /// A short grant is confirmed before it is renewed: until then the server counts it as short.
    is_confirmed: bool,
    attempt: Attempt,
    /// The last error of a renewal or confirmation since the last proof.
    last_error: Option<String>,
}

/// The next attempt to renew or confirm.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    At(BootInstant),
    InFlight,
    /// The hold is already valid up to its limit.
    NoMore,
}

/// The meaning of a reply for the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldStatus {
    Held,
    /// The store reported that it has no such lock, and no retry can change that.
    Gone,
    /// The lock was revoked.
    Revoked,
}

impl Holding {
    /// Returns the hold that a reply proves, or `None` if the reply came too late. Its token is
    /// that of the proof, never that of an older push (R13).
    pub(super) fn proven(
        request: &Request,
        rules: Rules,
        proof: Proof,
        now: BootInstant,
    ) -> Option<Self> {
        let from = safe_deadline::proven_from(rules, proof.sent_at, now);
        let safe_until = safe_deadline::safe_until(from, request.timing);
        if now >= safe_until {
            return None;
        }
        let mut held = Self::begin(request, rules, proof.token, safe_until, now);
        held.is_confirmed = true;
        held.attempt = held.next_renewal(request, from);
        Some(held)
    }

    /// Returns the hold of a pushed grant, or `None` if the grant must be confirmed first. A lock
    /// with `min_replicas` or `fsync` always must (R38), and a call that runs at most once (P3).
    pub(super) fn granted(
        request: &Request,
        rules: Rules,
        grant: &Grant,
        now: BootInstant,
    ) -> Option<Self> {
        let is_checked_first = request.once.is_some() && rules.confirm_once;
        if !request.durability.is_none() || is_checked_first {
            return None;
        }
        let safe_until = safe_deadline::granted_until(rules, grant, request.timing, now)?;
        let mut held = Self::begin(request, rules, grant.token, safe_until, now);
        held.attempt = Attempt::At(now + request.timing.confirm_delay());
        Some(held)
    }

    fn begin(
        request: &Request,
        rules: Rules,
        token: FencingToken,
        safe_until: BootInstant,
        now: BootInstant,
    ) -> Self {
        let options = &request.options;
        let limit = options.max_hold.filter(|_| !options.max_hold_from_start);
        let limit = limit.map(|limit| now + limit);
        Holding {
            token,
            since: now,
            limit,
            safe_deadline: Arc::new(SafeDeadline::new(rules, safe_until, limit)),
            is_confirmed: false,
            attempt: Attempt::NoMore,
            last_error: None,
        }
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Returns when the hold reaches its `max_hold`.
    pub(super) fn limit(&self) -> Option<BootInstant> {
        self.limit
    }

    pub(super) fn since(&self) -> BootInstant {
        self.since
    }

    pub(super) fn safe_deadline(&self) -> &Arc<SafeDeadline> {
        &self.safe_deadline
    }

    /// Returns when the hold must next be renewed or confirmed, or ends.
    pub(super) fn next_due(&self) -> BootInstant {
        // A hold is due at once if another caller has found that it ended.
        let safe_until = self.safe_deadline.safe_until().unwrap_or(BootInstant(0));
        match self.attempt {
            Attempt::At(at) => at.min(safe_until),
            Attempt::InFlight | Attempt::NoMore => safe_until,
        }
    }

    /// Returns the time by which the call must claim the hold (R37): within the time of two
    /// commands, and before half of its validity has passed.
    pub(super) fn claim_by(&self, request: &Request) -> BootInstant {
        let safe_until = self.safe_deadline.safe_until().unwrap_or(BootInstant(0));
        let half = BootInstant(self.since.0.midpoint(safe_until.0));
        half.min(self.since + request.timing.command_timeout() * 2)
    }

    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        match self.attempt {
            Attempt::At(at) if at <= now => {}
            _ => return None,
        }
        if self.is_confirmed {
            self.attempt = Attempt::InFlight;
            return Some(Action::Renew);
        }
        // The next attempt does not wait for this one to time out, because a short grant leaves no
        // time for that. The first reply counts.
        let timeout = self.safe_deadline.safe_until()?.since(now);
        self.attempt = Attempt::At(now + request.timing.short_grant_timing().command_timeout());
        Some(Action::Confirm { timeout })
    }

    pub(super) fn handle_confirmation(
        &mut self,
        request: &Request,
        rules: Rules,
        reply: Result<Confirmation, StoreError>,
        now: BootInstant,
    ) -> HoldStatus {
        match reply {
            // If the token differs, this grant had expired. The store granted the lock again later,
            // and no body ran under that grant.
            Ok(Confirmation::Held(proof)) if rules.token_of_proof && proof.token != self.token => {
                // A repeated confirmation of a write can cross its downgrade.
                if self.is_confirmed && request.kind == Kind::Write {
                    HoldStatus::Held
                } else {
                    HoldStatus::Gone
                }
            }
            Ok(Confirmation::Held(proof)) => {
                self.is_confirmed = true;
                self.prove(request, rules, proof.sent_at, now);
                HoldStatus::Held
            }
            Ok(Confirmation::NotHeld | Confirmation::AlreadyRan(_)) => HoldStatus::Gone,
            // The next attempt is already scheduled.
            Err(error) => {
                self.last_error = Some(error.to_string());
                HoldStatus::Held
            }
        }
    }

    pub(super) fn handle_renewal(
        &mut self,
        request: &Request,
        rules: Rules,
        reply: Result<(), RenewalFailure>,
        sent_at: BootInstant,
        now: BootInstant,
    ) -> HoldStatus {
        match reply {
            Ok(()) => self.prove(request, rules, sent_at, now),
            Err(RenewalFailure::Gone) => return HoldStatus::Gone,
            Err(RenewalFailure::Revoked) => return HoldStatus::Revoked,
            Err(RenewalFailure::Error(error)) => {
                self.last_error = Some(error.to_string());
                let retry_at = sent_at + request.timing.renew_retry_interval();
                self.attempt = Attempt::At(retry_at.max(now));
            }
        }
        HoldStatus::Held
    }

    /// Makes the first confirmation due. A repeated one keeps its time, because its predecessor may
    /// still get a reply.
    pub(super) fn confirm_now(&mut self, request: &Request, now: BootInstant) {
        let first = self.since + request.timing.confirm_delay();
        if !self.is_confirmed && matches!(self.attempt, Attempt::At(at) if at == first) {
            self.attempt = Attempt::At(now);
        }
    }

    /// Makes the next attempt due at once after a reconnect. A renewal in flight keeps its timeout.
    pub(super) fn renew_now(&mut self, now: BootInstant) {
        if matches!(self.attempt, Attempt::At(_)) {
            self.attempt = Attempt::At(now);
        }
    }

    /// Sets when the hold reaches its `max_hold`.
    pub(super) fn set_limit(&mut self, limit: BootInstant) {
        self.limit = Some(limit);
        self.safe_deadline.shorten(limit);
    }

    /// Lets the hold, and its `max_hold`, count from the start of the hold that it replaces.
    pub(super) fn continue_from(&mut self, since: BootInstant, limit: Option<BootInstant>) {
        self.since = since;
        self.limit = limit;
        if let Some(limit) = limit {
            self.set_limit(limit);
        }
    }

    /// Returns how the hold ended, if it expired or reached its limit.
    pub(super) fn check_end(&self, now: BootInstant) -> Option<HoldEnd> {
        if self.safe_deadline.check_valid(now) {
            return None;
        }
        let safe_until = self.safe_deadline.last_safe_until();
        Some(match self.limit {
            // The limit was the safe deadline. An earlier one has ended the hold before its limit.
            Some(limit) if safe_until >= limit => HoldEnd::MaxHold,
            _ => HoldEnd::Lost(LossReason::NotRenewed {
                last_error: self.last_error.clone(),
                overdue: now.since(safe_until),
            }),
        })
    }

    fn prove(&mut self, request: &Request, rules: Rules, sent_at: BootInstant, now: BootInstant) {
        let from = safe_deadline::proven_from(rules, sent_at, now);
        let safe_until = safe_deadline::safe_until(from, request.timing);
        // A proof that comes too late changes nothing, because a lost hold stays lost (R15).
        self.safe_deadline
            .extend(rules, safe_until, self.limit, now);
        self.attempt = self.next_renewal(request, from);
        self.last_error = None;
    }

    /// Returns when to renew, rounded down so that holds taken in succession are renewed together.
    fn next_renewal(&self, request: &Request, proven: BootInstant) -> Attempt {
        if self.limit.is_some() && self.safe_deadline.safe_until() >= self.limit {
            return Attempt::NoMore;
        }
        let every = request.timing.renew_interval();
        let grid = u64::try_from((every / 16).as_nanos()).unwrap_or(1).max(1);
        let next = proven + every;
        Attempt::At(BootInstant(next.0 - next.0 % grid))
    }
}

#[cfg(test)]
mod tests;
