//! The commands of counted locks, of which several holders each hold a weight. They follow the
//! scripts in `lua/counted`, except that every call first removes what has expired, so the sum of
//! the weights needs no record.

use super::context::CommandContext;
use super::holds::{Hold, HoldState};
use super::lock::{MemoryLock, NextGrant};
use super::queue::{OwnerId, REMOVAL_COST};
use crate::error::LockKind;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, AcquireReply, Proof};
use crate::store::command::Downgrade;

impl MemoryLock {
    /// Returns the kind as which the lock is held or waited for.
    pub(super) fn kind_in_use(&self) -> Option<LockKind> {
        let head = || Some(self.queue.head()?.0.kind.lock_kind());
        self.holds.kind().or_else(head)
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
        self.holds.note_caller(context);
        self.remove_dead(context);
        let existing = self.kind_in_use().filter(is_other)?;
        let holders = self.holds.views(context);
        Some(AcquireReply::WrongKind { existing, holders })
    }

    pub(super) fn acquire_counted(
        &mut self,
        context: &mut CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> AcquireReply {
        let (entry, kind) = (context.entry(request), request.kind);
        let owner_id = &entry.owner_id;
        let has_queue = !self.queue.is_empty();
        let is_held = |hold: &&mut Hold| hold.state == HoldState::Held;
        if self.holds.get_mut(owner_id).filter(is_held).is_some() {
            // Repeated: the full lease, and the place in the queue is removed.
            self.extend(context, owner_id, request.timing);
        }
        let mut outcome = NextGrant::NoWaiter;
        if has_queue {
            self.holds.note_caller(context);
            outcome = self.grant_counted(context, Some(owner_id));
        }
        let own = self
            .holds
            .get_mut(owner_id)
            .map(|hold| (hold.state, hold.token));
        if let Some((HoldState::Held, token)) = own {
            return AcquireReply::Held(context.proof(token));
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
            return AcquireReply::Held(self.hold_for(context, entry, request.timing.ttl()));
        }
        self.join_or_refuse(context, entry, request.wait, &outcome)
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
                self.holds.unconfirmed.clear();
                return NextGrant::NoWaiter;
            };
            context.work -= REMOVAL_COST;
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
        }
        NextGrant::WorkLimit
    }

    /// Turns a write hold into a read hold with a new token, which begins a read phase.
    pub(super) fn downgrade(
        &mut self,
        context: &mut CommandContext<'_>,
        downgrade: &Downgrade<'_>,
    ) -> Option<Proof> {
        let owner_id = context.owner_id(downgrade.owner);
        let hold = self.holds.get_mut(&owner_id);
        let hold = hold.filter(|hold| hold.state == HoldState::Held);
        let read_token = match hold.map(|hold| (hold.kind, hold.token)) {
            Some((Kind::Write, token)) if token == downgrade.token => {
                let token = self.next_token(context);
                self.holds.phase = Some(token);
                Some(token)
            }
            Some((Kind::Read, token)) => Some(token),
            _ => None,
        };
        if let Some(token) = read_token
            && let Some(hold) = self.holds.get_mut(&owner_id)
        {
            hold.kind = Kind::Read;
            hold.token = token;
            hold.expires_at = context.now + downgrade.timing.ttl();
            self.holds.note_caller(context);
            self.serve(context);
        } else {
            self.grant_next(context, None);
        }
        read_token.map(|token| context.proof(token))
    }
}
