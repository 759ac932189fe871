//! Operations in flight, and their replies.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, OwnerId, Proof, RenewReply,
    Renewal,
};
use crate::protocol::messages::{Confirm, Downgrade, Release};
use crate::protocol::once::Once;
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::LockStore;
use crate::store::memory::MemoryStore;
use crate::store::memory::hooks::target;

/// An operation in flight to the server.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Acquire {
        kind: Kind,
        key: LockKey,
        owner: OwnerId,
        timing: Timing,
        wait: Duration,
        /// Server time in µs (R2).
        apply_by: u64,
        /// Set for a call that runs at most once per period.
        once: Option<Once>,
    },
    AcquireAll {
        locks: Vec<(LockKey, OwnerId)>,
        timing: Timing,
        apply_by: u64,
    },
    Confirm {
        kind: Kind,
        key: LockKey,
        owner: OwnerId,
        timing: Timing,
        /// Only its gap is sent.
        once: Option<Once>,
    },
    Renew(Vec<RenewedHold>),
    Downgrade {
        key: LockKey,
        owner: OwnerId,
        /// The token of the write hold.
        token: FencingToken,
        timing: Timing,
    },
    Release {
        kind: Kind,
        key: LockKey,
        owner: OwnerId,
        keep_for: Duration,
        success: Option<(Once, FencingToken)>,
    },
    CheckQueue(Vec<CheckQueue>),
}

/// A hold in a batch of renewals.
#[derive(Clone, Debug)]
pub(crate) struct RenewedHold {
    pub(crate) kind: Kind,
    pub(crate) key: LockKey,
    pub(crate) owner: OwnerId,
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
}

/// The server's reply to an operation.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Acquired(AcquireReply),
    /// `None` if not all locks were free, or it was too late.
    AllAcquired(Option<Proof>),
    Confirmed(Confirmation),
    Renewed(RenewReply),
    Downgraded(Option<Proof>),
    Released {
        was_held: bool,
        is_recorded: bool,
    },
    Checked(Vec<CheckQueueReply>),
    Refused(StoreError),
}

impl Op {
    pub(crate) fn keys(&self) -> Vec<&LockKey> {
        match self {
            Op::Acquire { key, .. }
            | Op::Confirm { key, .. }
            | Op::Downgrade { key, .. }
            | Op::Release { key, .. } => vec![key],
            Op::Renew(batch) => {
                let mut keys: Vec<_> = batch.iter().map(|renewal| &renewal.key).collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            Op::CheckQueue(checks) => checks.iter().map(|check| &check.key).collect(),
            Op::AcquireAll { locks, .. } => locks.iter().map(|(key, _)| key).collect(),
        }
    }

    /// Returns the owners that keep the order of their operations on a connection.
    pub(crate) fn owners(&self) -> Vec<OwnerId> {
        match self {
            Op::Acquire { owner, .. }
            | Op::Confirm { owner, .. }
            | Op::Downgrade { owner, .. }
            | Op::Release { owner, .. } => vec![*owner],
            Op::CheckQueue(checks) => checks
                .iter()
                .flat_map(|check| check.owners.clone())
                .collect(),
            Op::AcquireAll { locks, .. } => locks.iter().map(|(_, owner)| *owner).collect(),
            Op::Renew(_) => Vec::new(),
        }
    }

    /// Applies the operation at once.
    pub(super) fn apply(&self, store: &MemoryStore, now: u64) -> Answer {
        let timeout = Duration::ZERO;
        let done = match self {
            Op::Acquire { apply_by, .. } if now > *apply_by => {
                Ok(Answer::Acquired(AcquireReply::Late))
            }
            Op::Acquire {
                kind,
                key,
                owner,
                timing,
                wait,
                once,
                ..
            } => {
                let acquire = Acquire {
                    target: target(key, *kind, *owner, *timing),
                    wait: *wait,
                    metadata: None,
                    once: once.as_ref(),
                };
                at_once(store.acquire(&acquire, timeout)).map(Answer::Acquired)
            }
            Op::AcquireAll { apply_by, .. } if now > *apply_by => Ok(Answer::AllAcquired(None)),
            Op::AcquireAll { locks, timing, .. } => {
                let acquires = locks.iter().map(|(key, owner)| Acquire {
                    target: target(key, Kind::Mutex, *owner, *timing),
                    wait: Duration::ZERO,
                    metadata: None,
                    once: None,
                });
                let acquires: Vec<_> = acquires.collect();
                at_once(store.acquire_all(&acquires, timeout)).map(Answer::AllAcquired)
            }
            Op::Confirm {
                kind,
                key,
                owner,
                timing,
                once,
            } => {
                let confirm = Confirm {
                    target: target(key, *kind, *owner, *timing),
                    once: once.as_ref(),
                };
                at_once(store.confirm(&confirm, timeout)).map(Answer::Confirmed)
            }
            Op::Renew(holds) => {
                let renewals = holds.iter().map(|hold| Renewal {
                    target: target(&hold.key, hold.kind, hold.owner, hold.timing),
                    token: hold.token,
                });
                let batch: Vec<_> = renewals.collect();
                at_once(store.renew(&batch, timeout)).map(Answer::Renewed)
            }
            Op::Downgrade {
                key,
                owner,
                token,
                timing,
            } => {
                let downgrade = Downgrade {
                    target: target(key, Kind::Write, *owner, *timing),
                    token: *token,
                };
                at_once(store.downgrade(&downgrade, timeout)).map(Answer::Downgraded)
            }
            Op::Release {
                kind,
                key,
                owner,
                keep_for,
                success,
            } => {
                let release = Release {
                    target: target(key, *kind, *owner, Timing::new(Duration::from_secs(1))),
                    keep_for: *keep_for,
                    unanswered_until: None,
                    success: success.as_ref().map(|(once, token)| (once, *token)),
                };
                let released = at_once(store.release(&release, timeout));
                released.map(|reply| Answer::Released {
                    was_held: reply.was_held,
                    is_recorded: reply.is_recorded,
                })
            }
            Op::CheckQueue(checks) => {
                at_once(store.check_queues(checks, timeout)).map(Answer::Checked)
            }
        };
        done.unwrap_or_else(Answer::Refused)
    }
}

/// Returns the output of a future of the memory store, which is ready at the first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store did not answer at once"),
    }
}
