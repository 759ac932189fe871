//! The kit's store: the memory store, but for what the script has it answer.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Options;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Look, LookReply, Owner, Renewal, RenewalFailure, Renewed,
};
use crate::store::command::{Command, Inspect, Release, Reply, Revoke, run};
use crate::store::{BoxFuture, LockStore};
use crate::testing::script::Outcome;
use crate::testing::stage::{Stage, occupant, trouble};

/// The memory store behind a script.
#[derive(Debug)]
pub(crate) struct ScriptedStore(pub(crate) Arc<Stage>);

impl LockStore for ScriptedStore {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, Trouble>> {
        Box::pin(async move {
            let stage = &self.0;
            let outage = match command {
                Command::Ask(ask) => match self.ask(&ask) {
                    Some(reply) => return reply.map(Reply::Asked),
                    None => None,
                },
                Command::Renew(batch) => {
                    return self.renew(batch, timeout).await.map(Reply::Renewed);
                }
                Command::Look(looks) => return self.look(looks, timeout).await.map(Reply::Looked),
                Command::Confirm(confirm) => stage.unrenewed(confirm.owner, confirm.key, timeout),
                Command::Release(Release { key, owner, .. }) => stage.outage(key, Some(owner)),
                Command::Inspect(Inspect { key, .. }) | Command::Revoke(Revoke { key, .. }) => {
                    stage.outage(key, None)
                }
                Command::List(_) => stage.outage_of_all(),
            };
            if let Some(outage) = outage {
                return Err(outage);
            }
            let mut reply = stage.store.call(command, timeout).await;
            match (command, &mut reply) {
                (Command::Release(release), _) => stage.released(release.owner),
                // A holder that a rule names is not in the store.
                (Command::Inspect(Inspect { key, .. }), Ok(Reply::Inspected(seen))) => {
                    let holder = || stage.holder(key).as_ref().map(occupant);
                    seen.occupant = seen.occupant.take().or_else(holder);
                }
                _ => {}
            }
            reply
        })
    }

    fn begin(&self, key: &LockKey, options: Options) -> Options {
        self.0.begin(key, options)
    }

    fn taken(&self, owner: Owner) {
        self.0.taken(owner);
    }

    fn close(&self) {
        self.0.store.close();
    }
}

impl ScriptedStore {
    /// Returns the reply to an ask if a rule sets it.
    fn ask(&self, ask: &Ask<'_>) -> Option<Result<AskReply, Trouble>> {
        match self.0.asked(ask.owner, ask.key)? {
            Outcome::Busy(holder) if ask.wait.is_zero() => {
                Some(Ok(AskReply::Busy(Some(occupant(&holder)))))
            }
            Outcome::Busy(holder) => Some(Ok(AskReply::Queued(Some(occupant(&holder))))),
            Outcome::Foreign(detail) => Some(Ok(AskReply::Foreign(detail))),
            Outcome::Unavailable(outage) => Some(Err(trouble(outage))),
            Outcome::Lost { .. } | Outcome::HoldLimit(_) => None,
        }
    }

    async fn renew(&self, batch: &[Renewal], timeout: Duration) -> Result<Renewed, Trouble> {
        let mut failures = Vec::new();
        let mut renewed = Vec::new();
        let mut places = Vec::new();
        for (place, renewal) in batch.iter().enumerate() {
            match self.0.unrenewed(renewal.owner, &renewal.key, timeout) {
                Some(trouble) => failures.push((place, RenewalFailure::Trouble(trouble))),
                None => {
                    renewed.push(renewal.clone());
                    places.push(place);
                }
            }
        }
        let reply = run(&self.0.store, &*renewed, timeout).await?;
        let others = reply.failures.into_iter();
        failures.extend(others.map(|(index, failure)| (places[index], failure)));
        Ok(Renewed {
            sent: reply.sent,
            failures,
        })
    }

    async fn look(&self, looks: &[Look], timeout: Duration) -> Result<Vec<LookReply>, Trouble> {
        let mut replies = Vec::with_capacity(looks.len());
        for look in looks {
            let owner = look.owners.first().copied();
            match self.0.outage(&look.key, owner) {
                Some(trouble) => replies.push(LookReply::Failed(trouble)),
                // A waiter for a holder that is not in the store is in no queue: it is missing, and
                // asks again.
                None => replies.extend(run(&self.0.store, from_ref(look), timeout).await?),
            }
        }
        Ok(replies)
    }
}
