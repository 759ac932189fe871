//! The state machine of one acquisition, acquiring -> held -> released or lost (R1), without I/O.
//! Its number is part of the owner id in the store. A call is *stalled* if the caller's task was
//! not polled in time. Inputs arrive through `handle_*`, and pending actions come from `poll_*`.
//! Time is an argument.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Holder, Outage};
use crate::fencing::FencingToken;
use crate::observer::event::{AcquirePath, RecordOutcome};
use crate::protocol::acquisition::acquiring::{Acquiring, GrantOrigin, Next};
use crate::protocol::acquisition::downgrading::Downgrading;
use crate::protocol::acquisition::holding::{HoldStatus, Holding};
use crate::protocol::acquisition::releasing::{ReleaseStep, Releasing};
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    AcquireReply, Confirmation, Grant, HolderView, Proof, ReleaseReply, RenewalFailure,
    RevocationNotice,
};
use crate::protocol::outcome::{Action, Failure, HoldEnd, Outcome, WaitReason};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::safe_deadline::SafeDeadline;
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

pub(crate) mod acquiring;
mod downgrading;
pub(crate) mod holding;
pub(crate) mod releasing;
#[cfg(test)]
mod tests;

/// One acquisition, from its first acquire command to the end of its release.
#[derive(Debug)]
pub(crate) struct Acquisition {
    request: Arc<Request>,
    rules: Rules,
    stage: Stage,
    /// The hold, kept after it has ended.
    hold_info: Option<HoldInfo>,
    /// The release, once it has begun.
    releasing: Option<Releasing>,
    /// Set while an acquire is in flight.
    awaits_acquire_reply: bool,
    /// Set once an acquire went unanswered. It may be applied until its deadline (R2).
    was_unanswered: bool,
    /// The hold is claimed once the caller has received it. Until then the hold is not extended,
    /// and it is soon released (R37).
    is_claimed: bool,
    /// Set while the loss of a hold in use has not been reported.
    is_loss_pending: bool,
    /// Set if a release must be sent that the holder has not requested.
    is_release_due: bool,
    /// The outcome that the call had not yet received when the release began on its behalf.
    outcome: Option<Outcome>,
    /// Whether a success is recorded, until this is published.
    record_outcome: Option<RecordOutcome>,
}

#[derive(Debug)]
enum Stage {
    Acquiring(Box<Acquiring>),
    Held(Holding),
    /// Between a write hold, which has ended here, and the read hold that replaces it.
    Downgrading(Downgrading),
    /// Cancelled, released or lost. Carries why the hold ended; `None` if there was no hold, or if
    /// its call stalled (R37).
    Ended(Option<HoldEnd>),
}

/// The state of an acquisition, as the manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquisitionState {
    /// About to send an acquire command, waiting for a reply, or failed but not yet released.
    Acquiring,
    /// In the queue, which is checked at intervals.
    Queued,
    /// Waiting for the caller to poll its acquire future; the store may hold state.
    NeedsPoll,
    Held,
    Ended,
}

/// The stage of an acquisition, and its next step while it acquires. A caller that waits for either
/// is woken when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    stage: Discriminant<Stage>,
    step: Option<Discriminant<Next>>,
}

impl Progress {
    pub(crate) fn has_stage_of(self, other: Progress) -> bool {
        self.stage == other.stage
    }
}

/// A hold, for the code that uses it.
#[derive(Clone, Debug)]
pub(crate) struct HoldInfo {
    /// The kind of the hold: that of the request, or a read after a downgrade.
    pub(crate) kind: Kind,
    pub(crate) token: FencingToken,
    pub(crate) since: BootInstant,
    pub(crate) safe_deadline: Arc<SafeDeadline>,
    pub(crate) path: AcquirePath,
    /// The earliest possible time of the grant, if the lock was handed off and the time is known.
    pub(crate) granted_at: Option<BootInstant>,
}

impl Acquisition {
    /// Creates an acquisition that is about to send its acquire command. `wait_reason` is that of
    /// an earlier acquisition of the same call.
    pub(crate) fn new(
        request: Arc<Request>,
        wait_reason: Option<WaitReason>,
        rules: Rules,
    ) -> Self {
        Acquisition {
            request,
            rules,
            stage: Stage::Acquiring(Box::new(Acquiring::new(wait_reason))),
            hold_info: None,
            releasing: None,
            awaits_acquire_reply: false,
            was_unanswered: false,
            is_claimed: false,
            is_loss_pending: false,
            is_release_due: false,
            outcome: None,
            record_outcome: None,
        }
    }

    /// Creates an acquisition that only releases an owner id unknown to this client, whatever the
    /// store holds for it.
    pub(crate) fn release_only(request: Arc<Request>, rules: Rules, now: BootInstant) -> Self {
        Acquisition {
            stage: Stage::Ended(None),
            releasing: Some(Releasing::new(false, now)),
            ..Self::new(request, None, rules)
        }
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn state(&self) -> AcquisitionState {
        match &self.stage {
            Stage::Acquiring(acquiring) if acquiring.awaits_grant() => AcquisitionState::Queued,
            Stage::Acquiring(acquiring) if acquiring.needs_poll() => AcquisitionState::NeedsPoll,
            Stage::Acquiring(_) => AcquisitionState::Acquiring,
            // The watchdog sends the commands of both.
            Stage::Held(_) | Stage::Downgrading(_) => AcquisitionState::Held,
            Stage::Ended(_) => AcquisitionState::Ended,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            stage: discriminant(&self.stage),
            step: self.acquiring().map(Acquiring::step),
        }
    }

    /// Returns true while a command of the call is in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.acquiring().is_some_and(Acquiring::is_in_flight)
    }

    fn acquiring(&self) -> Option<&Acquiring> {
        match &self.stage {
            Stage::Acquiring(acquiring) => Some(acquiring),
            Stage::Held(_) | Stage::Downgrading(_) | Stage::Ended(_) => None,
        }
    }

    /// Returns true if a queue entry may exist. A grant keeps its entry until it is confirmed.
    fn may_be_queued(&self) -> bool {
        match &self.stage {
            Stage::Acquiring(_) => true,
            Stage::Held(held) => !held.is_confirmed(),
            Stage::Downgrading(_) | Stage::Ended(_) => false,
        }
    }

    /// Returns true if the lock is held for the full lease, and not only by a short grant.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.is_confirmed())
    }

    fn may_extend(&self) -> bool {
        self.is_claimed || !self.rules.release_unused
    }

    /// Returns the holders of the lock, as last reported, until the lock is held.
    pub(crate) fn holders(&self) -> &[HolderView] {
        self.acquiring().map_or(&[], Acquiring::holders)
    }

    /// Returns the first of these holders.
    pub(crate) fn first_holder(&self) -> Option<Holder> {
        let kind = self.request.kind.lock_kind();
        Some(self.holders().first()?.to_holder(kind))
    }

    /// Returns the last reason why the call waits, if it is an error, until the lock is held.
    pub(crate) fn error(&self) -> Option<&StoreError> {
        self.acquiring()?.error()
    }

    /// Returns the hold, even after it has ended.
    pub(crate) fn hold_info(&self) -> Option<&HoldInfo> {
        self.hold_info.as_ref()
    }

    /// Returns why the hold ended.
    pub(crate) fn end(&self) -> Option<&HoldEnd> {
        match &self.stage {
            Stage::Ended(end) => end.as_ref(),
            _ => None,
        }
    }

    /// Returns true if the hold ended because the store lost it, or did not renew it in time.
    pub(crate) fn is_lost(&self) -> bool {
        use HoldEnd::{Gone, NotHeld, NotRenewed};
        matches!(self.end(), Some(Gone | NotHeld | NotRenewed(_)))
    }

    // Inputs while acquiring.

    pub(crate) fn handle_acquire_reply(
        &mut self,
        reply: Result<AcquireReply, StoreError>,
        now: BootInstant,
    ) {
        self.awaits_acquire_reply = false;
        if let Err(error) = &reply {
            self.was_unanswered |= !error.unsent && error.is_unanswered();
        }
        let Stage::Acquiring(acquiring) = &mut self.stage else {
            return;
        };
        if acquiring.outcome().is_some() {
            // Whatever the reply is, the release that follows cancels it.
            return;
        }
        match reply {
            Ok(reply) => {
                if let Some(proof) = acquiring.handle_reply(&self.request, reply) {
                    return self.prove(proof, GrantOrigin::FREE, now);
                }
            }
            Err(error) => acquiring.handle_failure(&self.request, error, now),
        }
        if let Some(grant) = acquiring.take_pushed() {
            self.apply_grant(&grant, now);
        }
    }

    /// Handles a pushed grant. It does not change an existing hold, which only replies prove (R13).
    pub(crate) fn handle_grant(&mut self, grant: &Grant, now: BootInstant) {
        if let Stage::Acquiring(acquiring) = &mut self.stage
            && acquiring.receive_grant(grant)
        {
            self.apply_grant(grant, now);
        }
    }

    /// Handles a queue check that found the lock held by this acquisition before its grant arrived.
    pub(crate) fn handle_found(&mut self) {
        if let Stage::Acquiring(acquiring) = &mut self.stage {
            acquiring.handle_found();
        }
    }

    /// Handles a queue check that found neither the lock nor a queue entry of this owner id. Also
    /// called when commands use another connection or server, which may not know the owner id.
    pub(crate) fn handle_missing(&mut self) {
        if let Stage::Acquiring(acquiring) = &mut self.stage {
            acquiring.handle_missing();
        }
    }

    /// Handles a queue check that reported the holders of the lock.
    pub(crate) fn handle_occupied(&mut self, holders: Vec<HolderView>) {
        if let Stage::Acquiring(acquiring) = &mut self.stage
            && acquiring.awaits_grant()
        {
            acquiring.note_holders(holders);
        }
    }

    /// Ends the pause after a failure, once the store can be used.
    pub(crate) fn handle_retry(&mut self) {
        if let Stage::Acquiring(acquiring) = &mut self.stage {
            acquiring.retry(self.rules);
        }
    }

    // Inputs for a grant or a hold.

    pub(crate) fn handle_confirmation(
        &mut self,
        reply: Result<Confirmation, StoreError>,
        now: BootInstant,
    ) {
        self.handle_time(now);
        match &mut self.stage {
            Stage::Acquiring(acquiring) if acquiring.outcome().is_some() => {}
            Stage::Acquiring(acquiring) => match reply {
                Ok(Confirmation::Held(proof)) => {
                    let origin = acquiring.origin();
                    self.prove(proof, origin, now);
                }
                Ok(Confirmation::AlreadyRan(record)) => {
                    acquiring.finish(Outcome::Failed(Failure::AlreadyRan(record)));
                }
                // Most likely only the replicas are missing: acquires again, and keeps what it has.
                // The store has the grant, even if this confirmation was not sent.
                Err(error) if !self.request.durability.is_none() => {
                    acquiring.handle_failure(&self.request, error.mark_sent(), now);
                }
                // This is not a loss, because no body ran under the grant.
                Ok(Confirmation::NotHeld) | Err(_) => acquiring.restart(),
            },
            Stage::Held(held) => {
                let status = held.handle_confirmation(&self.request, self.rules, reply, now);
                self.apply_status(status, now);
            }
            Stage::Downgrading(_) | Stage::Ended(_) => {}
        }
    }

    /// Handles the reply to a renewal that was sent with `token` at `sent_at`. It counts only for
    /// the hold with that token (K12).
    pub(crate) fn handle_renewal(
        &mut self,
        reply: Result<(), RenewalFailure>,
        token: FencingToken,
        sent_at: BootInstant,
        now: BootInstant,
    ) {
        self.handle_time(now);
        if let Stage::Held(held) = &mut self.stage
            && held.token() == token
        {
            let status = held.handle_renewal(&self.request, self.rules, reply, sent_at, now);
            self.apply_status(status, now);
        }
    }

    /// Ends a confirmed write hold, so that it can be downgraded. Returns false if there is none.
    /// The write hold ends here before the command is sent, because readers may start once the
    /// store has applied it (K11).
    pub(crate) fn begin_downgrade(&mut self, now: BootInstant) -> bool {
        self.handle_time(now);
        match &self.stage {
            Stage::Held(held) if held.is_confirmed() && self.request.kind == Kind::Write => {
                let Some(downgrading) = Downgrading::of(held, now) else {
                    return false;
                };
                self.stage = Stage::Downgrading(downgrading);
                true
            }
            _ => false,
        }
    }

    /// Handles the reply to a downgrade. The read hold has a new [`HoldInfo`].
    pub(crate) fn handle_downgrade(
        &mut self,
        reply: Result<Option<Proof>, StoreError>,
        now: BootInstant,
    ) {
        self.handle_time(now);
        let Stage::Downgrading(downgrading) = &mut self.stage else {
            return;
        };
        match reply {
            Ok(Some(proof)) => match downgrading.finish(&self.request, self.rules, proof, now) {
                Some(held) => self.begin_hold(held, GrantOrigin::FREE),
                None => self.end_downgrade(now),
            },
            Ok(None) => self.apply_status(HoldStatus::Gone, now),
            // It is repeated while the write hold would have been valid.
            Err(error) => downgrading.note_failure(&error),
        }
    }

    /// Ends a downgrade that came too late, and releases whatever it left in the store.
    fn end_downgrade(&mut self, now: BootInstant) {
        if let Stage::Downgrading(downgrading) = &self.stage {
            self.end_hold(downgrading.end(), now);
            self.releasing = Some(self.new_release(now));
            self.is_release_due = true;
        }
    }

    // Inputs from outside the call.

    /// Makes the renewal of a hold due at once, because there is a new connection.
    pub(crate) fn renew_now(&mut self, now: BootInstant) {
        match &mut self.stage {
            Stage::Held(held) => held.renew_now(now),
            Stage::Downgrading(downgrading) => downgrading.repeat_now(now),
            Stage::Acquiring(_) | Stage::Ended(_) => {}
        }
    }

    /// Makes the confirmation of a short grant due at once, because its holder waits for it.
    pub(crate) fn confirm_now(&mut self, now: BootInstant) {
        if let Stage::Held(held) = &mut self.stage {
            held.confirm_now(&self.request, now);
        }
    }

    /// Ends the hold if it has the token of the revocation.
    pub(crate) fn handle_revocation(&mut self, revocation: &RevocationNotice, now: BootInstant) {
        let held = matches!(self.stage, Stage::Held(_));
        let is_meant = |hold_info: &HoldInfo| hold_info.token == revocation.token;
        if held && self.hold_info.as_ref().is_some_and(is_meant) {
            self.end_hold(HoldEnd::Revoked(revocation.by.clone()), now);
        }
    }

    /// Ends a hold that has expired or was not claimed in time, and a wait that has ended.
    pub(crate) fn handle_time(&mut self, now: BootInstant) {
        let may_extend = self.may_extend();
        match &mut self.stage {
            Stage::Acquiring(acquiring) => acquiring.handle_time(&self.request, now),
            Stage::Held(held) => {
                if let Some(end) = held.check_end(now) {
                    self.end_hold(end, now);
                } else if !may_extend && now >= held.claim_by() {
                    self.release_stalled(now);
                }
            }
            Stage::Downgrading(downgrading) if now >= downgrading.valid_until() => {
                self.end_downgrade(now);
            }
            Stage::Downgrading(_) | Stage::Ended(_) => {}
        }
    }

    /// Starts the `max_hold` of a hold whose body starts now.
    pub(crate) fn start_max_hold(&mut self, now: BootInstant) {
        if let (Stage::Held(held), Some(max_hold)) =
            (&mut self.stage, self.request.options.max_hold)
        {
            held.set_limit(now + max_hold);
        }
    }

    /// Releases the acquisition if its call is stalled (R37). Called at a queue check, while the
    /// store can be used.
    pub(crate) fn handle_queue_check(&mut self, now: BootInstant) {
        let stall_timeout = self.request.timing.command_timeout() * 2;
        if let Stage::Acquiring(acquiring) = &mut self.stage
            && acquiring.detect_stall(stall_timeout, now)
            && self.rules.release_unused
        {
            self.release_stalled(now);
        }
    }

    /// Returns true if the acquisition has failed and the call must therefore release it.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(&self.stage, Stage::Acquiring(acquiring) if acquiring.outcome().is_some())
    }

    /// Releases the acquisition if its call has a command in flight. Called when the call is
    /// stalled and so will not receive the reply in time.
    pub(crate) fn handle_stall(&mut self, now: BootInstant) {
        if self.is_in_flight() && self.rules.release_unused {
            self.release_stalled(now);
        }
    }

    pub(crate) fn handle_shutdown(&mut self, now: BootInstant) {
        match &mut self.stage {
            Stage::Acquiring(acquiring) => acquiring.finish(Outcome::Failed(Failure::ShutDown)),
            Stage::Held(_) | Stage::Downgrading(_) => self.end_hold(HoldEnd::ShutDown, now),
            Stage::Ended(_) => {}
        }
    }

    /// Begins the release for the call or holder, after work that `succeeded` or did not. Returns
    /// true if a release must be sent.
    pub(crate) fn release(&mut self, succeeded: bool, now: BootInstant) -> bool {
        self.handle_time(now);
        let (end, safe_until) = match &self.stage {
            Stage::Acquiring(acquiring) if acquiring.needs_release(self.rules) => (None, None),
            Stage::Acquiring(_) => {
                self.stage = Stage::Ended(None);
                return false;
            }
            Stage::Held(held) => (Some(HoldEnd::Released), held.safe_deadline().close(now)),
            Stage::Downgrading(_) => (Some(HoldEnd::Released), None),
            // The release has already begun, or there is nothing to release.
            Stage::Ended(end) if self.releasing.is_some() || end.is_none() => return false,
            Stage::Ended(end) => (end.clone(), None),
        };
        let has_queue_entry = self.may_be_queued();
        if let Stage::Acquiring(acquiring) = &self.stage {
            self.outcome = acquiring.outcome().cloned();
        }
        // A success counts only under a hold that was valid to its end (P10).
        let succeeded = succeeded && safe_until.is_some() || !self.rules.success_only;
        let releasing = match self.hold_info.as_ref().filter(|_| succeeded) {
            Some(HoldInfo { token, since, .. }) => {
                self.new_release(now)
                    .after_success(&self.request, *token, *since)
            }
            None => self.new_release(now),
        };
        self.stage = Stage::Ended(end);
        let releasing = releasing.with_valid_hold(safe_until);
        self.releasing = Some(if has_queue_entry {
            releasing.with_queue_entry(self.request.queue_entry_expires_at())
        } else {
            releasing
        });
        true
    }

    /// Handles the reply to a release, and returns the result of the attempt.
    pub(crate) fn handle_release_reply(
        &mut self,
        reply: Result<ReleaseReply, StoreError>,
        now: BootInstant,
    ) -> ReleaseStep {
        let Some(releasing) = &mut self.releasing else {
            return ReleaseStep::Done;
        };
        self.record_outcome = releasing.record_outcome(&reply).or(self.record_outcome);
        let step = releasing.handle_reply(reply, now);
        if step == ReleaseStep::NotHeld {
            self.stage = Stage::Ended(Some(HoldEnd::NotHeld));
            self.is_loss_pending = true;
        }
        step
    }

    // Pending actions and results.

    /// Returns the command to send now.
    pub(crate) fn poll_action(&mut self, now: BootInstant) -> Option<Action> {
        self.handle_time(now);
        let may_extend = self.may_extend();
        match &mut self.stage {
            Stage::Acquiring(acquiring) => {
                let action = acquiring.action(&self.request, now);
                self.awaits_acquire_reply |= matches!(action, Some(Action::Acquire { .. }));
                action
            }
            Stage::Held(held) if may_extend => held.action(&self.request, now),
            Stage::Downgrading(downgrading) => downgrading.action(&self.request, now),
            Stage::Held(_) | Stage::Ended(_) => None,
        }
    }

    /// Returns the outcome for the call, once there is one, and marks a hold as claimed.
    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        match &self.stage {
            Stage::Acquiring(acquiring) => acquiring.outcome().cloned(),
            Stage::Held(_) | Stage::Downgrading(_) => {
                self.is_claimed = true;
                Some(Outcome::Held)
            }
            // The acquisition ended before its call received the outcome.
            Stage::Ended(Some(HoldEnd::ShutDown)) => Some(Outcome::Failed(Failure::ShutDown)),
            Stage::Ended(None) if self.outcome.is_some() => self.outcome.clone(),
            Stage::Ended(None) => Some(Outcome::Retry(Some(WaitReason::Error(stalled_error())))),
            Stage::Ended(_) => Some(Outcome::Retry(None)),
        }
    }

    /// Returns how the hold was lost, once, for the caller that reports it.
    pub(crate) fn poll_loss(&mut self) -> Option<HoldEnd> {
        std::mem::take(&mut self.is_loss_pending)
            .then(|| self.end().cloned())
            .flatten()
    }

    /// Returns true, once, if a release must be sent that the holder has not requested. The release
    /// makes the store hand a free lock to the next waiter (R5).
    pub(crate) fn poll_release(&mut self) -> bool {
        std::mem::take(&mut self.is_release_due)
    }

    /// Returns when the acquisition needs attention, if no input arrives before then.
    pub(crate) fn poll_timeout(&self) -> Option<BootInstant> {
        match &self.stage {
            Stage::Acquiring(_) => Some(self.request.deadline()),
            Stage::Held(held) if self.may_extend() => Some(held.next_due()),
            Stage::Held(held) => Some(held.claim_by()),
            Stage::Downgrading(downgrading) => Some(downgrading.next_due()),
            Stage::Ended(_) => None,
        }
    }

    /// Returns when a failed acquire may be repeated.
    pub(crate) fn poll_retry(&self) -> Option<BootInstant> {
        self.acquiring()?.retry_at()
    }

    /// Returns how long a release that is sent now keeps the key.
    pub(crate) fn keep_for(&self, now: BootInstant) -> Duration {
        let releasing = self.releasing.as_ref();
        releasing.map_or(Duration::ZERO, |releasing| releasing.keep_for(now))
    }

    /// Returns true if an acquire went unanswered, and no release has been answered since.
    pub(crate) fn is_after_unanswered(&self) -> bool {
        let releasing = self.releasing.as_ref();
        releasing.is_some_and(Releasing::is_after_unanswered)
    }

    /// Returns the token of the hold under which the work of a call that runs at most once
    /// succeeded.
    pub(crate) fn succeeded_under(&self) -> Option<FencingToken> {
        self.releasing.as_ref()?.succeeded_under()
    }

    /// Returns, once, whether the success of a call that runs at most once is recorded.
    pub(crate) fn poll_record_outcome(&mut self) -> Option<RecordOutcome> {
        self.record_outcome.take()
    }

    /// Returns the same for a release that is abandoned.
    pub(crate) fn abandon_record(&mut self) -> Option<RecordOutcome> {
        self.releasing.as_mut()?.abandon_record()
    }

    /// Returns true once all state in the store has expired.
    pub(crate) fn has_expired(&self, now: BootInstant) -> bool {
        let ttl = self.request.timing.ttl();
        let releasing = self.releasing.as_ref();
        releasing.is_none_or(|releasing| releasing.has_expired(ttl, now))
    }

    // Transitions between stages.

    fn new_release(&self, now: BootInstant) -> Releasing {
        Releasing::new(self.was_unanswered || self.awaits_acquire_reply, now)
    }

    fn prove(&mut self, proof: Proof, origin: GrantOrigin, now: BootInstant) {
        match Holding::proven(&self.request, self.rules, proof, now) {
            Some(held) => self.begin_hold(held, origin),
            None => {
                if let Stage::Acquiring(acquiring) = &mut self.stage {
                    acquiring.restart();
                }
            }
        }
    }

    fn apply_grant(&mut self, grant: &Grant, now: BootInstant) {
        match Holding::granted(&self.request, self.rules, grant, now) {
            Some(held) => {
                let path = AcquirePath::HandedOff;
                let granted_at = grant.granted_at;
                self.begin_hold(held, GrantOrigin { path, granted_at });
            }
            None => {
                if let Stage::Acquiring(acquiring) = &mut self.stage {
                    acquiring.confirm(AcquirePath::HandedOff, grant.granted_at);
                }
            }
        }
    }

    fn begin_hold(&mut self, held: Holding, GrantOrigin { path, granted_at }: GrantOrigin) {
        let is_downgraded = matches!(self.stage, Stage::Downgrading(_));
        self.hold_info = Some(HoldInfo {
            kind: if is_downgraded {
                Kind::Read
            } else {
                self.request.kind
            },
            token: held.token(),
            since: held.since(),
            safe_deadline: held.safe_deadline().clone(),
            path,
            granted_at,
        });
        self.stage = Stage::Held(held);
    }

    fn apply_status(&mut self, status: HoldStatus, now: BootInstant) {
        match status {
            HoldStatus::Held => {}
            HoldStatus::Gone => {
                self.end_hold(HoldEnd::Gone, now);
                self.releasing = Some(self.new_release(now));
                self.is_release_due = true;
            }
            // Not released here: no other client can acquire the lock before its holder has stopped
            // and releases it, or its TTL ends.
            HoldStatus::Revoked => self.end_hold(HoldEnd::Revoked(String::new()), now),
        }
    }

    /// Releases the acquisition because its call is stalled. Others can then have the lock, and the
    /// call acquires again once it is polled (R37).
    fn release_stalled(&mut self, now: BootInstant) {
        if let Stage::Held(held) = &self.stage {
            held.safe_deadline().close(now);
        }
        self.stage = Stage::Ended(None);
        self.releasing = Some(
            self.new_release(now)
                .with_queue_entry(self.request.queue_entry_expires_at()),
        );
        self.is_release_due = true;
    }

    fn end_hold(&mut self, end: HoldEnd, now: BootInstant) {
        match &self.stage {
            Stage::Held(held) => drop(held.safe_deadline().close(now)),
            Stage::Downgrading(_) => {}
            Stage::Acquiring(_) | Stage::Ended(_) => return,
        }
        self.stage = Stage::Ended(Some(end));
        self.is_loss_pending = self.is_claimed;
    }
}

/// Returns the error of a stalled call.
fn stalled_error() -> StoreError {
    StoreError::new(
        Outage::TimedOut,
        "the acquire future was not polled in time, so its request was cancelled; do not block the \
         runtime's worker threads",
    )
}
