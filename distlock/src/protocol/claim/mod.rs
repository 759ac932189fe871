//! The state machine of one owner id, ask\* -> held -> released or lost (R1), without I/O. Inputs
//! arrive through `handle_*`, and pending actions come from `poll_*`. Time is always an argument.
//!
//! `asking` is the path to a hold, `holding` the hold, and `leaving` the release.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::observer::event::AcquirePath;
use crate::protocol::belief::Belief;
use crate::protocol::claim::asking::{Arrival, Asking};
use crate::protocol::claim::holding::{Holding, Verdict};
use crate::protocol::claim::leaving::{Leaving, Left};
use crate::protocol::outcome::{Action, End, Obstacle, Outcome, Refusal};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    AskReply, Grant, Occupant, Proof, ReleaseReply, RenewalFailure, Revocation,
};
use crate::util::clock::Moment;

pub(crate) mod asking;
pub(crate) mod holding;
pub(crate) mod leaving;
#[cfg(test)]
mod tests;

/// The state of one owner id.
#[derive(Debug)]
pub(crate) struct Claim {
    request: Arc<Request>,
    rules: Rules,
    stage: Stage,
    /// The hold, kept after it has ended.
    grip: Option<Grip>,
    /// The release, from when the id is given up.
    leaving: Option<Leaving>,
    /// Set once the call has seen its hold and uses it. Until then the hold is not extended, and
    /// not kept for long (R37).
    taken: bool,
    /// Set while the loss of a hold in use has not been reported.
    untold: bool,
    /// Set if the id must be released although its holder has not given it up.
    unsent: bool,
    /// The outcome that the call had not yet seen when the id was given up on its behalf.
    outcome: Option<Outcome>,
}

#[derive(Debug)]
enum Stage {
    Asking(Box<Asking>),
    Held(Holding),
    /// Given up, or lost. Carries why the hold ended, if there was one that was not given back.
    Over(Option<End>),
}

/// The state of a claim, as the manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The id is about to acquire, waits for a reply, or came out without a hold.
    Asking,
    /// The id is in the queue, which is checked at intervals.
    Queued,
    /// The store may have something of the id, and only its call can continue.
    Due,
    Held,
    Over,
}

/// A hold, for the code that uses it.
#[derive(Clone, Debug)]
pub(crate) struct Grip {
    pub(crate) token: FencingToken,
    pub(crate) since: Moment,
    pub(crate) belief: Arc<Belief>,
    pub(crate) path: AcquirePath,
    /// The earliest possible time of the grant, if the lock was handed off and the time is known.
    pub(crate) granted_at: Option<Moment>,
}

impl Claim {
    /// Creates the claim of an id about to acquire, with the obstacle of an earlier id of its call.
    pub(crate) fn new(request: Arc<Request>, obstacle: Option<Obstacle>, rules: Rules) -> Self {
        Claim {
            request,
            rules,
            stage: Stage::Asking(Box::new(Asking::new(obstacle))),
            grip: None,
            leaving: None,
            taken: false,
            untold: false,
            unsent: false,
            outcome: None,
        }
    }

    /// Creates a claim that releases an id unknown to this client, whatever the store has of it.
    pub(crate) fn unknown(request: Arc<Request>, rules: Rules, now: Moment) -> Self {
        Claim {
            stage: Stage::Over(None),
            leaving: Some(Leaving::new(now)),
            ..Self::new(request, None, rules)
        }
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn standing(&self) -> Standing {
        match &self.stage {
            Stage::Asking(asking) if asking.is_queued() => Standing::Queued,
            Stage::Asking(asking) if asking.is_due() => Standing::Due,
            Stage::Asking(_) => Standing::Asking,
            Stage::Held(_) => Standing::Held,
            Stage::Over(_) => Standing::Over,
        }
    }

    /// Returns true while a command of the call is in flight.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(&self.stage, Stage::Asking(asking) if asking.is_unanswered())
    }

    /// Returns true if the id may be in the queue, where a grant stays until it is confirmed.
    fn may_have_place(&self) -> bool {
        match &self.stage {
            Stage::Asking(_) => true,
            Stage::Held(held) => !held.is_confirmed(),
            Stage::Over(_) => false,
        }
    }

    /// Returns true if the lock is held for the full lease, and not only by a short grant.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.is_confirmed())
    }

    fn is_taken(&self) -> bool {
        self.taken || !self.rules.take_or_leave
    }

    /// Returns the occupant of the lock, as last reported, until the id has a hold.
    pub(crate) fn occupant(&self) -> Option<&Occupant> {
        match &self.stage {
            Stage::Asking(asking) => asking.occupant(),
            _ => None,
        }
    }

    /// Returns the call's last obstacle, if it is an error, until the id has a hold.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        match &self.stage {
            Stage::Asking(asking) => asking.trouble(),
            _ => None,
        }
    }

    /// Returns the hold, also after it has ended.
    pub(crate) fn grip(&self) -> Option<&Grip> {
        self.grip.as_ref()
    }

    /// Returns why the hold ended.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.stage {
            Stage::Over(end) => end.as_ref(),
            _ => None,
        }
    }

    // Inputs while the id acquires.

    pub(crate) fn handle_answer(&mut self, answer: Result<AskReply, Trouble>, now: Moment) {
        let Stage::Asking(asking) = &mut self.stage else {
            return;
        };
        if asking.outcome().is_some() {
            // Whatever the reply is, the release that follows undoes it.
            return;
        }
        match answer {
            Ok(answer) => {
                if let Some(proof) = asking.answered(&self.request, answer) {
                    return self.prove(proof, Arrival::FREE, now);
                }
            }
            Err(trouble) => asking.failed(&self.request, trouble, now),
        }
        if let Some(grant) = asking.take_pushed() {
            self.take(&grant, now);
        }
    }

    /// Handles a pushed grant. It does not change an existing hold, which only replies prove (R13).
    pub(crate) fn handle_grant(&mut self, grant: &Grant, now: Moment) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.receive_grant(grant)
        {
            self.take(grant, now);
        }
    }

    /// Handles a queue check that found the lock to be this id's, although no grant had arrived.
    pub(crate) fn handle_found(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.found();
        }
    }

    /// Handles a queue check that found neither a lock nor a place of this id. Also called when
    /// commands use another connection or server, which may not know the id.
    pub(crate) fn handle_missing(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.missing();
        }
    }

    /// Handles a queue check that reported the occupant of the lock.
    pub(crate) fn handle_occupied(&mut self, occupant: Option<Occupant>) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.is_queued()
        {
            asking.note_occupant(occupant);
        }
    }

    /// Handles a queue check that found a value at the lock's keys that distlock did not write.
    pub(crate) fn handle_foreign(&mut self, detail: String) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.is_queued()
        {
            asking.give_up(Outcome::Refused(Refusal::Foreign(detail)));
        }
    }

    /// Ends the pause after a failure, once the store can be used.
    pub(crate) fn handle_retry(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.retry(self.rules);
        }
    }

    // Inputs for a grant or a hold.

    pub(crate) fn handle_confirmation(
        &mut self,
        answer: Result<Option<Proof>, Trouble>,
        now: Moment,
    ) {
        self.handle_time(now);
        match &mut self.stage {
            Stage::Asking(asking) if asking.outcome().is_some() => {}
            Stage::Asking(asking) => match answer {
                Ok(Some(proof)) => {
                    let arrival = asking.arrival();
                    self.prove(proof, arrival, now);
                }
                // Most likely only the replicas are missing: the same id acquires again, and keeps
                // what it has. The store has the grant, even if this confirmation was not sent.
                Err(trouble) if !self.request.durability.is_none() => {
                    asking.failed(&self.request, trouble.sent(), now);
                }
                // This is not a loss, because no body ran under the grant.
                Ok(None) | Err(_) => asking.again(),
            },
            Stage::Held(held) => {
                let verdict = held.confirmed(&self.request, self.rules, answer, now);
                self.judge(verdict, now);
            }
            Stage::Over(_) => {}
        }
    }

    /// Handles the reply to a renewal that was sent at `sent`.
    pub(crate) fn handle_renewal(
        &mut self,
        answer: Result<(), RenewalFailure>,
        sent: Moment,
        now: Moment,
    ) {
        self.handle_time(now);
        if let Stage::Held(held) = &mut self.stage {
            let verdict = held.renewed(&self.request, self.rules, answer, sent, now);
            self.judge(verdict, now);
        }
    }

    // Inputs from outside the call.

    /// Makes the renewal of a hold due at once, because there is a new connection.
    pub(crate) fn renew_now(&mut self, now: Moment) {
        if let Stage::Held(held) = &mut self.stage {
            held.renew_now(now);
        }
    }

    /// Makes the confirmation of a short grant due at once, because its holder waits for it.
    pub(crate) fn confirm_now(&mut self, now: Moment) {
        if let Stage::Held(held) = &mut self.stage {
            held.confirm_now(&self.request, now);
        }
    }

    /// Ends the hold if it has the token of the revocation.
    pub(crate) fn handle_revocation(&mut self, revocation: &Revocation, now: Moment) {
        let held = matches!(self.stage, Stage::Held(_));
        let is_meant = |grip: &Grip| grip.token == revocation.token;
        if held && self.grip.as_ref().is_some_and(is_meant) {
            self.lose(End::Revoked(revocation.by.clone()), now);
        }
    }

    /// Ends a hold that has expired or was not taken in time, and a wait that has ended.
    pub(crate) fn handle_time(&mut self, now: Moment) {
        let is_taken = self.is_taken();
        match &mut self.stage {
            Stage::Asking(asking) => asking.run_out(&self.request, now),
            Stage::Held(held) => {
                if let Some(end) = held.ran_out(now) {
                    self.lose(end, now);
                } else if !is_taken && now >= held.patience() {
                    self.give_back(now);
                }
            }
            Stage::Over(_) => {}
        }
    }

    /// Releases an id with which its call does not continue (R37). Called at a queue check, while
    /// the store can be used.
    pub(crate) fn handle_look(&mut self, now: Moment) {
        let patience = self.request.timing.command_deadline() * 2;
        if let Stage::Asking(asking) = &mut self.stage
            && asking.notice_stuck(patience, now)
            && self.rules.take_or_leave
        {
            self.give_back(now);
        }
    }

    /// Returns true if the id has come out without a hold, so that its call has to leave it.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(&self.stage, Stage::Asking(asking) if asking.outcome().is_some())
    }

    /// Releases the id if its call has a command in flight. Called when the call does not learn of
    /// a reply in time, because its runtime does not run.
    pub(crate) fn handle_hang(&mut self, now: Moment) {
        if self.is_unanswered() && self.rules.take_or_leave {
            self.give_back(now);
        }
    }

    pub(crate) fn handle_shutdown(&mut self, now: Moment) {
        match &mut self.stage {
            Stage::Asking(asking) => asking.give_up(Outcome::Refused(Refusal::ShutDown)),
            Stage::Held(_) => self.lose(End::ShutDown, now),
            Stage::Over(_) => {}
        }
    }

    /// Gives up the id for its call or holder. A lock that is still held stays taken for `keep`.
    /// Returns true if a release must be sent.
    pub(crate) fn leave(&mut self, keep: Duration, now: Moment) -> bool {
        self.handle_time(now);
        let (end, believed_until) = match &self.stage {
            Stage::Asking(asking) if asking.is_to_be_undone(self.rules) => (None, None),
            Stage::Asking(_) => {
                self.stage = Stage::Over(None);
                return false;
            }
            Stage::Held(held) => (Some(End::Released), held.belief().end(now)),
            // The release has already begun, or there is nothing to release.
            Stage::Over(end) if self.leaving.is_some() || end.is_none() => return false,
            Stage::Over(end) => (end.clone(), None),
        };
        let has_place = self.may_have_place();
        if let Stage::Asking(asking) = &self.stage {
            self.outcome = asking.outcome().cloned();
        }
        let keep = if believed_until.is_some() {
            keep
        } else {
            Duration::ZERO
        };
        self.stage = Stage::Over(end);
        let leaving = Leaving::new(now).hold(keep, believed_until);
        self.leaving = Some(if has_place {
            leaving.place(self.request.place_until())
        } else {
            leaving
        });
        true
    }

    /// Handles the reply to a release, and returns the result of the attempt.
    pub(crate) fn handle_release(
        &mut self,
        answer: Result<ReleaseReply, Trouble>,
        now: Moment,
    ) -> Left {
        let Some(leaving) = &mut self.leaving else {
            return Left::Done;
        };
        let left = leaving.answered(answer, now);
        if left == Left::NotOurs {
            self.stage = Stage::Over(Some(End::NotOurs));
            self.untold = true;
        }
        left
    }

    // Pending actions and results.

    /// Returns the command to send now.
    pub(crate) fn poll_action(&mut self, now: Moment) -> Option<Action> {
        self.handle_time(now);
        let is_taken = self.is_taken();
        match &mut self.stage {
            Stage::Asking(asking) => asking.action(&self.request, now),
            Stage::Held(held) if is_taken => held.action(&self.request, now),
            Stage::Held(_) | Stage::Over(_) => None,
        }
    }

    /// Returns the outcome for the call, once there is one. A hold counts as taken from then on.
    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        match &self.stage {
            Stage::Asking(asking) => asking.outcome().cloned(),
            Stage::Held(_) => {
                self.taken = true;
                Some(Outcome::Held)
            }
            // The claim ended before its call saw the outcome.
            Stage::Over(Some(End::ShutDown)) => Some(Outcome::Refused(Refusal::ShutDown)),
            Stage::Over(None) if self.outcome.is_some() => self.outcome.clone(),
            Stage::Over(None) => Some(Outcome::Again(Some(Obstacle::Trouble(not_taken())))),
            Stage::Over(_) => Some(Outcome::Again(None)),
        }
    }

    /// Returns how the hold was lost, once, for the caller that reports it.
    pub(crate) fn poll_loss(&mut self) -> Option<End> {
        std::mem::take(&mut self.untold)
            .then(|| self.end().cloned())
            .flatten()
    }

    /// Returns true, once, if the id must be released although its holder has not given it up. The
    /// release makes the store hand a free lock to the next waiter (R5).
    pub(crate) fn poll_release(&mut self) -> bool {
        std::mem::take(&mut self.unsent)
    }

    /// Returns when the claim needs attention, if no input arrives before.
    pub(crate) fn poll_timeout(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Asking(_) => Some(self.request.deadline()),
            Stage::Held(held) if self.is_taken() => Some(held.next()),
            Stage::Held(held) => Some(held.patience()),
            Stage::Over(_) => None,
        }
    }

    /// Returns when a failed acquire may be repeated.
    pub(crate) fn poll_retry(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Asking(asking) => asking.retry_at(),
            _ => None,
        }
    }

    /// Returns how long a release that is sent now keeps the key.
    pub(crate) fn keep(&self, now: Moment) -> Duration {
        let leaving = self.leaving.as_ref();
        leaving.map_or(Duration::ZERO, |leaving| leaving.keep(now))
    }

    /// Returns true if the store can have nothing of the id any longer.
    pub(crate) fn is_past(&self, now: Moment) -> bool {
        let ttl = self.request.timing.ttl();
        let leaving = self.leaving.as_ref();
        leaving.is_none_or(|leaving| leaving.is_past(ttl, now))
    }

    // Transitions between stages.

    fn prove(&mut self, proof: Proof, arrival: Arrival, now: Moment) {
        match Holding::proven(&self.request, self.rules, proof, now) {
            Some(held) => self.hold(held, arrival),
            None => {
                if let Stage::Asking(asking) = &mut self.stage {
                    asking.again();
                }
            }
        }
    }

    fn take(&mut self, grant: &Grant, now: Moment) {
        match Holding::granted(&self.request, self.rules, grant, now) {
            Some(held) => {
                let path = AcquirePath::HandedOff;
                let granted_at = grant.granted_at;
                self.hold(held, Arrival { path, granted_at });
            }
            None => {
                if let Stage::Asking(asking) = &mut self.stage {
                    asking.confirm(AcquirePath::HandedOff, grant.granted_at);
                }
            }
        }
    }

    fn hold(&mut self, held: Holding, Arrival { path, granted_at }: Arrival) {
        self.grip = Some(Grip {
            token: held.token(),
            since: held.since(),
            belief: held.belief().clone(),
            path,
            granted_at,
        });
        self.stage = Stage::Held(held);
    }

    fn judge(&mut self, verdict: Verdict, now: Moment) {
        match verdict {
            Verdict::Ours => {}
            Verdict::Gone => {
                self.lose(End::Gone, now);
                self.leaving = Some(Leaving::new(now));
                self.unsent = true;
            }
            // Not released here: no other client can acquire the lock before its holder has stopped
            // and releases it, or its TTL ends.
            Verdict::Revoked => self.lose(End::Revoked(String::new()), now),
        }
    }

    /// Releases the id because its call does not take the hold, or does not learn of a reply.
    /// Others can then have the lock, and the call acquires again when it runs (R37).
    fn give_back(&mut self, now: Moment) {
        if let Stage::Held(held) = &self.stage {
            held.belief().end(now);
        }
        self.stage = Stage::Over(None);
        self.leaving = Some(Leaving::new(now).place(self.request.place_until()));
        self.unsent = true;
    }

    fn lose(&mut self, end: End, now: Moment) {
        if let Stage::Held(held) = &self.stage {
            held.belief().end(now);
            self.stage = Stage::Over(Some(end));
            self.untold = self.taken;
        }
    }
}

/// Returns the obstacle of a call that did not continue, or did not take its hold.
fn not_taken() -> Trouble {
    Trouble::new(
        Outage::TimedOut,
        "what this call had asked for, or was granted, was taken back, because its runtime did not run",
    )
}
