//! The state of one lock, and the commands on it, which follow the scripts in `lua/` step by step.
//! `counted` has those that only counted locks need.

use std::collections::HashMap;
use std::time::Duration;

use super::context::{CommandContext, MAX_WORK};
use super::holds::{Fence, HoldState, Holds, StoredHold, StoredRecord};
use super::queue::{ENTRY_COST, Owner, Queue, QueueEntry};
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueueReply, Confirm, Confirmation, Grant, Inspection, OwnerId,
    Proof, QueuedWaiter, Renewal, RenewalFailure, RevocationNotice, RevokeHolds, RevokeReply,
    Target,
};
use crate::protocol::timing::Timing;
use crate::store::{StoreEvent, client_id};
use crate::util::clock::{BootInstant, ServerTime};

/// Work that every lock of a queue check may do at least (see [`CommandContext::work`]). No lock
/// then waits for the dead waiters of another.
const MIN_WORK: i64 = 10;

/// The state of one lock. An empty lock is equivalent to none. The holders and waiters are either
/// those of a mutex or those of a counted lock.
#[derive(Debug, Default)]
pub(super) struct MemoryLock {
    pub(super) holds: Holds,
    pub(super) queue: Queue,
    pub(super) fence: Option<Fence>,
    /// The success records, by selector.
    pub(super) records: HashMap<String, StoredRecord>,
}

/// The result of granting to the next waiters.
pub(super) enum NextGrant {
    /// The lock is taken, or the next waiter of a counted lock does not fit.
    Taken,
    /// No client waits.
    NoWaiter,
    /// The queue has too many dead entries for one script.
    WorkLimit,
}

impl MemoryLock {
    /// Removes holds, the fence and the queue if they have expired.
    pub(super) fn remove_expired(&mut self, now: BootInstant) {
        self.fence.take_if(|fence| fence.expires_at <= now);
        self.queue.remove_expired(now);
        self.holds.remove_expired(now, !self.queue.is_empty());
        self.records.retain(|_, stored| stored.expires_at > now);
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_free = !self.is_taken() && self.queue.is_empty();
        is_free && self.fence.is_none() && self.records.is_empty()
    }

    /// Returns true if the lock is free, has no waiters, and its last token is in the past.
    pub(super) fn is_uncontended(&self, context: &CommandContext<'_>) -> bool {
        let fence = self.fence.as_ref();
        let is_fence_past = fence.is_none_or(|fence| fence.token.get() < context.wall.0);
        !self.is_taken() && self.queue.is_empty() && is_fence_past
    }

    pub(super) fn acquire(
        &mut self,
        context: &mut CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> AcquireReply {
        // As in Redis, a record goes before holders and waiters of another kind.
        if let Some(record) = self.rejecting_record(context, request) {
            return AcquireReply::AlreadyRan(record);
        }
        if let Some(wrong_kind) = self.reject_other_kind(context, request.target.kind) {
            return wrong_kind;
        }
        let last_kind = self.holds.kind();
        let reply = self.acquire_or_join(context, request);
        let last_kind = match reply {
            AcquireReply::Held(_) => last_kind,
            AcquireReply::Unfinished => None,
            _ => self.holds.kind(),
        };
        if let Some(event) = StoreEvent::other_permits(request, last_kind) {
            context.push(context.caller, event);
        }
        reply
    }

    pub(super) fn acquire_or_join(
        &mut self,
        context: &mut CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> AcquireReply {
        let (entry, kind) = (context.entry(request), request.target.kind);
        let owner_id = &entry.owner_id;
        let has_queue = !self.queue.is_empty();
        let is_held = |hold: &&mut StoredHold| hold.state == HoldState::Held;
        if self.holds.get_mut(owner_id).filter(is_held).is_some() {
            // Repeated: the full lease, and the place in the queue is removed.
            self.extend(context, owner_id, request.target.timing);
            self.holds.note_caller(context);
        }
        let mut outcome = NextGrant::NoWaiter;
        if has_queue {
            self.holds.note_caller(context);
            outcome = self.grant_next(context, Some(owner_id));
        }
        let own = self
            .holds
            .get_mut(owner_id)
            .map(|hold| (hold.state, hold.token));
        if let Some((HoldState::Held, token)) = own {
            return AcquireReply::Held(context.proof(token));
        }
        if request.wait.is_zero() {
            // A client that queues checks every half second, and cuts the TTL down then.
            self.clamp_ttl(context.now);
        }
        let holders = self.holds.views(context);
        let is_other = |existing: &LockKind| !existing.is_same(kind.lock_kind());
        if let Some(existing) = self.holds.kind().filter(is_other) {
            return AcquireReply::WrongKind { existing, holders };
        }
        if own.is_some() {
            // Revoked before its owner learned of the hold, or kept by `min_hold`.
            return AcquireReply::Busy(holders);
        }
        let is_first = matches!(outcome, NextGrant::NoWaiter);
        if is_first && self.holds.has_room(kind) {
            return AcquireReply::Held(self.hold_for(context, entry, request.target.timing.ttl()));
        }
        self.join_or_refuse(context, entry, request.wait, &outcome)
    }

    /// Queues an acquisition that waits. `outcome` is that of granting to the waiters before it.
    pub(super) fn join_or_refuse(
        &mut self,
        context: &CommandContext<'_>,
        entry: QueueEntry,
        wait: Duration,
        outcome: &NextGrant,
    ) -> AcquireReply {
        let holders = self.holds.views(context);
        if wait.is_zero() {
            return AcquireReply::Busy(holders);
        }
        match (self.join(context, entry), outcome) {
            (false, _) => AcquireReply::Full(holders),
            (true, NextGrant::WorkLimit) => AcquireReply::Unfinished,
            (true, _) => AcquireReply::Queued(holders),
        }
    }

    /// Queues an owner, or updates its entry. Returns false if the queue is full.
    fn join(&mut self, context: &CommandContext<'_>, entry: QueueEntry) -> bool {
        let max_waiters = context.client.max_waiters;
        if !self.queue.contains(&entry.owner_id) && self.queue.len() >= max_waiters {
            self.make_room(context, entry.owner_id.owner);
            if self.queue.len() >= max_waiters {
                return false;
            }
        }
        self.queue.join(entry);
        true
    }

    /// Removes dead and overdue waiters in a part of the queue, which depends on the owner.
    fn make_room(&mut self, context: &CommandContext<'_>, owner: OwnerId) {
        let gone: Vec<Owner> = self
            .queue
            .slice(owner)
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
        let Target { owner, timing, .. } = confirm.target;
        let once = confirm.once;
        let record = once.and_then(|once| self.record_before_hold(context, owner, once));
        if let Some(record) = record {
            return Confirmation::AlreadyRan(record);
        }
        let owner_id = context.owner_id(owner);
        // A kept lock was released, and a revoked one must end, so a late confirmation changes
        // nothing.
        let hold = self.holds.get_mut(&owner_id);
        if hold.is_none_or(|hold| hold.state != HoldState::Held) {
            return Confirmation::NotHeld;
        }
        self.holds.note_caller(context);
        let extended = self.extend(context, &owner_id, timing);
        extended.map_or(Confirmation::NotHeld, Confirmation::Held)
    }

    /// Extends the hold if it is still that of the renewal.
    pub(super) fn renew(
        &mut self,
        context: &mut CommandContext<'_>,
        renewal: &Renewal<'_>,
    ) -> Result<(), RenewalFailure> {
        let found = self.holds.get_mut(&context.owner_id(renewal.target.owner));
        let Some(hold) = found.filter(|hold| hold.token == renewal.token) else {
            return Err(RenewalFailure::Gone);
        };
        match hold.state {
            HoldState::Held => {
                hold.expires_at = context.now + renewal.target.timing.ttl();
                Ok(())
            }
            HoldState::Revoked => Err(RenewalFailure::Revoked),
            HoldState::Kept => Err(RenewalFailure::Gone),
        }
    }

    /// Revokes the holds with these tokens, of which a mutex has one.
    pub(super) fn revoke(
        &mut self,
        context: &mut CommandContext<'_>,
        revoke: &RevokeHolds<'_>,
    ) -> RevokeReply {
        let (mut notified, mut gone, mut revoked) = (Vec::new(), Vec::new(), 0);
        let (mut newest, mut is_new) = (None, false);
        for hold in &mut self.holds.all {
            if !revoke.tokens.contains(&hold.token) {
                continue;
            }
            let (client, is_kept) = (&hold.owner_id.client, hold.state == HoldState::Kept);
            let is_deleted = is_kept || revoke.delete && !context.is_alive(client);
            newest = newest.max(Some(hold.token));
            is_new |= hold.state != HoldState::Revoked;
            if is_deleted {
                gone.push(hold.owner_id.clone());
                continue;
            }
            revoked += 1;
            if hold.state == HoldState::Held {
                hold.state = HoldState::Revoked;
                notified.push((client.clone(), hold.token));
            }
        }
        let Some(newest) = newest else {
            self.holds.note_caller(context);
            self.grant_next(context, None);
            return RevokeReply::NotHeld;
        };
        let new_token = if is_new {
            // Every later reader has a newer token than the revoked holders (K10).
            self.holds.phase = None;
            self.raise_fence(context)
        } else {
            self.fence.as_ref().map_or(newest, |fence| fence.token)
        };
        for (client, token) in notified {
            let notice = RevocationNotice {
                key: revoke.key.clone(),
                token,
                by: context.client.name.to_string(),
            };
            context.push(&client, StoreEvent::Revoked(notice));
        }
        self.clamp_ttl(context.now);
        for owner_id in &gone {
            self.holds.retain(|hold| hold.owner_id != *owner_id);
        }
        self.holds.note_caller(context);
        self.grant_next(context, None);
        if revoked > 0 {
            RevokeReply::Revoked(new_token)
        } else {
            RevokeReply::Deleted(new_token)
        }
    }

    pub(super) fn release(
        &mut self,
        context: &mut CommandContext<'_>,
        owner: OwnerId,
        keep_for: Duration,
    ) -> bool {
        let owner_id = context.owner_id(owner);
        let hold = self.holds.get_mut(&owner_id);
        let held = hold.is_some();
        if let Some(hold) = hold {
            hold.state = HoldState::Kept;
            hold.max_ttl = keep_for;
            hold.expires_at = context.now + keep_for;
            self.remove_expired(context.now);
        }
        self.holds.note_caller(context);
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
        owners: &[OwnerId],
    ) -> CheckQueueReply {
        context.work = context.work.max(MIN_WORK);
        self.holds.note_caller(context);
        let outcome = self.grant_next(context, None);
        self.clamp_ttl(context.now);
        let (mut holding, mut missing) = (Vec::new(), Vec::new());
        for owner in owners {
            let owner_id = context.owner_id(*owner);
            if self.holds.get_mut(&owner_id).is_some() {
                holding.push(*owner);
            } else if !self.queue.contains(&owner_id) {
                missing.push(*owner);
            }
        }
        CheckQueueReply::Checked {
            kind: self.kind_in_use().filter(|_| self.is_taken()),
            holders: self.holds.views(context),
            is_unfinished: matches!(outcome, NextGrant::WorkLimit) && missing.len() < owners.len(),
            holding,
            missing,
        }
    }

    pub(super) fn inspect(&self, context: &CommandContext<'_>, max_listed: usize) -> Inspection {
        let queue_length = self.queue.len() as u64;
        let waiters = self.queue.entries.values().take(max_listed);
        let holders = self.holds.views(context);
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
                    client_name: client_id::split_name(&entry.name).0,
                })
                .collect(),
            last_token: self.fence.as_ref().map(|fence| fence.token),
            record: self.records.get("").map(|stored| stored.record.clone()),
            ..Inspection::default()
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Extends the hold of `owner_id` to its full lease; `None` if it has no hold.
    pub(super) fn extend(
        &mut self,
        context: &CommandContext<'_>,
        owner_id: &Owner,
        timing: Timing,
    ) -> Option<Proof> {
        let hold = self.holds.get_mut(owner_id)?;
        hold.expires_at = context.now + timing.ttl();
        let token = hold.token;
        self.queue.remove(owner_id);
        Some(context.proof(token))
    }

    /// Grants to the head of the queue while it fits: to `me` for the full lease, to others for a
    /// short time.
    pub(super) fn grant_next(
        &mut self,
        context: &mut CommandContext<'_>,
        me: Option<&Owner>,
    ) -> NextGrant {
        while context.work > 0 {
            if self.holds.kind() == Some(LockKind::Mutex) {
                return NextGrant::Taken;
            }
            let Some(head) = self.queue.head() else {
                self.holds.unconfirmed.clear();
                return NextGrant::NoWaiter;
            };
            context.work -= ENTRY_COST;
            let (kind, held_kind) = (head.kind, self.holds.kind());
            let is_served = head.deadline >= context.now
                && self.holds.is_responding(context, &head.owner_id.client)
                && kind.weight() <= kind.capacity()
                && held_kind.is_none_or(|held| held.is_same(kind.lock_kind()));
            if is_served && !self.holds.has_room(kind) {
                return NextGrant::Taken;
            }
            let Some(head) = self.queue.remove_head().filter(|_| is_served) else {
                continue;
            };
            if me == Some(&head.owner_id) {
                let ttl = head.timing.ttl();
                self.hold_for(context, head, ttl);
            } else {
                let short_end = context.now + head.timing.short_grant_timing().ttl();
                let client = head.owner_id.client.clone();
                self.holds.unconfirmed.insert(client, short_end);
                self.grant(context, head);
            }
            if self.queue.is_empty() {
                self.holds.unconfirmed.clear();
                return NextGrant::NoWaiter;
            }
        }
        NextGrant::WorkLimit
    }

    /// Grants the lock to a waiter for a short time, and notifies its client.
    pub(super) fn grant(&mut self, context: &mut CommandContext<'_>, entry: QueueEntry) {
        let short = entry.timing.short_grant_timing();
        let (key, kind) = (entry.key.clone(), entry.kind);
        let Owner { client, owner } = entry.owner_id.clone();
        let proof = self.hold_for(context, entry, short.ttl());
        let grant = Grant {
            key,
            kind,
            owner,
            token: proof.token,
            granted_at: Some(context.now),
            lease: short.lease,
        };
        context.push(&client, StoreEvent::Granted(grant));
    }

    /// Adds the hold of an acquisition. A reader joins the current read phase.
    pub(super) fn hold_for(
        &mut self,
        context: &CommandContext<'_>,
        entry: QueueEntry,
        ttl: Duration,
    ) -> Proof {
        let is_read = entry.kind == Kind::Read;
        let phase = self.holds.phase.filter(|_| is_read);
        let token = phase.unwrap_or_else(|| self.next_token(context));
        self.holds.phase = is_read.then_some(token);
        self.holds.add(StoredHold {
            owner_id: entry.owner_id,
            kind: entry.kind,
            token,
            state: HoldState::Held,
            max_ttl: entry.timing.ttl(),
            expires_at: context.now + ttl,
            since: context.wall,
            name: entry.name,
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
        let after_previous = self.fence.as_ref().map_or(0, |fence| fence.token.get() + 1);
        let token = after_previous.max(context.wall.0);
        let ahead = ServerTime(token).since(context.wall);
        let token = FencingToken::new(token);
        self.fence = Some(Fence {
            token,
            expires_at: context.now + context.client.fence_ttl + ahead,
        });
        token
    }

    /// Shortens the hold of a mutex to the longest TTL that its holder may set (R21).
    pub(super) fn clamp_ttl(&mut self, now: BootInstant) {
        let is_mutex = |hold: &&mut StoredHold| hold.kind == Kind::Mutex;
        let Some(hold) = self.holds.all.first_mut().filter(is_mutex) else {
            return;
        };
        let is_unconfirmed = self.holds.unconfirmed.contains_key(&hold.owner_id.client);
        let mut max_ttl = hold.max_ttl;
        if is_unconfirmed {
            max_ttl = max_ttl.min(Timing::new(max_ttl).short_grant_timing().ttl());
        }
        hold.expires_at = hold.expires_at.min(now + max_ttl);
    }
}
