//! The state of one lock, and the commands of a mutex, which follow the scripts in `lua/` step by
//! step. Those of a counted lock are in `counted`.

use std::sync::Arc;
use std::time::Duration;

use super::context::{CommandContext, MAX_WORK};
use super::hold::{Fence, Hold, HoldState};
use super::queue::{OwnerId, Queue, QueueEntry, REMOVAL_COST};
use super::records::Records;
use super::shares::Shares;
use crate::fencing::FencingToken;
use crate::protocol::holder_name;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueueReply, Confirmation, Grant, HolderView, Inspection,
    OwnerNumber, Proof, QueuedWaiter, Renewal, RenewalFailure, RevokeReply,
};
use crate::protocol::timing::Timing;
use crate::store::StoreEvent;
use crate::store::command::{Confirm, Revoke};
use crate::util::clock::BootInstant;

/// Work that every lock of a queue check may do at least (see [`CommandContext::work`]). No lock
/// then waits for the dead waiters of another.
const MIN_WORK: i64 = 10;

/// How long an entry is served after the caller's wait has ended.
const WAIT_GRACE: Duration = Duration::from_secs(1);

/// The state of one lock. An empty lock is equivalent to none. The holders and waiters are either
/// those of a mutex or those of a counted lock.
#[derive(Debug, Default)]
pub(super) struct MemoryLock {
    /// The hold of a mutex.
    pub(super) hold: Option<Hold>,
    /// The holds of a counted lock.
    pub(super) shares: Shares,
    pub(super) queue: Queue,
    pub(super) fence: Option<Fence>,
    pub(super) records: Records,
}

/// The result of granting to the next waiters.
pub(super) enum NextGrant {
    /// The first live waiter has the lock.
    Granted,
    /// The first live waiter of a counted lock does not fit.
    Full,
    /// The caller is the first waiter, and takes the lock itself.
    Caller,
    /// No client waits.
    NoWaiter,
    /// The queue has too many dead entries for one script.
    WorkLimit,
}

impl MemoryLock {
    /// Removes holds, the fence and the queue if they have expired.
    pub(super) fn remove_expired(&mut self, now: BootInstant) {
        self.hold.take_if(|hold| hold.expires_at <= now);
        self.fence.take_if(|fence| fence.expires_at <= now);
        self.queue.remove_expired(now);
        self.shares.remove_expired(now, !self.queue.is_empty());
        self.records.remove_expired(now);
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_free = !self.is_taken() && self.queue.is_empty();
        is_free && self.fence.is_none() && self.records.is_empty()
    }

    /// Returns true if the lock is free, has no waiters, and its last token is in the past.
    pub(super) fn is_uncontended(&self, context: &CommandContext<'_>) -> bool {
        let fence = self.fence.as_ref();
        let is_fence_past = fence.is_none_or(|fence| fence.token.get() < context.wall);
        !self.is_taken() && self.queue.is_empty() && is_fence_past
    }

    pub(super) fn acquire(
        &mut self,
        context: &mut CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> AcquireReply {
        if let Some(wrong_kind) = self.reject_other_kind(context, request.kind) {
            return wrong_kind;
        }
        if let Some(record) = self.rejecting_record(context, request) {
            return AcquireReply::AlreadyRan(record);
        }
        if request.kind.is_counted() {
            let last_kind = self.shares.kind();
            let reply = self.acquire_counted(context, request);
            let last_kind = match reply {
                AcquireReply::Held(_) => last_kind,
                AcquireReply::Unfinished => None,
                _ => self.shares.kind(),
            };
            if let Some(event) = StoreEvent::other_permits(request, last_kind) {
                context.push(context.caller, event);
            }
            return reply;
        }
        let owner_id = context.owner_id(request.owner);
        if self.hold.is_none()
            && let NextGrant::Caller | NextGrant::NoWaiter =
                self.grant_next(context, Some(&owner_id))
        {
            self.queue.remove(&owner_id);
            let name = context.client.holder_name(request.metadata);
            let ttl = request.timing.ttl();
            return AcquireReply::Held(self.create_hold(context, owner_id, ttl, ttl, &name));
        }
        let revoked = |hold: &Hold| hold.owner_id == owner_id && hold.state == HoldState::Revoked;
        if self.hold.as_ref().is_some_and(revoked) {
            // The lock was revoked before its owner learned of its hold.
            return AcquireReply::Busy(self.holders(context));
        }
        if let Some(proof) = self.extend(context, &owner_id, request.timing) {
            return AcquireReply::Held(proof);
        }
        let holders = self.holders(context);
        if request.wait.is_zero() {
            // A client that queues checks every half second, and cuts the TTL down then.
            self.clamp_ttl(context.now);
            return AcquireReply::Busy(holders);
        }
        match (self.join(context, request), holders.is_empty()) {
            (false, _) => AcquireReply::Full(holders),
            (true, true) => AcquireReply::Unfinished,
            (true, false) => AcquireReply::Queued(holders),
        }
    }

    /// Queues an owner, or updates its entry. Returns false if the queue is full.
    pub(super) fn join(&mut self, context: &CommandContext<'_>, request: &Acquire<'_>) -> bool {
        let owner_id = context.owner_id(request.owner);
        let max_waiters = context.client.max_waiters;
        if !self.queue.contains(&owner_id) && self.queue.len() >= max_waiters {
            self.make_room(context, request.owner);
            if self.queue.len() >= max_waiters {
                return false;
            }
        }
        self.queue.join(QueueEntry {
            owner_id,
            key: request.key.clone(),
            kind: request.kind,
            timing: request.timing,
            deadline: context.now + request.wait + WAIT_GRACE,
            since: context.wall,
            name: context.client.holder_name(request.metadata),
        });
        true
    }

    /// Removes dead and overdue waiters in a part of the queue, which depends on the owner.
    fn make_room(&mut self, context: &CommandContext<'_>, owner: OwnerNumber) {
        let gone: Vec<OwnerId> = (self.queue.slice(owner))
            .filter(|entry| {
                entry.deadline < context.now || !context.is_alive(&entry.owner_id.client)
            })
            .map(|entry| entry.owner_id.clone())
            .collect();
        for owner_id in &gone {
            self.queue.remove(owner_id);
        }
    }

    pub(super) fn confirm(
        &mut self,
        context: &mut CommandContext<'_>,
        confirm: &Confirm<'_>,
    ) -> Confirmation {
        let Confirm { owner, timing, .. } = *confirm;
        let once = confirm.once;
        let record = once.and_then(|once| self.record_before_hold(context, owner, once));
        if let Some(record) = record {
            return Confirmation::AlreadyRan(record);
        }
        let owner_id = context.owner_id(owner);
        // A kept lock was released, and a revoked one must end, so a late confirmation changes
        // nothing.
        let hold = self.hold_of(&owner_id);
        if hold.is_none_or(|hold| hold.state != HoldState::Held) {
            return Confirmation::NotHeld;
        }
        self.shares.note_caller(context);
        let extended = self.extend(context, &owner_id, timing);
        extended.map_or(Confirmation::NotHeld, Confirmation::Held)
    }

    /// Extends the hold if it is still that of the renewal.
    pub(super) fn renew(
        &mut self,
        context: &mut CommandContext<'_>,
        renewal: &Renewal,
    ) -> Result<(), RenewalFailure> {
        let hold = self.hold_of(&context.owner_id(renewal.owner));
        let hold = hold.filter(|hold| hold.token == renewal.token);
        let hold = hold.ok_or(RenewalFailure::Gone)?;
        match hold.state {
            HoldState::Held => {
                hold.expires_at = context.now + renewal.timing.ttl();
                Ok(())
            }
            HoldState::Revoked => Err(RenewalFailure::Revoked),
            HoldState::Kept => Err(RenewalFailure::Gone),
        }
    }

    /// Revokes the hold with this token.
    pub(super) fn revoke(
        &mut self,
        context: &mut CommandContext<'_>,
        revoke: &Revoke<'_>,
    ) -> RevokeReply {
        if self.is_counted() {
            return self.revoke_counted(context, revoke);
        }
        let (key, delete) = (revoke.key, revoke.delete);
        let is_wanted = |hold: &&Hold| revoke.tokens.contains(&hold.token);
        let Some(hold) = self.hold.as_ref().filter(is_wanted) else {
            return RevokeReply::NotHeld;
        };
        let (owner_id, token, state) = (hold.owner_id.clone(), hold.token, hold.state);
        let is_kept = state == HoldState::Kept;
        if delete && !is_kept && context.is_alive(&owner_id.client) {
            return RevokeReply::Connected;
        }
        let new_token = if state == HoldState::Revoked {
            self.fence.as_ref().map_or(token, |fence| fence.token)
        } else {
            self.raise_fence(context)
        };
        self.clamp_ttl(context.now);
        if is_kept || delete {
            self.hold = None;
            self.queue.remove(&owner_id);
            self.grant_next(context, None);
            return RevokeReply::Deleted(new_token);
        }
        if let Some(hold) = &mut self.hold {
            hold.state = HoldState::Revoked;
        }
        context.push_revocation(&owner_id.client, key, token);
        RevokeReply::Revoked(new_token)
    }

    pub(super) fn release(
        &mut self,
        context: &mut CommandContext<'_>,
        owner: OwnerNumber,
        keep_for: Duration,
    ) -> bool {
        let owner_id = context.owner_id(owner);
        let hold = self.hold_of(&owner_id);
        let held = hold.is_some();
        if let Some(hold) = hold {
            hold.state = HoldState::Kept;
            hold.max_ttl = keep_for;
            hold.expires_at = context.now + keep_for;
            self.remove_expired(context.now);
        }
        self.shares.note_caller(context);
        self.queue.remove(&owner_id);
        self.serve(context);
        held
    }

    /// Grants to the next waiters. The work limit of one script is not enough to pass very many
    /// dead ones.
    pub(super) fn serve(&mut self, context: &mut CommandContext<'_>) {
        while matches!(self.grant_next(context, None), NextGrant::WorkLimit) {
            context.work = MAX_WORK;
        }
    }

    /// Removes dead waiters until the lock is taken or has no waiters.
    pub(super) fn remove_dead(&mut self, context: &mut CommandContext<'_>) {
        while matches!(self.grant_next(context, None), NextGrant::WorkLimit) && !self.is_taken() {
            context.work = MAX_WORK;
        }
    }

    pub(super) fn check_queue(
        &mut self,
        context: &mut CommandContext<'_>,
        owners: &[OwnerNumber],
    ) -> CheckQueueReply {
        context.work = context.work.max(MIN_WORK);
        self.shares.note_caller(context);
        let outcome = self.grant_next(context, None);
        self.clamp_ttl(context.now);
        let (mut holding, mut missing) = (Vec::new(), Vec::new());
        for owner in owners {
            let owner_id = context.owner_id(*owner);
            if self.hold_of(&owner_id).is_some() {
                holding.push(*owner);
            } else if !self.queue.contains(&owner_id) {
                missing.push(*owner);
            }
        }
        CheckQueueReply::Checked {
            kind: self.kind_in_use().filter(|_| self.is_taken()),
            holders: self.holders(context),
            is_unfinished: matches!(outcome, NextGrant::WorkLimit) && missing.len() < owners.len(),
            holding,
            missing,
        }
    }

    pub(super) fn inspect(&self, context: &CommandContext<'_>, max_listed: usize) -> Inspection {
        // The owner of a marked entry no longer waits.
        let marked = usize::from(self.queue.marked().is_some());
        let queue_length = (self.queue.len() - marked) as u64;
        let waiters = self.queue.entries.values().skip(marked).take(max_listed);
        let holders = self.holders(context);
        Inspection {
            kind: self
                .kind_in_use()
                .filter(|_| self.is_taken() || queue_length > 0),
            expires_in: holders.iter().filter_map(|holder| holder.expires_in).max(),
            holders,
            queue_length,
            waiters: waiters
                .map(|entry| QueuedWaiter {
                    this_process: true,
                    since: entry.since,
                    name: holder_name::split(&entry.name).0,
                })
                .collect(),
            last_token: self.fence.as_ref().map(|fence| fence.token),
            record: self.records.get("").filter(|_| !self.is_counted()),
            ..Inspection::default()
        }
    }

    /// Returns the hold of an owner.
    pub(super) fn hold_of(&mut self, owner_id: &OwnerId) -> Option<&mut Hold> {
        match &mut self.hold {
            Some(hold) => Some(hold).filter(|hold| hold.owner_id == *owner_id),
            None => self.shares.get_mut(owner_id),
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.hold.is_some() || !self.shares.is_empty()
    }

    pub(super) fn holders(&self, context: &CommandContext<'_>) -> Vec<HolderView> {
        match &self.hold {
            Some(hold) => vec![hold.view(context, 1)],
            None => self.shares.views(context),
        }
    }

    /// Extends the hold of `owner_id` to its full lease and removes its mark; `None` if it has no
    /// hold.
    pub(super) fn extend(
        &mut self,
        context: &CommandContext<'_>,
        owner_id: &OwnerId,
        timing: Timing,
    ) -> Option<Proof> {
        let hold = self.hold_of(owner_id)?;
        hold.expires_at = context.now + timing.ttl();
        let token = hold.token;
        self.queue.remove(owner_id);
        Some(context.proof(token))
    }

    /// Hands the lock to the first live waiter if it is free, unless that is `me`. Grants a counted
    /// lock to all that fit.
    pub(super) fn grant_next(
        &mut self,
        context: &mut CommandContext<'_>,
        me: Option<&OwnerId>,
    ) -> NextGrant {
        if self.is_counted() {
            return self.grant_counted(context, me);
        }
        if self.hold.is_some() {
            return NextGrant::Granted;
        }
        while context.work > 0 {
            let Some((head, marked)) = self.queue.head() else {
                return NextGrant::NoWaiter;
            };
            if marked && head.owner_id.client != *context.caller {
                // Granted, never confirmed, and the lock has expired: the client does not confirm.
                self.queue.purge_client_of_head(&mut context.work);
            } else if !marked && Some(&head.owner_id) == me {
                return NextGrant::Caller;
            } else if !marked
                && head.deadline >= context.now
                && context.is_alive(&head.owner_id.client)
            {
                self.grant_to_head(context);
                return NextGrant::Granted;
            } else {
                self.queue.remove_head();
                context.work -= REMOVAL_COST;
            }
        }
        NextGrant::WorkLimit
    }

    /// Grants the lock to the head for a short time, and notifies its client.
    fn grant_to_head(&mut self, context: &mut CommandContext<'_>) {
        let Some((head, _)) = self.queue.head() else {
            return;
        };
        let (owner_id, key, name) = (
            head.owner_id.clone(),
            head.key.clone(),
            Arc::clone(&head.name),
        );
        let timing = head.timing;
        self.queue.mark_head();
        let proof = self.create_hold(
            context,
            owner_id.clone(),
            timing.short_grant_timing().ttl(),
            timing.ttl(),
            &name,
        );
        let grant = Grant {
            key,
            is_counted: false,
            owner: owner_id.owner,
            token: proof.token,
            granted_at: Some(context.now),
            lease: timing.short_grant_timing().lease,
        };
        context.push(&owner_id.client, StoreEvent::Granted(grant));
    }

    fn create_hold(
        &mut self,
        context: &CommandContext<'_>,
        owner_id: OwnerId,
        ttl: Duration,
        max_ttl: Duration,
        name: &Arc<str>,
    ) -> Proof {
        let token = self.next_token(context);
        self.hold = Some(Hold {
            owner_id,
            token,
            state: HoldState::Held,
            max_ttl,
            expires_at: context.now + ttl,
            since: context.wall,
            name: Arc::clone(name),
        });
        context.proof(token)
    }

    /// Returns a token above all others, for a revocation.
    pub(super) fn raise_fence(&mut self, context: &CommandContext<'_>) -> FencingToken {
        // The later end counts, because other clients may remember tokens for longer.
        let known = self.fence.as_ref().map(|fence| fence.expires_at);
        let new_token = self.next_token(context);
        if let Some(fence) = &mut self.fence {
            fence.expires_at = fence.expires_at.max(known.unwrap_or(fence.expires_at));
        }
        new_token
    }

    pub(super) fn next_token(&mut self, context: &CommandContext<'_>) -> FencingToken {
        let after_previous = (self.fence.as_ref()).map_or(0, |fence| fence.token.get() + 1);
        let token = after_previous.max(context.wall);
        let ahead = Duration::from_micros(token - context.wall);
        let token = FencingToken::new(token);
        self.fence = Some(Fence {
            token,
            expires_at: context.now + context.client.fence_ttl + ahead,
        });
        token
    }

    /// Shortens the hold to the longest TTL that its holder may set (R21).
    fn clamp_ttl(&mut self, now: BootInstant) {
        let Some(hold) = &mut self.hold else { return };
        let max_ttl = match self.queue.marked() {
            Some(entry) if entry.owner_id == hold.owner_id => {
                hold.max_ttl.min(entry.timing.short_grant_timing().ttl())
            }
            _ => hold.max_ttl,
        };
        hold.expires_at = hold.expires_at.min(now + max_ttl);
    }
}
