//! What distlock needs of a store, in the words of the protocol.
//!
//! A store serves one client. Whatever it is asked is idempotent for the same owner, and every
//! operation may be dropped at any await: it may then have taken effect, and is undone by a
//! release.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::{Durability, FENCE_TTL, Options};
use crate::error::Error;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::observer::event::Link;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Grant, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal,
    Renewed, Revocation, Revoked,
};
use crate::store::facts::Facts;

pub(crate) mod client_id;
pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod redis;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store, seen by one client.
pub(crate) trait LockStore: Send + Sync + fmt::Debug {
    /// Takes the lock, or stands in its queue. Asking again with the same owner is harmless. A lock
    /// that is where it is to be only in part is an error, and the owner's all the same.
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>>;

    /// The way of this runtime's own to the store, if it has one.
    fn lane(&self) -> Option<Box<dyn Lane>>;

    /// Whether a lock with these options can be had here at all: told before anything is asked.
    fn check(&self, _key: &LockKey, _options: &Options) -> Result<(), Error> {
        Ok(())
    }

    /// What becomes of a call that is about to ask, for a store whose outcomes are scripted.
    #[cfg(feature = "testing")]
    fn begin(&self, _key: &LockKey, options: Options) -> Options {
        options
    }

    /// The call of this owner has its lock, and goes on.
    #[cfg(feature = "testing")]
    fn taken(&self, _owner: Owner) {}

    /// Turns a short grant into a hold for the full lease; `None` if the lock is not the owner's.
    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        durability: Durability,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>>;

    /// Extends many confirmed holds by their lease.
    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>>;

    /// Removes whatever the owner has there, a lock or a queue entry, and serves the next waiter.
    /// With `keep`, a held lock stays taken for that long instead.
    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<ReleaseReply, Trouble>>;

    /// Asks after everything that this client waits for, and drives what it finds free.
    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>>;

    /// What a lock looks like now, with so many of its waiters.
    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        waiters: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>>;

    /// The keys of all locks that are taken and begin so, in any order. `within` is for each step.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LockKey>, Trouble>>;

    /// Takes the hold with this token away: it cannot be renewed any more, and its holder is told.
    /// With `deletes` it is removed at once, unless its client is connected, or the store cannot
    /// tell.
    fn revoke<'a>(
        &'a self,
        key: &'a LockKey,
        token: FencingToken,
        deletes: bool,
        within: Duration,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>>;

    /// What each server of it says about itself; each question may take `within`. A store inside
    /// this process has none.
    fn facts(&self, within: Duration) -> BoxFuture<'_, Result<Vec<Facts>, Trouble>>;

    /// Resolves once the store can be used, or at once if it cannot tell.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// Why it cannot be used at this moment; `None` if it can, or cannot tell.
    fn outage(&self) -> Option<Trouble>;

    /// Which store this is: the same text means the same locks, also through another manager.
    fn identity(&self) -> &str;

    /// The server, for those who have to find it; `None` for a store inside this process.
    fn address(&self) -> Option<&str>;

    /// Ends connections and background work.
    fn close(&self);
}

/// A way to the store that costs no hop to the manager's thread, for the runtime that it was asked
/// for on.
pub(crate) trait Lane: Send + Sync + fmt::Debug {
    /// The same as [`LockStore::ask`], for what needs no more than the server's word.
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>>;

    /// Releases a lock. `None`: nothing was sent, for an ask of this owner was never answered, and
    /// only [`LockStore::release`] knows what may become of that.
    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Option<Result<ReleaseReply, Trouble>>>;
}

/// How many may wait for one lock, unless set.
const MAX_WAITERS: u32 = 10_000;

/// What a client brings to every lock that it uses.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What others see of it.
    pub(crate) name: String,
    /// Its asks find a queue of this length full.
    pub(crate) max_waiters: u32,
    /// How long a token that it makes is remembered.
    pub(crate) fence_ttl: Duration,
}

impl Settings {
    /// What they are unless they are set.
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Settings {
            name: name.into(),
            max_waiters: MAX_WAITERS,
            fence_ttl: FENCE_TTL,
        }
    }
}

/// What a store tells its client unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreEvent {
    /// A waiting owner was given the lock.
    Granted(Grant),
    /// A hold was taken away.
    Revoked(Revocation),
    /// Commands of these owners are long over their deadlines on a lane, and their callers do not
    /// run.
    Unheard(Vec<Owner>),
    /// Commands go to a new connection: renew what is held, then ask for all that is waited for.
    Reconnected,
    /// Something that is waited for is at another server now: all that is waited for is asked for
    /// again.
    Moved,
    /// Renewals go to a new connection.
    RenewalsReconnected,
    /// Connections that live could not be told the credentials of the moment: told once, until they
    /// are.
    NotAuthenticated(Trouble),
    /// A server cannot be used: told once, until it is back.
    Lost { address: Arc<str>, trouble: Trouble },
    /// A server can be used again, after so long.
    Back { address: Arc<str>, gap: Duration },
    /// A connection to a server came up.
    LinkUp {
        link: Link,
        address: Arc<str>,
        namespace: Arc<str>,
        gap: Gap,
    },
    /// A connection to a server went away.
    LinkDown { link: Link, address: Arc<str> },
    /// So far a server's clock is ahead of ours, in microseconds: told once a second at most.
    ClockSeen { address: Arc<str>, offset: i64 },
    /// A server's clock jumped, by so many microseconds.
    ClockJumped { address: Arc<str>, by: i64 },
}

/// For how long there was no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// It is the first one.
    First,
    /// It was told that the server could not be used, or of another connection a moment ago.
    Told(Duration),
    /// Nothing was told.
    Untold(Duration),
}

impl Gap {
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Gap::First => None,
            Gap::Told(gap) | Gap::Untold(gap) => Some(gap),
        }
    }
}

/// The receiver of a store's events. It must not block.
pub(crate) type EventSink = std::sync::Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// Whether this client has nothing in the store: it holds, waits for and releases nothing.
pub(crate) type IsIdle = std::sync::Arc<dyn Fn() -> bool + Send + Sync>;
