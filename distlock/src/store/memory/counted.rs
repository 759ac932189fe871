//! The commands of counted locks, of which several holders each hold a weight. They follow the
//! scripts in `lua/counted`, except that every call first removes what has expired, so the sum of
//! the weights needs no record.

use std::sync::Arc;
use std::time::Duration;

use super::context::CommandContext;
use super::hold::{Hold, HoldState};
use super::lock::{MemoryLock, NextGrant};
use super::queue::{OwnerId, QueueEntry, REMOVAL_COST};
use super::shares::Share;
use crate::error::LockKind;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, AcquireReply, Grant, Proof, RevokeReply};
use crate::store::StoreEvent;
use crate::store::command::{Downgrade, Revoke};

impl MemoryLock {
    /// Returns the kind as which the lock is held or waited for.
    pub(super) fn kind_in_use(&self) -> Option<LockKind> {
        if self.hold.is_some() {
            return Some(LockKind::Mutex);
        }
        let head = || Some(self.queue.head()?.0.kind.lock_kind());
        self.shares.kind().or_else(head)
    }

    pub(super) fn is_counted(&self) -> bool {
        (self.kind_in_use()).is_some_and(|kind| kind != LockKind::Mutex)
    }

    /// Returns the reply to an acquire of a lock whose scripts are not those of `kind`. Dead
    /// holders and waiters of another kind are removed first.
    pub(super) fn reject_other_kind(
        &mut self,
        context: &mut CommandContext<'_>,
        kind: Kind,
    ) -> Option<AcquireReply> {
        let is_other = |existing: &LockKind| {
            (*existing == LockKind::Mutex) != (kind.lock_kind() == LockKind::Mutex)
        };
        self.kind_in_use().filter(is_other)?;
        self.shares.note_caller(context);
        self.remove_dead(context);
        let existing = self.kind_in_use().filter(is_other)?;
        let holders = self.holders(context);
        Some(AcquireReply::WrongKind { existing, holders })
    }

    pub(super) fn acquire_counted(
        &mut self,
        context: &mut CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> AcquireReply {
        let (owner_id, kind) = (context.owner_id(request.owner), request.kind);
        let has_queue = !self.queue.is_empty();
        let is_held = |hold: &&mut Hold| hold.state == HoldState::Held;
        if self.hold_of(&owner_id).filter(is_held).is_some() {
            // Repeated: the full lease, and the place in the queue is removed.
            self.extend(context, &owner_id, request.timing);
        }
        let mut outcome = NextGrant::NoWaiter;
        if has_queue {
            self.shares.note_caller(context);
            outcome = self.grant_counted(context, Some(&owner_id));
        }
        let own = self.hold_of(&owner_id).map(|hold| (hold.state, hold.token));
        if let Some((HoldState::Held, token)) = own {
            return AcquireReply::Held(context.proof(token));
        }
        let holders = self.holders(context);
        let is_other = |existing: &LockKind| !existing.is_same(kind.lock_kind());
        if let Some(existing) = self.shares.kind().filter(is_other) {
            return AcquireReply::WrongKind { existing, holders };
        }
        if own.is_some() {
            // Revoked before its owner learned of the hold, or kept by `min_hold`.
            return AcquireReply::Busy(holders);
        }
        let is_first = matches!(outcome, NextGrant::NoWaiter);
        if is_first && self.shares.has_room(kind) {
            let name = context.client.holder_name(request.metadata);
            let ttl = request.timing.ttl();
            return AcquireReply::Held(self.add_share(context, owner_id, kind, ttl, &name));
        }
        if request.wait.is_zero() {
            return AcquireReply::Busy(holders);
        }
        match (self.join(context, request), outcome) {
            (false, _) => AcquireReply::Full(holders),
            (true, NextGrant::WorkLimit) => AcquireReply::Unfinished,
            (true, _) => AcquireReply::Queued(holders),
        }
    }

    /// Grants to the head of the queue while it fits: to `me` for the full lease, to others for a
    /// short time.
    pub(super) fn grant_counted(
        &mut self,
        context: &mut CommandContext<'_>,
        me: Option<&OwnerId>,
    ) -> NextGrant {
        while context.work > 0 {
            let Some((head, _)) = self.queue.head() else {
                self.shares.unconfirmed.clear();
                return NextGrant::NoWaiter;
            };
            context.work -= REMOVAL_COST;
            let (kind, held_kind) = (head.kind, self.shares.kind());
            let is_served = head.deadline >= context.now
                && self.shares.is_responding(context, &head.owner_id.client)
                && kind.weight() <= kind.capacity()
                && held_kind.is_none_or(|held| held.is_same(kind.lock_kind()));
            if is_served && !self.shares.has_room(kind) {
                return NextGrant::Full;
            }
            if let Some(head) = self.queue.remove_head().filter(|_| is_served) {
                self.grant_share(context, head, me);
            }
        }
        NextGrant::WorkLimit
    }

    fn grant_share(
        &mut self,
        context: &mut CommandContext<'_>,
        entry: QueueEntry,
        me: Option<&OwnerId>,
    ) {
        let QueueEntry {
            owner_id,
            key,
            kind,
            timing,
            name,
            ..
        } = entry;
        if me == Some(&owner_id) {
            self.add_share(context, owner_id, kind, timing.ttl(), &name);
            return;
        }
        let (client, owner) = (owner_id.client.clone(), owner_id.owner);
        let short = timing.short_grant_timing();
        let unconfirmed = &mut self.shares.unconfirmed;
        unconfirmed.insert(client.clone(), context.now + short.ttl());
        let proof = self.add_share(context, owner_id, kind, short.ttl(), &name);
        let grant = Grant {
            key,
            is_counted: true,
            owner,
            token: proof.token,
            granted_at: Some(context.now),
            lease: short.lease,
        };
        context.push(&client, StoreEvent::Granted(grant));
    }

    fn add_share(
        &mut self,
        context: &CommandContext<'_>,
        owner_id: OwnerId,
        kind: Kind,
        ttl: Duration,
        name: &Arc<str>,
    ) -> Proof {
        let phase = self.shares.phase.filter(|_| kind == Kind::Read);
        let token = phase.unwrap_or_else(|| self.next_token(context));
        self.shares.phase = (kind == Kind::Read).then_some(token);
        let hold = Hold {
            owner_id,
            token,
            state: HoldState::Held,
            max_ttl: ttl,
            expires_at: context.now + ttl,
            since: context.wall,
            name: Arc::clone(name),
        };
        self.shares.add(Share { kind, hold });
        context.proof(token)
    }

    /// Turns a write hold into a read hold with a new token, which begins a read phase.
    pub(super) fn downgrade(
        &mut self,
        context: &mut CommandContext<'_>,
        downgrade: &Downgrade<'_>,
    ) -> Option<Proof> {
        let owner_id = context.owner_id(downgrade.owner);
        let share = self.shares.by_owner.get(&owner_id);
        let share = share.filter(|share| share.hold.state == HoldState::Held);
        let read_token = match share.map(|share| (share.kind, share.hold.token)) {
            Some((Kind::Write, token)) if token == downgrade.token => {
                let token = self.next_token(context);
                self.shares.phase = Some(token);
                Some(token)
            }
            Some((Kind::Read, token)) => Some(token),
            _ => None,
        };
        if let Some(token) = read_token
            && let Some(Share { kind, hold }) = self.shares.by_owner.get_mut(&owner_id)
        {
            *kind = Kind::Read;
            hold.token = token;
            hold.expires_at = context.now + downgrade.timing.ttl();
            self.shares.note_caller(context);
            self.serve(context);
        } else {
            self.grant_next(context, None);
        }
        read_token.map(|token| context.proof(token))
    }

    /// Revokes the holds with these tokens.
    pub(super) fn revoke_counted(
        &mut self,
        context: &mut CommandContext<'_>,
        revoke: &Revoke<'_>,
    ) -> RevokeReply {
        let (mut marked, mut gone, mut revoked) = (Vec::new(), Vec::new(), 0);
        let (mut newest, mut is_new) = (None, false);
        for Share { hold, .. } in self.shares.by_owner.values_mut() {
            if !revoke.tokens.contains(&hold.token) {
                continue;
            }
            newest = newest.max(Some(hold.token));
            is_new |= hold.state != HoldState::Revoked;
            let is_dead = revoke.delete && !context.is_alive(&hold.owner_id.client);
            if hold.state == HoldState::Kept || is_dead {
                gone.push(hold.owner_id.clone());
                continue;
            }
            revoked += 1;
            if hold.state == HoldState::Held {
                hold.state = HoldState::Revoked;
                marked.push((hold.owner_id.client.clone(), hold.token));
            }
        }
        let Some(newest) = newest else {
            self.grant_counted(context, None);
            return RevokeReply::NotHeld;
        };
        let new_token = if is_new {
            // Every later reader has a newer token than the revoked holders (K10).
            self.shares.phase = None;
            self.raise_fence(context)
        } else {
            (self.fence.as_ref()).map_or(newest, |fence| fence.token)
        };
        for (client, token) in marked {
            context.push_revocation(&client, revoke.key, token);
        }
        self.shares.retain(|hold| !gone.contains(&hold.owner_id));
        self.grant_counted(context, None);
        if revoked > 0 {
            RevokeReply::Revoked(new_token)
        } else {
            RevokeReply::Deleted(new_token)
        }
    }
}
