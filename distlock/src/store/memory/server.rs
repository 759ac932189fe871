//! All locks of one memory server, and its clients.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use once_cell::sync::Lazy;

use super::context::{CommandContext, MAX_WORK, RegisteredClient};
use super::lock::MemoryLock;
use super::queue::Owner;
use crate::error::{LockKind, Outage};
use crate::key::LockKey;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::client_id::ClientId;
use crate::util::clock::{BootClock, BootInstant, Clock, ServerTime};

/// How many locks every call examines, to remove empty ones. More than one, so that the sweep makes
/// progress even if every call uses a new key.
const SWEPT_PER_CALL: usize = 2;

/// How much longer than its timeout a thread may take until its acquire runs.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The counterpart of a Redis server. Clones are the same server.
#[derive(Clone)]
pub(crate) struct MemoryServer(pub(super) Arc<MemoryShared>);

pub(super) struct MemoryShared {
    identity: Arc<str>,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
pub(super) struct MemoryState {
    pub(super) locks: MemoryLocks,
    /// The registered clients, the counterpart of PUBSUB NUMSUB in Redis.
    clients: HashMap<ClientId, RegisteredClient>,
}

impl MemoryServer {
    /// Creates a private server.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_name("", clock)
    }

    /// Returns the server of that name in this process. It lives as long as a store uses it. After
    /// the last one, the same name gives a new, empty server.
    pub(crate) fn named(name: &str) -> Self {
        // After `fork`, the parent's servers are only copies, with holders that do not run here.
        static NAMED: Lazy<Mutex<HashMap<String, Weak<MemoryShared>>>> = Lazy::new(Mutex::default);
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{name} {}", std::process::id());
        if let Some(shared) = named.get(&key).and_then(Weak::upgrade) {
            return MemoryServer(shared);
        }
        named.retain(|_, shared| shared.strong_count() > 0);
        let server = Self::with_name(name, Arc::new(BootClock));
        named.insert(key, Arc::downgrade(&server.0));
        server
    }

    fn with_name(name: &str, clock: Arc<dyn Clock>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // The number distinguishes a named server from an earlier one with lost locks.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        MemoryServer(Arc::new(MemoryShared {
            identity: format!("memory:{name}#{number}").into(),
            clock,
            state: Mutex::default(),
        }))
    }

    pub(super) fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    pub(super) fn register(&self, id: ClientId, client: RegisteredClient) {
        self.state().clients.insert(id, client);
    }

    pub(super) fn unregister(&self, client: &ClientId) {
        let known = self.state().clients.remove(client);
        // Dropped outside the mutex, because dropping the sink may drop a store.
        drop(known);
    }

    /// Runs one command under the mutex, then delivers its events.
    pub(super) fn call<T>(
        &self,
        caller: &ClientId,
        command: impl FnOnce(&mut MemoryLocks, &mut CommandContext<'_>) -> T,
    ) -> StoreResult<T> {
        let (reply, pushes) = {
            let mut state = self.state();
            let MemoryState { locks, clients } = &mut *state;
            let Some(client) = clients.get(caller) else {
                return Err(StoreError::new(Outage::Unreachable, "the store was closed"));
            };
            let mut context = CommandContext {
                caller,
                client,
                clients,
                // Read under the mutex, so that time does not step back between two calls.
                now: self.0.clock.now(),
                wall: ServerTime(self.0.clock.wall_micros()),
                work: MAX_WORK,
                pushes: Vec::new(),
            };
            locks.sweep(context.now);
            let reply = command(locks, &mut context);
            (reply, context.pushes)
        };
        for (events, event) in pushes {
            events(event);
        }
        Ok(reply)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryServer")
            .field(&self.0.identity)
            .finish()
    }
}

/// The locks by name. Every call examines a few, and removes the empty ones.
#[derive(Default)]
pub(super) struct MemoryLocks {
    pub(super) by_name: HashMap<Arc<str>, MemoryLock>,
    /// Every name once, in the order in which they are examined.
    pub(super) sweep_order: VecDeque<Arc<str>>,
    /// The owners that were released while another thread was about to acquire for them, and until
    /// when their acquires are rejected.
    cancelled: HashMap<Owner, BootInstant>,
}

impl MemoryLocks {
    /// Runs a command on the lock of a key. A new lock is kept only if it is not empty then.
    pub(super) fn with<T>(
        &mut self,
        key: &LockKey,
        now: BootInstant,
        command: impl FnOnce(&mut MemoryLock) -> T,
    ) -> T {
        let name = canonical(key);
        if let Some(lock) = self.by_name.get_mut(name) {
            lock.remove_expired(now);
            return command(lock);
        }
        let mut lock = MemoryLock::default();
        let reply = command(&mut lock);
        if !lock.is_empty() {
            let name: Arc<str> = name.into();
            self.sweep_order.push_back(Arc::clone(&name));
            self.by_name.insert(name, lock);
        }
        reply
    }

    /// Runs a command of one kind of locks. It finds nothing in a lock of another kind.
    pub(super) fn with_kind<T>(
        &mut self,
        key: &LockKey,
        kind: LockKind,
        now: BootInstant,
        command: impl FnOnce(&mut MemoryLock) -> T,
    ) -> T {
        self.with(key, now, |lock| match lock.other_kind(kind) {
            Some(_) => command(&mut MemoryLock::default()),
            None => command(lock),
        })
    }

    /// Rejects the acquires of an owner from now on.
    pub(super) fn cancel(&mut self, owner: Owner, unanswered_until: BootInstant, now: BootInstant) {
        self.cancelled.retain(|_, until| *until > now);
        self.cancelled.insert(owner, unanswered_until + MAX_DELAY);
    }

    /// Fails if the owner was already released.
    pub(super) fn check_cancelled(&self, owner: &Owner, now: BootInstant) -> StoreResult<()> {
        if self.cancelled.get(owner).is_some_and(|until| *until > now) {
            return Err(StoreError::new(
                Outage::TimedOut,
                "the acquire ran after its release",
            ));
        }
        Ok(())
    }

    /// Returns the taken keys as Redis does: with a hash tag, unless the tag is the whole key.
    pub(super) fn taken(&mut self, now: BootInstant) -> impl Iterator<Item = LockKey> {
        self.by_name.iter_mut().filter_map(move |(name, lock)| {
            lock.remove_expired(now);
            lock.is_taken().then(|| LockKey::from_tagged(name))
        })
    }

    fn sweep(&mut self, now: BootInstant) {
        for _ in 0..SWEPT_PER_CALL {
            let Some(name) = self.sweep_order.pop_front() else {
                return;
            };
            let Some(lock) = self.by_name.get_mut(&name) else {
                continue;
            };
            lock.remove_expired(now);
            if lock.is_empty() {
                self.by_name.remove(&name);
            } else {
                self.sweep_order.push_back(name);
            }
        }
    }
}

/// Returns an equal string for keys of the same lock ([`LockKey::tagged`]). Does not allocate.
fn canonical(key: &LockKey) -> &str {
    let key = key.as_str();
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    inner.unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn canonical_keys_are_equal_when_tagged_keys_are(a in "[a{}]{1,5}", b in "[a{}]{1,5}") {
            if let (Ok(a), Ok(b)) = (LockKey::new(&a), LockKey::new(&b)) {
                prop_assert_eq!(
                    canonical(&a) == canonical(&b),
                    a.tagged().to_string() == b.tagged().to_string()
                );
            }
        }
    }

    #[test]
    fn a_named_server_lives_as_long_as_it_is_used() {
        let name = "a_named_server_lives_as_long_as_it_is_used";
        let first = MemoryServer::named(name);
        let identity = first.identity().clone();
        assert_eq!(*MemoryServer::named(name).identity(), identity);
        assert_ne!(*MemoryServer::named("another").identity(), identity);
        drop(first);
        assert_ne!(
            *MemoryServer::named(name).identity(),
            identity,
            "the old locks are gone"
        );
    }

    #[test]
    fn private_servers_are_distinguished() {
        let server = || MemoryServer::new(Arc::new(BootClock));
        assert_ne!(server().identity(), server().identity());
    }
}
