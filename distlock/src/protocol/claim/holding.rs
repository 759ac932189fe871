//! The hold of a claim: its proofs, its renewals, and its end by time.

use std::sync::Arc;

use crate::fencing::FencingToken;
use crate::protocol::belief::{self, Belief};
use crate::protocol::outcome::{Action, End};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Grant, Proof, RenewalFailure};
use crate::util::clock::Moment;

#[derive(Debug)]
pub(super) struct Holding {
    token: FencingToken,
    since: Moment,
    /// When the hold reaches its `max_hold`.
    limit: Option<Moment>,
    belief: Arc<Belief>,
    /// A short grant is confirmed before it is renewed: until then the server counts it as short.
    is_confirmed: bool,
    attempt: Attempt,
    /// The last error of a renewal or confirmation.
    failure: String,
}

/// The next attempt to renew or confirm.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    At(Moment),
    UnderWay,
    /// The hold is already valid up to its limit.
    NoMore,
}

/// The meaning of a reply for the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ours,
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
        now: Moment,
    ) -> Option<Self> {
        let from = belief::proven_from(rules, proof.sent, now);
        let until = belief::safe_until(from, request.timing);
        if now >= until {
            return None;
        }
        let mut held = Self::begin(request, rules, proof.token, until, now);
        held.is_confirmed = true;
        held.attempt = held.next_renewal(request, from);
        Some(held)
    }

    /// Returns the hold of a pushed grant, or `None` if the grant must be confirmed first. A lock
    /// with `min_replicas` or `fsync` always must (R38).
    pub(super) fn granted(
        request: &Request,
        rules: Rules,
        grant: &Grant,
        now: Moment,
    ) -> Option<Self> {
        if !request.durability.is_none() {
            return None;
        }
        let until = belief::granted_until(rules, grant, request.timing, now)?;
        let mut held = Self::begin(request, rules, grant.token, until, now);
        held.attempt = Attempt::At(now + request.timing.confirm_after());
        Some(held)
    }

    fn begin(
        request: &Request,
        rules: Rules,
        token: FencingToken,
        until: Moment,
        now: Moment,
    ) -> Self {
        let limit = request.options.max_hold.map(|limit| now + limit);
        Holding {
            token,
            since: now,
            limit,
            belief: Arc::new(Belief::begin(rules, until, limit)),
            is_confirmed: false,
            attempt: Attempt::NoMore,
            failure: String::new(),
        }
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }

    pub(super) fn belief(&self) -> &Arc<Belief> {
        &self.belief
    }

    /// Returns when the hold must next be renewed or confirmed, or ends.
    pub(super) fn next(&self) -> Moment {
        // A hold is due at once if another caller has found that it ended.
        let over = self.belief.until().unwrap_or(Moment(0));
        match self.attempt {
            Attempt::At(at) => at.min(over),
            Attempt::UnderWay | Attempt::NoMore => over,
        }
    }

    /// Returns until when the call must have taken the hold: halfway to its safe deadline (R37).
    pub(super) fn patience(&self) -> Moment {
        let until = self.belief.until().unwrap_or(Moment(0));
        self.since + until.since(self.since) / 2
    }

    pub(super) fn action(&mut self, request: &Request, now: Moment) -> Option<Action> {
        match self.attempt {
            Attempt::At(at) if at <= now => {}
            _ => return None,
        }
        if self.is_confirmed {
            self.attempt = Attempt::UnderWay;
            return Some(Action::Renew);
        }
        // The next attempt does not wait for this one to time out, because a short grant leaves no
        // time for that. The first reply counts.
        let within = self.belief.until()?.since(now);
        self.attempt = Attempt::At(now + request.timing.grant().command_deadline());
        Some(Action::Confirm { within })
    }

    pub(super) fn confirmed(
        &mut self,
        request: &Request,
        rules: Rules,
        answer: Result<Option<Proof>, Trouble>,
        now: Moment,
    ) -> Verdict {
        match answer {
            // With another token, this grant had expired. The store granted the lock again later,
            // and no body ran under that grant.
            Ok(Some(proof)) if rules.token_of_proof && proof.token != self.token => Verdict::Gone,
            Ok(Some(proof)) => {
                self.is_confirmed = true;
                self.prove(request, rules, proof.sent, now);
                Verdict::Ours
            }
            Ok(None) => Verdict::Gone,
            // The next attempt is already scheduled.
            Err(trouble) => {
                self.failure = trouble.to_string();
                Verdict::Ours
            }
        }
    }

    pub(super) fn renewed(
        &mut self,
        request: &Request,
        rules: Rules,
        answer: Result<(), RenewalFailure>,
        sent: Moment,
        now: Moment,
    ) -> Verdict {
        match answer {
            Ok(()) => self.prove(request, rules, sent, now),
            Err(RenewalFailure::Gone) => return Verdict::Gone,
            Err(RenewalFailure::Revoked) => return Verdict::Revoked,
            Err(RenewalFailure::Trouble(trouble)) => {
                self.failure = trouble.to_string();
                let again = sent + request.timing.retry_pause();
                self.attempt = Attempt::At(again.max(now));
            }
        }
        Verdict::Ours
    }

    /// Makes the first confirmation due. A repeated one keeps its time, because its predecessor may
    /// still be answered.
    pub(super) fn confirm_now(&mut self, request: &Request, now: Moment) {
        let first = self.since + request.timing.confirm_after();
        if !self.is_confirmed && matches!(self.attempt, Attempt::At(at) if at == first) {
            self.attempt = Attempt::At(now);
        }
    }

    /// Makes the next attempt due at once after a reconnect. A renewal in flight keeps its timeout.
    pub(super) fn renew_now(&mut self, now: Moment) {
        if matches!(self.attempt, Attempt::At(_)) {
            self.attempt = Attempt::At(now);
        }
    }

    /// Returns how the hold ended, if it expired or reached its limit.
    pub(super) fn ran_out(&self, now: Moment) -> Option<End> {
        if self.belief.holds_at(now) {
            return None;
        }
        Some(match self.limit {
            Some(limit) if now >= limit => End::Limit,
            _ => End::NotRenewed(self.failure.clone()),
        })
    }

    fn prove(&mut self, request: &Request, rules: Rules, sent: Moment, now: Moment) {
        let from = belief::proven_from(rules, sent, now);
        let until = belief::safe_until(from, request.timing);
        // A proof that comes too late changes nothing, because a lost hold stays lost (R15).
        self.belief.extend(rules, until, self.limit, now);
        self.attempt = self.next_renewal(request, from);
    }

    /// Returns when to renew, rounded down so that holds taken in succession are renewed together.
    fn next_renewal(&self, request: &Request, proven: Moment) -> Attempt {
        if self.limit.is_some() && self.belief.until() >= self.limit {
            return Attempt::NoMore;
        }
        let every = request.timing.renew_every();
        let grid = u64::try_from((every / 16).as_nanos()).unwrap_or(1).max(1);
        let next = proven + every;
        Attempt::At(Moment(next.0 - next.0 % grid))
    }
}
