//! The store of [`TestLocks`](crate::testing::TestLocks): the memory store, with the outcomes that
//! a test sets.

use std::slice::from_ref;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use crate::error::{HoldKind, Holder, Outage};
use crate::key::LockKey;
use crate::manager::core::Core;
use crate::manager::core::registry::RegistryEntry;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, HolderView, Inspection,
    NO_TOKEN, OwnerId, Proof, ReleaseReply, RenewReply, Renewal, RenewalFailure, RevokeReply,
};
use crate::protocol::messages::{
    Confirm, DeleteRecord, Downgrade, Inspect, List, Release, RevokeHolds,
};
use crate::protocol::once::Record;
use crate::protocol::store_error::StoreError;
use crate::store::Capabilities;
use crate::store::memory::MemoryStore;
use crate::store::{LockStore, OpenedStore, StoreResult};
use crate::testing::script::{OutcomeTarget, ScriptedOutcome, TestScript};
use crate::util::clock::ServerTime;

/// The memory store, with a script that can set the outcome of commands.
pub(crate) struct TestStore {
    memory: MemoryStore,
    script: Arc<TestScript>,
    core: Weak<Core>,
}

impl TestStore {
    pub(crate) fn open(
        memory: MemoryStore,
        script: Arc<TestScript>,
        core: &Weak<Core>,
    ) -> OpenedStore {
        OpenedStore {
            system: "redis",
            identity: memory.identity().clone(),
            store: Box::new(TestStore {
                memory,
                script,
                core: core.clone(),
            }),
            address: Some("test store".into()),
            // Allows `min_replicas`, because services set it in their tests, too.
            capabilities: Capabilities::default(),
        }
    }

    fn entry(&self, owner: OwnerId) -> Option<Arc<RegistryEntry>> {
        let held = self.script.hold(owner);
        held.or_else(|| self.core.upgrade()?.registry.find(owner))
    }

    /// Fails if an outcome makes the store unavailable for this lock.
    fn check(&self, key: Option<&LockKey>, owner: Option<OwnerId>) -> Result<(), StoreError> {
        let entry = owner.and_then(|owner| self.entry(owner));
        let label = entry
            .as_ref()
            .and_then(|entry| entry.request.options.label.as_deref());
        let outage = self.script.outage(&OutcomeTarget::of(key, label));
        outage.map_or(Ok(()), |outage| Err(store_error(outage)))
    }

    /// Fails if an outcome prevents the renewal of a hold.
    fn check_renewal(
        &self,
        owner: OwnerId,
        key: &LockKey,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        if self.script.is_not_renewed(owner) {
            return Err(StoreError::timed_out(timeout));
        }
        self.check(Some(key), Some(owner))
    }

    /// Returns the reply to an acquire command, if an outcome sets it.
    fn reply_to(&self, request: &Acquire<'_>) -> StoreResult<Option<AcquireReply>> {
        let entry = self.entry(request.target.owner);
        let set = entry.and_then(|entry| entry.request.outcome_id);
        match set.and_then(|set| self.script.outcome_in_force(set)) {
            Some(ScriptedOutcome::Busy(holder)) if request.wait.is_zero() => {
                Ok(Some(AcquireReply::Busy(vec![view_of(&holder)])))
            }
            Some(ScriptedOutcome::Busy(holder)) => {
                Ok(Some(AcquireReply::Queued(vec![view_of(&holder)])))
            }
            Some(ScriptedOutcome::AlreadyRan(last_success)) => {
                Ok(Some(AcquireReply::AlreadyRan(record_of(last_success))))
            }
            Some(ScriptedOutcome::KeyConflict(detail)) => {
                Ok(Some(AcquireReply::KeyConflict(detail)))
            }
            Some(ScriptedOutcome::Unavailable(outage)) => Err(store_error(outage)),
            Some(ScriptedOutcome::Lost { .. } | ScriptedOutcome::MaxHold(_)) | None => {
                self.check(Some(request.target.key), Some(request.target.owner))?;
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl LockStore for TestStore {
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        match self.reply_to(acquire)? {
            Some(reply) => Ok(reply),
            None => self.memory.acquire(acquire, timeout).await,
        }
    }

    // `acquire_all` acquires none, because the outcomes of its locks apply one by one.

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        self.check_renewal(confirm.target.owner, confirm.target.key, timeout)?;
        self.memory.confirm(confirm, timeout).await
    }

    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply> {
        // An empty batch renews nothing, and returns when the renewals were sent.
        let mut all = self.memory.renew(&[], timeout).await?;
        for (index, renewal) in batch.iter().enumerate() {
            match self.check_renewal(renewal.target.owner, renewal.target.key, timeout) {
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
        self.check(Some(downgrade.target.key), Some(downgrade.target.owner))?;
        self.memory.downgrade(downgrade, timeout).await
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        if !self.script.is_lost(release.target.owner) {
            self.check(Some(release.target.key), Some(release.target.owner))?;
        }
        self.script.forget(release.target.owner);
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
                // A waiter for an outcome's holder is in no queue. The reply is that it is missing, so
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
            let holder = self
                .script
                .holder(&OutcomeTarget::of(Some(inspect.key), None));
            seen.holders.extend(holder.as_ref().map(view_of));
        }
        Ok(seen)
    }

    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        self.check(None, None)?;
        self.memory.list(list, timeout).await
    }

    async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        if !revoke
            .tokens
            .iter()
            .all(|token| self.script.is_token_lost(*token))
        {
            self.check(Some(revoke.key), None)?;
        }
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

    fn close(&self) {
        self.memory.close();
    }
}

/// Returns the error of a store that an outcome makes unavailable.
fn store_error(outage: Outage) -> StoreError {
    StoreError::new(outage, "outage set by this test")
}

/// Returns a time as a store reports it.
fn server_time(time: SystemTime) -> ServerTime {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    ServerTime::default() + since_epoch
}

/// Returns the record of an outcome's success.
fn record_of(last_success: SystemTime) -> Record {
    let since = server_time(last_success);
    Record {
        since,
        gap: Duration::ZERO,
        token: NO_TOKEN,
        finished: since,
        holder_name: String::new(),
    }
}

/// Returns an outcome's holder as a store reports it.
fn view_of(holder: &Holder) -> HolderView {
    HolderView {
        local_owner: None,
        this_process: holder.this_process,
        token: holder.fencing_token.unwrap_or(NO_TOKEN),
        weight: match holder.kind {
            HoldKind::Write => Kind::Write.weight(),
            _ => holder.weight,
        },
        since: server_time(holder.held_since),
        expires_in: None,
        kept_until: holder.kept_until.map(server_time),
        client_name: holder.client.clone(),
        metadata: holder.metadata.clone(),
    }
}
