//! The acquiring stage of an acquisition: its acquire commands, and their results.

use std::time::Duration;

use crate::error::Outage;
use crate::observer::event::AcquirePath;
use crate::protocol::hold::GrantOrigin;
use crate::protocol::messages::{AcquireReply, Grant, HolderView, Proof};
use crate::protocol::outcome::{Action, Failure, Outcome, WaitReason};
use crate::protocol::request::Request;
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::util::backoff::Backoff;
use crate::util::clock::BootInstant;

/// The pause after a transient failure. It doubles while commands are sent and fail, because many
/// callers may wait. It returns to its initial value when a command could not be sent.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

#[derive(Debug)]
pub(super) struct Acquiring {
    next: AcquireStep,
    /// Set if the store may hold state for this acquisition.
    may_be_stored: bool,
    /// `may_be_stored` before the acquire in flight.
    was_stored: bool,
    /// The remaining wait of the caller when the acquire in flight was sent.
    wait: Duration,
    /// Set while the acquisition is queued, as far as is known.
    has_queue_entry: bool,
    /// Until when an acquire that got no reply may be applied.
    unanswered_until: Option<BootInstant>,
    was_late: bool,
    backoff: Backoff,
    wait_reason: Option<WaitReason>,
    /// The holders of the lock, as last reported.
    holders: Vec<HolderView>,
    /// A grant that arrived while an acquire was due or in flight.
    pushed: Option<Box<Grant>>,
    /// The origin of the grant that must be confirmed.
    origin: GrantOrigin,
}

/// The next step of the acquisition, or the event for which it waits.
#[derive(Debug)]
pub(super) enum AcquireStep {
    Acquire,
    /// The reply is late from this time on.
    AwaitReply(BootInstant),
    AwaitGrant,
    /// A failed acquire is repeated at this time. A grant can arrive before then, because the
    /// failed acquire may have been applied.
    Retry(BootInstant),
    Confirm,
    /// The reply is late from this time on.
    AwaitConfirmation(BootInstant),
    Done(Outcome),
}

/// Stands for the time at which a reply is late if its sender stops waiting by itself.
pub(super) const NEVER: BootInstant = BootInstant(u64::MAX);

/// Returns when a reply is late that its sender may await without end.
pub(super) fn late_at(sent_at: BootInstant, timeout: Duration) -> BootInstant {
    let grace = BootInstant(0) + timeout;
    BootInstant((sent_at + timeout).0.saturating_add(grace.0 / 16))
}

impl Acquiring {
    pub(super) fn new(wait_reason: Option<WaitReason>) -> Self {
        Acquiring {
            next: AcquireStep::Acquire,
            may_be_stored: false,
            was_stored: false,
            wait: Duration::ZERO,
            has_queue_entry: false,
            unanswered_until: None,
            was_late: false,
            backoff: BACKOFF,
            wait_reason,
            holders: Vec::new(),
            pushed: None,
            origin: GrantOrigin::FREE,
        }
    }

    pub(super) fn awaits_grant(&self) -> bool {
        matches!(self.next, AcquireStep::AwaitGrant)
    }

    /// Returns true while a command of the call is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(
            self.next,
            AcquireStep::AwaitReply(_) | AcquireStep::AwaitConfirmation(_)
        )
    }

    /// Returns until when an acquire that got no reply may be applied.
    pub(super) fn unanswered_until(&self) -> Option<BootInstant> {
        self.unanswered_until
    }

    pub(super) fn is_acquire_in_flight(&self) -> bool {
        matches!(self.next, AcquireStep::AwaitReply(_))
    }

    /// Returns when a failed acquire may be repeated.
    pub(super) fn retry_at(&self) -> Option<BootInstant> {
        match self.next {
            AcquireStep::Retry(at) => Some(at),
            _ => None,
        }
    }

    /// Returns when a command is due, its reply is late, or the wait ends.
    pub(super) fn next_due(&self, request: &Request) -> BootInstant {
        match self.next {
            AcquireStep::Acquire | AcquireStep::Confirm => BootInstant(0),
            AcquireStep::AwaitReply(late_at) | AcquireStep::AwaitConfirmation(late_at) => late_at,
            AcquireStep::AwaitGrant | AcquireStep::Retry(_) | AcquireStep::Done(_) => {
                request.deadline()
            }
        }
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.next {
            AcquireStep::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        match self.next {
            AcquireStep::Acquire => {
                let wait = request.deadline().since(now);
                if wait.is_zero() && !request.is_try_acquire() {
                    self.fail(request);
                    return None;
                }
                let command_timeout = request.timing().command_timeout();
                let timeout = if request.is_try_acquire() {
                    command_timeout
                } else {
                    command_timeout.min(wait)
                };
                self.wait = wait;
                self.was_stored = std::mem::replace(&mut self.may_be_stored, true);
                self.has_queue_entry = false;
                self.next = AcquireStep::AwaitReply(late_at(now, timeout));
                Some(Action::Acquire { wait, timeout })
            }
            AcquireStep::Confirm => {
                let timeout = request.timing().command_timeout();
                self.next = AcquireStep::AwaitConfirmation(late_at(now, timeout));
                Some(Action::Confirm { timeout })
            }
            _ => None,
        }
    }

    /// Handles the reply to an acquire. Returns the proof if the reply is a hold.
    pub(super) fn handle_reply(&mut self, request: &Request, reply: AcquireReply) -> Option<Proof> {
        match reply {
            AcquireReply::Held(proof) => return Some(proof),
            AcquireReply::Unfinished => self.next = AcquireStep::Acquire,
            AcquireReply::Queued(holders) => {
                self.note_holders(holders);
                self.wait_reason = Some(WaitReason::Occupied);
                self.has_queue_entry = true;
                self.next = AcquireStep::AwaitGrant;
            }
            AcquireReply::Busy(holders) => {
                let holders = self.note_rejection(holders);
                self.finish(Outcome::Failed(Failure::Busy(holders)));
            }
            AcquireReply::Full(holders) => {
                let holders = self.note_rejection(holders);
                self.finish(Outcome::Failed(Failure::Full(holders)));
            }
            AcquireReply::WrongKind { existing, holders } => {
                self.holders.clear();
                let holders = self.note_rejection(holders);
                let failure = Failure::WrongKind { existing, holders };
                self.finish(Outcome::Failed(failure));
            }
            AcquireReply::AlreadyRan(record) => {
                self.note_rejection(Vec::new());
                self.finish(Outcome::Failed(Failure::AlreadyRan(record)));
            }
            // The server's time was not known well enough, so nothing was applied. Now it is known.
            AcquireReply::Late => {
                let late = StoreError::timed_out(request.timing().command_timeout());
                self.wait_reason = Some(WaitReason::Error(late));
                if request.is_try_acquire() && self.was_late {
                    self.fail(request);
                } else {
                    self.was_late = true;
                    self.next = AcquireStep::Acquire;
                }
            }
            AcquireReply::KeyConflict(detail) => {
                self.finish(Outcome::Failed(Failure::KeyConflict(detail)))
            }
        }
        None
    }

    /// Notes that this acquire left nothing in the store. Returns the holders of the lock.
    fn note_rejection(&mut self, holders: Vec<HolderView>) -> Vec<HolderView> {
        self.may_be_stored = self.was_stored;
        self.wait_reason = None;
        let known = std::mem::take(&mut self.holders);
        if known.is_empty() { holders } else { known }
    }

    /// Handles a failed command: schedules a retry of the acquire, or fails the call.
    pub(super) fn handle_failure(
        &mut self,
        request: &Request,
        error: StoreError,
        now: BootInstant,
    ) {
        if error.unsent {
            self.may_be_stored = self.was_stored;
            self.backoff.reset();
        } else {
            if !error.outage.is_rejection() {
                self.unanswered_until = Some(now + request.timing().command_timeout());
            }
        }
        let stop = request.is_try_acquire() || !error.outage.is_transient();
        // A timeout that the end of the wait cut short says less than the reason before it.
        let cut_short = error.outage == Outage::TimedOut
            && !request.is_try_acquire()
            && self.wait < request.timing().command_timeout();
        if self.wait_reason.is_none() || !cut_short {
            self.wait_reason = Some(WaitReason::Error(error));
        }
        if stop {
            self.fail(request);
        } else {
            self.next = AcquireStep::Retry(now + self.backoff.next_delay());
        }
    }

    /// Handles the end of a command without a reply.
    pub(super) fn handle_unanswered(
        &mut self,
        request: &Request,
        error: StoreError,
        now: BootInstant,
    ) {
        match self.next {
            // This is not a loss, because no body ran under the grant.
            AcquireStep::AwaitConfirmation(_) if request.options.durability().is_none() => {
                self.restart()
            }
            _ => self.handle_failure(request, error, now),
        }
    }

    /// Returns true if a pushed grant can be used now. A grant that overtakes the reply is kept for
    /// later.
    pub(super) fn receive_grant(&mut self, grant: &Grant) -> bool {
        match self.next {
            AcquireStep::AwaitGrant | AcquireStep::Retry(_) => true,
            AcquireStep::Acquire | AcquireStep::AwaitReply(_) => {
                self.pushed = Some(Box::new(grant.clone()));
                false
            }
            _ => false,
        }
    }

    /// Returns a stored grant, once the acquisition waits for one.
    pub(super) fn take_pushed(&mut self) -> Option<Box<Grant>> {
        match self.next {
            AcquireStep::AwaitGrant | AcquireStep::Retry(_) => self.pushed.take(),
            _ => None,
        }
    }

    /// Makes the confirmation of a grant the next step.
    pub(super) fn confirm(&mut self, path: AcquirePath, granted_at: Option<BootInstant>) {
        self.origin = GrantOrigin { path, granted_at };
        self.next = AcquireStep::Confirm;
    }

    pub(super) fn origin(&self) -> GrantOrigin {
        self.origin
    }

    /// Handles a queue check that found the lock held by this acquisition.
    pub(super) fn handle_found(&mut self) {
        if self.awaits_grant() {
            self.confirm(AcquirePath::QueueCheck, None);
        }
    }

    /// Returns the holders of the lock, as last reported.
    pub(super) fn holders(&self) -> &[HolderView] {
        &self.holders
    }

    pub(super) fn error(&self) -> Option<&StoreError> {
        match &self.wait_reason {
            Some(WaitReason::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// Acquires again, because the store may no longer have this queue entry.
    pub(super) fn handle_missing(&mut self) {
        if self.awaits_grant() {
            self.next = AcquireStep::Acquire;
        }
    }

    pub(super) fn note_holders(&mut self, holders: Vec<HolderView>) {
        if !holders.is_empty() {
            self.holders = holders;
        }
    }

    /// Ends the pause after a failure.
    pub(super) fn retry(&mut self) {
        if self.retry_at().is_none() {
            return;
        }
        if rule!(same_id) {
            self.next = AcquireStep::Acquire;
        } else {
            self.may_be_stored = false;
            self.restart();
        }
    }

    /// Fails the call if its wait has ended, unless a command is due or in flight.
    pub(super) fn handle_time(&mut self, request: &Request, now: BootInstant) {
        let waits = matches!(self.next, AcquireStep::AwaitGrant | AcquireStep::Retry(_));
        if waits && now >= request.deadline() {
            self.fail(request);
        }
    }

    /// Waits for the reply to the command in flight for as long as its sender does.
    pub(super) fn leave_timeout(&mut self) {
        if let AcquireStep::AwaitReply(late_at) | AcquireStep::AwaitConfirmation(late_at) =
            &mut self.next
        {
            *late_at = NEVER;
        }
    }

    /// Returns true if the reply to the command in flight is late.
    pub(super) fn is_late(&self, now: BootInstant) -> bool {
        matches!(self.next, AcquireStep::AwaitReply(at) | AcquireStep::AwaitConfirmation(at) if now >= at)
    }

    /// Ends an acquisition whose grant cannot be proven. The call starts a new one.
    pub(super) fn restart(&mut self) {
        self.has_queue_entry = false;
        let wait_reason = self.wait_reason.take();
        self.finish(Outcome::Retry(wait_reason));
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        self.next = AcquireStep::Done(outcome);
    }

    fn fail(&mut self, request: &Request) {
        let failure = match self.wait_reason.take() {
            Some(WaitReason::Occupied) => Failure::Busy(std::mem::take(&mut self.holders)),
            Some(WaitReason::Error(error)) => Failure::Unavailable(error),
            None => Failure::Unavailable(StoreError::timed_out(request.options.wait())),
        };
        self.finish(Outcome::Failed(failure));
    }

    /// Returns true if the store may hold state that must be released.
    pub(super) fn needs_release(&self) -> bool {
        let is_answered = match self.outcome() {
            Some(Outcome::Failed(Failure::KeyConflict(_))) => true,
            Some(Outcome::Failed(Failure::Unavailable(error))) => !error.is_unanswered(),
            _ => false,
        };
        self.may_be_stored
            && (rule!(cancel_queued) || !self.has_queue_entry)
            && (rule!(cancel_failed) || !is_answered)
    }
}

#[cfg(test)]
mod tests;
