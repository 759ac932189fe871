//! The store of [`TestLocks`](crate::testing::TestLocks): the memory store, with the outcomes that
//! a test sets.

use std::collections::HashMap;
use std::fmt;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use once_cell::sync::OnceCell;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::limits::Limits;
use crate::config::options::Options;
use crate::error::{HoldKind, Holder, Outage};
use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::registry::Entry;
use crate::manager::engine::report;
use crate::observer;
use crate::observer::event::{AcquirePath, Event};
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, HolderView, Inspection,
    NO_TOKEN, OwnerNumber, Proof, ReleaseReply, RenewReply, Renewal, RenewalFailure, RevokeReply,
};
use crate::protocol::once::Record;
use crate::protocol::store_error::StoreError;
use crate::store::command::{Confirm, DeleteRecord, Downgrade, Inspect, List, Release, Revoke};
use crate::store::memory::MemoryStore;
use crate::store::{EventSink, LockStore, OpenedStore, StoreEvent, StoreResult};
use crate::testing::loss::InjectedLoss;
use crate::testing::record::AcquireRecord;
use crate::testing::script::{Outcome, Rule, RuleId, Script, Target};
use crate::util::mutex::lock;

/// The memory store, with a script that can set the outcome of commands.
pub(crate) struct TestStore {
    memory: MemoryStore,
    events: EventSink,
    /// Set once the manager exists. Weak, because a store does not keep its manager alive.
    core: OnceCell<Weak<Core>>,
    pub(crate) state: Mutex<State>,
    /// Notified of every acquisition.
    pub(crate) acquired: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    script: Script,
    pub(crate) acquisitions: Vec<AcquireRecord>,
    /// The holds that have not been released, including those of acquisitions that have ended.
    holds: HashMap<OwnerNumber, Arc<Entry>>,
    /// The holds that are not renewed while their rule is set.
    not_renewed: HashMap<OwnerNumber, RuleId>,
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}

impl TestStore {
    pub(crate) fn open(memory: MemoryStore, events: EventSink) -> (OpenedStore, Arc<Self>) {
        let identity = memory.identity().clone();
        let store = Arc::new(TestStore {
            memory,
            events,
            core: OnceCell::new(),
            state: Mutex::default(),
            acquired: Notify::new(),
        });
        let opened = OpenedStore {
            store: Box::new(store.clone()),
            identity,
            address: Some("test store".into()),
            // Allows `min_replicas`, because services set it in their tests, too.
            limits: Limits::default(),
        };
        (opened, store)
    }

    /// Connects the store with its manager, and subscribes to the manager's events.
    pub(crate) fn attach(self: &Arc<Self>, core: &Arc<Core>) {
        // Cannot fail, because both are set only here.
        let _ = self.core.set(Arc::downgrade(core));
        let store = Arc::downgrade(self);
        let recorder = observer::from_fn(move |event| {
            if let Some(store) = store.upgrade() {
                store.observe(event);
            }
        });
        let _ = core.telemetry.inline.set(Arc::new(recorder));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    pub(crate) fn add(
        &self,
        target: Target,
        left: Option<u32>,
        lasts: Option<Duration>,
        outcome: Outcome,
    ) -> RuleId {
        if let (Some(lasts), Some(core)) = (lasts, self.core()) {
            let events = self.events.clone();
            core.spawn_while_open(async move {
                tokio::time::sleep(lasts).await;
                events(StoreEvent::Moved);
            });
        }
        lock(&self.state).script.add(Rule {
            target,
            left,
            until: lasts.map(|lasts| Instant::now() + lasts),
            outcome,
        })
    }

    /// Removes the rules for a target, or all rules, including those of `TestLocks::lose`.
    pub(crate) fn clear(&self, target: Option<&Target>) {
        lock(&self.state).script.clear(target);
        // Calls that wait because of a rule are retried at once.
        (self.events)(StoreEvent::Moved);
    }

    /// Ends a hold as `how` says.
    pub(crate) async fn lose(&self, hold: HeldLock, loss: InjectedLoss, rule: RuleId) {
        let (core, entry) = (&hold.core, &hold.entry);
        let timeout = entry.request.timing.command_timeout();
        match loss {
            InjectedLoss::NotRenewed => {
                lock(&self.state).not_renewed.insert(entry.owner, rule);
            }
            InjectedLoss::Revoked => {
                let revoke = Revoke {
                    key: hold.lock_key(),
                    kind: entry.request.kind.lock_kind(),
                    tokens: &[hold.fencing_token()],
                    delete: false,
                };
                // The store notifies the holder, and the reply is not needed.
                let _ = self.memory.revoke(&revoke, timeout).await;
            }
            InjectedLoss::Gone | InjectedLoss::GoneSilently => {
                // As with a `DEL`, the next waiter has the lock from now on.
                let deleted = self.memory.release(&entry.release_command(), timeout).await;
                if deleted.is_ok() && loss == InjectedLoss::Gone {
                    let answer = Err(RenewalFailure::Gone);
                    core.update(entry, |acquisition, now| {
                        acquisition.handle_renewal(answer, hold.fencing_token(), now, now)
                    });
                    report::publish(core, entry);
                }
            }
        }
    }

    fn entry(&self, owner: OwnerNumber) -> Option<Arc<Entry>> {
        let held = lock(&self.state).holds.get(&owner).cloned();
        held.or_else(|| self.core()?.registry.find(owner))
    }

    /// Fails if a rule makes the store unavailable for this lock.
    fn check(&self, key: Option<&LockKey>, owner: Option<OwnerNumber>) -> Result<(), StoreError> {
        let entry = owner.and_then(|owner| self.entry(owner));
        let label = entry
            .as_ref()
            .and_then(|entry| entry.request.options.label.as_deref());
        let outage = lock(&self.state).script.outage(&Target::of(key, label));
        outage.map_or(Ok(()), |outage| Err(store_error(outage)))
    }

    /// Fails if a rule prevents the renewal of a hold.
    fn check_renewal(
        &self,
        owner: OwnerNumber,
        key: &LockKey,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let is_lost = {
            let state = lock(&self.state);
            let rule = state.not_renewed.get(&owner);
            rule.is_some_and(|rule| state.script.rule(*rule).is_some())
        };
        if is_lost {
            return Err(StoreError::timed_out(timeout));
        }
        self.check(Some(key), Some(owner))
    }

    /// Returns the reply to an acquire command, if a rule sets it.
    fn reply_to(&self, request: &Acquire<'_>) -> StoreResult<Option<AcquireReply>> {
        let entry = self.entry(request.owner);
        let id = entry.and_then(|entry| entry.request.options.scripted);
        let outcome = id.and_then(|id| {
            let state = lock(&self.state);
            let rule = state.script.rule(id).filter(|rule| rule.is_in_force())?;
            Some(rule.outcome.clone())
        });
        match outcome {
            Some(Outcome::Busy(holder)) if request.wait.is_zero() => {
                Ok(Some(AcquireReply::Busy(vec![view_of(&holder)])))
            }
            Some(Outcome::Busy(holder)) => Ok(Some(AcquireReply::Queued(vec![view_of(&holder)]))),
            Some(Outcome::AlreadyRan(last_success)) => {
                Ok(Some(AcquireReply::AlreadyRan(record_of(last_success))))
            }
            Some(Outcome::KeyConflict(detail)) => Ok(Some(AcquireReply::KeyConflict(detail))),
            Some(Outcome::Unavailable(outage)) => Err(store_error(outage)),
            Some(Outcome::Lost { .. } | Outcome::MaxHold(_)) | None => {
                self.check(Some(request.key), Some(request.owner))?;
                Ok(None)
            }
        }
    }

    /// Records an acquisition that an event reports. A re-entry is none.
    fn observe(self: Arc<Self>, event: &Event) {
        let Event::Acquired {
            key,
            waited,
            path: AcquirePath::Free | AcquirePath::HandedOff | AcquirePath::QueueCheck,
            fencing_token,
            ..
        } = event
        else {
            return;
        };
        let Some(core) = self.core() else { return };
        let held = core.registry.held();
        let mut holds = held.iter().filter_map(|entry| HeldLock::of(&core, entry));
        // Permits have no token. Those of other calls have been recorded.
        let is_meant = |hold: &HeldLock| {
            let is_recorded = lock(&self.state).holds.contains_key(&hold.entry.owner);
            hold.public_token() == *fencing_token && hold.key() == &**key && !is_recorded
        };
        if let Some(hold) = holds.find(is_meant) {
            self.record(hold, *waited);
        }
    }

    /// Records an acquisition, and starts the loss that a rule sets for its hold.
    fn record(self: Arc<Self>, hold: HeldLock, waited: Duration) {
        let options = hold.options();
        let mut state = lock(&self.state);
        state.holds.insert(hold.entry.owner, hold.entry.clone());
        state.acquisitions.push(AcquireRecord {
            key: hold.key().to_string(),
            label: options.label.as_deref().map(str::to_owned),
            kind: hold.kind().hold_kind(),
            fencing_token: hold.public_token(),
            waited,
        });
        self.acquired.notify_waiters();
        let rule = options.scripted.and_then(|id| {
            let rule = state.script.rule(id)?;
            Some((id, rule.outcome.clone()))
        });
        if let Some((id, Outcome::Lost { after, loss })) = rule {
            let store = self.clone();
            hold.core.clone().spawn_while_open(async move {
                tokio::time::sleep(after).await;
                let is_set = lock(&store.state).script.rule(id).is_some();
                if is_set && hold.core.registry.find(hold.entry.owner).is_some() {
                    store.lose(hold, loss, id).await;
                }
            });
        }
    }
}

#[async_trait]
impl LockStore for Arc<TestStore> {
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        match self.reply_to(acquire)? {
            Some(reply) => Ok(reply),
            None => self.memory.acquire(acquire, timeout).await,
        }
    }

    // `acquire_all` acquires none, because the rules of its locks apply one by one.

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        self.check_renewal(confirm.owner, confirm.key, timeout)?;
        self.memory.confirm(confirm, timeout).await
    }

    async fn renew(&self, batch: &[Renewal], timeout: Duration) -> StoreResult<RenewReply> {
        // An empty batch renews nothing, and returns when the renewals were sent.
        let mut all = self.memory.renew(&[], timeout).await?;
        for (index, renewal) in batch.iter().enumerate() {
            match self.check_renewal(renewal.owner, &renewal.key, timeout) {
                Ok(()) => {
                    let renewed = self.memory.renew(from_ref(renewal), timeout).await?;
                    let failures = renewed.failures.into_iter();
                    all.failures
                        .extend(failures.map(|(_, failure)| (index, failure)));
                }
                Err(error) => all.failures.push((index, RenewalFailure::Error(error))),
            }
        }
        Ok(all)
    }

    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        self.check(Some(downgrade.key), Some(downgrade.owner))?;
        self.memory.downgrade(downgrade, timeout).await
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        self.check(Some(release.key), Some(release.owner))?;
        lock(&self.state).holds.remove(&release.owner);
        self.memory.release(release, timeout).await
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let mut replies = Vec::with_capacity(checks.len());
        for check in checks {
            match self.check(Some(&check.key), check.owners.first().copied()) {
                Err(error) => replies.push(CheckQueueReply::Failed(error)),
                // A waiter for a rule's holder is in no queue. The reply is that it is missing, so
                // that it acquires again.
                Ok(()) => replies.extend(self.memory.check_queues(from_ref(check), timeout).await?),
            }
        }
        Ok(replies)
    }

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection> {
        self.check(Some(inspect.key), None)?;
        let mut seen = self.memory.inspect(inspect, timeout).await?;
        if seen.holders.is_empty() {
            let state = lock(&self.state);
            let holder = state.script.holder(&Target::of(Some(inspect.key), None));
            seen.holders.extend(holder.map(view_of));
        }
        Ok(seen)
    }

    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        self.check(None, None)?;
        self.memory.list(list, timeout).await
    }

    async fn revoke(&self, revoke: &Revoke<'_>, timeout: Duration) -> StoreResult<RevokeReply> {
        self.check(Some(revoke.key), None)?;
        self.memory.revoke(revoke, timeout).await
    }

    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        timeout: Duration,
    ) -> StoreResult<Result<bool, String>> {
        self.check(Some(delete.key), None)?;
        self.memory.delete_record(delete, timeout).await
    }

    fn begin(&self, key: &LockKey, mut options: Options) -> Options {
        let targets = Target::of(Some(key), options.label.as_deref());
        let script = &mut lock(&self.state).script;
        options.scripted = script.meet(&targets);
        let rule = options.scripted.and_then(|id| script.rule(id));
        if let Some(Outcome::MaxHold(limit)) = rule.map(|rule| &rule.outcome) {
            options.max_hold = Some(*limit);
        }
        options
    }

    fn close(&self) {
        self.memory.close();
    }
}

/// Returns the error of a store that a rule makes unavailable.
fn store_error(outage: Outage) -> StoreError {
    StoreError::new(outage, "outage set by this test")
}

/// Returns a time as a store reports it.
fn micros(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the record of a rule's success.
fn record_of(last_success: SystemTime) -> Record {
    let since = micros(last_success);
    Record {
        since,
        gap: Duration::ZERO,
        token: NO_TOKEN,
        finished: since,
        name: String::new(),
    }
}

/// Returns a rule's holder as a store reports it.
fn view_of(holder: &Holder) -> HolderView {
    HolderView {
        local_owner: None,
        this_process: holder.this_process,
        token: holder.fencing_token.unwrap_or(NO_TOKEN),
        weight: match holder.kind {
            HoldKind::Write => Kind::Write.weight(),
            _ => holder.weight,
        },
        since: micros(holder.held_since),
        expires_in: None,
        kept_until: holder.kept_until.map(micros),
        name: holder.client.clone(),
        metadata: holder.metadata.clone(),
    }
}
