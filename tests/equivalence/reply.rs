//! Replies, without times and absolute tokens.

use std::collections::HashMap;
use std::time::Duration;

use super::KEYS;
use super::op::OWNERS;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    AcquireReply, CheckQueueReply, Confirmation, HolderView, Inspection, OwnerId, Proof,
    RenewalFailure, RevokeReply,
};
use crate::protocol::once::Record;
use crate::protocol::store_error::StoreError;
use crate::store::StoreEvent;
use crate::store::memory::hooks::Snapshot;
use crate::util::clock::{BootInstant, ServerTime};

#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Acquire(AcquireReply),
    AcquireAll(Option<Vec<Proof>>),
    /// The replies to the renewal and to the releases of several locks that were acquired together.
    ReleaseAll {
        failures: Vec<(usize, RenewalFailure)>,
        were_held: Vec<bool>,
    },
    Confirm(Confirmation),
    Downgrade(Option<Proof>),
    Renew(Vec<(usize, RenewalFailure)>),
    Release {
        was_held: bool,
        /// `None` for a release that records no success.
        is_recorded: Option<bool>,
    },
    DeleteRecord(Result<bool, String>),
    CheckQueue(Vec<CheckQueueReply>),
    Inspect(Inspection),
    Revoke(RevokeReply),
    Failed(StoreError),
    /// The operation was not a client's.
    None,
}

/// Kinds that must occur many times to make the comparison meaningful.
pub(super) const KINDS: [&str; 42] = [
    "held",
    "queued",
    "busy",
    "full",
    "confirmed",
    "not confirmed",
    "renewed",
    "gone",
    "released",
    "nothing released",
    "all missing",
    "some here",
    "inspected",
    "ending",
    "deleted",
    "not held",
    "revoked",
    "revocation received",
    "granted",
    "unfinished",
    "room made",
    "wrong kind",
    "other number of permits",
    "several granted",
    "several holders",
    "downgraded",
    "not downgraded",
    "already ran",
    "not confirmed: already ran",
    "recorded",
    "recorded before",
    "not recorded",
    "record deleted",
    "all acquired",
    "all renewed and released",
    "not all acquired",
    "one of several held",
    "one of several counted",
    "one of several queued for",
    "one of several with a later token",
    "some of several free",
    "too late",
];

impl Reply {
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        match self {
            Reply::Acquire(AcquireReply::Held(_)) => vec!["held"],
            Reply::Acquire(AcquireReply::Queued(_) | AcquireReply::Unfinished) => vec!["queued"],
            Reply::Acquire(AcquireReply::Busy(holders)) if holders.len() > 1 => {
                vec!["busy", "several holders"]
            }
            Reply::Acquire(AcquireReply::Busy(_)) => vec!["busy"],
            Reply::Acquire(AcquireReply::WrongKind { .. }) => vec!["wrong kind"],
            Reply::Acquire(AcquireReply::Full(_)) => vec!["full"],
            Reply::Acquire(AcquireReply::AlreadyRan(_)) => vec!["already ran"],
            Reply::Acquire(AcquireReply::Late) => vec!["too late"],
            Reply::Acquire(AcquireReply::KeyConflict(_)) => vec!["refused"],
            Reply::AcquireAll(Some(_)) => vec!["all acquired"],
            Reply::AcquireAll(None) => vec!["not all acquired"],
            Reply::ReleaseAll {
                failures,
                were_held,
            } => {
                let is_complete = failures.is_empty() && were_held.iter().all(|held| *held);
                vec![if is_complete {
                    "all renewed and released"
                } else {
                    "lost at once"
                }]
            }
            Reply::Confirm(Confirmation::Held(_)) => vec!["confirmed"],
            Reply::Confirm(Confirmation::NotHeld) => vec!["not confirmed"],
            Reply::Confirm(Confirmation::AlreadyRan(_)) => vec!["not confirmed: already ran"],
            Reply::Downgrade(Some(_)) => vec!["downgraded"],
            Reply::Downgrade(None) => vec!["not downgraded"],
            Reply::Renew(failures) => {
                let failed = failures.iter().map(|(_, failure)| match failure {
                    RenewalFailure::Revoked => "revoked",
                    RenewalFailure::Gone | RenewalFailure::Error(_) => "gone",
                });
                let mut kinds: Vec<_> = failed.collect();
                kinds.resize(KEYS, "renewed");
                kinds
            }
            Reply::Release {
                was_held,
                is_recorded,
            } => {
                let mut kinds = vec![if *was_held {
                    "released"
                } else {
                    "nothing released"
                }];
                kinds.extend(
                    is_recorded.map(|is_recorded| match (is_recorded, was_held) {
                        (true, true) => "recorded",
                        (true, false) => "recorded before",
                        (false, _) => "not recorded",
                    }),
                );
                kinds
            }
            Reply::DeleteRecord(Ok(true)) => vec!["record deleted"],
            Reply::DeleteRecord(_) => Vec::new(),
            Reply::CheckQueue(replies) => (replies.iter())
                .map(|reply| match reply {
                    CheckQueueReply::Checked { missing, .. } if missing.len() as u64 == OWNERS => {
                        "all missing"
                    }
                    CheckQueueReply::Checked { holding, .. } if holding.len() > 1 => {
                        "several granted"
                    }
                    CheckQueueReply::Checked { .. } => "some here",
                    CheckQueueReply::Failed(_) | CheckQueueReply::KeyConflict(_) => "refused",
                })
                .collect(),
            Reply::Inspect(_) => vec!["inspected"],
            Reply::Revoke(RevokeReply::Revoked(_)) => vec!["ending"],
            Reply::Revoke(RevokeReply::Deleted(_)) => vec!["deleted"],
            Reply::Revoke(RevokeReply::NotHeld) => vec!["not held"],
            Reply::Failed(_) => vec!["failed"],
            Reply::None => Vec::new(),
        }
    }
}

impl Reply {
    /// Forgets how many permits locks have.
    pub(super) fn forget_permits(&mut self) {
        let forget = |kind: &mut LockKind| {
            if let LockKind::Semaphore { permits } = kind {
                *permits = 0;
            }
        };
        match self {
            Reply::Acquire(AcquireReply::WrongKind { existing, .. }) => forget(existing),
            Reply::Inspect(Inspection {
                kind: Some(kind), ..
            }) => forget(kind),
            Reply::CheckQueue(replies) => {
                for reply in replies {
                    if let CheckQueueReply::Checked {
                        kind: Some(kind), ..
                    } = reply
                    {
                        forget(kind);
                    }
                }
            }
            _ => {}
        }
    }
}

/// An owner's client, key and number.
pub(super) type Owner = (usize, usize, OwnerId);

/// The values observed in one store in one sequence.
#[derive(Default)]
pub(super) struct Observed {
    tokens: [Vec<u64>; KEYS],
    since: [Vec<u64>; KEYS],
    /// Set once an operation may have granted at several times in Redis.
    ignores_since: bool,
    /// The last token that each owner of a client received.
    received: HashMap<Owner, FencingToken>,
    /// The highest token that an owner of each key received, and that before the present operation,
    /// which may grant to several owners.
    highest: [Option<FencingToken>; KEYS],
    highest_before: [Option<FencingToken>; KEYS],
    behind: [bool; KEYS],
    /// Set for a lock with readers, which share a token.
    is_shared: [bool; KEYS],
    /// Set for a store that rejects the late acquires of an owner that it did not know when that
    /// was released.
    pub(super) remembers_cancelled: bool,
}

fn rank(observed: &mut Vec<u64>, value: u64) -> u64 {
    let rank = observed.iter().position(|observed| *observed == value);
    rank.unwrap_or_else(|| {
        observed.push(value);
        observed.len() - 1
    }) as u64
}

impl Observed {
    pub(super) fn of(kinds: [LockKind; KEYS], remembers_cancelled: bool) -> Self {
        Observed {
            is_shared: kinds.map(|kind| kind == LockKind::ReadWrite),
            remembers_cancelled,
            ..Observed::default()
        }
    }

    pub(super) fn received_token(&self, owner: Owner) -> Option<FencingToken> {
        self.received.get(&owner).copied()
    }

    /// Returns the token that an owner names: its own, or a higher one.
    pub(super) fn named_token(&self, owner: Owner, is_right: bool) -> FencingToken {
        let received = self.received_token(owner).map_or(1, FencingToken::get);
        FencingToken::new(received + u64::from(!is_right))
    }

    /// Records a hold. Its token is above the last one, or equal if it is a reader's.
    fn record(&mut self, owner: Owner, token: FencingToken) {
        if self.received_token(owner) == Some(token) {
            return;
        }
        let (_, key, _) = owner;
        if let Some(known) = self.highest_before[key] {
            let rises = token > known || (token == known && self.is_shared[key]);
            assert!(rises, "{owner:?} has token {token} after {known}");
        }
        self.highest[key] = self.highest[key].max(Some(token));
        self.received.insert(owner, token);
    }

    /// Prepares for the next operation.
    pub(super) fn start(&mut self) {
        self.highest_before = self.highest;
    }

    /// Compares no more times of acquisitions.
    pub(super) fn ignore_since(&mut self) {
        self.ignores_since = true;
    }

    /// Records that the clock is now an hour behind the last token.
    pub(super) fn behind(&mut self, key: usize) -> Reply {
        self.behind[key] = true;
        Reply::None
    }

    /// Records a deletion of the fence. If the clock is behind, the next token may be lower.
    pub(super) fn flushed(&mut self, key: usize) -> Reply {
        if self.behind[key] {
            self.highest[key] = None;
        }
        Reply::None
    }

    /// Replaces a token by its rank, in order of first appearance.
    fn token(&mut self, key: usize, token: &mut FencingToken) {
        *token = FencingToken::new(rank(&mut self.tokens[key], token.get()));
    }

    fn holders(&mut self, key: usize, holders: &mut Vec<HolderView>) {
        // Redis names any 16 of them.
        if holders.len() > 12 {
            holders.clear();
        }
        for holder in &mut *holders {
            self.token(key, &mut holder.token);
            self.since(key, &mut holder.since.0);
            holder.expires_in = None;
            holder.kept_until = holder.kept_until.map(|_| ServerTime(0));
        }
        holders.sort_by_cached_key(|holder| {
            let HolderView {
                since,
                token,
                local_owner,
                weight,
                kept_until,
                ..
            } = *holder;
            (
                since,
                token,
                local_owner,
                weight,
                kept_until,
                holder.client_name.clone(),
            )
        });
    }

    fn since(&mut self, key: usize, since: &mut u64) {
        *since = if self.ignores_since {
            0
        } else {
            rank(&mut self.since[key], *since)
        };
    }

    /// Normalizes the state of a lock like a reply, and moves its remaining times to the result.
    pub(super) fn snapshot(&mut self, key: usize, snapshot: &mut Snapshot) -> Vec<Duration> {
        let mut times = vec![
            std::mem::take(&mut snapshot.queue_left),
            std::mem::take(&mut snapshot.fence_left),
        ];
        if let Some(hold) = &mut snapshot.hold {
            self.token(key, &mut hold.token);
            self.since(key, &mut hold.since);
            times.push(std::mem::take(&mut hold.left));
        }
        for share in &mut snapshot.shares {
            self.token(key, &mut share.token);
            self.since(key, &mut share.since);
            times.push(std::mem::take(&mut share.left));
        }
        if let Some(token) = &mut snapshot.phase {
            self.token(key, token);
        }
        if let Some(token) = &mut snapshot.fence {
            self.token(key, token);
        }
        for stored in &mut snapshot.records {
            self.success(key, &mut stored.record);
            times.push(std::mem::take(&mut stored.left));
        }
        let entries = snapshot.queue.iter_mut();
        times.extend(entries.map(|entry| std::mem::take(&mut entry.left)));
        times
    }

    fn success(&mut self, key: usize, record: &mut Record) {
        // Equal times in memory may differ in Redis. Shifts of an hour show which time is recorded.
        record.since = ServerTime(0);
        self.token(key, &mut record.token);
        record.finished = ServerTime(0);
    }

    /// Records the hold of a proof, and normalizes the proof.
    fn held(&mut self, owner: Owner, proof: &mut Proof) {
        self.record(owner, proof.token);
        proof.sent_at = BootInstant(0);
        self.token(owner.1, &mut proof.token);
    }

    pub(super) fn acquire(&mut self, owner: Owner, kind: Kind, mut reply: AcquireReply) -> Reply {
        let (_, key, _) = owner;
        self.is_shared[key] |= kind == Kind::Read;
        match &mut reply {
            AcquireReply::Held(proof) => self.held(owner, proof),
            AcquireReply::Queued(holders)
            | AcquireReply::Busy(holders)
            | AcquireReply::Full(holders)
            | AcquireReply::WrongKind { holders, .. } => {
                self.holders(key, holders);
            }
            AcquireReply::AlreadyRan(record) => self.success(key, record),
            AcquireReply::Unfinished | AcquireReply::Late | AcquireReply::KeyConflict(_) => {}
        }
        Reply::Acquire(reply)
    }

    /// All locks have the same token, and their ranks are those of their own tokens.
    pub(super) fn acquire_all(
        &mut self,
        client: usize,
        several: &[(usize, OwnerId)],
        reply: Option<Proof>,
    ) -> Reply {
        let proofs = reply.map(|proof| {
            let of_key = |(key, owner): &(usize, OwnerId)| {
                let mut proof = proof;
                self.held((client, *key, *owner), &mut proof);
                proof
            };
            several.iter().map(of_key).collect()
        });
        Reply::AcquireAll(proofs)
    }

    pub(super) fn confirm(&mut self, owner: Owner, mut reply: Confirmation) -> Reply {
        match &mut reply {
            Confirmation::Held(proof) => self.held(owner, proof),
            Confirmation::AlreadyRan(record) => self.success(owner.1, record),
            Confirmation::NotHeld => {}
        }
        Reply::Confirm(reply)
    }

    pub(super) fn downgrade(&mut self, owner: Owner, mut reply: Option<Proof>) -> Reply {
        if let Some(proof) = &mut reply {
            self.held(owner, proof);
        }
        Reply::Downgrade(reply)
    }

    pub(super) fn check_queue(&mut self, mut replies: Vec<CheckQueueReply>) -> Reply {
        for (key, reply) in replies.iter_mut().enumerate() {
            if let CheckQueueReply::Checked {
                holders, missing, ..
            } = reply
            {
                self.holders(key, holders);
                missing.sort_unstable();
            }
        }
        Reply::CheckQueue(replies)
    }

    pub(super) fn inspect(&mut self, key: usize, mut reply: Inspection) -> Reply {
        self.holders(key, &mut reply.holders);
        if let Some(token) = &mut reply.last_token {
            self.token(key, token);
        }
        if let Some(record) = &mut reply.record {
            self.success(key, record);
        }
        reply.expires_in = reply.expires_in.map(|_| Duration::ZERO);
        for waiter in &mut reply.waiters {
            waiter.since = ServerTime(0);
            // The stores differ in how they treat an absent client.
            waiter.this_process = true;
        }
        Reply::Inspect(reply)
    }

    pub(super) fn revoke(&mut self, key: usize, mut reply: RevokeReply) -> Reply {
        if let RevokeReply::Revoked(token) | RevokeReply::Deleted(token) = &mut reply {
            self.token(key, token);
        }
        Reply::Revoke(reply)
    }

    /// Normalizes a message as its client received it, without the local time of a grant.
    pub(super) fn message(
        &mut self,
        client: usize,
        keys: &[LockKey; KEYS],
        message: StoreEvent,
    ) -> String {
        let place = |named: &LockKey| {
            let key = keys.iter().position(|key| key.same_lock(named));
            key.unwrap_or_else(|| panic!("a message about another lock: {named}"))
        };
        match message {
            StoreEvent::Granted(grant) => {
                let (key, owner, mut token) = (place(&grant.key), grant.owner, grant.token);
                self.record((client, key, owner), token);
                self.token(key, &mut token);
                let lease = grant.lease;
                format!("{client}:{owner} is granted key {key} with token {token} for {lease:?}")
            }
            StoreEvent::Revoked(revocation) => {
                let (key, mut token) = (place(&revocation.key), revocation.token);
                self.token(key, &mut token);
                let by = revocation.by;
                format!("{client} is revoked by {by}: key {key}, token {token}")
            }
            StoreEvent::OtherPermits { owner, last } => {
                format!("{client}:{owner} differs from the last {last} permits")
            }
            other => panic!("the server is well, and yet: {other:?}"),
        }
    }
}
