//! The way of an owner id to its hold: asks, and what comes of them.

use std::time::Duration;

use crate::error::Outage;
use crate::observer::event::AcquirePath;
use crate::protocol::outcome::{Action, Obstacle, Outcome, Refusal};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{AskReply, Grant, Occupant, Proof};
use crate::util::backoff::Backoff;
use crate::util::clock::Moment;

/// The pause after a transient failure of an ask: it doubles while the server answers and refuses,
/// for many may wait.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

#[derive(Debug)]
pub(super) struct Asking {
    next: Next,
    /// Something may be in the store under this id.
    asked: bool,
    /// The same before the ask that is under way, and how long its caller still waited then.
    before: Before,
    /// It stands in the queue, as far as is known.
    in_queue: bool,
    was_late: bool,
    backoff: Backoff,
    obstacle: Option<Obstacle>,
    /// Who had the lock when it was last looked at.
    occupant: Option<Occupant>,
    /// A grant that came while an ask was under way.
    pushed: Option<Box<Grant>>,
    /// How the grant arrived that is to be confirmed.
    arrival: Arrival,
    /// Since when it is known that something is to be done that only its call can do.
    due_since: Option<Moment>,
}

/// How a lock arrived at its call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) path: AcquirePath,
    /// The earliest time at which it was granted, if that is known.
    pub(super) granted_at: Option<Moment>,
}

impl Arrival {
    /// The lock was free.
    pub(super) const FREE: Arrival = Arrival {
        path: AcquirePath::Free,
        granted_at: None,
    };
}

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    asked: bool,
    wait: Duration,
}

/// What is waited for, or to be done.
#[derive(Debug)]
enum Next {
    Ask,
    Answer,
    Place,
    /// An ask failed, and is to be repeated then. A grant can come meanwhile, for it may have been
    /// applied.
    Retry(Moment),
    Confirm,
    Confirmation,
    Out(Outcome),
}

impl Asking {
    pub(super) fn new(obstacle: Option<Obstacle>) -> Self {
        Asking {
            next: Next::Ask,
            asked: false,
            before: Before::default(),
            in_queue: false,
            was_late: false,
            backoff: BACKOFF,
            obstacle,
            occupant: None,
            pushed: None,
            arrival: Arrival::FREE,
            due_since: None,
        }
    }

    /// Something may be in the store, and its call is to go on.
    pub(super) fn is_due(&self) -> bool {
        self.asked && matches!(self.next, Next::Ask | Next::Retry(_) | Next::Confirm)
    }

    /// Looks after a call that is to go on. Whether it has not done so for so long.
    pub(super) fn notice_stuck(&mut self, patience: Duration, now: Moment) -> bool {
        let is_due = self.is_due() && self.retry_at().is_none_or(|at| now >= at);
        if !is_due {
            self.due_since = None;
            return false;
        }
        now >= *self.due_since.get_or_insert(now) + patience
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.next, Next::Place)
    }

    /// A command is under way for it.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.next, Next::Answer | Next::Confirmation)
    }

    /// When a failed ask may be repeated.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        match self.next {
            Next::Retry(at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.next {
            Next::Out(outcome) => Some(outcome),
            _ => None,
        }
    }

    pub(super) fn action(&mut self, request: &Request, now: Moment) -> Option<Action> {
        self.due_since = None;
        match self.next {
            Next::Ask => {
                let wait = request.deadline().since(now);
                if wait.is_zero() && !request.tries_once() {
                    self.refuse(request);
                    return None;
                }
                let deadline = request.timing.command_deadline();
                let within = if request.tries_once() {
                    deadline
                } else {
                    deadline.min(wait)
                };
                self.before = Before {
                    asked: self.asked,
                    wait,
                };
                self.asked = true;
                self.in_queue = false;
                self.next = Next::Answer;
                Some(Action::Ask { wait, within })
            }
            Next::Confirm => {
                self.next = Next::Confirmation;
                Some(Action::Confirm {
                    within: request.timing.command_deadline(),
                })
            }
            _ => None,
        }
    }

    /// The answer to an ask, where it is not a hold.
    pub(super) fn answered(&mut self, request: &Request, answer: AskReply) -> Option<Proof> {
        match answer {
            AskReply::Held(proof) => return Some(proof),
            // The lock is free behind more dead waiters than one call removes: go on.
            AskReply::Queued(None) if !request.tries_once() => self.next = Next::Ask,
            AskReply::Queued(occupant) => {
                self.note_occupant(occupant);
                self.obstacle = Some(Obstacle::Occupied);
                self.in_queue = true;
                self.next = Next::Place;
            }
            AskReply::Busy(occupant) => {
                let occupant = self.turned_away(occupant);
                self.give_up(Outcome::Refused(Refusal::Busy(occupant)));
            }
            AskReply::Full(occupant) => {
                let occupant = self.turned_away(occupant);
                self.give_up(Outcome::Refused(Refusal::Full(occupant)));
            }
            // It was not applied, for the server's clock was not known well enough. Now it is.
            AskReply::Late => {
                let late = Trouble::timed_out(request.timing.command_deadline());
                self.obstacle = Some(Obstacle::Trouble(late));
                if request.tries_once() && self.was_late {
                    self.refuse(request);
                } else {
                    self.was_late = true;
                    self.next = Next::Ask;
                }
            }
            AskReply::Foreign(detail) => self.give_up(Outcome::Refused(Refusal::Foreign(detail))),
        }
        None
    }

    /// Nothing of this ask is in the store. Who was in the way.
    fn turned_away(&mut self, occupant: Option<Occupant>) -> Option<Occupant> {
        self.asked = self.before.asked;
        self.obstacle = None;
        self.occupant.take().or(occupant)
    }

    /// An ask failed.
    pub(super) fn failed(&mut self, request: &Request, trouble: Trouble, now: Moment) {
        if trouble.unsent {
            self.asked = self.before.asked;
            self.backoff.reset();
        }
        let stop = request.tries_once() || !trouble.outage.is_transient();
        // An ask that the end of the wait cut short says less than what was known before.
        let cut_short = trouble.outage == Outage::TimedOut
            && !request.tries_once()
            && self.before.wait < request.timing.command_deadline();
        if self.obstacle.is_none() || !cut_short {
            self.obstacle = Some(Obstacle::Trouble(trouble));
        }
        if stop {
            self.refuse(request);
        } else {
            self.next = Next::Retry(now + self.backoff.pause());
        }
    }

    /// A grant was pushed. One that comes while an ask is under way is kept for later.
    pub(super) fn receive_grant(&mut self, grant: &Grant) -> bool {
        match self.next {
            Next::Place | Next::Retry(_) => true,
            Next::Ask | Next::Answer => {
                self.pushed = Some(Box::new(grant.clone()));
                false
            }
            _ => false,
        }
    }

    /// The grant that came before it was waited for.
    pub(super) fn take_pushed(&mut self) -> Option<Box<Grant>> {
        match self.next {
            Next::Place | Next::Retry(_) => self.pushed.take(),
            _ => None,
        }
    }

    /// There is a grant that has to be proven.
    pub(super) fn confirm(&mut self, path: AcquirePath, granted_at: Option<Moment>) {
        self.arrival = Arrival { path, granted_at };
        self.next = Next::Confirm;
    }

    pub(super) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// A look found the lock to be this id's.
    pub(super) fn found(&mut self) {
        if self.is_queued() {
            self.confirm(AcquirePath::QueueCheck, None);
        }
    }

    /// Who had the lock when it was last looked at.
    pub(super) fn occupant(&self) -> Option<&Occupant> {
        self.occupant.as_ref()
    }

    pub(super) fn trouble(&self) -> Option<&Trouble> {
        match &self.obstacle {
            Some(Obstacle::Trouble(trouble)) => Some(trouble),
            _ => None,
        }
    }

    /// The store does not know of its place any more.
    pub(super) fn missing(&mut self) {
        if self.is_queued() {
            self.next = Next::Ask;
        }
    }

    pub(super) fn note_occupant(&mut self, occupant: Option<Occupant>) {
        if occupant.is_some() {
            self.occupant = occupant;
        }
    }

    /// The pause after a failure is over.
    pub(super) fn retry(&mut self, rules: Rules) {
        if self.retry_at().is_none() {
            return;
        }
        if rules.same_id {
            self.next = Next::Ask;
        } else {
            self.asked = false;
            self.again();
        }
    }

    /// A wait is at its end.
    pub(super) fn run_out(&mut self, request: &Request, now: Moment) {
        let waits = matches!(self.next, Next::Place | Next::Retry(_));
        if waits && now >= request.deadline() {
            self.refuse(request);
        }
    }

    /// What was granted cannot be proven.
    pub(super) fn again(&mut self) {
        self.in_queue = false;
        let obstacle = self.obstacle.take();
        self.give_up(Outcome::Again(obstacle));
    }

    pub(super) fn give_up(&mut self, outcome: Outcome) {
        self.next = Next::Out(outcome);
    }

    fn refuse(&mut self, request: &Request) {
        let refusal = match self.obstacle.take() {
            Some(Obstacle::Occupied) => Refusal::Busy(self.occupant.take()),
            Some(Obstacle::Trouble(trouble)) => Refusal::Unavailable(trouble),
            None => Refusal::Unavailable(Trouble::timed_out(request.options.wait)),
        };
        self.give_up(Outcome::Refused(refusal));
    }

    /// Whether something of it may be in the store, and is to be taken back.
    pub(super) fn is_to_be_undone(&self, rules: Rules) -> bool {
        let answered = match self.outcome() {
            Some(Outcome::Refused(Refusal::Foreign(_))) => true,
            Some(Outcome::Refused(Refusal::Unavailable(trouble))) => !trouble.is_no_answer(),
            _ => false,
        };
        self.asked && (rules.leave_queue || !self.in_queue) && (rules.undo_what_failed || !answered)
    }
}
