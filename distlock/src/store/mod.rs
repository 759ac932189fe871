//! What distlock needs of a store, in the words of the protocol (design section 3.1).
//!
//! A store serves one client. Whatever it is asked is idempotent for the same owner, and every
//! operation may be dropped at any await: it may then have taken effect, and is undone by a release.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use once_cell::sync::OnceCell;

use crate::clock::Moment;
use crate::error::{Error, Holder, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::options::Timing;
use crate::random::Random;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod redis;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The owner id of one acquisition: unique within the client, never used again.
pub(crate) type Owner = u64;

/// A store, seen by one client.
pub(crate) trait LockStore: Send + Sync + fmt::Debug {
    /// Takes the lock, or stands in its queue. Asking again with the same owner is harmless.
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>>;

    /// Turns a short grant into a hold for the full lease; `None` if the lock is not the owner's.
    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>>;

    /// Extends many confirmed holds by their lease.
    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>>;

    /// Removes whatever the owner has there, a lock or a queue entry, and serves the next waiter.
    /// With `keep`, a held lock stays taken for that long instead. Says whether the owner held it.
    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<bool, Trouble>>;

    /// Asks after everything that this client waits for, and drives what it finds free.
    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>>;

    /// What a lock looks like now.
    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>>;

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
    /// What the builder sets unless told otherwise.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Settings {
            name: name.to_owned(),
            max_waiters: 10_000,
            fence_ttl: crate::options::FENCE_TTL,
        }
    }
}

/// What a store tells its client unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreEvent {
    /// A waiting owner was given the lock.
    Granted(Grant),
    /// Commands go to a new connection: renew what is held, then ask for all that is waited for.
    Reconnected,
    /// Renewals go to a new connection.
    RenewalsReconnected,
    /// The store cannot be used: told once, until it is back.
    Lost(Trouble),
    /// The store can be used again, after so long.
    Back(Duration),
}

/// The receiver of a store's events. It must not block.
pub(crate) type EventSink = std::sync::Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// Whether this client has nothing in the store: it holds, waits for and releases nothing.
pub(crate) type IsIdle = std::sync::Arc<dyn Fn() -> bool + Send + Sync>;

/// A pushed grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The lock, for a grant that nobody waits for any more and that must be given back.
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    /// A local time before which the grant was certainly not made later; `None` if that cannot be
    /// said (no fresh pair of local and server time, or a clock moved), so confirm first.
    pub(crate) granted_at: Option<Moment>,
    /// The short lease of the grant.
    pub(crate) lease: Duration,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) owner: Owner,
    pub(crate) timing: Timing,
    /// How long the caller still waits; zero never stands in the queue.
    pub(crate) wait: Duration,
    /// The command's deadline; a store that is applied later refuses.
    pub(crate) within: Duration,
}

/// A hold, proven by a reply: believed from when the command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) sent: Moment,
    pub(crate) token: FencingToken,
}

/// The answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskReply {
    /// The lock is the owner's, for the full lease.
    Held(Proof),
    /// The owner stands in the queue.
    Queued(Option<Occupant>),
    /// The lock or its queue is occupied, and the ask did not want to wait.
    Busy(Option<Occupant>),
    /// The queue is full.
    Full(Option<Occupant>),
    /// The ask was applied after its deadline, so nothing was done.
    Late,
    /// Something else stands at one of the lock's keys.
    Foreign(String),
}

/// Who occupies a lock, as the store says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// The owner's number, if it is this client's.
    pub(crate) ours: Option<Owner>,
    /// Whether the owner is of this process.
    pub(crate) this_process: bool,
    pub(crate) token: FencingToken,
    /// Server time, µs.
    pub(crate) since: u64,
    pub(crate) name: String,
}

impl Occupant {
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            client: self.name.clone(),
            held_since: wall(self.since),
            this_process: self.this_process,
        }
    }
}

pub(crate) fn wall(micros: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(micros))
        .unwrap_or(UNIX_EPOCH)
}

/// One hold of a renewal batch.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
}

/// The answer to a renewal batch: only the failures, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renewed {
    pub(crate) sent: Moment,
    pub(crate) failures: Vec<(usize, RenewalFailure)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalFailure {
    /// The lock is not this owner's (any more).
    Gone,
    /// The server refused; it may work later.
    Trouble(Trouble),
}

/// All that one client waits for on one key.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) key: LockKey,
    pub(crate) owners: Vec<Owner>,
}

/// The answer to a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookReply {
    Seen {
        occupant: Option<Occupant>,
        /// Owners that neither hold the lock nor stand in its queue.
        missing: Vec<Owner>,
    },
    Failed(Trouble),
    Foreign(String),
}

/// The answer to an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    pub(crate) occupant: Option<Occupant>,
    pub(crate) waiters: u64,
    pub(crate) last_token: Option<FencingToken>,
    /// Something else stands at one of the lock's keys.
    pub(crate) foreign: Option<String>,
}

/// A store operation that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) outage: Outage,
    pub(crate) detail: String,
    /// Nothing was handed to a connection, so there is nothing to undo.
    pub(crate) unsent: bool,
}

impl Trouble {
    pub(crate) fn new(outage: Outage, detail: impl Into<String>) -> Self {
        Trouble {
            outage,
            detail: one_line(detail.into()),
            unsent: false,
        }
    }

    /// Whether the store said nothing: it was not asked, or did not answer.
    pub(crate) fn is_no_answer(&self) -> bool {
        self.unsent || matches!(self.outage, Outage::Unreachable | Outage::TimedOut)
    }

    /// The same trouble, for a command that was never sent.
    pub(crate) fn unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// The same trouble, with the server that has it.
    pub(crate) fn at(mut self, address: &str) -> Self {
        if !self.detail.contains(address) {
            self.detail = one_line(format!("{address}: {}", self.detail));
        }
        self
    }

    pub(crate) fn timed_out(within: Duration) -> Self {
        Trouble::new(Outage::TimedOut, format!("no answer within {within:?}"))
    }

    pub(crate) fn into_error(self, key: Option<String>, waited: Duration) -> Error {
        Error::Unavailable {
            key,
            waited,
            outage: self.outage,
            detail: self.detail,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outage, self.detail)
    }
}

/// The name of a client in the store: 24 hex digits of the process, 8 of the manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(std::sync::Arc<str>);

impl ClientId {
    pub(crate) fn new(random: &dyn Random) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ClientId(format!("{}{number:08x}", process_name(random)).into())
    }

    /// The only client of another process, as far as this one can tell.
    #[cfg(test)]
    pub(crate) fn of_another_process(random: &dyn Random) -> Self {
        ClientId(format!("{}{:08x}", drawn_name(random), 1).into())
    }

    /// Another name for the same client, which no copy of this process has: a machine that was cloned
    /// while it ran has the same memory as its clones.
    pub(crate) fn renewed(&self, random: &dyn Random) -> Self {
        let (_, number) = self.0.split_at(PROCESS_DIGITS);
        ClientId(format!("{}{number}", rename_process(random)).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads an owner as it stands in the store: whether it is of this process, and its number if it
    /// is of this very client.
    pub(crate) fn recognise(&self, owner: &str) -> (bool, Option<Owner>) {
        let Some((client, number)) = owner.split_once(':') else {
            return (false, None);
        };
        let process = client.get(..PROCESS_DIGITS);
        let this_process = process == self.0.get(..PROCESS_DIGITS)
            || process.is_some_and(|name| PROCESS.is_known(std::process::id(), name));
        let ours = (client == &*self.0).then(|| plain_number(number)).flatten();
        (this_process, ours)
    }
}

/// What a server says, fit for an error and a log: one line without control characters, and not too long.
pub(crate) fn one_line(text: String) -> String {
    const LONGEST: usize = 500;
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text;
    }
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST).map(clean).collect()
}

/// A number as a store writes it: `+7` and `07` are none, or one owner would have several names.
pub(crate) fn plain_number(text: &str) -> Option<u64> {
    let plain = match text.as_bytes() {
        [b'0'] => true,
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    plain.then(|| text.parse().ok()).flatten()
}

/// The digits of a client's name that are its process's.
const PROCESS_DIGITS: usize = 24;

/// What this process calls itself.
static PROCESS: ProcessNames = ProcessNames(OnceCell::new());

/// The names of a process, the oldest first: clients that did not change theirs still have an older one.
/// Nothing is locked to read them, for a forked child must be able to.
#[derive(Debug)]
struct ProcessNames(OnceCell<Named>);

#[derive(Debug)]
struct Named {
    pid: u32,
    name: String,
    next: Box<ProcessNames>,
}

/// Names that are remembered, to say of a holder that it is this very process.
const REMEMBERED: usize = 1_000;

impl ProcessNames {
    fn all(&self) -> impl Iterator<Item = &Named> {
        std::iter::successors(self.0.get(), |named| named.next.0.get())
    }

    /// Drawn anew after a fork, for a child must not be taken for its parent or its siblings: it would
    /// find their locks to be its own.
    fn latest(&self, pid: u32, random: &dyn Random) -> String {
        match self.all().filter(|named| named.pid == pid).last() {
            Some(named) => named.name.clone(),
            None => self.rename(pid, random),
        }
    }

    fn rename(&self, pid: u32, random: &dyn Random) -> String {
        let name = drawn_name(random);
        if self.all().count() < REMEMBERED {
            let mut named = Named {
                pid,
                name: name.clone(),
                next: Box::new(ProcessNames(OnceCell::new())),
            };
            let mut last = self;
            // Somebody else may have been faster.
            while let Err(again) = last.0.set(named) {
                named = again;
                match last.0.get() {
                    Some(other) => last = &other.next,
                    None => break,
                }
            }
        }
        name
    }

    fn is_known(&self, pid: u32, name: &str) -> bool {
        self.all()
            .any(|named| named.pid == pid && named.name == name)
    }
}

fn process_name(random: &dyn Random) -> String {
    PROCESS.latest(std::process::id(), random)
}

fn rename_process(random: &dyn Random) -> String {
    PROCESS.rename(std::process::id(), random)
}

fn drawn_name(random: &dyn Random) -> String {
    let text = format!("{:016x}{:016x}", random.next(), random.next());
    text[..PROCESS_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SystemRandom;

    #[test]
    fn a_forked_child_is_another_client() {
        let known = ProcessNames(OnceCell::new());
        let parent = known.latest(1, &SystemRandom);
        assert_eq!(known.latest(1, &SystemRandom), parent);
        // Both children start from what the parent knew.
        let names = [2, 3].map(|child| known.latest(child, &SystemRandom));
        assert!(names[0] != parent && names[1] != parent && names[0] != names[1]);
        assert!(known.is_known(1, &parent) && !known.is_known(2, &parent));
    }

    #[test]
    fn a_renamed_client_is_of_the_same_process() {
        let (client, other) = (ClientId::new(&SystemRandom), ClientId::new(&SystemRandom));
        let renamed = client.renewed(&SystemRandom);
        assert_ne!(renamed, client);
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(renamed.recognise(&owner(&renamed)), (true, Some(7)));
        assert_eq!(renamed.recognise(&owner(&client)), (true, None));
        assert_eq!(other.recognise(&owner(&renamed)), (true, None));
    }

    #[test]
    fn an_owner_is_recognised() {
        let (client, other) = (ClientId::new(&SystemRandom), ClientId::new(&SystemRandom));
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(client.recognise(&owner(&client)), (true, Some(7)));
        assert_eq!(client.recognise(&owner(&other)), (true, None));
        assert_eq!(client.recognise("00ff:7"), (false, None));
    }
}
