//! One owner id on its way ask\* -> held -> released or lost (R1), without I/O: what comes in goes
//! through `handle_*`, what is to be done is asked with `poll_*`, and the time is always said.
//!
//! `asking` is the way to a hold, `holding` the hold, `leaving` what is taken back from the store
//! in the end.

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

/// All that is known of one owner id.
#[derive(Debug)]
pub(crate) struct Claim {
    request: Arc<Request>,
    rules: Rules,
    stage: Stage,
    /// Its hold, also after that is over.
    grip: Option<Grip>,
    /// What is taken back from the store, from when the id is given up.
    leaving: Option<Leaving>,
    /// Its call has seen its hold, and uses it. Until then it is not extended, and not kept for
    /// long (R37).
    taken: bool,
    /// Its hold was lost while it was used, and nobody was told.
    untold: bool,
    /// It is to be released, although nobody gave it up.
    unsent: bool,
    /// How it came out for a call that had not heard of that when it was given up for it.
    outcome: Option<Outcome>,
}

#[derive(Debug)]
enum Stage {
    Asking(Box<Asking>),
    Held(Holding),
    /// It was given up; how its hold ended, if there was one.
    Over(Option<End>),
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its call waits, or asks.
    Asking,
    /// It stands in the queue, and is looked after.
    Queued,
    /// Something may be in the store, and only its call can go on.
    Due,
    Held,
    Over,
}

/// A hold, for those who use it.
#[derive(Clone, Debug)]
pub(crate) struct Grip {
    pub(crate) token: FencingToken,
    pub(crate) since: Moment,
    pub(crate) belief: Arc<Belief>,
    pub(crate) path: AcquirePath,
    /// When it was granted at the earliest, where it was handed on and that is known.
    pub(crate) granted_at: Option<Moment>,
}

impl Claim {
    /// `obstacle` is what stood in the way of an earlier id of the same call.
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

    /// An id that nobody here knows, and that is to be taken back, whatever the store has of it.
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

    /// A command is under way for its call.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(&self.stage, Stage::Asking(asking) if asking.is_unanswered())
    }

    /// Whether it may stand in the queue: a grant leaves its place there until it is confirmed.
    fn may_have_place(&self) -> bool {
        match &self.stage {
            Stage::Asking(_) => true,
            Stage::Held(held) => !held.is_confirmed(),
            Stage::Over(_) => false,
        }
    }

    /// Returns true if it is held for the full lease, and not only by a short grant.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.is_confirmed())
    }

    fn is_taken(&self) -> bool {
        self.taken || !self.rules.take_or_leave
    }

    /// Who had the lock when it was last looked at, while it is waited for.
    pub(crate) fn occupant(&self) -> Option<&Occupant> {
        match &self.stage {
            Stage::Asking(asking) => asking.occupant(),
            _ => None,
        }
    }

    /// Returns what went wrong with the last ask, while the call waits to repeat it.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        match &self.stage {
            Stage::Asking(asking) => asking.trouble(),
            _ => None,
        }
    }

    /// Its hold, if there is or was one.
    pub(crate) fn grip(&self) -> Option<&Grip> {
        self.grip.as_ref()
    }

    /// How its hold ended.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.stage {
            Stage::Over(end) => end.as_ref(),
            _ => None,
        }
    }

    // What comes in, of an ask.

    pub(crate) fn handle_answer(&mut self, answer: Result<AskReply, Trouble>, now: Moment) {
        let Stage::Asking(asking) = &mut self.stage else {
            return;
        };
        if asking.outcome().is_some() {
            // Whatever it says, it is undone when the call leaves.
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

    /// A grant was pushed. One that comes to a hold changes nothing: a hold is proven by replies
    /// (R13).
    pub(crate) fn handle_grant(&mut self, grant: &Grant, now: Moment) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.receive_grant(grant)
        {
            self.take(grant, now);
        }
    }

    /// A look found the lock to be this id's, and no message had said so.
    pub(crate) fn handle_found(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.found();
        }
    }

    /// A look found neither a lock nor a place of this id; or commands go to another connection,
    /// and the server may have forgotten it.
    pub(crate) fn handle_missing(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.missing();
        }
    }

    /// A look saw who has the lock that is waited for.
    pub(crate) fn handle_occupied(&mut self, occupant: Option<Occupant>) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.is_queued()
        {
            asking.note_occupant(occupant);
        }
    }

    /// A look found something else at the lock's keys.
    pub(crate) fn handle_foreign(&mut self, detail: String) {
        if let Stage::Asking(asking) = &mut self.stage
            && asking.is_queued()
        {
            asking.give_up(Outcome::Refused(Refusal::Foreign(detail)));
        }
    }

    /// The pause after a failure is over, and the store can be used.
    pub(crate) fn handle_retry(&mut self) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.retry(self.rules);
        }
    }

    // What comes in, of a grant or a hold.

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
                // Only its replicas are missing, most likely: the same id asks again, which keeps
                // what it has. What was granted is in the store, whether or not this was sent.
                Err(trouble) if !self.request.durability.is_none() => {
                    asking.failed(&self.request, trouble.sent(), now);
                }
                // It was not lost, for nothing ran under it.
                Ok(None) | Err(_) => asking.again(),
            },
            Stage::Held(held) => {
                let verdict = held.confirmed(&self.request, self.rules, answer, now);
                self.judge(verdict, now);
            }
            Stage::Over(_) => {}
        }
    }

    /// The answer to a renewal that was sent then.
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

    // What comes in, of the surroundings.

    /// There is another connection, so what is held is renewed at once.
    pub(crate) fn renew_now(&mut self, now: Moment) {
        if let Stage::Held(held) = &mut self.stage {
            held.renew_now(now);
        }
    }

    /// The holder waits for the confirmation of its short grant.
    pub(crate) fn confirm_now(&mut self, now: Moment) {
        if let Stage::Held(held) = &mut self.stage {
            held.confirm_now(&self.request, now);
        }
    }

    /// Its hold is taken away, if it is the one with that token.
    pub(crate) fn handle_revocation(&mut self, revocation: &Revocation, now: Moment) {
        let held = matches!(self.stage, Stage::Held(_));
        let is_meant = |grip: &Grip| grip.token == revocation.token;
        if held && self.grip.as_ref().is_some_and(is_meant) {
            self.lose(End::Revoked(revocation.by.clone()), now);
        }
    }

    /// Time passes: a hold may be over by itself, and a wait at its end.
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

    /// A look, while the store can be used: what its call does not go on with is taken back (R37).
    pub(crate) fn handle_look(&mut self, now: Moment) {
        let patience = self.request.timing.command_deadline() * 2;
        if let Stage::Asking(asking) = &mut self.stage
            && asking.notice_stuck(patience, now)
            && self.rules.take_or_leave
        {
            self.give_back(now);
        }
    }

    /// Whether its call was refused, and has to leave.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(&self.stage, Stage::Asking(asking) if asking.outcome().is_some())
    }

    /// The command of this claim that its caller has under way is not heard of, because its runtime
    /// does not run.
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

    /// Whoever asked or held is done with it. With `keep`, a lock that is still held stays taken
    /// for that long. Whether there is something to be released.
    pub(crate) fn leave(&mut self, keep: Duration, now: Moment) -> bool {
        self.handle_time(now);
        let (end, believed_until) = match &self.stage {
            Stage::Asking(asking) if asking.is_to_be_undone(self.rules) => (None, None),
            Stage::Asking(_) => {
                self.stage = Stage::Over(None);
                return false;
            }
            Stage::Held(held) => (Some(End::Released), held.belief().end(now)),
            // It is released already, or never was anything.
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

    /// The answer to a release: whether it is to be repeated.
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

    // What is to be done.

    /// What is to be sent now.
    pub(crate) fn poll_action(&mut self, now: Moment) -> Option<Action> {
        self.handle_time(now);
        let is_taken = self.is_taken();
        match &mut self.stage {
            Stage::Asking(asking) => asking.action(&self.request, now),
            Stage::Held(held) if is_taken => held.action(&self.request, now),
            Stage::Held(_) | Stage::Over(_) => None,
        }
    }

    /// How it came out for the call that asked, once it did. From then on somebody uses a hold.
    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        match &self.stage {
            Stage::Asking(asking) => asking.outcome().cloned(),
            Stage::Held(_) => {
                self.taken = true;
                Some(Outcome::Held)
            }
            // It was a hold, and is over before its call saw it.
            Stage::Over(Some(End::ShutDown)) => Some(Outcome::Refused(Refusal::ShutDown)),
            Stage::Over(None) if self.outcome.is_some() => self.outcome.clone(),
            Stage::Over(None) => Some(Outcome::Again(Some(Obstacle::Trouble(not_taken())))),
            Stage::Over(_) => Some(Outcome::Again(None)),
        }
    }

    /// How its hold was lost, once, for those who tell.
    pub(crate) fn poll_loss(&mut self) -> Option<End> {
        std::mem::take(&mut self.untold)
            .then(|| self.end().cloned())
            .flatten()
    }

    /// Whether it is to be released although its holder did not say so, once: who finds the lock
    /// free drives its queue (R5).
    pub(crate) fn poll_release(&mut self) -> bool {
        std::mem::take(&mut self.unsent)
    }

    /// When something is to be done, if nothing comes in before.
    pub(crate) fn poll_timeout(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Asking(_) => Some(self.request.deadline()),
            Stage::Held(held) if self.is_taken() => Some(held.next()),
            Stage::Held(held) => Some(held.patience()),
            Stage::Over(_) => None,
        }
    }

    /// When an ask that failed may be repeated.
    pub(crate) fn poll_retry(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Asking(asking) => asking.retry_at(),
            _ => None,
        }
    }

    /// How long a release that is sent now keeps the key.
    pub(crate) fn keep(&self, now: Moment) -> Duration {
        let leaving = self.leaving.as_ref();
        leaving.map_or(Duration::ZERO, |leaving| leaving.keep(now))
    }

    /// Whether nothing of it can be left in the store.
    pub(crate) fn is_past(&self, now: Moment) -> bool {
        let ttl = self.request.timing.ttl();
        let leaving = self.leaving.as_ref();
        leaving.is_none_or(|leaving| leaving.is_past(ttl, now))
    }

    // From stage to stage.

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
            // Nobody else can have it before its holder has stopped and releases it, or its TTL
            // ends.
            Verdict::Revoked => self.lose(End::Revoked(String::new()), now),
        }
    }

    /// Its call does not take it, or hears nothing of it: others shall have the lock, and the call
    /// asks again when it runs (R37).
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

/// What stood in the way of a call that did not go on, or did not take what it was given.
fn not_taken() -> Trouble {
    Trouble::new(
        Outage::TimedOut,
        "what this call had asked for, or was granted, was taken back, because its runtime did not run",
    )
}
