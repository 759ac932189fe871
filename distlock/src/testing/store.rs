//! The kit's store: the memory store, but for what the script has it answer.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::{Durability, Options};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal,
    RenewalFailure, Renewed, Revoked,
};
use crate::store::facts::Facts;
use crate::store::{BoxFuture, Lane, LockStore};
use crate::testing::script::Outcome;
use crate::testing::stage::{Stage, occupant, trouble};

/// The memory store behind a script.
#[derive(Debug)]
pub(crate) struct ScriptedStore(pub(crate) Arc<Stage>);

impl LockStore for ScriptedStore {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move {
            match self.0.asked(ask.owner, ask.key) {
                Some(Outcome::Busy(holder)) if ask.wait.is_zero() => {
                    Ok(AskReply::Busy(Some(occupant(&holder))))
                }
                Some(Outcome::Busy(holder)) => Ok(AskReply::Queued(Some(occupant(&holder)))),
                Some(Outcome::Foreign(detail)) => Ok(AskReply::Foreign(detail)),
                Some(Outcome::Unavailable(outage)) => Err(trouble(outage)),
                Some(Outcome::Lost { .. } | Outcome::HoldLimit(_)) | None => {
                    self.0.store.ask(ask).await
                }
            }
        })
    }

    fn lane(&self) -> Option<Box<dyn Lane>> {
        None
    }

    fn begin(&self, key: &LockKey, options: Options) -> Options {
        self.0.begin(key, options)
    }

    fn taken(&self, owner: Owner) {
        self.0.taken(owner);
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        durability: Durability,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        Box::pin(async move {
            if let Some(trouble) = self.0.unrenewed(owner, key, within) {
                return Err(trouble);
            }
            let store = &self.0.store;
            store.confirm(key, owner, timing, durability, within).await
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        Box::pin(async move {
            let mut failures = Vec::new();
            let mut renewed = Vec::new();
            let mut places = Vec::new();
            for (place, renewal) in batch.iter().enumerate() {
                match self.0.unrenewed(renewal.owner, &renewal.key, within) {
                    Some(trouble) => failures.push((place, RenewalFailure::Trouble(trouble))),
                    None => {
                        renewed.push(renewal.clone());
                        places.push(place);
                    }
                }
            }
            let answer = self.0.store.renew(&renewed, within).await?;
            let others = answer.failures.into_iter();
            failures.extend(others.map(|(index, failure)| (places[index], failure)));
            failures.sort_by_key(|(place, _)| *place);
            Ok(Renewed {
                sent: answer.sent,
                failures,
            })
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
            if let Some(trouble) = self.0.outage(key, Some(owner)) {
                return Err(trouble);
            }
            let answer = self.0.store.release(key, owner, keep, within).await;
            self.0.released(owner);
            answer
        })
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        Box::pin(async move {
            let mut replies = Vec::with_capacity(looks.len());
            for look in looks {
                let owner = look.owners.first().copied();
                match self.0.outage(&look.key, owner) {
                    Some(trouble) => replies.push(LookReply::Failed(trouble)),
                    // Who waits for somebody that is not there stands in no queue: it is missing,
                    // and asks again.
                    None => replies.extend(self.0.store.look(from_ref(look), within).await?),
                }
            }
            Ok(replies)
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        waiters: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        Box::pin(async move {
            if let Some(trouble) = self.0.outage(key, None) {
                return Err(trouble);
            }
            let mut seen = self.0.store.inspect(key, waiters, within).await?;
            let said = || self.0.holder(key).as_ref().map(occupant);
            seen.occupant = seen.occupant.or_else(said);
            Ok(seen)
        })
    }

    /// Of those that are only said to be busy it knows nothing.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LockKey>, Trouble>> {
        Box::pin(async move {
            if let Some(outage) = self.0.outage_of_all() {
                return Err(outage);
            }
            self.0.store.list(prefix, within).await
        })
    }

    fn revoke<'a>(
        &'a self,
        key: &'a LockKey,
        token: FencingToken,
        deletes: bool,
        within: Duration,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>> {
        Box::pin(async move {
            if let Some(trouble) = self.0.outage(key, None) {
                return Err(trouble);
            }
            self.0.store.revoke(key, token, deletes, within).await
        })
    }

    fn facts(&self, within: Duration) -> BoxFuture<'_, Result<Vec<Facts>, Trouble>> {
        Box::pin(async move {
            if let Some(outage) = self.0.outage_of_all() {
                return Err(outage);
            }
            self.0.store.facts(within).await
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.0.store.ready()
    }

    fn outage(&self) -> Option<Trouble> {
        None
    }

    fn identity(&self) -> &str {
        self.0.store.identity()
    }

    /// Like a server with as many replicas as anybody asks for: what sets `min_replicas` is tested
    /// too.
    fn address(&self) -> Option<&str> {
        Some("the test kit")
    }

    fn close(&self) {
        self.0.store.close();
    }
}
