//! The path of an owner id to its hold: its acquire commands, and their results.

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

/// The pause after a transient failure. It doubles while commands are sent and fail, because many
/// callers may wait. It restarts when a command was not sent.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

#[derive(Debug)]
pub(super) struct Asking {
    next: Next,
    /// Set if the store may have something of this id.
    asked: bool,
    /// `asked`, and the remaining wait of the caller, before the acquire in flight.
    before: Before,
    /// Set while the id is in the queue, as far as is known.
    in_queue: bool,
    was_late: bool,
    backoff: Backoff,
    obstacle: Option<Obstacle>,
    /// The occupant of the lock, as last reported.
    occupant: Option<Occupant>,
    /// A grant that arrived while an acquire was due or in flight.
    pushed: Option<Box<Grant>>,
    /// The arrival of the grant that must be confirmed.
    arrival: Arrival,
    /// When it was first noticed that only the call can continue.
    due_since: Option<Moment>,
}

/// The path on which a call got its lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) path: AcquirePath,
    /// The earliest possible time of the grant, if known.
    pub(super) granted_at: Option<Moment>,
}

impl Arrival {
    /// The arrival of a lock that was free.
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

/// The next step of the id, or the event for which it waits.
#[derive(Debug)]
enum Next {
    Ask,
    Answer,
    Place,
    /// A failed acquire is repeated at this time. A grant can arrive before, because the failed
    /// acquire may have been applied.
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

    /// Returns true if the store may have something of this id, and only its call can continue.
    pub(super) fn is_due(&self) -> bool {
        self.asked && matches!(self.next, Next::Ask | Next::Retry(_) | Next::Confirm)
    }

    /// Returns true if the call was first found due `patience` ago, and has not continued since.
    /// The pause before a retry does not count.
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

    /// Returns true while a command of the call is in flight.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.next, Next::Answer | Next::Confirmation)
    }

    /// Returns when a failed acquire may be repeated.
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

    /// Handles the reply to an acquire. Returns the proof if the reply is a hold.
    pub(super) fn answered(&mut self, request: &Request, answer: AskReply) -> Option<Proof> {
        match answer {
            AskReply::Held(proof) => return Some(proof),
            // Free behind more dead waiters than one script removes: acquire again.
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
            // The server's time was not known well enough, so nothing was applied. Now it is known.
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

    /// Notes that this acquire left nothing in the store. Returns the occupant of the lock.
    fn turned_away(&mut self, occupant: Option<Occupant>) -> Option<Occupant> {
        self.asked = self.before.asked;
        self.obstacle = None;
        self.occupant.take().or(occupant)
    }

    /// Handles a failed command: schedules a retry of the acquire, or refuses the call.
    pub(super) fn failed(&mut self, request: &Request, trouble: Trouble, now: Moment) {
        if trouble.unsent {
            self.asked = self.before.asked;
            self.backoff.reset();
        }
        let stop = request.tries_once() || !trouble.outage.is_transient();
        // A timeout that the end of the wait cut short says less than the obstacle before it.
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

    /// Returns true if a pushed grant can be taken now. One before the reply is stored for later.
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

    /// Returns a stored grant, once the id waits for one.
    pub(super) fn take_pushed(&mut self) -> Option<Box<Grant>> {
        match self.next {
            Next::Place | Next::Retry(_) => self.pushed.take(),
            _ => None,
        }
    }

    /// Makes the confirmation of a grant the next step.
    pub(super) fn confirm(&mut self, path: AcquirePath, granted_at: Option<Moment>) {
        self.arrival = Arrival { path, granted_at };
        self.next = Next::Confirm;
    }

    pub(super) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Handles a queue check that found the lock to be this id's.
    pub(super) fn found(&mut self) {
        if self.is_queued() {
            self.confirm(AcquirePath::QueueCheck, None);
        }
    }

    /// Returns the occupant of the lock, as last reported.
    pub(super) fn occupant(&self) -> Option<&Occupant> {
        self.occupant.as_ref()
    }

    pub(super) fn trouble(&self) -> Option<&Trouble> {
        match &self.obstacle {
            Some(Obstacle::Trouble(trouble)) => Some(trouble),
            _ => None,
        }
    }

    /// Acquires again, because the store may no longer have a place of this id.
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

    /// Ends the pause after a failure.
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

    /// Refuses the call if its wait has ended, unless a command is due or in flight.
    pub(super) fn run_out(&mut self, request: &Request, now: Moment) {
        let waits = matches!(self.next, Next::Place | Next::Retry(_));
        if waits && now >= request.deadline() {
            self.refuse(request);
        }
    }

    /// Gives up an id whose grant cannot be proven. The call acquires with a new one.
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

    /// Returns true if the store may have something of this id that must be undone.
    pub(super) fn is_to_be_undone(&self, rules: Rules) -> bool {
        let answered = match self.outcome() {
            Some(Outcome::Refused(Refusal::Foreign(_))) => true,
            Some(Outcome::Refused(Refusal::Unavailable(trouble))) => !trouble.is_no_answer(),
            _ => false,
        };
        self.asked && (rules.leave_queue || !self.in_queue) && (rules.undo_what_failed || !answered)
    }
}
