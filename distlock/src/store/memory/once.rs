//! Calls that run at most once per period or for a value. They follow the scripts in `lua/once`.

use super::context::CommandContext;
use super::holds::{HoldState, StoredRecord};
use super::lock::MemoryLock;
use crate::fencing::FencingToken;
use crate::protocol::messages::{Acquire, OwnerId};
use crate::protocol::once::{Once, Record};
use crate::util::clock::ServerTime;

impl MemoryLock {
    /// Returns the record that rejects an acquire. It then lasts for this call's period.
    pub(super) fn rejecting_record(
        &mut self,
        context: &CommandContext<'_>,
        request: &Acquire<'_>,
    ) -> Option<Record> {
        let once = request.once?;
        // A hold that was granted to this owner is judged by its acquisition.
        let granted = self.held_since(context, request.target.owner);
        let stored = self.records.get_mut(&once.selector)?;
        if stored.record.since > context.wall {
            // The clock stepped back.
            stored.record.since = context.wall;
            stored.expires_at = stored.expires_at.max(context.now + once.ttl);
        }
        if !is_closed(&stored.record, once, granted.unwrap_or(context.wall)) {
            return None;
        }
        let age = context.wall.since(stored.record.since);
        let needed = context.now + once.ttl.saturating_sub(age);
        stored.expires_at = stored.expires_at.max(needed);
        Some(stored.record.clone())
    }

    /// Returns the record that rejects the confirmation of a hold.
    pub(super) fn record_before_hold(
        &mut self,
        context: &CommandContext<'_>,
        owner: OwnerId,
        once: &Once,
    ) -> Option<Record> {
        let since = self.held_since(context, owner)?;
        let record = &self.records.get(&once.selector)?.record;
        is_closed(record, once, since).then(|| record.clone())
    }

    /// Records the success of the hold with this token. Returns true if it is recorded now, or was
    /// before.
    pub(super) fn record_success(
        &mut self,
        context: &CommandContext<'_>,
        owner: OwnerId,
        once: &Once,
        token: FencingToken,
    ) -> bool {
        let owner_id = context.owner_id(owner);
        let hold = self.holds.get_mut(&owner_id);
        let hold = hold.filter(|hold| hold.token == token && hold.state == HoldState::Held);
        let Some(hold) = hold else {
            let known = self.records.get(&once.selector);
            return known.is_some_and(|known| known.record.token == token);
        };
        let record = Record {
            since: hold.since.min(context.wall),
            gap: once.gap,
            token,
            finished: context.wall,
            holder_name: hold.name.to_string(),
        };
        let known_end = self
            .records
            .get(&once.selector)
            .map(|known| known.expires_at);
        let end = context.now + once.ttl;
        let expires_at = known_end.map_or(end, |known_end| known_end.max(end));
        let stored = StoredRecord { record, expires_at };
        self.records.insert(once.selector.clone(), stored);
        true
    }

    /// Returns when an owner acquired its hold, unless that was revoked or released. After a step
    /// of the clock back, that is now, as in the record of a success.
    fn held_since(&mut self, context: &CommandContext<'_>, owner: OwnerId) -> Option<ServerTime> {
        let hold = self.holds.get_mut(&context.owner_id(owner))?;
        (hold.state == HoldState::Held).then_some(hold.since.min(context.wall))
    }
}

/// Returns true if a run that acquires at `start` comes too soon after the recorded one.
fn is_closed(record: &Record, once: &Once, start: ServerTime) -> bool {
    record.since + once.gap > start
}
