//! What distlock needs of a store.
//!
//! A store serves one client. The future of a command may be dropped at any await: the command may
//! then have taken effect, and a release undoes it.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::config::limits::Limits;
use crate::config::options::FENCE_TTL;
#[cfg(feature = "testing")]
use crate::config::options::Options;
use crate::error::Outage;
#[cfg(feature = "testing")]
use crate::key::LockKey;
use crate::observer::event::{Connection, Event};
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply, Grant, Owner, ReleaseReply, Revocation};
use crate::store::command::{Command, Release, Reply, StoreCommand};

pub(crate) mod client_id;
pub(crate) mod command;
pub(crate) mod memory;
pub(crate) mod redis;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store, used by one client.
pub(crate) trait LockStore: Send + Sync + fmt::Debug {
    /// Runs a command, waiting up to `timeout` for the reply.
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, Trouble>>;

    /// Returns the connection of the caller's own runtime, if there is one.
    fn lane(&self) -> Option<Box<dyn Lane>> {
        None
    }

    /// Lets a test choose the outcome of a call that is about to begin.
    #[cfg(feature = "testing")]
    fn begin(&self, _key: &LockKey, options: Options) -> Options {
        options
    }

    /// Waits until the store can be used. Returns at once if it cannot know.
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// Returns why the store cannot be used now; `None` if it can, or cannot know.
    fn outage(&self) -> Option<Trouble> {
        None
    }

    /// Ends connections and background work.
    fn close(&self);
}

/// Runs a command in a store.
pub(crate) async fn run<C: StoreCommand>(
    store: &dyn LockStore,
    command: C,
    timeout: Duration,
) -> Result<C::Reply, Trouble> {
    let reply = store.call(command.command(), timeout).await?;
    C::reply(reply).ok_or_else(|| Trouble::new(Outage::Other, "a reply to another command"))
}

/// A store that has been opened, and what is fixed from then on.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Box<dyn LockStore>,
    /// Names the store: managers with the same identity use the same locks.
    pub(crate) identity: Arc<str>,
    /// The servers, for a person; `None` for a store inside this process.
    pub(crate) address: Option<Arc<str>>,
    pub(crate) limits: Limits,
    /// The policy by which a server evicts locks when its memory is full, if it has one.
    pub(crate) eviction: Option<String>,
}

/// A connection of one tokio runtime: a command over it does not go through the I/O thread.
pub(crate) trait Lane: Send + Sync + fmt::Debug {
    /// Runs [`Command::Acquire`] for a lock without replicas.
    fn ask<'a>(
        &'a self,
        ask: Ask<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<AskReply, Trouble>>;

    /// Runs [`Command::Release`]. Returns `None`, and sends nothing, if an ask of this owner has
    /// not been answered: then only [`LockStore::call`] can release it.
    fn release<'a>(
        &'a self,
        release: Release<'a>,
        timeout: Duration,
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
#[derive(Clone, Debug, PartialEq)]
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
    /// Observers are notified of this.
    Happened(Event),
    /// Only the log shows this.
    Noted(Note),
}

/// What only the log shows of a store.
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
    /// Connections that live could not be told the credentials of the moment: logged once, until
    /// they are.
    NotAuthenticated(Trouble),
    /// A server's clock jumped, by so many microseconds.
    ClockJumped { address: Arc<str>, by: i64 },
}

/// The receiver of a store's events. It must not block.
pub(crate) type EventSink = std::sync::Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// Whether this client has nothing in the store: it holds, waits for and releases nothing.
pub(crate) type IsIdle = std::sync::Arc<dyn Fn() -> bool + Send + Sync>;
