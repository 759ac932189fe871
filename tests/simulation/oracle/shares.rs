//! Permitted effects of a script on a counted lock: the sum of the weights fits, only its owner
//! changes a hold, and the queue is served in its order.

use super::State;
use crate::__inside::simulation::faulty::{Answer, Applied, Millis, Op};
use crate::error::LockKind;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{AcquireReply, OwnerId};
use crate::store::memory::hooks::{EntrySnapshot, ShareSnapshot, Snapshot, owner_text};

impl State {
    pub(super) fn check_shares(
        &mut self,
        now: Millis,
        applied: &Applied<'_>,
        key: &LockKey,
        before: &Snapshot,
        after: &Snapshot,
    ) {
        let new: Vec<_> = (after.shares.iter())
            .filter(|share| !before.shares.iter().any(|old| is_same(old, share)))
            .collect();
        let failure = check_sum(applied, before, after)
            .or_else(|| check_old(applied, key, before, after))
            .or_else(|| check_new(applied, before, after, &new));
        if let Some(failure) = failure {
            let (op, client) = (applied.op, applied.client);
            let text = format_args!("`{op:?}` of c{client} {failure}: {before:?} became {after:?}");
            self.trace.violated(now, text);
        }
        self.count_shares(applied, before, &new);
        // A read phase continues while one of its readers does.
        let continues = |old: &&ShareSnapshot| {
            old.weight == 1 && after.shares.iter().any(|share| is_same(old, share))
        };
        let mut phase = (before.shares.iter().find(continues)).map(|reader| reader.token);
        let mut in_order = new;
        in_order.sort_unstable_by_key(|share| share.token);
        for share in in_order {
            let is_reader = after.kind == Some(LockKind::ReadWrite) && share.weight == 1;
            let joins = is_reader && phase == Some(share.token);
            self.check_tokens(now, key, share.token, joins);
            if joins {
                self.trace.count("counted: joined a read phase");
            }
            phase = is_reader.then_some(share.token);
        }
    }

    fn count_shares(&mut self, applied: &Applied<'_>, before: &Snapshot, new: &[&ShareSnapshot]) {
        if new.len() > 1 {
            self.trace.count("counted: several granted at once");
        }
        let mine = |owner: OwnerId| {
            let me = owner_text(applied.id, owner);
            before.shares.iter().find(|share| share.owner == me)
        };
        match applied.op {
            Op::Release { owner, .. } => {
                if !new.is_empty() {
                    self.trace.count("counted: hand-offs");
                }
                let me = owner_text(applied.id, *owner);
                let is_mine =
                    |entry: &EntrySnapshot| entry.owner == me && entry.kind != LockKind::Mutex;
                if before.queue.iter().any(is_mine) {
                    self.trace.count("counted: cancelled in the queue");
                }
            }
            Op::Acquire { owner, .. } if mine(*owner).is_some() => {
                self.trace.count("counted: acquired again");
            }
            Op::Downgrade { owner, .. } if mine(*owner).is_some_and(|mine| mine.weight == 1) => {
                self.trace.count("downgrades: repeated");
            }
            Op::Downgrade { .. } if new.len() > 1 => {
                self.trace.count("downgrades: with new readers");
            }
            _ => {}
        }
    }
}

fn is_same(a: &ShareSnapshot, b: &ShareSnapshot) -> bool {
    let identity = |share: &ShareSnapshot| (share.token, share.weight);
    a.owner == b.owner && identity(a) == identity(b)
}

/// Checks that the holders fit together, that readers share their token, and that the operation
/// left no head of the queue that fits.
fn check_sum(applied: &Applied<'_>, before: &Snapshot, after: &Snapshot) -> Option<String> {
    let used: u32 = after.shares.iter().map(|share| share.weight).sum();
    let first = after.shares.first();
    let head = after.queue.first();
    let kind = after.kind.or(head.map(|entry| entry.kind))?;
    let is_other = before.kind.is_some_and(|before| !before.is_same(kind));
    let is_left = |old: &ShareSnapshot| after.shares.iter().any(|share| is_same(share, old));
    if is_other && before.shares.iter().any(is_left) || first.is_some() && after.hold.is_some() {
        return Some("left holds of two kinds".into());
    }
    if kind == LockKind::Mutex {
        return None;
    }
    if used > capacity(kind) {
        return Some(format!("left {used} of {} held", capacity(kind)));
    }
    let mut tokens = after.shares.iter().map(|share| share.token);
    if kind == LockKind::ReadWrite && tokens.any(|token| first.is_some_and(|f| f.token != token)) {
        return Some("left readers of several phases".into());
    }
    let serves = match (applied.op, applied.answer) {
        (_, Answer::Refused(_) | Answer::Acquired(AcquireReply::Late)) => false,
        (op, _) => !matches!(op, Op::Renew(_) | Op::Confirm { .. }),
    };
    head.filter(|head| serves && used + head.weight <= capacity(head.kind))
        .map(|head| format!("did not serve {}", head.owner))
}

fn capacity(kind: LockKind) -> u32 {
    match kind {
        LockKind::Semaphore { permits } => permits,
        LockKind::ReadWrite => Kind::Write.capacity(),
        LockKind::Mutex => 1,
    }
}

/// Checks that only its owner changed a hold.
fn check_old(
    applied: &Applied<'_>,
    key: &LockKey,
    before: &Snapshot,
    after: &Snapshot,
) -> Option<String> {
    let is_allowed = |old: &&ShareSnapshot| {
        let left = after.shares.iter().find(|share| share.owner == old.owner);
        let is = |owner: OwnerId| old.owner == owner_text(applied.id, owner);
        // A kept hold stays as it is (R20).
        let is_held = |left: &ShareSnapshot| left.flag == 'h' && old.flag == 'h';
        let is_extended = left.is_some_and(|left| is_same(left, old) && is_held(left));
        match applied.op {
            Op::Release {
                owner, keep_for, ..
            } if is(*owner) && old.flag != 'r' && !matches!(applied.answer, Answer::Refused(_)) => {
                let is_kept = |left: &ShareSnapshot| {
                    is_same(left, old) && left.flag == 'k' && left.left == *keep_for
                };
                left.map_or(keep_for.is_zero(), is_kept)
            }
            _ if left == Some(*old) => true,
            Op::Renew(batch) => batch.iter().any(|renewal| {
                let is_its = is(renewal.owner) && renewal.token == old.token;
                renewal.key.same_lock(key) && is_its && is_extended
            }),
            Op::Acquire { owner, .. } | Op::Confirm { owner, .. } => is(*owner) && is_extended,
            Op::Downgrade { owner, token, .. } => {
                let became_reader = |left: &ShareSnapshot| {
                    let was_writer = old.weight == Kind::Write.weight() && old.token == *token;
                    was_writer && left.weight == 1 && left.token > old.token
                };
                let is_repeated = is_extended && old.weight == 1;
                is(*owner) && (is_repeated || left.is_some_and(became_reader))
            }
            Op::Release { .. } | Op::AcquireAll { .. } | Op::CheckQueue(_) => false,
        }
    };
    let changed = before.shares.iter().find(|old| !is_allowed(old))?;
    Some(format!("changed the hold of {}", changed.owner))
}

/// Checks that new holds are those of waiters or of the caller, and that they passed no waiter.
fn check_new(
    applied: &Applied<'_>,
    before: &Snapshot,
    after: &Snapshot,
    new: &[&ShareSnapshot],
) -> Option<String> {
    for share in new {
        if before.shares.iter().any(|old| old.owner == share.owner) {
            continue;
        }
        let requested = requested(applied, before, share);
        let is_it = |(kind, weight): &(LockKind, u32)| {
            after.kind.is_some_and(|after| after.is_same(*kind)) && *weight == share.weight
        };
        if requested.filter(is_it).is_none() {
            return Some(format!("gave {} what it did not request", share.owner));
        }
        // Only holds with lower tokens were there before. A later one may have a larger number.
        let is_earlier = |other: &&ShareSnapshot| other.token <= share.token;
        let earlier = after.shares.iter().filter(is_earlier);
        let used: u32 = earlier.map(|earlier| earlier.weight).sum();
        if let Some((kind, _)) = requested.filter(|(kind, _)| used > capacity(*kind)) {
            let (owner, number) = (&share.owner, capacity(kind));
            return Some(format!(
                "gave {owner} a part of {number}, and {used} are held"
            ));
        }
        let passed = (before.queue.iter())
            .take_while(|entry| entry.owner != share.owner)
            .find(|entry| after.queue.iter().any(|left| left.owner == entry.owner));
        if let Some(passed) = passed {
            return Some(format!("let {} pass {}", share.owner, passed.owner));
        }
    }
    None
}

/// Returns what the owner of a new hold has requested.
fn requested(
    applied: &Applied<'_>,
    before: &Snapshot,
    share: &ShareSnapshot,
) -> Option<(LockKind, u32)> {
    match applied.op {
        Op::Renew(_) | Op::Confirm { .. } => None,
        Op::Acquire { kind, owner, .. } if share.owner == owner_text(applied.id, *owner) => {
            Some((kind.lock_kind(), kind.weight()))
        }
        _ => (before.queue.iter())
            .find(|entry| entry.owner == share.owner)
            .map(|entry| (entry.kind, entry.weight)),
    }
}
