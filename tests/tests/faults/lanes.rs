//! Lanes: connections on the runtimes that call. Whatever becomes of a runtime, its manager goes on.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use distlock::observer::{Event, Observer};
use distlock::{Lock, LockGuard, LockManager};
use distlock_tests::{RedisServer, Resp, eventually, eventually_async, within};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::kit::{
    HELD, LONG, acquire_later, connections, ms, until_clean, until_queued, until_renewed_twice,
};

/// A runtime has its lane long before so many calls.
const CALLS: usize = 40;

/// The command connection and that for renewals.
const HOME: usize = 2;

async fn connect(server: &RedisServer, lanes: usize) -> LockManager {
    let builder = LockManager::builder().url(server.url()).lanes(lanes);
    builder.connect().await.unwrap()
}

/// Takes and gives back locks in a task of the current runtime until that has its lane, which is one more connection.
async fn open_lane(manager: &LockManager, raw: &mut Resp) {
    let before = connections(raw);
    eventually_async(LONG, async || {
        calls(manager, "warm").await;
        connections(raw) > before
    })
    .await;
    // What was to be asked at home was answered there.
    calls(manager, "warm").await;
}

/// As many calls, one after the other, in a task.
async fn calls(manager: &LockManager, key: &str) {
    let lock = manager.lock(key).wait(LONG);
    tokio::spawn(take_often(lock)).await.unwrap();
}

async fn take_often(lock: Lock) {
    for _ in 0..CALLS {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

/// A runtime on a thread of its own, which can be blocked.
struct Blockable {
    handle: Handle,
    /// What to run on its thread, which blocks it.
    blocks: tokio::sync::mpsc::UnboundedSender<Box<dyn FnOnce() + Send>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Blockable {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (blocks, mut blocking) =
            tokio::sync::mpsc::unbounded_channel::<Box<dyn FnOnce() + Send>>();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                while let Some(block) = blocking.recv().await {
                    block();
                }
            });
        });
        Blockable {
            handle,
            blocks,
            thread: Some(thread),
        }
    }

    /// Blocks it until what is returned is dropped. Resolves when it is blocked.
    async fn block(&self) -> mpsc::Sender<()> {
        let (unblock, unblocked) = mpsc::channel::<()>();
        let (tell, blocked) = tokio::sync::oneshot::channel();
        let block = move || {
            tell.send(()).unwrap();
            let _ = unblocked.recv();
        };
        self.blocks.send(Box::new(block)).map_err(drop).unwrap();
        blocked.await.unwrap();
        unblock
    }

    async fn open_lane(&self, manager: &LockManager, server: &RedisServer) {
        let mut raw = server.client();
        let before = connections(&mut raw);
        eventually_async(LONG, async || {
            self.calls(manager).await;
            connections(&mut raw) > before
        })
        .await;
        self.calls(manager).await;
    }

    async fn calls(&self, manager: &LockManager) {
        let lock = manager.lock("warm").wait(LONG);
        self.handle.spawn(take_often(lock)).await.unwrap();
    }

    fn acquire(&self, manager: &LockManager, key: &str, lease: Duration) -> JoinHandle<LockGuard> {
        let lock = manager.lock(key).lease(lease).wait(4 * LONG);
        self.handle
            .spawn(async move { lock.acquire().await.unwrap() })
    }
}

impl Drop for Blockable {
    fn drop(&mut self) {
        let (closed, _) = tokio::sync::mpsc::unbounded_channel();
        self.blocks = closed;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_calls_gets_a_lane() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    assert_eq!(connections(&mut raw), 1 + HOME);
    open_lane(&manager, &mut raw).await;
    assert_eq!(connections(&mut raw), 1 + HOME + 1);
    calls(&manager, "k").await;
    assert_eq!(connections(&mut raw), 1 + HOME + 1);
    manager.shutdown().await;
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_is_opened_where_none_is_wanted() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 0).await;
    calls(&manager, "k").await;
    assert_eq!(connections(&mut raw), 1 + HOME);
}

/// The runtime of a waiter is blocked when it is granted the lock. Others get it, and the process keeps its other
/// place in the queue; the waiter asks again when it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtimes_grant_is_given_back() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let lease = ms(60_000);
    let manager = connect(&server, 8).await;
    let other = connect(&server, 0).await;
    let blockable = Blockable::start();
    blockable.open_lane(&manager, &server).await;
    let first = other.lock("k").lease(lease).acquire().await.unwrap();
    let blocked = blockable.acquire(&manager, "k", lease);
    until_queued(&mut raw, "k", 1).await;
    let second = acquire_later(&manager, "k", lease, LONG);
    until_queued(&mut raw, "k", 2).await;
    let third = acquire_later(&other, "k", lease, LONG);
    until_queued(&mut raw, "k", 3).await;
    let unblock = blockable.block().await;
    first.release().await.unwrap();
    let second = within(LONG, second).await.unwrap().0.unwrap();
    assert!(!blocked.is_finished());
    drop(unblock);
    // It stands behind those who waited.
    until_queued(&mut raw, "k", 2).await;
    second.release().await.unwrap();
    let third = within(LONG, third).await.unwrap().0.unwrap();
    assert!(!blocked.is_finished());
    third.release().await.unwrap();
    let guard = within(LONG, blocked).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// The runtime is blocked while the answer to an ask is on its way: nobody hears that the lock is theirs. Home kills
/// the lane and releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_blocked_runtime_asked_for_is_given_back() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let lease = ms(600_000);
    let manager = connect(&server, 8).await;
    let other = connect(&server, 0).await;
    let blockable = Blockable::start();
    blockable.open_lane(&manager, &server).await;
    let before = connections(&mut raw);
    server.stop_process();
    let asked = blockable.acquire(&manager, "k", lease);
    // The ask is sent by the tasks that run before the one that blocks.
    for _ in 0..20 {
        blockable
            .handle
            .spawn(tokio::task::yield_now())
            .await
            .unwrap();
    }
    let unblock = blockable.block().await;
    server.cont_process();
    eventually_async(LONG, async || raw.exists("distlock:lock:{k}")).await;
    let lock = other.lock("k").lease(lease).wait(LONG);
    let guard = within(LONG, lock.acquire()).await.unwrap();
    eventually_async(LONG, async || connections(&mut raw) < before).await;
    assert!(!asked.is_finished());
    drop(unblock);
    until_queued(&mut raw, "k", 1).await;
    guard.release().await.unwrap();
    let guard = within(LONG, asked).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// A waiter whose time is up leaves the queue, although its runtime does not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtimes_wait_ends() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    let blockable = Blockable::start();
    blockable.open_lane(&manager, &server).await;
    let held = manager.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = manager.lock("k").wait(ms(5_000));
    let waiting = blockable.handle.spawn(async move { lock.acquire().await });
    until_queued(&mut raw, "k", 1).await;
    // It has heard of that, too.
    blockable.calls(&manager).await;
    let unblock = blockable.block().await;
    // Nobody else would look for it there for fifteen seconds.
    eventually_async(ms(10_000), async || {
        raw.cmd(&["ZCARD", "distlock:queue:{k}"]).int() == 0
    })
    .await;
    drop(unblock);
    let error = within(LONG, waiting).await.unwrap().unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// The same for a release that was begun: home sends it. Nobody is told of a loss where the server has applied it
/// before, and the blocked runtime does not read the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_blocked_runtime_gives_back_is_released() {
    for is_sent in [false, true] {
        let server = RedisServer::start();
        let lease = ms(600_000);
        let (tell_event, events) = mpsc::channel();
        let builder = LockManager::builder().url(server.url());
        let builder = builder.lanes(8).observer(Ends(tell_event));
        let manager = builder.connect().await.unwrap();
        let blockable = Blockable::start();
        blockable.open_lane(&manager, &server).await;
        let lock = manager.lock("k").label("blocked").lease(lease);
        let (tell, held) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = tokio::sync::oneshot::channel::<()>();
        let (unblock, unblocked) = mpsc::channel::<()>();
        let released = blockable.handle.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tell.send(()).unwrap();
            goes_on.await.unwrap();
            let mut release = Box::pin(guard.release());
            assert!(futures_poll_once(&mut release).await.is_none());
            if is_sent {
                // Its connection sends it, and does not run again before the runtime is blocked.
                tokio::task::yield_now().await;
            }
            let _ = unblocked.recv();
            release.await
        });
        held.await.unwrap();
        go_on.send(()).unwrap();
        let mut raw = server.client();
        until_clean(&mut raw, LONG).await;
        assert_eq!(events.recv_timeout(LONG), Ok("released"), "sent: {is_sent}");
        assert!(!released.is_finished());
        drop(unblock);
        released.await.unwrap().unwrap();
    }
}

/// Passes on how the hold of the blocked runtime ended.
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

async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// Renewals are sent from home, whatever blocks the runtime with the lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtimes_holds_are_renewed() {
    let server = RedisServer::start();
    let manager = connect(&server, 8).await;
    let blockable = Blockable::start();
    blockable.open_lane(&manager, &server).await;
    let guard = blockable.acquire(&manager, "k", HELD).await.unwrap();
    let unblock = blockable.block().await;
    until_renewed_twice(&guard).await;
    drop(unblock);
    guard.release().await.unwrap();
}

/// Whatever its tasks were doing: asking, waiting, holding or releasing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtimes_are_dropped_at_any_moment() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    let ending = manager.clone();
    let rounds = thread::spawn(move || {
        for round in 0..120_u64 {
            let workers = Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build();
            let current = Builder::new_current_thread().enable_all().build();
            let runtime = if round % 2 == 0 { workers } else { current }.unwrap();
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
            runtime
                .block_on(async { tokio::time::sleep(Duration::from_micros(round * 400)).await });
            if round % 3 == 0 {
                runtime.shutdown_background();
            }
        }
    });
    tokio::task::spawn_blocking(|| rounds.join())
        .await
        .unwrap()
        .unwrap();
    // What was dropped is given back long before its lease ends.
    until_clean(&mut raw, ms(10_000)).await;
    calls(&manager, "k0").await;
    assert!(connections(&mut raw) <= 1 + HOME + 8);
}

#[test]
fn short_lived_runtimes_do_not_dial() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let own = Runtime::new().unwrap();
    let manager = own.block_on(connect(&server, 8));
    let dialed = |raw: &mut Resp| -> u64 {
        let received = raw.info_field("total_connections_received");
        received.parse().unwrap()
    };
    let before = dialed(&mut raw);
    for _ in 0..200 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let lock = manager.lock("k");
        runtime.block_on(async {
            for _ in 0..3 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    // One that was silent for long may have been replaced.
    let more = dialed(&mut raw) - before;
    assert!(more < 20, "{more} connections for 200 runtimes");
}

#[test]
fn there_are_no_more_lanes_than_allowed() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let own = Runtime::new().unwrap();
    let manager = own.block_on(connect(&server, 3));
    let runtimes: Vec<_> = (0..8).map(|_| Runtime::new().unwrap()).collect();
    for _ in 0..3 {
        for runtime in &runtimes {
            runtime.block_on(calls(&manager, "k"));
            assert!(connections(&mut raw) <= 1 + HOME + 3);
        }
    }
    assert_eq!(connections(&mut raw), 1 + HOME + 3);
    // Who goes makes room.
    drop(runtimes);
    eventually(LONG, || connections(&mut raw) == 1 + HOME);
    own.block_on(async { open_lane(&manager, &mut raw).await });
}

/// Whoever has no connection of his own is served at home.
#[test]
fn a_runtime_without_drivers_is_served() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let own = Runtime::new().unwrap();
    let manager = own.block_on(connect(&server, 8));
    let bare = Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    for _ in 0..3 {
        let calls = calls(&manager, "k");
        bare.block_on(calls);
    }
    // Its waits end as well.
    let _held = own.block_on(manager.lock("k").acquire()).unwrap();
    let waits = manager.lock("k").wait(ms(100));
    let error = bare.block_on(waits.acquire()).unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    assert_eq!(connections(&mut raw), 1 + HOME);
}

/// A lane is lost while much is asked on it: nothing is lost with it, and there is another one soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_are_killed_under_load() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    open_lane(&manager, &mut raw).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let lock = manager
                .lock(format!("k{}", task % 5))
                .lease(ms(5_000))
                .wait(LONG);
            tokio::spawn(async move {
                for _ in 0..300 {
                    lock.run(async |_| tokio::task::yield_now().await)
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    let is_over = || tasks.iter().all(JoinHandle::is_finished);
    let mut killed = 0;
    while !is_over() {
        for id in lanes(&mut raw) {
            killed += raw.cmd(&["CLIENT", "KILL", "ID", &id]).int();
        }
        tokio::time::sleep(ms(20)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(killed > 0, "no lane was there to be killed");
    until_clean(&mut raw, ms(10_000)).await;
}

/// The ids of the connections that neither listen nor renew, but for the one that asks.
fn lanes(raw: &mut Resp) -> Vec<String> {
    let own = raw.cmd(&["CLIENT", "ID"]).int().to_string();
    let mut ids = ids(raw, " sub=0 ");
    ids.retain(|id| *id != own);
    // The oldest is that for renewals.
    ids.split_off(1.min(ids.len()))
}

/// The ids of the connections of which the server says so, the oldest first.
fn ids(raw: &mut Resp, what: &str) -> Vec<String> {
    let list = raw.cmd(&["CLIENT", "LIST"]);
    let lines = list.text().unwrap().lines();
    let ids = lines.filter(|line| line.contains(what)).map(|line| {
        let id = line.split(' ').next().unwrap();
        id.trim_start_matches("id=").to_owned()
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_by_key(|id| id.parse::<u64>().unwrap());
    ids
}

/// Calls that are dropped while a server that stands still has their asks are undone, whatever it does with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_on_a_lane_is_undone() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    for round in 0..5 {
        open_lane_again(&manager, &mut raw).await;
        server.stop_process();
        let calls: Vec<_> = (0..50)
            .map(|i| {
                let lock = manager.lock(format!("k{i}")).lease(ms(30_000)).wait(LONG);
                tokio::spawn(async move {
                    drop(tokio::time::timeout(ms(10 * round), lock.acquire()).await)
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        server.cont_process();
        until_clean(&mut raw, ms(10_000)).await;
    }
}

/// A lane that may be there already.
async fn open_lane_again(manager: &LockManager, raw: &mut Resp) {
    if connections(raw) <= 1 + HOME {
        open_lane(manager, raw).await;
    }
}

/// The connection that listens is lost alone: nothing more is asked on a lane of whoever listened before, for its places
/// are those of a connection that the server takes for dead. There is another lane soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_goes_with_the_connection_that_listens() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server, 8).await;
    open_lane(&manager, &mut raw).await;
    let [old] = lanes(&mut raw).try_into().unwrap();
    for id in ids(&mut raw, " sub=1 ") {
        assert_eq!(raw.cmd(&["CLIENT", "KILL", "ID", &id]).int(), 1);
    }
    eventually_async(LONG, async || {
        calls(&manager, "warm").await;
        matches!(&*lanes(&mut raw), [new] if *new != old)
    })
    .await;
    until_clean(&mut raw, LONG).await;
}

/// After an outage everything is as before, the lane included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_comes_back_with_its_server() {
    let server = RedisServer::start();
    let manager = connect(&server, 8).await;
    open_lane(&manager, &mut server.client()).await;
    let waiting = {
        let _held = manager.lock("k").acquire().await.unwrap();
        server.kill();
        let lock = manager.lock("other").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
    };
    server.restart();
    within(LONG, waiting).await.unwrap().unwrap();
    let mut raw = server.client();
    eventually_async(LONG, async || connections(&mut raw) > HOME).await;
    open_lane_again(&manager, &mut raw).await;
    assert_eq!(connections(&mut raw), 1 + HOME + 1);
    calls(&manager, "k").await;
    until_clean(&mut raw, LONG).await;
}
