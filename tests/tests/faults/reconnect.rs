//! Connections and scripts that disappear under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::{RedisServer, Resp, eventually_async, within};
use tokio::task::JoinHandle;

use crate::access::renewed;
use crate::kit::{
    Exclusion, HELD, LONG, SLACK, acquire_later, connect, connections, lock_key, ms, until_clean,
    until_renewed_twice,
};

const CLIENTS: usize = 3;
const TASKS: usize = 3;
/// How many turns everybody has at least.
const TURNS: u64 = 5;

/// Several clients that work under one lock until all had turns and it is over.
struct Load {
    exclusion: Arc<Exclusion>,
    managers: Vec<LockManager>,
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(server: &RedisServer, lease: Duration) -> Self {
        let mut load = Load {
            exclusion: Exclusion::new(),
            managers: Vec::new(),
            is_over: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..CLIENTS {
            let manager = connect(&server.url()).await;
            for _ in 0..TASKS {
                let lock = manager.lock("k").lease(lease).wait(LONG);
                let (exclusion, is_over) = (load.exclusion.clone(), load.is_over.clone());
                load.tasks.push(tokio::spawn(async move {
                    let mut turns = 0;
                    while turns < TURNS || !is_over.load(Ordering::SeqCst) {
                        let turn = lock.run(async |held| {
                            let _inside = exclusion.enter(held.fencing_token());
                            tokio::time::sleep(ms(2)).await;
                        });
                        turn.await.unwrap();
                        turns += 1;
                    }
                }));
            }
            load.managers.push(manager);
        }
        load
    }

    /// Everybody had turns, and nothing is left behind.
    async fn end(self, raw: &mut Resp) {
        self.is_over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            within(LONG, task).await.unwrap();
        }
        for manager in &self.managers {
            manager.shutdown().await;
        }
        // Before a lease is over: nothing had to expire.
        until_clean(raw, LONG).await;
        eventually_async(LONG, async || connections(raw) == 1).await;
    }
}

async fn killing(kinds: &[&str]) {
    let server = RedisServer::start();
    let mut raw = server.client();
    let load = Load::start(&server, LONG * 2).await;
    let mut killed = 0;
    while killed < 40 {
        for kind in kinds {
            killed += raw
                .cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
                .int();
            tokio::time::sleep(ms(120)).await;
        }
    }
    load.end(&mut raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_subscribers() {
    killing(&["pubsub"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_of_every_kind() {
    killing(&["normal", "pubsub"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_renewals_lose_nothing() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    let mut killed = 0;
    for _ in 0..6 {
        killed += raw
            .cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .int();
        renewed(&guard).await.unwrap();
    }
    assert!(killed >= 6, "only {killed} connections were killed");
    guard.release().await.unwrap();
}

/// Whichever of its connections is replaced, a client renews its holds at once: the server may have forgotten them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_renewed_after_a_reconnect() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    // By itself it is renewed every ten seconds.
    let lock = manager.lock("k").lease(ms(120_000));
    let guard = lock.acquire().await.unwrap();
    for kind in ["normal", "pubsub"] {
        raw.cmd(&["PEXPIRE", &lock_key("k"), "60000"]);
        let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
        assert!(raw.cmd(&kill).int() > 0, "{kind}");
        eventually_async(ms(7_000), async || raw.pttl(&lock_key("k")) > 100_000).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let load = Load::start(&server, HELD).await;
    let renewed = load.managers[0]
        .lock("renewed")
        .lease(HELD)
        .acquire()
        .await
        .unwrap();
    let forgets = async {
        loop {
            raw.cmd(&["SCRIPT", "FLUSH"]);
            tokio::time::sleep(ms(7)).await;
        }
    };
    tokio::select! {
        () = forgets => {}
        () = until_renewed_twice(&renewed) => {}
    }
    renewed.release().await.unwrap();
    load.end(&mut raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflowing_subscriber_is_found_by_looking() {
    let server = RedisServer::builder()
        .args(["--client-output-buffer-limit", "pubsub", "64kb", "0", "0"])
        .start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let second = connect(&server.url_via(&proxy)).await;
    let channels = raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    let channel = channels.array()[0].text().unwrap().to_owned();
    let first = connect(&server.url()).await;
    let guard = first.lock("k").lease(LONG).acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", LONG, LONG);
    crate::kit::until_queued(&mut raw, "k", 1).await;
    // More than sockets and the limit hold, while the client reads nothing.
    proxy.stop_reading(distlock_tests::Way::ToClient, true);
    let garbage = "x".repeat(1 << 20);
    while raw.cmd(&["PUBLISH", &channel, &garbage]).int() > 0 {}
    proxy.stop_reading(distlock_tests::Way::ToClient, false);
    let released = Instant::now();
    guard.release().await.unwrap();
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let delay = acquired - released;
    // A grant that nobody hears of, a look, and a new connection.
    assert!(delay < ms(3_000) + SLACK, "found after {delay:?}");
    guard.unwrap().release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}
