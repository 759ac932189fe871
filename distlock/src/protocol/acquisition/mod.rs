//! The state machine of one acquisition, under one owner id. It does no I/O: commands are values,
//! and time is an argument. Once it has released, it never acquires again (R1): a call that must do
//! so begins another.
//!
//! ```text
//!     new
//!      │
//!      ▼        handle_acquire_reply,        handle_time, handle_renewal,
//!  Acquiring ───── handle_grant ────► Held ─ handle_revocation, ... ────► Lost
//!      │                             │    ▲                                │
//!      │             begin_downgrade │    │ handle_downgrade               │
//!      │                             ▼    │                                │
//!      │                           Downgrading                             │
//!      │                                  │                                │
//!      └─── release, or a failure ────────┴──────────► Releasing ◄─────────┘
//!                                                          │ handle_release_reply
//!                                                          ▼
//!                                                        Ended
//! ```
//!
//! A short grant that must be confirmed before its body starts is still `Acquiring`. What has
//! nothing in the store, or was not claimed by its call, goes on without the stages in between.
//!
//! Its methods are of four sorts:
//!
//! - Getters, such as `state` and `hold`, change nothing.
//! - `handle_*` take what has happened: a reply, a pushed message, a reply that did not come, the
//!   time.
//! - Verbs are the wishes of the call or holder: `claim_outcome`, `confirm_now`, `release`, ...
//! - `poll_*` return what is to be done: `poll_action` the command to send now, `poll_timeout` when
//!   `handle_time` has something to do, `poll_repeat` when a failed command may be repeated, and
//!   `poll_report` what to publish. `Registry::update` asks for the times after every change.

use std::sync::Arc;

use crate::error::{Holder, Outage};
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::observer::event::{AcquirePath, RecordOutcome, ReleaseOutcome};
use crate::protocol::acquisition::acquiring::Acquiring;
use crate::protocol::acquisition::downgrading::Downgrading;
use crate::protocol::acquisition::holding::Holding;
use crate::protocol::acquisition::releasing::Releasing;
use crate::protocol::hold::{GrantOrigin, Hold};
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    AcquireReply, Confirmation, Grant, HolderView, Proof, ReleaseReply, RenewalFailure,
    RevocationNotice,
};
use crate::protocol::outcome::{Action, Failure, HoldEnd, Outcome, Report, WaitReason};
use crate::protocol::request::Request;
use crate::protocol::rules::rule;
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
    stage: Stage,
    /// Counts the acquire commands, the confirmations before a hold, and the releases.
    command_count: u32,
    /// Until when an acquire without a reply may be applied, and the owner would then have to be
    /// released again (R2).
    unanswered_until: Option<BootInstant>,
    /// The hold, kept after it has ended.
    hold: Option<Arc<Hold>>,
    /// How the hold ended, once it has.
    end: Option<HoldEnd>,
    /// The outcome for the call, once it is known, unless it is a hold.
    outcome: Option<Outcome>,
    /// The hold is claimed once the caller has received it. Until then the hold is not extended,
    /// and it is soon released (R37).
    is_claimed: bool,
    reports: Reports,
}

#[derive(Debug)]
enum Stage {
    Acquiring(Box<Acquiring>),
    Held(Holding),
    /// Between a write hold, which has ended here, and the read hold that replaces it.
    Downgrading(Downgrading),
    /// The hold has ended here. Its holder releases it once the work under it has stopped.
    Lost,
    Releasing(Releasing),
    Ended,
}

/// What has happened and was not reported yet.
#[derive(Debug, Default)]
struct Reports {
    is_lost: bool,
    released: Option<(BootInstant, ReleaseOutcome)>,
    record: Option<RecordOutcome>,
    is_abandoned: bool,
}

/// The state of an acquisition, as the manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquisitionState {
    /// About to acquire or confirm, or waiting for a reply.
    Acquiring,
    /// In the queue, which is checked at intervals.
    Queued,
    Held,
    /// No longer held, and not released yet.
    Lost,
    Releasing,
    /// Released, and kept taken by `min_hold`.
    Kept,
    Ended,
}

impl Acquisition {
    /// Creates an acquisition that is about to send its acquire command. `wait_reason` is that of
    /// an earlier acquisition of the same call.
    pub(crate) fn new(request: Arc<Request>, wait_reason: Option<WaitReason>) -> Self {
        Acquisition {
            request,
            stage: Stage::Acquiring(Box::new(Acquiring::new(wait_reason))),
            command_count: 0,
            unanswered_until: None,
            hold: None,
            end: None,
            outcome: None,
            is_claimed: false,
            reports: Reports::default(),
        }
    }

    /// Creates an acquisition that only releases an owner id unknown to this client, whatever the
    /// store holds for it.
    pub(crate) fn release_only(request: Arc<Request>, now: BootInstant) -> Self {
        Acquisition {
            stage: Stage::Releasing(Releasing::new(now)),
            ..Self::new(request, None)
        }
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn state(&self) -> AcquisitionState {
        match &self.stage {
            Stage::Acquiring(acquiring) if acquiring.awaits_grant() => AcquisitionState::Queued,
            Stage::Acquiring(_) => AcquisitionState::Acquiring,
            Stage::Held(_) | Stage::Downgrading(_) => AcquisitionState::Held,
            Stage::Lost => AcquisitionState::Lost,
            Stage::Releasing(releasing) if releasing.is_kept() => AcquisitionState::Kept,
            Stage::Releasing(_) => AcquisitionState::Releasing,
            Stage::Ended => AcquisitionState::Ended,
        }
    }

    /// Returns the number of the command whose reply is awaited.
    pub(crate) fn awaited(&self) -> Option<u32> {
        let is_in_flight = match &self.stage {
            Stage::Acquiring(acquiring) => acquiring.is_in_flight(),
            Stage::Releasing(releasing) => releasing.is_in_flight(),
            Stage::Held(_) | Stage::Downgrading(_) | Stage::Lost | Stage::Ended => false,
        };
        is_in_flight.then_some(self.command_count)
    }

    fn acquiring(&self) -> Option<&Acquiring> {
        match &self.stage {
            Stage::Acquiring(acquiring) => Some(acquiring),
            _ => None,
        }
    }

    /// Returns true if a queue entry may exist. An acquire without a reply may be applied after a
    /// grant that was not confirmed has ended.
    fn may_be_queued(&self) -> bool {
        match &self.stage {
            Stage::Acquiring(_) => true,
            Stage::Held(held) => !held.is_confirmed(),
            Stage::Downgrading(_) | Stage::Lost | Stage::Releasing(_) | Stage::Ended => false,
        }
    }

    /// Returns true if the lock is held for the full lease, and not only by a short grant.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.is_confirmed())
    }

    fn may_extend(&self) -> bool {
        self.is_claimed || !rule!(release_unused)
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
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        self.hold.as_ref()
    }

    /// Returns how the hold with this token ended, or `None` while it is held.
    pub(crate) fn check_end_of(
        &mut self,
        token: FencingToken,
        now: BootInstant,
    ) -> Option<HoldEnd> {
        self.handle_time(now);
        let is_current = self.hold.as_ref().is_some_and(|hold| hold.token == token);
        match (&self.stage, &self.end) {
            (Stage::Held(_), _) if is_current => None,
            (_, Some(end)) if is_current => Some(end.clone()),
            // Its downgrade ended it.
            _ => Some(HoldEnd::Released),
        }
    }

    /// Returns how the last hold ended.
    pub(crate) fn end(&self) -> Option<&HoldEnd> {
        self.end.as_ref()
    }

    /// Returns true if the hold ended because the store lost it, or did not renew it in time.
    pub(crate) fn is_lost(&self) -> bool {
        use LossReason::{Gone, NotRenewed};
        matches!(self.end(), Some(HoldEnd::Lost(Gone | NotRenewed { .. })))
    }

    // Inputs while acquiring.

    pub(crate) fn handle_acquire_reply(
        &mut self,
        reply: Result<AcquireReply, StoreError>,
        now: BootInstant,
    ) {
        let Stage::Acquiring(acquiring) = &mut self.stage else {
            // Whatever the reply is, the release that follows cancels it.
            return;
        };
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
        self.settle(now);
    }

    /// Handles a pushed grant. It does not change an existing hold, which only replies prove (R13).
    /// One that was made after the release is released again.
    pub(crate) fn handle_grant(&mut self, grant: &Grant, now: BootInstant) {
        let is_usable = match &mut self.stage {
            Stage::Acquiring(acquiring) => acquiring.receive_grant(grant),
            Stage::Releasing(releasing) => {
                releasing.send_now(now);
                false
            }
            _ => false,
        };
        if is_usable {
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

    // Inputs for a grant or a hold.

    pub(crate) fn handle_confirmation(
        &mut self,
        reply: Result<Confirmation, StoreError>,
        now: BootInstant,
    ) {
        self.handle_time(now);
        match &mut self.stage {
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
                Err(error) if !self.request.options.durability().is_none() => {
                    acquiring.handle_failure(&self.request, error.mark_sent(), now);
                }
                // This is not a loss, because no body ran under the grant.
                Ok(Confirmation::NotHeld) | Err(_) => acquiring.restart(),
            },
            Stage::Held(held) => {
                let loss = held.handle_confirmation(&self.request, reply, now);
                self.handle_loss(loss, now);
            }
            _ => {}
        }
        self.settle(now);
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
            && held.hold().token == token
        {
            let loss = held.handle_renewal(&self.request, reply, sent_at, now);
            self.handle_loss(loss, now);
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

    /// Handles the reply to a downgrade. The read hold is a new [`Hold`].
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
            Ok(Some(proof)) => match downgrading.finish(&self.request, proof, now) {
                Some(held) => self.begin_hold(held),
                None => self.end_downgrade(now),
            },
            Ok(None) => self.handle_loss(Some(LossReason::Gone), now),
            // It is repeated while the write hold would have been valid.
            Err(error) => downgrading.note_failure(&error),
        }
    }

    /// Ends a downgrade that came too late, and releases whatever it left in the store.
    fn end_downgrade(&mut self, now: BootInstant) {
        if let Stage::Downgrading(downgrading) = &self.stage
            && let Some(end) = downgrading.check_end(now)
        {
            self.end_hold(end, now);
            self.begin_release(self.releasing(now), false);
        }
    }

    // Inputs from outside the call.

    /// Makes the renewal of a hold due at once, because there is a new connection.
    pub(crate) fn renew_now(&mut self, now: BootInstant) {
        match &mut self.stage {
            Stage::Held(held) => held.renew_now(now),
            Stage::Downgrading(downgrading) => downgrading.repeat_now(now),
            _ => {}
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
        let is_meant = |hold: &Arc<Hold>| hold.token == revocation.token;
        if held && self.hold.as_ref().is_some_and(is_meant) {
            let by = Some(&revocation.by).filter(|by| !by.is_empty()).cloned();
            self.end_by(LossReason::Revoked { by }, now);
        }
    }

    /// Ends what time has ended: a command without a reply, a wait, a hold that has expired or was
    /// not claimed, and a release of what the store has forgotten by now.
    pub(crate) fn handle_time(&mut self, now: BootInstant) {
        let may_extend = self.may_extend();
        let timed_out = || StoreError::timed_out(self.request.timing().command_timeout());
        match &mut self.stage {
            Stage::Acquiring(acquiring) => {
                if acquiring.is_late(now) {
                    let error = timed_out();
                    acquiring.handle_unanswered(&self.request, error, now);
                }
                acquiring.handle_time(&self.request, now);
                self.settle(now);
            }
            Stage::Held(held) => {
                if let Some(end) = held.check_end(now) {
                    self.end_hold(end, now);
                } else if !may_extend && now >= held.claim_by(&self.request) {
                    self.end_hold(HoldEnd::Unclaimed, now);
                }
            }
            Stage::Downgrading(_) => self.end_downgrade(now),
            Stage::Releasing(releasing) => {
                releasing.handle_time(now);
                if releasing.is_late(now) {
                    let timed_out = timed_out();
                    self.handle_release_reply(Err(timed_out), now);
                } else if releasing.has_expired(&self.request, now) {
                    self.abandon();
                }
            }
            Stage::Lost | Stage::Ended => {}
        }
    }

    /// Leaves the timeout of the command in flight to its sender.
    pub(crate) fn leave_timeout(&mut self) {
        match &mut self.stage {
            Stage::Acquiring(acquiring) => acquiring.leave_timeout(),
            Stage::Releasing(releasing) => releasing.leave_timeout(),
            _ => {}
        }
    }

    /// Handles the end of a command that was given up, or that never ran.
    pub(crate) fn handle_unanswered(&mut self, now: BootInstant) {
        let gave_up = StoreError::new(Outage::Unreachable, "its sender has ended");
        match &mut self.stage {
            Stage::Acquiring(acquiring) => {
                acquiring.handle_unanswered(&self.request, gave_up, now);
                self.settle(now);
            }
            // It is repeated at once. The outcome of that attempt is reported.
            Stage::Releasing(releasing) => drop(releasing.handle_reply(Err(gave_up), now)),
            _ => {}
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

    pub(crate) fn handle_shutdown(&mut self, now: BootInstant) {
        match &mut self.stage {
            Stage::Acquiring(_) => self.finish(Outcome::Failed(Failure::ShutDown), now),
            Stage::Held(_) | Stage::Downgrading(_) => self.end_by(LossReason::ShutDown, now),
            Stage::Lost | Stage::Releasing(_) | Stage::Ended => {}
        }
    }

    /// Begins the release for the call or holder, after work that `succeeded` or did not. Returns
    /// false if nothing is to be released, or the release has already begun.
    pub(crate) fn release(&mut self, succeeded: bool, now: BootInstant) -> bool {
        self.handle_time(now);
        let safe_until = match &self.stage {
            Stage::Acquiring(_) => {
                self.release_acquiring(now);
                return matches!(self.stage, Stage::Releasing(_));
            }
            Stage::Held(held) => held.hold().close(now),
            Stage::Downgrading(_) | Stage::Lost => None,
            Stage::Releasing(_) | Stage::Ended => return false,
        };
        let has_queue_entry = self.may_be_queued();
        self.end.get_or_insert(HoldEnd::Released);
        // A success counts only under a hold that was valid to its end (P10).
        let succeeded = succeeded && safe_until.is_some() || !rule!(success_only);
        let mut releasing = self.releasing(now).with_valid_hold(safe_until);
        if let Some(hold) = self.hold.as_ref().filter(|_| succeeded) {
            releasing = releasing.after_success(&self.request, hold);
        }
        self.begin_release(releasing, has_queue_entry);
        true
    }

    /// Handles the reply to a release, or its timeout.
    pub(crate) fn handle_release_reply(
        &mut self,
        reply: Result<ReleaseReply, StoreError>,
        now: BootInstant,
    ) {
        let Stage::Releasing(releasing) = &mut self.stage else {
            return;
        };
        let first_sent_at = releasing.take_first_sent_at();
        self.reports.record = releasing.record_outcome(&reply).or(self.reports.record);
        let outcome = releasing.handle_reply(reply, now);
        if releasing.is_in_flight() {
            // No other step follows.
            self.stage = Stage::Ended;
        }
        if let Some(sent_at) = first_sent_at.filter(|_| self.hold.is_some()) {
            self.reports.released = Some((sent_at, outcome));
        }
        if outcome == ReleaseOutcome::NotHeld {
            self.end = Some(HoldEnd::Lost(LossReason::Gone));
            self.reports.is_lost = self.is_claimed;
        }
    }

    /// Gives up a release. Returns false if there is none.
    pub(crate) fn abandon(&mut self) -> bool {
        let Stage::Releasing(releasing) = &mut self.stage else {
            return false;
        };
        self.reports.record = releasing.abandon_record().or(self.reports.record);
        if let Some(sent_at) = releasing
            .take_first_sent_at()
            .filter(|_| self.hold.is_some())
        {
            self.reports.released = Some((sent_at, ReleaseOutcome::Unconfirmed));
        }
        // A lost hold has a report of its own, and a key that is kept is released.
        self.reports.is_abandoned = !releasing.is_kept() && !self.is_lost();
        self.stage = Stage::Ended;
        true
    }

    // Pending actions and results.

    /// Returns the command to send now. With `repeats`, also an acquire that is repeated after a
    /// failure and a release, which wait until the store can be used.
    pub(crate) fn poll_action(&mut self, repeats: bool, now: BootInstant) -> Option<Action> {
        self.handle_time(now);
        let may_extend = self.may_extend();
        let action = match &mut self.stage {
            Stage::Acquiring(acquiring) => {
                if repeats && acquiring.retry_at().is_some_and(|at| now >= at) {
                    acquiring.retry();
                }
                let action = acquiring.action(&self.request, now);
                self.settle(now);
                action
            }
            Stage::Releasing(releasing) if repeats => releasing.action(&self.request, now),
            Stage::Held(held) if may_extend => return held.action(&self.request, now),
            Stage::Downgrading(downgrading) => return downgrading.action(&self.request, now),
            _ => return None,
        };
        self.command_count += u32::from(action.is_some());
        action
    }

    /// Returns the outcome for the call, once there is one, and marks a hold as claimed.
    pub(crate) fn claim_outcome(&mut self) -> Option<Outcome> {
        match &self.stage {
            Stage::Acquiring(_) => None,
            Stage::Held(_) | Stage::Downgrading(_) => {
                self.is_claimed = true;
                Some(Outcome::Held)
            }
            // The hold ended before its call received it.
            Stage::Lost | Stage::Releasing(_) | Stage::Ended if self.outcome.is_none() => {
                Some(match self.end {
                    Some(HoldEnd::Lost(LossReason::ShutDown)) => Outcome::Failed(Failure::ShutDown),
                    Some(HoldEnd::Unclaimed) => {
                        Outcome::Retry(Some(WaitReason::Error(unclaimed_error())))
                    }
                    _ => Outcome::Retry(None),
                })
            }
            Stage::Lost | Stage::Releasing(_) | Stage::Ended => self.outcome.clone(),
        }
    }

    /// Returns true once the first attempt to release has ended, or nothing was to be released.
    pub(crate) fn was_release_attempted(&self) -> bool {
        match &self.stage {
            Stage::Releasing(releasing) => releasing.was_attempted(),
            Stage::Ended => true,
            _ => false,
        }
    }

    /// Returns, once, what has happened to the hold or its release.
    pub(crate) fn poll_report(&mut self) -> Option<Report> {
        let reports = &mut self.reports;
        if let Some(outcome) = reports.record.take() {
            return Some(Report::Record(outcome));
        }
        if std::mem::take(&mut reports.is_lost) {
            return self.end.clone().map(Report::Lost);
        }
        if let Some((sent_at, outcome)) = reports.released.take() {
            return Some(Report::Released { sent_at, outcome });
        }
        std::mem::take(&mut reports.is_abandoned).then_some(Report::Abandoned)
    }

    /// Returns when the acquisition needs attention, if no input arrives before then.
    pub(crate) fn poll_timeout(&self) -> Option<BootInstant> {
        match &self.stage {
            Stage::Acquiring(acquiring) => Some(acquiring.next_due(&self.request)),
            Stage::Held(held) if self.may_extend() => Some(held.next_due()),
            Stage::Held(held) => Some(held.claim_by(&self.request)),
            Stage::Downgrading(downgrading) => Some(downgrading.next_due()),
            Stage::Releasing(releasing) => Some(releasing.next_due(&self.request)),
            // A check of the clock found the loss, so nothing has reported it yet.
            Stage::Lost if self.reports.is_lost => Some(BootInstant(0)),
            Stage::Lost | Stage::Ended => None,
        }
    }

    /// Returns when a failed acquire may be repeated, or a release be sent, if the store can be
    /// used then.
    pub(crate) fn poll_repeat(&self) -> Option<BootInstant> {
        match &self.stage {
            Stage::Acquiring(acquiring) => acquiring.retry_at(),
            Stage::Releasing(releasing) => releasing.send_at(),
            _ => None,
        }
    }

    // Transitions between stages.

    fn prove(&mut self, proof: Proof, origin: GrantOrigin, now: BootInstant) {
        match Holding::proven(&self.request, proof, origin, None, now) {
            Some(held) => self.begin_hold(held),
            None => {
                if let Stage::Acquiring(acquiring) = &mut self.stage {
                    acquiring.restart();
                }
                self.settle(now);
            }
        }
    }

    fn apply_grant(&mut self, grant: &Grant, now: BootInstant) {
        match Holding::granted(&self.request, grant, now) {
            Some(held) => self.begin_hold(held),
            None => {
                if let Stage::Acquiring(acquiring) = &mut self.stage {
                    acquiring.confirm(AcquirePath::HandedOff, grant.granted_at);
                }
            }
        }
    }

    fn begin_hold(&mut self, held: Holding) {
        if let Some(acquiring) = self.acquiring() {
            self.unanswered_until = acquiring.unanswered_until();
        }
        self.hold = Some(held.hold().clone());
        self.stage = Stage::Held(held);
    }

    fn handle_loss(&mut self, reason: Option<LossReason>, now: BootInstant) {
        let Some(reason) = reason else { return };
        let is_gone = reason == LossReason::Gone;
        self.end_hold(HoldEnd::Lost(reason), now);
        // Makes the store hand a free lock to the next waiter (R31). A revoked lock is not released
        // here: no other client can acquire it before its holder has stopped and releases it, or
        // its TTL ends.
        if is_gone && matches!(self.stage, Stage::Lost) {
            self.begin_release(self.releasing(now), false);
        }
    }

    /// Ends the hold for a reason from outside, unless its time had ended it before.
    fn end_by(&mut self, reason: LossReason, now: BootInstant) {
        let by_time = match &self.stage {
            Stage::Held(held) => held.check_end(now),
            Stage::Downgrading(downgrading) => downgrading.check_end(now),
            _ => None,
        };
        self.end_hold(by_time.unwrap_or(HoldEnd::Lost(reason)), now);
    }

    /// Ends the hold. One that its call has not claimed is released here: others can then have the
    /// lock, and the call acquires again once it is polled (R37).
    fn end_hold(&mut self, end: HoldEnd, now: BootInstant) {
        match &self.stage {
            Stage::Held(held) => drop(held.hold().close(now)),
            Stage::Downgrading(_) => {}
            _ => return,
        }
        self.end = Some(end);
        self.reports.is_lost = self.is_claimed;
        self.stage = Stage::Lost;
        if !self.is_claimed {
            self.begin_release(self.releasing(now), true);
        }
    }

    /// Ends the acquiring stage once its outcome is known.
    fn settle(&mut self, now: BootInstant) {
        if let Stage::Acquiring(acquiring) = &mut self.stage
            && let Some(outcome) = acquiring.outcome()
        {
            self.outcome = Some(outcome.clone());
            self.release_acquiring(now);
        }
    }

    fn finish(&mut self, outcome: Outcome, now: BootInstant) {
        self.outcome = Some(outcome);
        self.release_acquiring(now);
    }

    /// Releases what the store may have for a call that no longer acquires.
    fn release_acquiring(&mut self, now: BootInstant) {
        let Some(acquiring) = self.acquiring() else {
            return;
        };
        if !acquiring.needs_release() {
            self.stage = Stage::Ended;
            return;
        }
        let in_flight = acquiring.is_acquire_in_flight();
        let in_flight = in_flight.then(|| now + self.request.timing().command_timeout());
        self.unanswered_until = in_flight.or(acquiring.unanswered_until());
        self.begin_release(self.releasing(now), true);
    }

    fn releasing(&self, now: BootInstant) -> Releasing {
        let until = self.unanswered_until.filter(|_| rule!(cancel_twice));
        Releasing::new(now).after_unanswered(until)
    }

    fn begin_release(&mut self, releasing: Releasing, has_queue_entry: bool) {
        self.stage = Stage::Releasing(if has_queue_entry {
            releasing.with_queue_entry(self.request.queue_entry_expires_at())
        } else {
            releasing
        });
    }
}

/// Returns the error of a call that did not claim its hold.
fn unclaimed_error() -> StoreError {
    StoreError::new(
        Outage::TimedOut,
        "the acquire future was not polled in time, so its request was cancelled; do not block the \
         runtime's worker threads",
    )
}
