//! An operation with its owners, as the clients of either store run it.

use std::ops::Range;
use std::time::Duration;

use super::KEYS;
use super::op::{Act, FIRST, ONCE, OWNERS, Op, Pick, request};
use super::reply::{Observed, Reply};
use super::side::{ENTRY, InMemory};
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, AcquireReply, CheckQueue, OwnerId, Proof, Renewal};
use crate::protocol::messages::{Confirm, DeleteRecord, Downgrade, Inspect, Release, RevokeHolds};
use crate::protocol::once::Once;
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::LockStore;
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::target;
use crate::util::clock::BootInstant;

/// Upper limit of the time of a reply or a grant on a loaded machine.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The number of waiters that an inspection lists, which may be fewer than there are.
const NAMED: usize = 3;

/// An [`Op`] with the owners that it concerns, and the kinds of its locks.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "some are for PostgreSQL alone")
)]
pub(super) enum Step {
    /// Picks by number, if at all.
    Op(Op),
    Acquire {
        pick: Pick,
        key: usize,
        kind: Kind,
        timing: Timing,
        wait: Duration,
        once: Option<usize>,
        pinned: bool,
    },
    /// An acquire of an owner that was cancelled, of a lock that is in use as this kind.
    Cancelled {
        pick: Pick,
        key: usize,
        kind: Kind,
        in_use: LockKind,
    },
    /// A grant expires unconfirmed, which is why its client's waiters are dead, and another client
    /// checks the queue.
    Silent {
        key: usize,
        owner: String,
        waiters: Vec<String>,
        check: Op,
        kinds: [Kind; KEYS],
    },
    /// An operation of clients other than to acquire, on locks of these kinds.
    OfKinds(Op, [Kind; KEYS]),
    Enter {
        client: ClientId,
        key: usize,
        kind: Kind,
        owners: Range<u64>,
    },
    Lapse {
        key: usize,
        owner: String,
    },
    Expire {
        key: usize,
        owner: String,
        /// The client and the number of that owner, which then can neither renew nor confirm its hold.
        confirms: Option<(usize, OwnerId)>,
    },
    Nothing,
}

impl Step {
    /// Resolves the owners and the kinds from the memory store. The server has the same ones, or the
    /// test fails.
    pub(super) fn resolve(
        usual_kinds: [LockKind; KEYS],
        last_kinds: [LockKind; KEYS],
        op: &Op,
        number: usize,
        keys: &[LockKey; KEYS],
        memory: &InMemory,
    ) -> Self {
        let kinds = last_kinds.map(|kind| request(kind, 0, false));
        let mut op = *op;
        match &mut op {
            Op::Act { pick, key, act } => {
                *pick = memory.by_number(*pick, &keys[*key]);
                if let Act::Acquire {
                    choice,
                    is_other_kind,
                    timing,
                    wait,
                    once,
                    pinned,
                } = *act
                {
                    return Step::Acquire {
                        pick: *pick,
                        key: *key,
                        kind: request(usual_kinds[*key], choice, is_other_kind),
                        timing,
                        wait,
                        once,
                        pinned,
                    };
                }
                if matches!(act, Act::Downgrade { .. }) && kinds[*key] == Kind::Mutex {
                    return Step::Nothing;
                }
            }
            Op::Renew { picks, .. } => {
                for (pick, key) in picks.iter_mut().zip(keys) {
                    *pick = memory.by_number(*pick, key);
                }
            }
            Op::Enter { client, key, count } => {
                // Numbers that the clients' own owners do not use.
                let first = 1_000 * (number as u64 + 1);
                return Step::Enter {
                    client: memory.client(*client),
                    key: *key,
                    kind: match kinds[*key] {
                        // A waiter of another kind is removed (K16), and one with another number
                        // of permits is granted by that (K17).
                        Kind::Permits { .. } if number % 4 == 3 => Kind::Write,
                        Kind::Permits { .. } if number % 4 == 1 => Kind::Permits {
                            permits: 5,
                            weight: 1,
                        },
                        // Only an acquire of a reader notes that tokens are shared from then on.
                        Kind::Read if usual_kinds[*key] != LockKind::ReadWrite => Kind::Write,
                        kind => kind,
                    },
                    owners: first..first + *count,
                };
            }
            Op::Lapse { nth, key } => {
                return match memory.waiting(*nth, &keys[*key]) {
                    Some(owner) => Step::Lapse { key: *key, owner },
                    None => Step::Nothing,
                };
            }
            Op::Expire { nth, key } => {
                return match memory.holder(*nth, &keys[*key]) {
                    Some(owner) if kinds[*key] != Kind::Mutex => Step::Expire {
                        key: *key,
                        confirms: memory.ours(&owner),
                        owner,
                    },
                    _ => Step::Nothing,
                };
            }
            Op::CheckQueue { .. }
            | Op::Silence { .. }
            | Op::Inspect { .. }
            | Op::Revoke { .. }
            | Op::DeleteRecord { .. } => {}
            _ => return Step::Op(op),
        }
        Step::OfKinds(op, kinds)
    }

    /// Returns a queue check of all locks.
    pub(super) fn last(kinds: [LockKind; KEYS]) -> Self {
        let kinds = kinds.map(|kind| request(kind, 0, false));
        Step::OfKinds(Op::CheckQueue { client: 0 }, kinds)
    }

    /// Runs an operation of a client. Any other operation has no reply.
    pub(super) async fn reply(
        &self,
        stores: &[Box<dyn LockStore>],
        keys: &[LockKey; KEYS],
        observed: &mut Observed,
    ) -> Reply {
        match self.try_reply(stores, keys, observed).await {
            Ok(reply) => reply,
            Err(error) => Reply::Failed(error),
        }
    }

    async fn try_reply(
        &self,
        stores: &[Box<dyn LockStore>],
        keys: &[LockKey; KEYS],
        observed: &mut Observed,
    ) -> Result<Reply, StoreError> {
        let (op, kinds) = match *self {
            Step::OfKinds(op, kinds)
            | Step::Silent {
                check: op, kinds, ..
            } => (op, kinds),
            Step::Cancelled {
                pick: Pick { client, owner, .. },
                key,
                kind,
                in_use,
            } => {
                let acquire = Acquire {
                    target: target(&keys[key], kind, owner, ENTRY),
                    wait: Duration::ZERO,
                    metadata: None,
                    once: None,
                };
                let reply = if observed.remembers_cancelled {
                    stores[client].acquire(&acquire, LIMIT).await?
                } else {
                    let check = CheckQueue {
                        key: keys[key].clone(),
                        kind: in_use,
                        owners: vec![owner],
                    };
                    stores[client].check_queues(&[check], LIMIT).await?;
                    AcquireReply::Late
                };
                return Ok(observed.acquire((client, key, owner), kind, reply));
            }
            Step::Acquire {
                pick: Pick { client, owner, .. },
                key,
                kind,
                timing,
                wait,
                once,
                ..
            } => {
                let acquire = Acquire {
                    target: target(&keys[key], kind, owner, timing),
                    wait,
                    metadata: None,
                    once: once_of(kind, once),
                };
                let reply = stores[client].acquire(&acquire, LIMIT).await?;
                return Ok(observed.acquire((client, key, owner), kind, reply));
            }
            Step::Expire {
                key,
                confirms: Some((client, owner)),
                ..
            } => {
                let target = target(&keys[key], Kind::Read, owner, ENTRY);
                let renewal = Renewal {
                    target,
                    token: observed.named_token((client, key, owner), true),
                };
                let renewed = stores[client].renew(&[renewal], LIMIT).await?;
                if renewed.failures.is_empty() {
                    return Ok(Reply::Renew(renewed.failures));
                }
                let confirm = Confirm { target, once: None };
                let reply = stores[client].confirm(&confirm, LIMIT).await?;
                return Ok(observed.confirm((client, key, owner), reply));
            }
            Step::Op(Op::AcquireAll {
                client,
                keys: several,
                owner,
                timing,
                is_released,
            }) => {
                let several = several.iter().map(|key| {
                    let owner = OwnerId(FIRST + (owner.0 - FIRST + *key as u64) % OWNERS);
                    (*key, owner)
                });
                let several: Vec<_> = several.collect();
                let store = &*stores[client];
                let reply = acquire_all(store, keys, &several, timing).await?;
                let reply = observed.acquire_all(client, &several, reply);
                if !is_released || reply == Reply::AcquireAll(None) {
                    return Ok(reply);
                }
                return renew_and_release(store, keys, &several, timing, observed, client).await;
            }
            Step::Op(Op::DeleteAll { key }) => return Ok(observed.flushed(key)),
            Step::Op(Op::Ahead { key }) => return Ok(observed.behind(key)),
            _ => return Ok(Reply::None),
        };
        Ok(match op {
            Op::Act { pick, key, act } => {
                let Pick { client, owner, .. } = pick;
                let this = (client, key, owner);
                let (store, name, kind) = (&*stores[client], &keys[key], kinds[key]);
                match act {
                    Act::Confirm { timing, once } => {
                        let confirm = Confirm {
                            target: target(name, kind, owner, timing),
                            once: once_of(kind, once),
                        };
                        observed.confirm(this, store.confirm(&confirm, LIMIT).await?)
                    }
                    Act::Downgrade { right, timing } => {
                        let downgrade = Downgrade {
                            target: target(name, Kind::Write, owner, timing),
                            token: observed.named_token(this, right),
                        };
                        observed.downgrade(this, store.downgrade(&downgrade, LIMIT).await?)
                    }
                    Act::Release {
                        keep_for,
                        success,
                        unanswered,
                    } => {
                        let success = success.and_then(|(once, right)| {
                            let token = observed.named_token(this, right);
                            Some((once_of(kind, Some(once))?, token))
                        });
                        let release = Release {
                            target: target(name, kind, owner, ENTRY),
                            keep_for,
                            // Any time: the store has the true one.
                            unanswered_until: (unanswered && observed.remembers_cancelled)
                                .then_some(BootInstant(0)),
                            success,
                        };
                        let released = store.release(&release, LIMIT).await?;
                        Reply::Release {
                            was_held: released.was_held,
                            is_recorded: success.map(|_| released.is_recorded),
                        }
                    }
                    Act::Acquire { .. } => unreachable!("a step of its own"),
                }
            }
            Op::Renew {
                picks,
                right,
                timing,
            } => {
                let client = picks[0].client;
                let renewal = |key: usize| {
                    let owner = picks[key].owner;
                    Renewal {
                        target: target(&keys[key], kinds[key], owner, timing),
                        token: observed.named_token((client, key, owner), right[key]),
                    }
                };
                let batch: Vec<_> = (0..KEYS).map(renewal).collect();
                let mut failures = stores[client].renew(&batch, LIMIT).await?.failures;
                failures.sort_by_key(|(index, _)| *index);
                Reply::Renew(failures)
            }
            Op::CheckQueue { client } => {
                let check = |key: usize| CheckQueue {
                    key: keys[key].clone(),
                    kind: kinds[key].lock_kind(),
                    owners: (FIRST..FIRST + OWNERS).map(OwnerId).collect(),
                };
                let checks: Vec<_> = (0..KEYS).map(check).collect();
                // The work in queues is limited for each script, and in memory for each call.
                let is_mutex = |check: &CheckQueue| check.kind == LockKind::Mutex;
                let mut replies = Vec::new();
                for part in checks.chunk_by(|a, b| is_mutex(a) == is_mutex(b)) {
                    replies.extend(stores[client].check_queues(part, LIMIT).await?);
                }
                observed.check_queue(replies)
            }
            Op::Inspect { client, key } => {
                let inspect = Inspect {
                    key: &keys[key],
                    max_listed: NAMED,
                };
                observed.inspect(key, stores[client].inspect(&inspect, LIMIT).await?)
            }
            Op::DeleteRecord { client, key, once } => {
                let delete = DeleteRecord {
                    key: &keys[key],
                    selector: &ONCE[once].selector,
                };
                Reply::DeleteRecord(stores[client].delete_record(&delete, LIMIT).await?)
            }
            Op::Revoke {
                client,
                key,
                right,
                delete,
            } => {
                let (store, key_name) = (&*stores[client], &keys[key]);
                let inspect = Inspect {
                    key: key_name,
                    max_listed: 0,
                };
                let holders = store.inspect(&inspect, LIMIT).await?.holders;
                let mut tokens: Vec<_> = holders.iter().map(|holder| holder.token).collect();
                tokens.sort_unstable();
                if !right {
                    // Of a counted lock, only one hold is meant.
                    tokens.truncate(usize::from(kinds[key] != Kind::Mutex));
                }
                if tokens.is_empty() {
                    tokens.push(FencingToken::new(1));
                }
                let revoke = RevokeHolds {
                    key: key_name,
                    kind: kinds[key].lock_kind(),
                    tokens: &tokens,
                    delete,
                };
                observed.revoke(key, store.revoke(&revoke, LIMIT).await?)
            }
            Op::Silence { .. } => Reply::None,
            other => unreachable!("{other:?} is of no client"),
        })
    }
}

/// Returns what a call does at most once. Counted locks have no success records.
fn once_of(kind: Kind, once: Option<usize>) -> Option<&'static Once> {
    once.filter(|_| kind == Kind::Mutex).map(|once| &ONCE[once])
}

/// Acquires several mutexes in one step, each for an owner.
async fn acquire_all(
    store: &dyn LockStore,
    keys: &[LockKey; KEYS],
    several: &[(usize, OwnerId)],
    timing: Timing,
) -> Result<Option<Proof>, StoreError> {
    let requests = several.iter().map(|(key, owner)| Acquire {
        target: target(&keys[*key], Kind::Mutex, *owner, timing),
        wait: Duration::ZERO,
        metadata: None,
        once: None,
    });
    let requests: Vec<_> = requests.collect();
    store.acquire_all(&requests, LIMIT).await
}

/// Renews several mutexes in one batch, and then releases them.
async fn renew_and_release(
    store: &dyn LockStore,
    keys: &[LockKey; KEYS],
    several: &[(usize, OwnerId)],
    timing: Timing,
    observed: &Observed,
    client: usize,
) -> Result<Reply, StoreError> {
    let renewal = |(key, owner): &(usize, OwnerId)| Renewal {
        target: target(&keys[*key], Kind::Mutex, *owner, timing),
        token: observed
            .received_token((client, *key, *owner))
            .expect("it was acquired"),
    };
    let batch: Vec<_> = several.iter().map(renewal).collect();
    let failures = store.renew(&batch, LIMIT).await?.failures;
    let mut were_held = Vec::new();
    for (key, owner) in several {
        let release = Release {
            target: target(&keys[*key], Kind::Mutex, *owner, timing),
            keep_for: Duration::ZERO,
            unanswered_until: None,
            success: None,
        };
        were_held.push(store.release(&release, LIMIT).await?.was_held);
    }
    Ok(Reply::ReleaseAll {
        failures,
        were_held,
    })
}
