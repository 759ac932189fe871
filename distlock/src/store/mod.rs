//! The interface of a store.
//!
//! A store serves one client. The future of a command may be dropped at any await. The command may
//! then have taken effect, and a release cancels it.

use crate::config::options::DEFAULT_FENCE_TTL;
use crate::config::options::{Durability, Options};
use crate::error::LockKind;
#[cfg(feature = "postgres")]
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::observer::event::{Connection, Event};
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, Grant, Inspection, OwnerId,
    Proof, ReleaseReply, RenewReply, Renewal, RevocationNotice, RevokeReply,
};
use crate::protocol::messages::{
    Confirm, DeleteRecord, Downgrade, Inspect, List, Release, RevokeHolds,
};
use crate::protocol::store_error::StoreError;
use async_trait::async_trait;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) mod availability;
pub(crate) mod client_id;
pub(crate) mod connecting;
pub(crate) mod memory;
pub(crate) mod net;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod server_clock;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// A store, used by one client. Each command waits up to `timeout` for its reply, and is idempotent
/// for the same owner.
#[async_trait]
pub(crate) trait LockStore: Send + Sync {
    /// Acquires the lock, or queues its owner. The reply is an error if the durability is reached
    /// only in part, although the lock is then the owner's.
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply>;

    /// Acquires without the I/O thread, if the store can do that on the current runtime. The future
    /// needs no timer there, and may wait for a reply without end.
    fn acquire_here<'a>(
        &'a self,
        _acquire: &'a Acquire<'a>,
        _timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<AcquireReply>>> {
        None
    }

    /// Acquires several locks in one step, if all are free and no call waits for them. Otherwise,
    /// and in a store without such a step, nothing is held.
    async fn acquire_all(
        &self,
        _acquires: &[Acquire<'_>],
        _timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        Ok(None)
    }

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation>;

    /// Extends confirmed holds by their lease.
    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply>;

    /// Returns `None` if the lock is not the owner's. The token of the proof is that of the read
    /// hold.
    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>>;

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply>;

    /// Releases without the I/O thread, as `acquire_here` acquires.
    fn release_here<'a>(
        &'a self,
        _release: &'a Release<'a>,
        _timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<ReleaseReply>>> {
        None
    }

    /// Checks the queues in which this client waits, and grants locks that are free.
    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>>;

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection>;

    /// The timeout applies to each step.
    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>>;

    async fn revoke(&self, revoke: &RevokeHolds<'_>, timeout: Duration)
    -> StoreResult<RevokeReply>;

    /// Returns true if there was a record, or the description of a value that distlock did not
    /// write.
    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        timeout: Duration,
    ) -> StoreResult<Result<bool, String>>;

    /// Returns the statement by which a transaction of the store's database checks a hold, if the
    /// store is in a database.
    #[cfg(feature = "postgres")]
    fn check_in_statement(
        &self,
        _key: &LockKey,
        _owner: OwnerId,
        _token: FencingToken,
    ) -> Option<String> {
        None
    }

    /// Waits until the store can be used. Returns at once if the store cannot know.
    async fn ready(&self) {}

    /// Returns why the store cannot be used yet. Otherwise, returns true if all its servers can be.
    /// Opens the connections that `connect` waits for.
    fn connected(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Returns why the store cannot be used now; `None` if it can, or cannot know.
    fn unavailable(&self) -> Option<StoreError> {
        None
    }

    /// Returns true if a server is known to have no append-only file.
    fn lacks_append_only_file(&self) -> bool {
        false
    }

    /// Closes connections and ends background work.
    fn close(&self);
}

/// An open store, with its fixed properties.
pub(crate) struct OpenedStore {
    pub(crate) store: Box<dyn LockStore>,
    /// The name of the database system, as OpenTelemetry has it.
    pub(crate) system: &'static str,
    /// The name of the store: managers with the same identity use the same locks.
    pub(crate) identity: Arc<str>,
    /// The servers, as shown to people; `None` for a store inside this process.
    pub(crate) address: Option<Arc<str>>,
    pub(crate) capabilities: Capabilities,
}

/// Default of the upper limit of a lock's queue.
const MAX_WAITERS: u32 = 10_000;

/// The settings that a client applies to every lock.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The name that other clients see.
    pub(crate) client_name: String,
    /// The queue length at which this client's acquire commands find the queue full.
    pub(crate) max_waiters: u32,
    /// The time for which the store keeps a token that this client creates.
    pub(crate) fence_ttl: Duration,
}

impl Settings {
    /// Returns the default settings.
    pub(crate) fn named(client_name: impl Into<String>) -> Self {
        Settings {
            client_name: client_name.into(),
            max_waiters: MAX_WAITERS,
            fence_ttl: DEFAULT_FENCE_TTL,
        }
    }
}

/// What a store asks of its client on its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreEvent {
    /// A waiting owner received the lock.
    Granted(Grant),
    /// A hold was revoked.
    Revoked(RevocationNotice),
    /// All holds are renewed, because renewals may have been lost.
    RenewNow,
    /// All waiting calls acquire again, because the store may no longer have them in its queues.
    Reacquire,
    /// An acquire of this owner differs in its number of permits from the last call that was
    /// granted, which had `last`.
    OtherPermits { owner: OwnerId, last: u32 },
}

impl StoreEvent {
    /// Returns the event of an acquire of permits, if the last call that was granted had `last`.
    pub(crate) fn other_permits(acquire: &Acquire<'_>, last: Option<LockKind>) -> Option<Self> {
        let (Kind::Permits { permits, .. }, Some(LockKind::Semaphore { permits: last })) =
            (acquire.target.kind, last)
        else {
            return None;
        };
        let owner = acquire.target.owner;
        (last != permits).then_some(StoreEvent::OtherPermits { owner, last })
    }
}

/// What a store reports to people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoreReport {
    /// For the observers, and in part for the log.
    Event(Event),
    /// For the log only.
    Note(Note),
}

/// A note of a store, which only the log shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// The first connection for commands is up.
    Connected {
        address: Arc<str>,
        namespace: Arc<str>,
    },
    /// A connection is up again, and nothing was logged since it was lost.
    Reconnected {
        address: Arc<str>,
        connection: Connection,
        downtime: Duration,
    },
    /// Open connections could not re-authenticate with the current credentials. Logged once, until
    /// they can.
    NotAuthenticated {
        address: Arc<str>,
        error: StoreError,
    },
    /// No messages arrive, as behind a pooler in transaction mode. Logged once.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code))]
    Polls { address: Arc<str> },
    /// A server evicts locks when its memory is full. Logged once.
    Evicts { address: Arc<str>, policy: String },
}

/// The receiver of a store's events. It must not block.
pub(crate) type EventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// The receiver of a store's reports. It must not block.
pub(crate) type ReportSink = Arc<dyn Fn(StoreReport) + Send + Sync>;

/// Returns true if the store has nothing of this client: no call, hold, release or kept key.
pub(crate) type IsIdle = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a store can do. Where it cannot do something, it says why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capabilities {
    /// Upper limit of leases and of `min_hold`.
    pub(crate) max_lease: Option<Duration>,
    /// The reason why `min_replicas` and `fsync` are not available; `None` if they are.
    pub(crate) durability_unavailable: Option<&'static str>,
    /// The reason why only mutexes are available; `None` if all kinds are.
    pub(crate) only_mutex: Option<&'static str>,
    /// The reason why success records are not available; `None` if they are.
    pub(crate) records_unavailable: Option<&'static str>,
}

impl Capabilities {
    /// Those of PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(crate) const POSTGRES: Capabilities = Capabilities {
        max_lease: None,
        durability_unavailable: Some(
            "PostgreSQL has `synchronous_commit` and synchronous standbys in their place, which its operator sets",
        ),
        only_mutex: None,
        records_unavailable: None,
    };

    /// Those of the memory store.
    pub(crate) const MEMORY: Capabilities = Capabilities {
        max_lease: None,
        durability_unavailable: Some("the memory store has neither replicas nor a disk"),
        only_mutex: None,
        records_unavailable: None,
    };

    /// Checks the kind and the options of a lock. The error says what to change.
    pub(crate) fn check(&self, kind: LockKind, options: &Options) -> Result<(), String> {
        if let Some(reason) = self.only_mutex.filter(|_| kind != LockKind::Mutex) {
            return Err(format!(
                "semaphores and readers-writer locks are not available: {reason}"
            ));
        }
        if let Some(reason) = self.records_unavailable.filter(|_| options.is_once()) {
            return Err(format!(
                "`once_per` and `once_for` are not available: {reason}"
            ));
        }
        self.check_durability(options.durability())?;
        let Some(max_lease) = self.max_lease else {
            return Ok(());
        };
        let values = [
            ("the lease", Some(options.lease())),
            ("min_hold", options.min_hold),
        ];
        for (name, value) in values {
            if let Some(value) = value.filter(|value| *value > max_lease) {
                return Err(format!(
                    "{name} is {value:?}, but a server that may have lost the lock grants locks again after {max_lease:?}; \
                     lower it to that, or raise `Quorum::max_lease` in all clients of the quorum"
                ));
            }
        }
        Ok(())
    }

    /// Checks the durability that a lock, or every lock of a manager, requires.
    pub(crate) fn check_durability(&self, durability: Durability) -> Result<(), String> {
        match self.durability_unavailable {
            Some(reason) if !durability.is_none() => Err(format!(
                "`min_replicas` or `fsync` is set, but {reason}; remove both settings"
            )),
            _ => Ok(()),
        }
    }
}
