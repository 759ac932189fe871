//! A store whose commands are observed: it stands before the real one, where anybody observes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::{Durability, Options};
use crate::error::{Error, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::observer::delivery::Delivery;
use crate::observer::event::{CallOutcome, Event, Operation};
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal, Renewed,
    Revoked,
};
use crate::store::facts::Facts;
use crate::store::{BoxFuture, Lane, LockStore};
use crate::util::clock::{Clock, Moment};

#[derive(Debug)]
pub(crate) struct Observed {
    store: Box<dyn LockStore>,
    watch: Watch,
}

/// Who takes the time of commands, and tells it.
#[derive(Clone)]
struct Watch {
    clock: Arc<dyn Clock>,
    observed: Arc<Delivery>,
}

impl Observed {
    pub(crate) fn new(
        store: Box<dyn LockStore>,
        clock: Arc<dyn Clock>,
        observed: Arc<Delivery>,
    ) -> Self {
        Observed {
            store,
            watch: Watch { clock, observed },
        }
    }
}

impl Watch {
    fn tell<T>(&self, operation: Operation, began: Moment, answer: &Result<T, Trouble>) {
        let took = self.clock.now().since(began);
        self.observed.tell(Event::StoreCalled {
            operation,
            took,
            outcome: match answer {
                Ok(_) => CallOutcome::Ok,
                Err(trouble) => outcome(trouble),
            },
        });
    }

    async fn timed<T>(
        &self,
        operation: Operation,
        call: BoxFuture<'_, Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let began = self.clock.now();
        let answer = call.await;
        self.tell(operation, began, &answer);
        answer
    }
}

fn outcome(trouble: &Trouble) -> CallOutcome {
    match trouble.outage {
        Outage::TimedOut => CallOutcome::TimedOut,
        Outage::Unreachable => CallOutcome::Unreachable,
        Outage::Denied | Outage::Misconfigured | Outage::Untrusted => CallOutcome::Denied,
        _ => CallOutcome::Refused,
    }
}

impl LockStore for Observed {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(self.watch.timed(Operation::Ask, self.store.ask(ask)))
    }

    fn lane(&self) -> Option<Box<dyn Lane>> {
        let lane = self.store.lane()?;
        Some(Box::new(OnLane {
            lane,
            watch: self.watch.clone(),
        }))
    }

    fn check(&self, key: &LockKey, options: &Options) -> Result<(), Error> {
        self.store.check(key, options)
    }

    #[cfg(feature = "testing")]
    fn begin(&self, key: &LockKey, options: Options) -> Options {
        self.store.begin(key, options)
    }

    #[cfg(feature = "testing")]
    fn taken(&self, owner: Owner) {
        self.store.taken(owner);
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        durability: Durability,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        let confirmed = (self.store).confirm(key, owner, timing, durability, within);
        Box::pin(self.watch.timed(Operation::Confirm, confirmed))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        let renewed = self.store.renew(batch, within);
        Box::pin(self.watch.timed(Operation::Renew, renewed))
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<ReleaseReply, Trouble>> {
        let released = self.store.release(key, owner, keep, within);
        Box::pin(self.watch.timed(Operation::Release, released))
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        let looked = self.store.look(looks, within);
        Box::pin(self.watch.timed(Operation::Look, looked))
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        waiters: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        let inspected = self.store.inspect(key, waiters, within);
        Box::pin(self.watch.timed(Operation::Inspect, inspected))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LockKey>, Trouble>> {
        let listed = self.store.list(prefix, within);
        Box::pin(self.watch.timed(Operation::List, listed))
    }

    fn revoke<'a>(
        &'a self,
        key: &'a LockKey,
        token: FencingToken,
        deletes: bool,
        within: Duration,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>> {
        let revoked = self.store.revoke(key, token, deletes, within);
        Box::pin(self.watch.timed(Operation::Revoke, revoked))
    }

    fn facts(&self, within: Duration) -> BoxFuture<'_, Result<Vec<Facts>, Trouble>> {
        self.store.facts(within)
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.store.ready()
    }

    fn outage(&self) -> Option<Trouble> {
        self.store.outage()
    }

    fn identity(&self) -> &str {
        self.store.identity()
    }

    fn address(&self) -> Option<&str> {
        self.store.address()
    }

    fn close(&self) {
        self.store.close();
    }
}

/// A lane of that store.
#[derive(Debug)]
struct OnLane {
    lane: Box<dyn Lane>,
    watch: Watch,
}

impl Lane for OnLane {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(self.watch.timed(Operation::Ask, self.lane.ask(ask)))
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Option<Result<ReleaseReply, Trouble>>> {
        Box::pin(async move {
            let began = self.watch.clock.now();
            let answer = self.lane.release(key, owner, keep, within).await?;
            self.watch.tell(Operation::Release, began, &answer);
            Some(answer)
        })
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
