//! Very many callers at once, before, during and after an outage: a client never makes a healthy server
//! unusable, for itself or for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::kit::{LONG, acquire_later, connect, connections, ms, until_clean, until_queued};

/// What a manager may open when it is used from one runtime: a connection for commands and one for
/// renewals, and each of them once more, should the first attempt have met a server that was not ready.
const MOST_CONNECTIONS: u64 = 4;

/// Whatever the manager shows of itself under this name.
fn shown(manager: &LockManager, field: &str) -> u64 {
    let shown = format!("{manager:?}");
    let (_, behind) = shown.split_once(&format!("{field}: ")).expect(&shown);
    let end = behind.find(|c: char| !c.is_ascii_digit()).expect(&shown);
    behind[..end].parse().expect(&shown)
}

/// How many scripts the server was asked to run since it started.
fn scripts(raw: &mut Resp) -> u64 {
    let stats = raw.cmd(&["INFO", "commandstats"]);
    let stats = stats.text().expect("statistics");
    let calls = |line: &str| {
        let (_, behind) = line.split_once("calls=")?;
        behind.split(',').next()?.parse::<u64>().ok()
    };
    stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(calls)
        .sum()
}

/// Connections that were opened since the server started, without those of the test itself.
fn opened(raw: &mut Resp, own: u64) -> u64 {
    let received: u64 = raw
        .info_field("total_connections_received")
        .parse()
        .unwrap();
    received - own
}

/// Tries from several tasks at once, for so many times in all. How many succeeded.
async fn try_often(manager: &LockManager, key: &'static str, calls: u64) -> u64 {
    let left = Arc::new(AtomicU64::new(calls));
    let won = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (manager, left, won) = (manager.clone(), left.clone(), won.clone());
            tokio::spawn(async move {
                let one = |n: u64| n.checked_sub(1);
                while let Ok(n) = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one) {
                    let lock = manager.lock(format!("{key}{n}"));
                    if let Ok(Some(guard)) = lock.try_acquire().await {
                        guard.release().await.unwrap();
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    won.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_failed_in_an_outage_are_no_burden_after_it() {
    const CALLS: u64 = 20_000;
    let server = RedisServer::builder().append_only().start();
    let manager = connect(&server.url()).await;
    let bystander = connect(&server.url()).await;
    let held = bystander.lock("bystander").acquire().await.unwrap();
    assert_eq!(try_often(&manager, "before", 200).await, 200);
    server.kill();
    let down = async || manager.lock("k").try_acquire().await.is_err();
    eventually_async(LONG, down).await;
    assert_eq!(try_often(&manager, "during", CALLS).await, 0);
    server.restart();
    let back = Instant::now();
    eventually_async(LONG, async || {
        let tried = manager.lock("after").try_acquire().await;
        tried.is_ok_and(|guard| guard.is_some())
    })
    .await;
    assert_eq!(try_often(&manager, "after", 200).await, 200);
    assert!(held.is_held(), "the bystander lost its lock");
    // What was never sent is not undone, and no script was sent twice because it was unknown.
    let mut raw = server.client();
    let asked = scripts(&mut raw);
    assert!(
        asked < 2_000,
        "{asked} scripts for some hundred calls, {:?} after the return",
        back.elapsed()
    );
    // Two clients, and the test's two looks at the server.
    let opened = opened(&mut raw, 2);
    assert!(opened <= 2 * MOST_CONNECTIONS, "{opened} connections");
    assert_eq!(shown(&manager, "waiting"), 0);
    eventually_async(LONG, async || shown(&manager, "releasing") == 0).await;
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_frozen_server_left_unanswered_is_undone_in_order() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // Known scripts, so that each call is one command.
    assert_eq!(try_often(&manager, "before", 200).await, 200);
    let mut raw = server.client();
    server.stop_process();
    let asked = Instant::now();
    // They are sent, and nobody knows what became of them.
    assert_eq!(try_often(&manager, "during", 1_000).await, 0);
    assert!(asked.elapsed() < LONG, "{:?}", asked.elapsed());
    server.cont_process();
    eventually_async(LONG, async || {
        let tried = manager.lock("after").try_acquire().await;
        tried.is_ok_and(|guard| guard.is_some())
    })
    .await;
    eventually_async(LONG, async || shown(&manager, "releasing") == 0).await;
    // Long before a lease would be over.
    until_clean(&mut raw, ms(10_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_outlast_a_restart() {
    const WAITERS: i64 = 10_000;
    let server = RedisServer::start();
    let mut raw = server.client();
    let holder = connect(&server.url()).await;
    let manager = connect(&server.url()).await;
    let held = holder.lock("k").acquire().await.unwrap();
    let wait = Duration::from_secs(400);
    let started = Instant::now();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| acquire_later(&manager, "k", ms(30_000), wait))
        .map(|waiter| tokio::spawn(crate::kit::give_back(waiter)))
        .collect();
    eventually_async(wait, async || {
        raw.cmd(&["ZCARD", "distlock:queue:{k}"]).int() == WAITERS
    })
    .await;
    println!("{WAITERS} wait after {:?}", started.elapsed());
    server.kill();
    server.restart();
    let back = Instant::now();
    let mut first = Duration::MAX;
    for waiter in waiters {
        let (_, acquired) = within(wait, waiter).await.unwrap();
        first = first.min(acquired.saturating_duration_since(back));
    }
    println!("first after {first:?}, all after {:?}", back.elapsed());
    assert!(first < LONG * 3, "the first grant came after {first:?}");
    let mut raw = server.client();
    let opened = opened(&mut raw, 2);
    assert!(opened <= 2 * MOST_CONNECTIONS, "{opened} connections");
    assert!(held.release().await.is_err(), "the server forgot it");
    assert_eq!(shown(&manager, "waiting"), 0);
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_callers_at_once_need_no_more_connections() {
    const CALLERS: u64 = 20_000;
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    // The lane is opened before.
    let home = connections(&mut raw);
    eventually_async(LONG, async || {
        try_often(&manager, "before", 100).await;
        connections(&mut raw) > home
    })
    .await;
    let before = connections(&mut raw);
    let opened_before = opened(&mut raw, 0);
    let started = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let lock = manager.lock(format!("k{n}")).wait(LONG * 6);
            tokio::spawn(async move { lock.run(async |_| ()).await })
        })
        .collect();
    for caller in callers {
        within(LONG * 6, caller).await.unwrap().unwrap();
    }
    println!("{CALLERS} callers in {:?}", started.elapsed());
    // One that was silent for long may have been replaced.
    let more = opened(&mut raw, 0) - opened_before;
    assert!(more <= MOST_CONNECTIONS, "it dialed {more} times");
    eventually_async(LONG, async || connections(&mut raw) <= before).await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_loaded_once() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    assert_eq!(try_often(&manager, "before", 100).await, 100);
    raw.cmd(&["SCRIPT", "FLUSH"]);
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let callers: Vec<_> = (0..500)
        .map(|n| {
            let lock = manager.lock(format!("k{n}")).wait(LONG);
            tokio::spawn(async move { lock.run(async |_| ()).await })
        })
        .collect();
    for caller in callers {
        within(LONG, caller).await.unwrap().unwrap();
    }
    let stats = raw.cmd(&["INFO", "commandstats"]);
    let by_source = stats.text().unwrap().lines().find_map(|line| {
        let behind = line.strip_prefix("cmdstat_eval:calls=")?;
        behind.split(',').next()?.parse::<u64>().ok()
    });
    let by_source = by_source.unwrap_or(0);
    assert!(
        (1..50).contains(&by_source),
        "{by_source} scripts were sent by their source"
    );
    until_queued(&mut raw, "k", 0).await;
}

/// A number from the environment, for those who want more of it.
fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Calls at a steady rate, before, during and after an outage. With `DISTLOCK_RATE=3000` calls a second and
/// `DISTLOCK_OUTAGE=20` seconds, in a release build, it is what a busy service goes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steady_service_goes_on_after_an_outage() {
    const TICK: Duration = ms(10);
    let rate = from_env("DISTLOCK_RATE", 300);
    let outage = Duration::from_secs(from_env("DISTLOCK_OUTAGE", 3));
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // Successes, by the tick in which their call was made.
    let served: Arc<Vec<AtomicU64>> = Arc::new((0..10_000).map(|_| AtomicU64::default()).collect());
    let ticks = Arc::new(AtomicU64::new(0));
    let calls = tokio::spawn({
        let (manager, served, ticks) = (manager.clone(), served.clone(), ticks.clone());
        async move {
            let mut every = tokio::time::interval(TICK);
            let mut calls = tokio::task::JoinSet::new();
            for tick in 0..served.len() {
                every.tick().await;
                ticks.store(tick as u64, Ordering::Release);
                for n in 0..rate / 100 {
                    let (manager, served) = (manager.clone(), served.clone());
                    calls.spawn(async move {
                        let lock = manager.lock(format!("{tick}:{n}"));
                        if let Ok(Some(guard)) = lock.try_acquire().await {
                            let _ = guard.release().await;
                            served[tick].fetch_add(1, Ordering::AcqRel);
                        }
                    });
                }
                while calls.try_join_next().is_some() {}
            }
        }
    });
    // All calls of a second were served.
    let full_since = async |from: u64| {
        let mut first = from;
        eventually_async(LONG * 3, async || {
            let now = ticks.load(Ordering::Acquire).saturating_sub(20);
            let is_full = |tick: u64| served[tick as usize].load(Ordering::Acquire) >= rate / 100;
            if let Some(bad) = (first..now).rev().find(|tick| !is_full(*tick)) {
                first = bad + 1;
            }
            now >= first + 100
        })
        .await;
        first
    };
    full_since(0).await;
    server.kill();
    tokio::time::sleep(outage).await;
    server.restart();
    let back = ticks.load(Ordering::Acquire);
    let full = full_since(back).await;
    let took = TICK * u32::try_from(full - back).unwrap();
    println!("{rate} calls/s, {outage:?} away: all served {took:?} after the return");
    assert!(took < LONG, "{took:?}");
    calls.abort();
    let mut raw = server.client();
    let opened = opened(&mut raw, 2);
    println!("{opened} connections, {manager:?}");
    assert!(opened <= MOST_CONNECTIONS, "{opened} connections");
    let at_rest = async || {
        ["held", "waiting", "releasing"]
            .iter()
            .all(|field| shown(&manager, field) == 0)
    };
    eventually_async(LONG, at_rest).await;
    until_clean(&mut raw, LONG).await;
}

/// What the store refuses each time stands before nothing that it would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_are_refused_delay_no_others() {
    const BAD: u64 = 600;
    const GOOD: u64 = 2_000;
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = Duration::from_secs(60);
    for n in 0..BAD {
        raw.cmd(&["SET", &format!("distlock:queue:{{bad{n}}}"), "somebody's"]);
    }
    let mut held = Vec::new();
    for n in 0..GOOD {
        let lock = manager.lock(format!("good{n}")).lease(lease);
        held.push(lock.acquire().await.unwrap());
    }
    for n in 0..BAD {
        let lock = manager.lock(format!("bad{n}")).lease(lease);
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::ForeignKey { .. }), "{error:?}");
    }
    drop(held);
    eventually_async(LONG, async || raw.keys("distlock:lock:*").is_empty()).await;
    // The others are still tried, and refused. The last answers may still be on their way to the manager.
    eventually_async(LONG, async || shown(&manager, "releasing") == BAD).await;
}
