//! An operation with its owners, as the clients of either store run it.

use std::ops::Range;
use std::time::Duration;

use super::KEYS;
use super::op::{Act, FIRST, OWNERS, Op, Pick};
use super::reply::{Observed, Reply};
use super::side::InMemory;
use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::{Acquire, CheckQueue, OwnerNumber, Renewal};
use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Inspect, Release, Revoke};
use crate::store::{LockStore, run};

/// Upper limit of the time of a reply or a grant on a loaded machine.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The number of waiters that an inspection lists, which may be fewer than there are.
const NAMED: usize = 3;

/// An [`Op`] with the owners that it concerns.
#[derive(Debug)]
pub(super) enum Step {
    /// Picks by number, if at all.
    Op(Op),
    Enter {
        client: ClientId,
        key: usize,
        owners: Range<OwnerNumber>,
    },
    Lapse {
        key: usize,
        owner: String,
    },
    Nothing,
}

impl Step {
    /// Resolves the owners from the memory store. Redis has the same ones, or the test fails.
    pub(super) fn resolve(
        op: &Op,
        number: usize,
        keys: &[LockKey; KEYS],
        memory: &InMemory,
    ) -> Self {
        let mut op = *op;
        match &mut op {
            Op::Act { pick, key, .. } => *pick = memory.by_number(*pick, &keys[*key]),
            Op::Renew { picks, .. } => {
                for (pick, key) in picks.iter_mut().zip(keys) {
                    *pick = memory.by_number(*pick, key);
                }
            }
            Op::Enter { client, key, count } => {
                // Numbers that the clients' own owners do not use.
                let first = 1_000 * (number as OwnerNumber + 1);
                return Step::Enter {
                    client: memory.client(*client),
                    key: *key,
                    owners: first..first + *count,
                };
            }
            Op::Lapse { nth, key } => {
                return match memory.waiting(*nth, &keys[*key]) {
                    Some(owner) => Step::Lapse { key: *key, owner },
                    None => Step::Nothing,
                };
            }
            _ => {}
        }
        Step::Op(op)
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
        let Step::Op(op) = *self else {
            return Ok(Reply::None);
        };
        Ok(match op {
            Op::Act { pick, key, act } => {
                let Pick { client, owner, .. } = pick;
                let (store, name) = (&*stores[client], &keys[key]);
                match act {
                    Act::Acquire { timing, wait } => {
                        let acquire = Acquire {
                            key: name,
                            owner,
                            timing,
                            durability: Durability::NONE,
                            wait,
                        };
                        observed.acquire(client, key, owner, run(store, acquire, LIMIT).await?)
                    }
                    Act::Confirm { timing } => {
                        let confirm = Confirm {
                            key: name,
                            owner,
                            timing,
                            durability: Durability::NONE,
                        };
                        observed.confirm(client, key, owner, run(store, confirm, LIMIT).await?)
                    }
                    Act::Release { keep_for } => {
                        let release = Release {
                            key: name,
                            owner,
                            keep_for,
                        };
                        let released = run(store, release, LIMIT).await?;
                        Reply::Release(released.was_held)
                    }
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
                    let received = observed.received_token(client, key, owner);
                    let token = received.map_or(1, FencingToken::get) + u64::from(!right[key]);
                    Renewal {
                        key: keys[key].clone(),
                        owner,
                        token: FencingToken::new(token),
                        timing,
                        durability: Durability::NONE,
                    }
                };
                let batch: Vec<_> = (0..KEYS).map(renewal).collect();
                observed.renew(run(&*stores[client], &*batch, LIMIT).await?)
            }
            Op::CheckQueue { client } => {
                let checks = keys.each_ref().map(|key| CheckQueue {
                    key: key.clone(),
                    owners: (FIRST..FIRST + OWNERS).collect(),
                });
                observed.check_queue(run(&*stores[client], &checks[..], LIMIT).await?)
            }
            Op::Inspect { client, key } => {
                let inspect = Inspect {
                    key: &keys[key],
                    max_listed: NAMED,
                };
                observed.inspect(key, *run(&*stores[client], inspect, LIMIT).await?)
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
                let holder = run(store, inspect, LIMIT).await?.holder;
                let held = holder.map_or(1, |holder| holder.token.get());
                let token = FencingToken::new(held + u64::from(!right));
                let revoke = Revoke {
                    key: key_name,
                    token,
                    delete,
                };
                observed.revoke(key, run(store, revoke, LIMIT).await?)
            }
            Op::DeleteAll { key } => observed.flushed(key),
            Op::Ahead { key } => observed.behind(key),
            Op::DeleteHold { .. } | Op::Enter { .. } | Op::Lapse { .. } => Reply::None,
        })
    }
}
