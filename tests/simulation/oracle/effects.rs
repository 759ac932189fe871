//! Permitted effects of a script: tokens rise, queues keep their order, and holds their owner.

use super::State;
use crate::__inside::simulation::faulty::{Applied, Millis, Op};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::OwnerId;
use crate::store::memory::hooks::{HoldSnapshot, Snapshot, owner_text};

impl State {
    /// Checks the token of a new hold. A reader shares that of its read phase.
    pub(super) fn check_tokens(
        &mut self,
        now: Millis,
        key: &LockKey,
        token: FencingToken,
        is_shared: bool,
    ) {
        let token = token.get();
        if let Some((last, forgotten)) = self.tokens.get(key)
            && token <= *last
            && !(is_shared && token == *last)
        {
            if *forgotten && self.stepped_back {
                self.trace.count("excused: tokens");
                self.inverted.insert(key.clone());
            } else {
                let text = format!("{key} is given with {token} after {last}");
                self.trace.violated(now, format_args!("{text}"));
            }
        }
        self.tokens.insert(key.clone(), (token, false));
    }

    /// Checks that an owner that acquired a free lock passed no waiter that still waits.
    pub(super) fn check_turn(&mut self, now: Millis, applied: &Applied<'_>, owner: OwnerId) {
        let me = owner_text(applied.id, owner);
        let mutexes = applied.effects.iter();
        for (key, before, after) in mutexes.filter(|(_, _, after)| after.shares.is_empty()) {
            let passed = (before.queue.iter())
                .take_while(|entry| entry.owner != me)
                .find(|entry| after.queue.iter().any(|left| left.owner == entry.owner));
            if let (Some(passed), None) = (passed, &before.hold) {
                let passed = &passed.owner;
                (self.trace).violated(now, format_args!("{me} passes {passed} for {key}"));
            }
        }
    }

    /// Checks that a success record is that of a body that succeeded, and not within the gap of the
    /// last one.
    pub(super) fn check_record(
        &mut self,
        now: Millis,
        applied: &Applied<'_>,
        before: &Snapshot,
        after: &Snapshot,
    ) {
        let Some(new) = after.records.first().map(|stored| &stored.record) else {
            return;
        };
        let old = before.records.first().map(|stored| &stored.record);
        if old.is_some_and(|old| old.token == new.token) {
            return;
        }
        self.trace.count("successes: recorded");
        let op = applied.op;
        let is_success = matches!(op, Op::Release { owner, .. }
            if self.successes.contains(&(applied.client, *owner)));
        let is_early = old.is_some_and(|old| old.since + new.gap > new.since);
        if !is_success {
            (self.trace).violated(now, format_args!("`{op:?}` records a failure"));
        } else if is_early && !self.stepped_back {
            let text = format_args!("`{op:?}` records {new:?} within the gap of {old:?}");
            self.trace.violated(now, text);
        }
    }

    /// Checks that only its owner changed a lock, and that only permitted operations created one.
    pub(super) fn check_effect(
        &mut self,
        now: Millis,
        applied: &Applied<'_>,
        key: &LockKey,
        before: Option<&HoldSnapshot>,
        after: Option<&HoldSnapshot>,
    ) {
        let is = |hold: &HoldSnapshot, owner: OwnerId| hold.owner == owner_text(applied.id, owner);
        let same = |a: &HoldSnapshot, b: &HoldSnapshot| a.owner == b.owner && a.token == b.token;
        let allowed = match (applied.op, before) {
            (Op::Renew(_) | Op::Confirm { .. }, None) => after.is_none(),
            (Op::Renew(batch), Some(before)) => {
                let mine = batch.iter().any(|renewal| {
                    renewal.key.same_lock(key)
                        && is(before, renewal.owner)
                        && before.token == renewal.token
                });
                after.is_some_and(|after| same(before, after) && (mine || after == before))
            }
            (Op::Confirm { owner, .. }, Some(before)) => after.is_some_and(|after| {
                same(before, after) && (is(before, *owner) || after == before)
            }),
            (Op::Release { owner, .. }, Some(before)) => {
                is(before, *owner) || after == Some(before)
            }
            (Op::Acquire { owner, .. }, Some(before)) => after.is_some_and(|after| {
                same(before, after) && (is(before, *owner) || after.left <= before.left)
            }),
            (Op::CheckQueue(_), Some(before)) => {
                after.is_some_and(|after| same(before, after) && after.left <= before.left)
            }
            (Op::AcquireAll { .. }, Some(before)) => after == Some(before),
            // A downgrade finds no mutex.
            (Op::Downgrade { .. }, before) => after == before,
            // A free lock may be acquired, or granted to a waiter.
            (Op::Acquire { .. } | Op::Release { .. } | Op::CheckQueue(_), None) => true,
            (Op::AcquireAll { .. }, None) => true,
        };
        if !allowed {
            let (op, client) = (applied.op, applied.client);
            let text = format_args!("`{op:?}` of c{client} made {after:?} of {before:?}");
            self.trace.violated(now, text);
        }
    }
}
