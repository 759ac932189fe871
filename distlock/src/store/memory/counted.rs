//! The commands of counted locks, of which several holders each hold a weight. They follow the
//! scripts in `lua/counted`, except that every call first removes what has expired, so the sum of
//! the weights needs no record.

use super::context::CommandContext;
use super::holds::HoldState;
use super::lock::MemoryLock;
use crate::error::LockKind;
use crate::protocol::kind::Kind;
use crate::protocol::messages::Downgrade;
use crate::protocol::messages::{AcquireReply, Proof};

impl MemoryLock {
    /// Returns the kind as which the lock is held or waited for.
    pub(super) fn kind_in_use(&self) -> Option<LockKind> {
        let head = || Some(self.queue.head()?.kind.lock_kind());
        self.holds.kind().or_else(head)
    }

    /// Returns the kind in use if its scripts are not those of `kind`.
    pub(super) fn other_kind(&self, kind: LockKind) -> Option<LockKind> {
        let is_mutex = |kind: LockKind| kind == LockKind::Mutex;
        self.kind_in_use()
            .filter(|existing| is_mutex(*existing) != is_mutex(kind))
    }

    /// Returns the reply to an acquire of a lock whose scripts are not those of `kind`. Dead
    /// holders and waiters of another kind are removed first.
    pub(super) fn reject_other_kind(
        &mut self,
        context: &mut CommandContext<'_>,
        kind: Kind,
    ) -> Option<AcquireReply> {
        self.other_kind(kind.lock_kind())?;
        self.holds.note_caller(context);
        self.remove_dead(context);
        self.clamp_ttl(context.now);
        let existing = self.other_kind(kind.lock_kind())?;
        let holders = self.holds.views(context);
        Some(AcquireReply::WrongKind { existing, holders })
    }

    /// Turns a write hold into a read hold with a new token, which begins a read phase.
    pub(super) fn downgrade(
        &mut self,
        context: &mut CommandContext<'_>,
        downgrade: &Downgrade<'_>,
    ) -> Option<Proof> {
        let owner_id = context.owner_id(downgrade.target.owner);
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
        self.holds.note_caller(context);
        if let Some(token) = read_token
            && let Some(hold) = self.holds.get_mut(&owner_id)
        {
            hold.kind = Kind::Read;
            hold.token = token;
            hold.expires_at = context.now + downgrade.target.timing.ttl();
            self.serve(context);
        } else {
            self.grant_next(context, None);
        }
        read_token.map(|token| context.proof(token))
    }
}
