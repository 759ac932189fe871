//! Runtime connections, which are owned by the callers' runtimes. The manager goes on, whatever
//! becomes of a runtime.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::observer::{Event, Observer};
use distlock::{LockGuard, LockManager};
use distlock_tests::{
    Directions, Proxy, RedisServer, Resp, equal, eventually, eventually_async, within,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{
    LONG, accepted, acquire_later, acquired, call_often, connections, hold, kill, lock_key, ms,
    queue_key, until_clean, until_queued,
};

/// Number of connections of the I/O thread: one for commands, one for renewals.
const IO_THREAD: usize = 2;

async fn connect(server: &RedisServer, limit: usize) -> LockManager {
    connect_to(&server.url(), limit).await
}

async fn connect_to(url: &str, limit: usize) -> LockManager {
    let builder = LockManager::builder().max_runtime_connections(limit);
    builder.connect(url).await.unwrap()
}

/// Starts a server and a manager, connected on a runtime of its own, with a test connection.
fn owned(limit: usize) -> (RedisServer, Resp, Runtime, LockManager) {
    let (server, own) = (RedisServer::start(), Runtime::new().unwrap());
    let manager = own.block_on(connect(&server, limit));
    let raw = server.client();
    (server, raw, own, manager)
}

/// Acquires and releases in tasks of a runtime until it has its runtime connection, which is one
/// more connection.
async fn open_runtime_connection(on: &Handle, manager: &LockManager, raw: &mut Resp) {
    let before = connections(raw);
    eventually_async(LONG, async || {
        call_often(on, manager, "warm").await;
        connections(raw) > before
    })
    .await;
    // After these calls, the I/O thread has answered everything that was sent there.
    call_often(on, manager, "warm").await;
}

/// A manager with a connection on a runtime of one thread, which can be blocked, and a manager
/// without runtime connections.
struct Blockable {
    server: RedisServer,
    raw: Resp,
    manager: LockManager,
    other: LockManager,
    handle: Handle,
    /// Ends the runtime when it is dropped.
    _end: oneshot::Sender<()>,
}

impl Blockable {
    async fn start() -> Self {
        Self::observed_by(Ends(mpsc::channel().0)).await
    }

    async fn observed_by(observer: Ends) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::spawn(move || runtime.block_on(ended));
        let server = RedisServer::start();
        let mut raw = server.client();
        let builder = LockManager::builder().max_runtime_connections(8);
        let manager = builder
            .add_observer(observer)
            .connect(&server.url())
            .await
            .unwrap();
        let other = connect(&server, 0).await;
        open_runtime_connection(&handle, &manager, &mut raw).await;
        Blockable {
            server,
            raw,
            manager,
            other,
            handle,
            _end: end,
        }
    }

    /// Blocks the runtime until the returned sender is dropped. Resolves when it is blocked.
    async fn block(&self) -> mpsc::Sender<()> {
        let (unblock, unblocked) = mpsc::channel::<()>();
        let (notify_blocked, blocked) = oneshot::channel();
        self.handle.spawn(async move {
            notify_blocked.send(()).unwrap();
            let _ = unblocked.recv();
        });
        blocked.await.unwrap();
        unblock
    }

    fn acquire(&self, lease: Duration) -> JoinHandle<LockGuard> {
        let lock = self.manager.lock("k").lease(lease).wait(4 * LONG);
        self.handle
            .spawn(async move { lock.acquire().await.unwrap() })
    }

    async fn is_served(&mut self, call: JoinHandle<LockGuard>) {
        let guard = within(LONG, call).await.unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        until_clean(&mut self.raw, LONG).await;
    }
}

#[test]
fn each_runtime_gets_a_connection_up_to_the_limit() {
    for limit in [0, 3] {
        let (_server, mut raw, own, manager) = owned(limit);
        let runtimes: Vec<_> = (0..8).map(|_| Runtime::new().unwrap()).collect();
        for _ in 0..3 {
            for runtime in &runtimes {
                own.block_on(call_often(runtime.handle(), &manager, "k"));
                assert!(connections(&mut raw) <= 1 + IO_THREAD + limit, "{limit}");
            }
        }
        assert_eq!(connections(&mut raw), 1 + IO_THREAD + limit, "{limit}");
        // The end of a runtime makes room.
        drop(runtimes);
        eventually(LONG, || equal(connections(&mut raw), 1 + IO_THREAD));
        if limit > 0 {
            own.block_on(open_runtime_connection(own.handle(), &manager, &mut raw));
            assert_eq!(connections(&mut raw), 1 + IO_THREAD + 1);
        }
        own.block_on(manager.shutdown());
        eventually(LONG, || equal(connections(&mut raw), 1));
        own.block_on(until_clean(&mut raw, LONG));
    }
}

/// A waiter's runtime is blocked when it is granted the lock. Others get the lock, and the process
/// keeps its other place in the queue. The blocked waiter acquires again when it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_to_a_blocked_runtime_is_released() {
    let lease = ms(60_000);
    let mut this = Blockable::start().await;
    let first = hold(&this.other, "k", lease).await;
    let blocked = this.acquire(lease);
    until_queued(&mut this.raw, "k", 1).await;
    let second = acquire_later(&this.manager, "k", lease, LONG);
    until_queued(&mut this.raw, "k", 2).await;
    let third = acquire_later(&this.other, "k", lease, LONG);
    until_queued(&mut this.raw, "k", 3).await;
    let unblock = this.block().await;
    first.release().await.unwrap();
    let second = acquired(second).await;
    assert!(!blocked.is_finished());
    drop(unblock);
    // The blocked call is queued behind those that waited.
    until_queued(&mut this.raw, "k", 2).await;
    second.release().await.unwrap();
    let third = acquired(third).await;
    assert!(!blocked.is_finished());
    third.release().await.unwrap();
    this.is_served(blocked).await;
}

/// The runtime is blocked while the reply to an acquire is in flight, so no call receives the
/// grant. The I/O thread releases it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_of_a_blocked_runtime_are_released() {
    let lease = ms(600_000);
    let mut this = Blockable::start().await;
    this.server.stop_process();
    let acquiring = this.acquire(lease);
    // The tasks that run before the blocking one send the acquire.
    for _ in 0..20 {
        let yields = this.handle.spawn(tokio::task::yield_now());
        yields.await.unwrap();
    }
    let unblock = this.block().await;
    this.server.cont_process();
    eventually_async(LONG, async || this.raw.exists(&lock_key("k"))).await;
    let guard = within(LONG, hold(&this.other, "k", lease)).await;
    assert!(!acquiring.is_finished());
    drop(unblock);
    until_queued(&mut this.raw, "k", 1).await;
    guard.release().await.unwrap();
    this.is_served(acquiring).await;
}

/// An attempt to open a connection may take a second. If it fails, the runtime does not try again
/// for ten seconds.
#[test]
fn a_runtime_connection_may_take_a_second_to_open() {
    const DELAY: Duration = ms(25);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let [own, hanging, slow] = [(); 3].map(|()| Runtime::new().unwrap());
    let manager = own.block_on(connect_to(&proxy.url(), 8));
    let last = *proxy.connections().last().unwrap();
    let before = proxy.stats().accepted;
    // This server accepts connections and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.move_to(silent.local_addr().unwrap());
    let began = Instant::now();
    while began.elapsed() < ms(2_500) {
        own.block_on(call_often(hanging.handle(), &manager, "k"));
    }
    let stats = proxy.stats();
    assert_eq!(stats.accepted, before + 1, "{stats:?}");
    // The next connection is slow, and so are calls once they use it.
    proxy.move_to(server.addr());
    proxy.limit_to(&[last + 2, last + 3, last + 4]);
    proxy.delay(Directions::Both, DELAY);
    eventually(LONG, || {
        own.block_on(call_often(slow.handle(), &manager, "k"));
        let began = Instant::now();
        let lock = manager.lock("k").wait(LONG);
        let pair = async move { lock.acquire().await.unwrap().release().await.unwrap() };
        own.block_on(slow.spawn(pair)).unwrap();
        began.elapsed() >= 4 * DELAY
    });
    assert!(proxy.stats().accepted >= before + 2);
}

/// A waiter leaves the queue at the end of its `wait`, although its runtime does not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtimes_wait_ends() {
    let mut this = Blockable::start().await;
    let held = hold(&this.manager, "k", ms(60_000)).await;
    let lock = this.manager.lock("k").wait(ms(5_000));
    let waiting = this.handle.spawn(async move { lock.acquire().await });
    until_queued(&mut this.raw, "k", 1).await;
    // The waiter knows that it is queued.
    call_often(&this.handle, &this.manager, "warm").await;
    let unblock = this.block().await;
    // No other client would look for this waiter for fifteen seconds.
    let queue = queue_key("k");
    let queued = async || equal(this.raw.cmd(&["ZCARD", &queue]).int(), 0);
    eventually_async(ms(10_000), queued).await;
    drop(unblock);
    let error = within(LONG, waiting).await.unwrap().unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    held.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

/// The I/O thread also sends a release that was begun. No loss is reported if the server has
/// applied it before and the blocked runtime does not read the reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_a_blocked_runtime_are_completed() {
    for is_sent in [false, true] {
        let (event_sender, events) = mpsc::channel();
        let mut this = Blockable::observed_by(Ends(event_sender)).await;
        let lock = this.manager.lock("k").label("blocked").lease(ms(600_000));
        let (notify_held, held) = oneshot::channel();
        let (resume, resumed) = oneshot::channel::<()>();
        let (unblock, unblocked) = mpsc::channel::<()>();
        let released = this.handle.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            notify_held.send(()).unwrap();
            resumed.await.unwrap();
            let mut release = Box::pin(guard.release());
            assert!(futures::poll!(&mut release).is_pending());
            if is_sent {
                // Its connection sends it, and does not run again before the runtime is blocked.
                tokio::task::yield_now().await;
            }
            let _ = unblocked.recv();
            release.await
        });
        held.await.unwrap();
        resume.send(()).unwrap();
        until_clean(&mut this.raw, LONG).await;
        assert_eq!(events.recv_timeout(LONG), Ok("released"), "sent: {is_sent}");
        assert!(!released.is_finished());
        drop(unblock);
        released.await.unwrap().unwrap();
    }
}

/// Reports how the hold of the blocked runtime ended.
struct Ends(mpsc::Sender<&'static str>);

impl Observer for Ends {
    fn observe(&self, event: &Event) {
        let end = match event {
            Event::Lost { lock, .. } if lock == "blocked" => "lost",
            Event::Released { lock, .. } if lock == "blocked" => "released",
            _ => return,
        };
        let _ = self.0.send(end);
    }
}

/// Runtimes end while their tasks acquire, wait, hold or release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtimes_are_dropped_at_any_moment() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    let ending = manager.clone();
    let rounds = thread::spawn(move || {
        for round in 0..120_u64 {
            let mut builder = if round % 2 == 0 {
                Builder::new_multi_thread()
            } else {
                Builder::new_current_thread()
            };
            let runtime = builder.worker_threads(1).enable_all().build().unwrap();
            for task in 0..4 {
                let lock = ending.lock(format!("k{}", task % 3)).wait(LONG);
                runtime.spawn(async move {
                    loop {
                        let guard = lock.acquire().await.unwrap();
                        if task % 2 == 0 {
                            guard.release().await.unwrap();
                        }
                    }
                });
            }
            let pause = Duration::from_micros(round * 400);
            runtime.block_on(async { tokio::time::sleep(pause).await });
            if round % 3 == 0 {
                runtime.shutdown_background();
            }
        }
    });
    let rounds = tokio::task::spawn_blocking(|| rounds.join());
    rounds.await.unwrap().unwrap();
    // Dropped holds are released long before their leases end.
    until_clean(&mut raw, ms(10_000)).await;
    call_often(&Handle::current(), &manager, "k0").await;
    assert!(connections(&mut raw) <= 1 + IO_THREAD + 8);
}

#[test]
fn short_lived_runtimes_open_no_connection() {
    let (_server, mut raw, _own, manager) = owned(8);
    let before = accepted(&mut raw);
    for _ in 0..200 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let lock = manager.lock("k");
        runtime.block_on(async {
            for _ in 0..3 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    // A connection that was silent for long may have been replaced.
    let more = accepted(&mut raw) - before;
    assert!(more < 20, "{more} connections for 200 runtimes");
}

/// The I/O thread serves a runtime that cannot have a connection of its own.
#[test]
fn a_runtime_without_drivers_can_acquire() {
    let (_server, mut raw, own, manager) = owned(8);
    let mut builder = Builder::new_multi_thread();
    let bare = builder.worker_threads(1).build().unwrap();
    for _ in 0..3 {
        bare.block_on(call_often(bare.handle(), &manager, "k"));
    }
    // Its waits end as well.
    let _held = own.block_on(manager.lock("k").acquire()).unwrap();
    let waits = manager.lock("k").wait(ms(100));
    let error = bare.block_on(waits.acquire()).unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    assert_eq!(connections(&mut raw), 1 + IO_THREAD);
}

/// A cancelled acquire leaves its runtime connection open. It ends with the subscribed connection,
/// because its queue places belong to a connection that the server considers dead. Another one
/// opens soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_connection_ends_with_the_subscribed_connection() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    let here = Handle::current();
    open_runtime_connection(&here, &manager, &mut raw).await;
    let before = accepted(&mut raw);
    let lock = manager.lock("k").lease(ms(600_000));
    let cancelled = tokio::spawn(async move {
        for _ in 0..20 {
            assert!(futures::poll!(Box::pin(lock.acquire())).is_pending());
        }
    });
    cancelled.await.unwrap();
    until_clean(&mut raw, LONG).await;
    call_often(&here, &manager, "warm").await;
    assert_eq!(accepted(&mut raw), before);
    assert_eq!(kill(&mut raw, "pubsub"), 1);
    eventually_async(LONG, async || {
        call_often(&here, &manager, "warm").await;
        accepted(&mut raw) >= before + 2 && connections(&mut raw) == 1 + IO_THREAD + 1
    })
    .await;
    until_clean(&mut raw, LONG).await;
}
