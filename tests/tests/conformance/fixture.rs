//! Stores, their managers, and the checks of tests from outside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

#[cfg(distlock_inside)]
use distlock::__inside::runtime_connections_at_once;
use distlock::observer::{Event, Observer};
use distlock::{
    Error, HeldLock, Lock, LockGuard, LockManager, LockManagerBuilder, LockState, Quorum, Tls,
};
pub(crate) use distlock_tests::ms;
use distlock_tests::sentinel::Sentinels;
use distlock_tests::{
    Authority, Middleman, PgBouncer, PostgresServer, RedisCluster, RedisQuorum, RedisServer, Resp,
    equal, eventually_async, within,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A limit far above the time of any step, also on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A lease that a loaded machine renews in time: every 1.7 s, and up to 3.3 s late.
pub(crate) const HELD: Duration = Duration::from_secs(5);

/// The delay of a reply on a loaded machine.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// A released lock is free within this time, long before its lease ends.
pub(crate) const SOON: Duration = Duration::from_secs(8);

/// The longest lease.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

const CA_FILE: &str = "ca.pem";

/// The limit of every test.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Changes nothing with the published library, against which these tests also run.
#[cfg(not(distlock_inside))]
fn runtime_connections_at_once(builder: LockManagerBuilder) -> LockManagerBuilder {
    builder
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Redis,
    Cluster,
    /// The server of `Redis`, behind a proxy that forwards no pushes.
    Proxied,
    Postgres,
    /// The server of `Postgres`, behind a pooler that runs each transaction on another connection.
    #[cfg_attr(
        not(feature = "pooled"),
        expect(dead_code, reason = "its tests are another run")
    )]
    Pooled,
    /// A quorum of three servers.
    Quorum,
    /// A server that only this fixture uses, over TLS.
    Tls,
    /// A primary that only this fixture uses, named by sentinels.
    Sentinel,
}

/// The servers of a fixture. They stop with the last fixture that uses them.
#[derive(Debug, Default)]
struct Servers {
    /// Dropped before its server, so that no new test finds a proxy without a server.
    proxy: Option<Arc<Middleman>>,
    redis: Option<Arc<RedisServer>>,
    pooler: Option<Arc<PgBouncer>>,
    postgres: Option<Arc<PostgresServer>>,
    cluster: Option<Arc<RedisCluster>>,
    quorum: Option<Arc<RedisQuorum>>,
    sentinels: Option<Sentinels>,
    /// The directory of the certificates of `redis`, if clients use TLS.
    certificates: Option<TempDir>,
}

impl Servers {
    /// Returns a builder of managers that trusts the servers.
    fn builder(&self) -> LockManagerBuilder {
        let builder = LockManager::builder().connect_timeout(PATIENCE);
        match &self.certificates {
            None => builder,
            Some(dir) => builder.tls(Tls::new().ca_file(dir.path().join(CA_FILE))),
        }
    }

    /// Starts a server with a certificate, and returns its URL.
    fn start_tls(&mut self) -> String {
        let (host, dir) = ("127.0.0.1", tempfile::tempdir().unwrap());
        let (authority, ca) = (Authority::new(), dir.path().join(CA_FILE));
        authority.write(&ca);
        let files = authority.sign(host, dir.path());
        let server = RedisServer::builder().tls(&ca, &files.certificate, &files.key);
        let server = self.redis.insert(Arc::new(server.start()));
        self.certificates = Some(dir);
        format!("rediss://{host}:{}", server.tls_port())
    }
}

/// The running and the waiting calls for each key. The servers of a quorum do not know its waiters.
#[derive(Debug, Default)]
struct Calls(Mutex<HashMap<Arc<str>, (u64, u64)>>);

impl Observer for Calls {
    fn observe(&self, event: &Event) {
        let (Event::AcquireStarted { key, .. }
        | Event::Queued { key, .. }
        | Event::Acquired { key, .. }
        | Event::Skipped { key, .. }
        | Event::AcquireFailed { key, .. }) = event
        else {
            return;
        };
        let mut calls = self.0.lock().unwrap();
        let (running, waiting) = calls.entry(key.clone()).or_default();
        match event {
            Event::AcquireStarted { .. } => *running += 1,
            Event::Queued { .. } => *waiting += 1,
            _ => *running = running.saturating_sub(1),
        }
        // If one call ends, another one that has not waited is counted in its place.
        *waiting = (*waiting).min(*running);
    }
}

/// A store with keys that only one test uses.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) url: String,
    namespace: String,
    servers: Servers,
    calls: Arc<Calls>,
    /// Inspects the locks, and keeps a memory store alive while a test replaces its managers.
    observer: LockManager,
}

impl Fixture {
    pub(crate) async fn new(store: Store) -> Self {
        let mut servers = Servers::default();
        let url = match store {
            Store::Memory => format!("memory:conformance-{}", next_number()),
            Store::Redis => servers.redis.insert(shared_server()).url(),
            Store::Cluster => servers.cluster.insert(shared_cluster()).url(),
            Store::Proxied => {
                let server = servers.redis.insert(shared_server());
                servers.proxy.insert(shared_proxy(server)).url()
            }
            Store::Postgres => servers.postgres.insert(shared_postgres().await).url(),
            Store::Pooled => {
                let server = servers.postgres.insert(shared_postgres().await);
                servers.pooler.insert(shared_pooler(server)).url()
            }
            Store::Quorum => servers.quorum.insert(shared_quorum()).url(),
            Store::Tls => servers.start_tls(),
            Store::Sentinel => {
                let sentinels = servers.sentinels.insert(Sentinels::start());
                // A stall of the machine is no failure of the primary.
                sentinels.set_down_after(LIMIT);
                sentinels.url()
            }
        };
        Self::over(url, servers).await
    }

    /// Starts a server for one test, which may break it or count its commands.
    pub(crate) async fn own_redis() -> Self {
        Self::on(RedisServer::start()).await
    }

    pub(crate) async fn on(server: RedisServer) -> Self {
        let url = server.url();
        let redis = Some(Arc::new(server));
        let servers = Servers {
            redis,
            ..Servers::default()
        };
        Self::over(url, servers).await
    }

    async fn over(url: String, servers: Servers) -> Self {
        let namespace = format!("t{}", next_number());
        if let Some(quorum) = &servers.quorum {
            quorum.vote(&namespace);
        }
        let builder = servers.builder().namespace(&namespace);
        let builder = builder.client_name("observer");
        let observer = builder.connect(&url).await.unwrap();
        Fixture {
            url,
            namespace,
            servers,
            calls: Arc::default(),
            observer,
        }
    }

    /// Returns another namespace of the store. The servers of a quorum grant its locks at once.
    pub(crate) fn another_namespace(&self) -> String {
        let namespace = format!("{}-another", self.namespace);
        if let Some(quorum) = &self.servers.quorum {
            quorum.vote(&namespace);
        }
        namespace
    }

    /// Returns `few` where each hand-off waits for a queue check, which takes up to half a second.
    pub(crate) fn hand_offs(&self, many: u64, few: u64) -> u64 {
        if self.has_no_messages() { few } else { many }
    }

    pub(crate) fn is_proxied(&self) -> bool {
        self.servers.proxy.is_some()
    }

    /// Returns true if waiters find their grants by queue checks only.
    pub(crate) fn has_no_messages(&self) -> bool {
        self.is_proxied() || self.servers.pooler.is_some()
    }

    fn is_postgres(&self) -> bool {
        self.servers.postgres.is_some()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.servers.cluster.is_some()
    }

    pub(crate) fn is_quorum(&self) -> bool {
        self.servers.quorum.is_some()
    }

    pub(crate) fn is_memory(&self) -> bool {
        !(self.is_redis() || self.is_quorum() || self.is_cluster() || self.is_postgres())
    }

    pub(crate) fn is_redis(&self) -> bool {
        self.servers.redis.is_some()
    }

    #[track_caller]
    pub(crate) fn server(&self) -> &RedisServer {
        self.servers.redis.as_deref().expect("a test of Redis only")
    }

    /// Returns the number of connections to a server that only this test uses.
    pub(crate) fn connections(&self) -> usize {
        let list = self.raw().cmd(&["CLIENT", "LIST"]);
        // Without the connection of this command.
        list.text().map_or(0, |list| list.lines().count() - 1)
    }

    /// Returns a client that shares no code with distlock.
    #[track_caller]
    pub(crate) fn raw(&self) -> Resp {
        self.server().client()
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        let builder = self.servers.builder();
        let builder = match &self.servers.quorum {
            None => builder,
            Some(_) => builder
                .quorum(Quorum::new().max_lease(LONGEST))
                .add_observer(self.calls.clone()),
        };
        runtime_connections_at_once(builder.namespace(&self.namespace))
    }

    pub(crate) async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        builder.connect(&self.url).await.unwrap()
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.connect(self.builder()).await
    }

    pub(crate) async fn named(&self, client: &str) -> LockManager {
        self.connect(self.builder().client_name(client)).await
    }

    pub(crate) async fn managers(&self, count: usize) -> Vec<LockManager> {
        let mut managers = Vec::new();
        for _ in 0..count {
            managers.push(self.manager().await);
        }
        managers
    }

    /// Acquires a lock for another client.
    pub(crate) async fn hold(&self, key: &str) -> LockGuard {
        self.manager().await.lock(key).acquire().await.unwrap()
    }

    /// Starts a call of another client, and returns once it is queued.
    pub(crate) async fn waiter(&self, key: &str) -> Waiter {
        self.queued(self.manager().await.lock(key)).await
    }

    /// Starts a call for this lock, and returns once it is queued.
    pub(crate) async fn queued(&self, lock: Lock) -> Waiter {
        let key = lock.key().to_owned();
        let before = self.waiting(&key).await;
        let call = tokio::spawn(async move { lock.wait(PATIENCE).acquire().await });
        self.until_waiting(&key, before + 1).await;
        Waiter(call)
    }

    pub(crate) async fn inspect(&self, key: &str) -> LockState {
        for _ in 0..20 {
            match self.observer.inspect(key).await {
                // The machine was too slow. A connection may have to be opened again.
                Err(error) if error.is_unavailable() => tokio::time::sleep(ms(100)).await,
                state => return state.unwrap(),
            }
        }
        panic!("{key}: no inspection got a reply");
    }

    /// Returns how many calls wait for a lock.
    async fn waiting(&self, key: &str) -> u64 {
        if self.is_quorum() {
            let calls = self.calls.0.lock().unwrap();
            calls.get(key).map_or(0, |(_, waiting)| *waiting)
        } else {
            self.inspect(key).await.queue_length
        }
    }

    /// Waits until exactly `waiters` calls wait for a lock.
    pub(crate) async fn until_waiting(&self, key: &str, waiters: u64) {
        let arrived = async || self.waiting(key).await == waiters;
        eventually_async(PATIENCE, arrived).await;
    }

    /// Waits until a lock has neither a holder nor waiters.
    #[track_caller]
    pub(crate) fn until_free(&self, key: &str, within: Duration) -> impl Future<Output = ()> {
        eventually_async(within, async move || {
            let state = self.inspect(key).await;
            equal((state.holders, state.queue_length), (vec![], 0))
        })
    }

    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<String> {
        let names = format!("{}:*", self.namespace);
        let servers = match &self.servers.quorum {
            Some(quorum) => quorum.servers(),
            None => std::slice::from_ref(self.server()),
        };
        let keys = servers
            .iter()
            .flat_map(|server| server.client().keys(&names));
        keys.collect()
    }

    /// Returns the remaining keys in Redis except epochs, and fences, which store tokens for hours.
    #[track_caller]
    pub(crate) fn left_over(&self) -> Vec<String> {
        let kept = ["fence", "epoch"].map(|kind| format!("{}:{kind}", self.namespace));
        let mut keys = self.keys();
        keys.retain(|key| !kept.iter().any(|kind| key.starts_with(kind)));
        keys
    }

    /// Returns the name in Redis of a lock's `lock`, `queue`, `entry` or `fence` key.
    pub(crate) fn name(&self, kind: &str, key: &str) -> String {
        format!("{}:{kind}:{{{key}}}", self.namespace)
    }

    /// Writes a lock that a client of another process holds and does not renew.
    pub(crate) fn hold_elsewhere(&self, key: &str, client: &str, lasts: Duration) {
        let since = micros_since_epoch();
        let ttl = lasts.as_millis().to_string();
        let value = format!("2 {}:1 {since} {ttl} {since} {client}", "a".repeat(32));
        let name = self.name("lock", key);
        let mut raw = self.raw();
        let reply = raw.cmd(&["SET", &name, &value, "PX", &ttl, "NX"]);
        assert_eq!(reply.text(), Some("OK"), "another client holds it");
    }

    /// Leaves a lock that stays taken for `lasts` and then expires without a release.
    pub(crate) async fn vanished_holder(&self, key: &str, lasts: Duration) {
        for _ in 0..20 {
            let manager = self.manager().await;
            let lock = manager.lock(key).min_hold(lasts);
            lock.acquire().await.unwrap().release().await.unwrap();
            manager.shutdown().await;
            if self.inspect(key).await.holders.len() == 1 {
                return;
            }
            // The machine took longer than `lasts`.
        }
        panic!("{key}: nothing is kept for {lasts:?}");
    }

    /// Tries until a try gets a reply, because a timeout proves nothing about the lock.
    pub(crate) async fn tried(&self, lock: &Lock) -> Option<LockGuard> {
        answered(async || lock.try_acquire().await).await
    }
}

/// Repeats a try until it gets a reply.
pub(crate) async fn answered<T>(mut try_once: impl AsyncFnMut() -> Result<T, Error>) -> T {
    for _ in 0..20 {
        match try_once().await {
            Err(error) if error.is_unavailable() => tokio::time::sleep(ms(100)).await,
            answered => return answered.unwrap(),
        }
    }
    panic!("no try was answered");
}

/// A call that has been queued.
#[derive(Debug)]
pub(crate) struct Waiter(pub(crate) JoinHandle<Result<LockGuard, Error>>);

impl Waiter {
    /// Waits until the call has ended.
    pub(crate) async fn result(self) -> Result<LockGuard, Error> {
        within(PATIENCE, self.0).await.unwrap()
    }

    /// Waits until the call has acquired the lock.
    pub(crate) async fn guard(self) -> LockGuard {
        self.result().await.unwrap()
    }
}

/// Acquires a lock and releases it.
pub(crate) async fn take(lock: Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Calls `Lock::run` for a lock without contention.
pub(crate) async fn run<T>(lock: Lock, body: impl AsyncFnOnce(HeldLock) -> T) -> Result<T, Error> {
    lock.run(async |held| Ok(body(held).await)).await
}

/// Waits until two renewals have succeeded, so that the hold does not rely on its first lease.
pub(crate) async fn until_renewed_twice(guard: &LockGuard) {
    for _ in 0..2 {
        let mut left = guard.remaining();
        eventually_async(PATIENCE, async || {
            assert!(guard.is_held(), "lost: {:?}", guard.lost().await);
            let before = std::mem::replace(&mut left, guard.remaining());
            left > before
        })
        .await;
    }
}

pub(crate) fn micros_since_epoch() -> u128 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.expect("a clock after 1970").as_micros()
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns an instance for all tests that do not break it. The last one drops it.
fn shared<T>(place: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = place.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}

fn shared_server() -> Arc<RedisServer> {
    static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
    shared(&SHARED, RedisServer::start)
}

fn shared_cluster() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    shared(&SHARED, || RedisCluster::start(3))
}

async fn shared_postgres() -> Arc<PostgresServer> {
    static SHARED: tokio::sync::Mutex<Weak<PostgresServer>> =
        tokio::sync::Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = PostgresServer::builder()
        .setting("max_connections", "500")
        .start();
    LockManager::install_schema(&server.url()).await.unwrap();
    let server = Arc::new(server);
    *shared = Arc::downgrade(&server);
    server
}

fn shared_pooler(server: &PostgresServer) -> Arc<PgBouncer> {
    static SHARED: Mutex<Weak<PgBouncer>> = Mutex::new(Weak::new());
    shared(&SHARED, || PgBouncer::start(server, "transaction"))
}

fn shared_quorum() -> Arc<RedisQuorum> {
    static SHARED: Mutex<Weak<RedisQuorum>> = Mutex::new(Weak::new());
    shared(&SHARED, || RedisQuorum::start(3))
}

fn shared_proxy(server: &RedisServer) -> Arc<Middleman> {
    static SHARED: Mutex<Weak<Middleman>> = Mutex::new(Weak::new());
    shared(&SHARED, || Middleman::before(&[server]))
}

/// Makes a test of each function for every [`Store`], such as `memory::name`.
macro_rules! for_each_store {
    ($($(#[doc = $doc:literal])* async fn $name:ident($fixture:ident) $body:block)+) => {
        for_each_queueing_store! { $($(#[doc = $doc])* async fn $name($fixture) $body)+ }
        tests_on!(quorum, Quorum, $($name)+);
    };
}

/// Makes a test of each function for every store except a quorum, which has no queues, semaphores
/// and readers-writer locks.
macro_rules! for_each_queueing_store {
    ($($(#[doc = $doc:literal])* async fn $name:ident($fixture:ident) $body:block)+) => {
        $($(#[doc = $doc])* async fn $name($fixture: &$crate::fixture::Fixture) $body)+

        tests_on!(memory, Memory, $($name)+);
        tests_on!(redis, Redis, $($name)+);
        tests_on!(cluster, Cluster, $($name)+);
        tests_on!(proxied, Proxied, $($name)+);
        tests_on!(postgres, Postgres, $($name)+);
        // On a busy machine a waiter may confirm its grant too late, and then another one is next.
        #[cfg(feature = "pooled")]
        tests_on!(pooled, Pooled, $($name)+);
    };
}

/// Makes a `redis_only::name` test of each function.
macro_rules! for_redis {
    ($($(#[doc = $doc:literal])* async fn $name:ident($fixture:ident) $body:block)+) => {
        $($(#[doc = $doc])* async fn $name($fixture: &$crate::fixture::Fixture) $body)+

        tests_on!(redis_only, Redis, $($name)+);
    };
}

macro_rules! tests_on {
    ($module:ident, $store:ident, $($name:ident)+) => {
        mod $module {
            use distlock_tests::RedisCluster;

            use $crate::fixture::{Fixture, LIMIT, Store};

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    // Redis 6.2 has no usable cluster.
                    if Store::$store == Store::Cluster && !RedisCluster::is_possible() {
                        return;
                    }
                    distlock_tests::within(LIMIT, async {
                        let fixture = Fixture::new(Store::$store).await;
                        super::$name(&fixture).await;
                    })
                    .await;
                }
            )+
        }
    };
}
