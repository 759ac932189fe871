//! A store for simulations: a memory server behind a network on which anything goes wrong, by a seed.
//!
//! It keeps what the link to Redis promises, and nothing more: requests that concern one owner are
//! applied in the order in which they were sent on one connection; when a connection is lost, what was
//! sent on it may be applied until its successor, as its first act, kills it; then come the events; the
//! age of a pushed grant is bounded by what is known of the server's time, by the same code.
//!
//! `network` is what is on its way, `wire` one connection, `link` a client's two connections, `server`
//! the memory store with a witness, `host` the client's process, `fault` what goes wrong.

use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal, Renewed,
};
use crate::store::{BoxFuture, EventSink, LockStore};

mod fault;
mod host;
mod link;
mod network;
mod op;
mod server;
mod wire;

pub(crate) use fault::{Conditions, Fault};
pub(crate) use host::Host;
pub(crate) use link::{Link, Site};
pub(crate) use network::{Millis, Network};
pub(crate) use op::{Answer, Op};
pub(crate) use server::{Applied, FaultyServer, Witness};
pub(crate) use wire::Role;

/// A faulty store, seen by one client.
#[derive(Debug)]
pub(crate) struct FaultyStore(Arc<Link>);

impl FaultyStore {
    pub(crate) fn open(site: Site, events: EventSink) -> Self {
        FaultyStore(Link::open(site, events))
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.0
    }
}

impl LockStore for FaultyStore {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move {
            let link = &self.0;
            let op = Op::Ask {
                key: ask.key.clone(),
                owner: ask.owner,
                timing: ask.timing,
                wait: ask.wait,
                within: ask.within,
                apply_by: link.server_time.latest(link.clock.now(), ask.within),
            };
            let (sent, answer, wall) = link.call(Role::Commands, op, ask.within).await?;
            link.server_time.learn(sent, wall);
            match answer {
                Answer::Asked(AskReply::Held(proof)) => Ok(AskReply::Held(Proof { sent, ..proof })),
                Answer::Asked(reply) => Ok(reply),
                other => mixed_up(&other),
            }
        })
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        Box::pin(async move {
            let op = Op::Confirm {
                key: key.clone(),
                owner,
                timing,
            };
            let (sent, answer, wall) = self.0.call(Role::Commands, op, within).await?;
            self.0.server_time.learn(sent, wall);
            match answer {
                Answer::Confirmed(proof) => Ok(proof.map(|proof| Proof { sent, ..proof })),
                other => mixed_up(&other),
            }
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        Box::pin(async move {
            let op = Op::Renew(batch.to_vec());
            match self.0.call(Role::Renewals, op, within).await? {
                (sent, Answer::Renewed(renewed), _) => Ok(Renewed { sent, ..renewed }),
                (_, other, _) => mixed_up(&other),
            }
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<ReleaseReply, Trouble>> {
        Box::pin(async move {
            let op = Op::Release {
                key: key.clone(),
                owner,
                keep,
            };
            match self.0.call(Role::Commands, op, within).await? {
                (_, Answer::Released(was_held), _) => Ok(ReleaseReply {
                    was_held,
                    again_after: None,
                }),
                (_, other, _) => mixed_up(&other),
            }
        })
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        Box::pin(async move {
            let op = Op::Look(looks.to_vec());
            let (sent, answer, wall) = self.0.call(Role::Commands, op, within).await?;
            self.0.server_time.learn(sent, wall);
            match answer {
                Answer::Looked(replies) => Ok(replies),
                other => mixed_up(&other),
            }
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        Box::pin(async move {
            let op = Op::Inspect(key.clone());
            match self.0.call(Role::Commands, op, within).await? {
                (_, Answer::Inspected(seen), _) => Ok(seen),
                (_, other, _) => mixed_up(&other),
            }
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.wire(Role::Commands).ready())
    }

    fn outage(&self) -> Option<Trouble> {
        None
    }

    fn identity(&self) -> &str {
        "faulty:"
    }

    fn address(&self) -> Option<&str> {
        None
    }

    fn close(&self) {
        self.0.close();
        self.0.hang_up();
    }
}

fn mixed_up<T>(answer: &Answer) -> T {
    panic!("an answer to something else: {answer}")
}
