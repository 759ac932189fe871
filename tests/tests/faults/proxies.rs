//! Proxies that pass on no messages: calls look for what they were granted.

use std::time::Instant;

use distlock::{Error, LockManager, Outage};
use distlock_tests::{Middleman, RedisServer, eventually_async, within};

use crate::kit::{
    Exclusion, HELD, LONG, SLACK, acquire_later, connect, connections, give_back, lock_key, ms,
    queue_key, until_clean, until_queued,
};

/// How late a grant may be found: two looks, half a second apart at most, and what a busy machine adds.
const FOUND_WITHIN: std::time::Duration = ms(1_000 + SLACK.as_millis() as u64);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_on_to_who_looks_for_it() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let mut raw = server.client();
    let (first, second) = (connect(&proxy.url()).await, connect(&proxy.url()).await);
    for waited in [ms(0), ms(700)] {
        let guard = first.lock("k").acquire().await.unwrap();
        let token = guard.fencing_token();
        let waiting = acquire_later(&second, "k", ms(15_000), LONG);
        until_queued(&mut raw, "k", 1).await;
        tokio::time::sleep(waited).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (next, at) = waiting.await.unwrap();
        let next = next.unwrap();
        assert!(next.fencing_token() > token);
        let found = at - released;
        println!("found {found:?} after the release");
        assert!(found < FOUND_WITHIN, "{found:?}");
        next.release().await.unwrap();
    }
    // Neither what says that somebody lives.
    until_clean(&mut raw, LONG).await;
}

/// First come first served, and one at a time, whether they look or listen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_and_who_listens_stand_in_one_queue() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let mut raw = server.client();
    let holder = connect(&server.url())
        .await
        .lock("k")
        .acquire()
        .await
        .unwrap();
    let exclusion = Exclusion::new();
    let mut waiting = Vec::new();
    let mut managers = Vec::new();
    for number in 0..10 {
        let url = if number % 2 == 0 {
            proxy.url()
        } else {
            server.url()
        };
        let manager = connect(&url).await;
        let lock = manager.lock("k").lease(ms(3_000)).wait(LONG);
        let exclusion = exclusion.clone();
        waiting.push(tokio::spawn(async move {
            let turn = lock.run(async |held| {
                let _inside = exclusion.enter(held.fencing_token());
                tokio::time::sleep(ms(20)).await;
                held.fencing_token()
            });
            turn.await.unwrap()
        }));
        managers.push(manager);
        until_queued(&mut raw, "k", number + 1).await;
    }
    // Longer than anybody is believed to live who neither looks nor listens.
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(raw.cmd(&["ZCARD", &queue_key("k")]).int(), 10);
    holder.release().await.unwrap();
    let mut tokens = Vec::new();
    for turn in waiting {
        tokens.push(within(LONG, turn).await.unwrap());
    }
    assert!(
        tokens.is_sorted(),
        "not in the order of their coming: {tokens:?}"
    );
    until_clean(&mut raw, LONG).await;
}

/// Whoever has stopped looking is passed, and its place is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_looks_no_more_is_passed() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let holder = connect(&server.url())
        .await
        .lock("k")
        .acquire()
        .await
        .unwrap();
    let mut proxy = Middleman::before(&[&server]);
    let cut_off = connect(&proxy.url()).await;
    let forgotten = acquire_later(&cut_off, "k", ms(15_000), LONG * 2);
    until_queued(&mut raw, "k", 1).await;
    let listens = connect(&server.url()).await;
    let waiting = acquire_later(&listens, "k", ms(15_000), LONG);
    until_queued(&mut raw, "k", 2).await;
    proxy.stop_process();
    tokio::time::sleep(ms(2_000)).await;
    holder.release().await.unwrap();
    // At once, without a grant that nobody takes: the name of who looks is a digit longer.
    let value = raw.cmd(&["GET", &lock_key("k")]);
    let owner = value.text().and_then(|value| value.split(' ').nth(1));
    let client = owner.and_then(|owner| owner.split(':').next());
    assert_eq!(client.map(str::len), Some(32), "{value:?}");
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    // It is there again, behind the others.
    proxy.cont_process();
    until_queued(&mut raw, "k", 1).await;
    guard.release().await.unwrap();
    within(LONG, give_back(forgotten)).await;
    until_clean(&mut raw, LONG).await;
}

/// Many locks, held and waited for at once, on several servers: each command goes to the one that has its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_spread_over_the_servers_behind_it() {
    let servers = [
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    ];
    let proxy = Middleman::before(&servers.each_ref());
    let (first, second) = (connect(&proxy.url()).await, connect(&proxy.url()).await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..60 {
        // Not alike, for a proxy's hash may keep together what is.
        let key = format!("{}:{number}", number * 7_919 % 1_000);
        held.push(first.lock(&key).lease(HELD).acquire().await.unwrap());
        waiting.push(acquire_later(&second, &key, HELD, LONG));
    }
    // Longer than a lease.
    tokio::time::sleep(HELD * 5 / 4).await;
    let used = servers
        .iter()
        .filter(|server| !server.client().keys("distlock:fence:*").is_empty());
    assert!(used.count() >= 2, "the locks are on one server");
    for guard in held {
        assert!(guard.is_held(), "{:?}", guard.lost().await);
        guard.release().await.unwrap();
    }
    for call in waiting {
        within(LONG, give_back(call)).await;
    }
    for server in &servers {
        until_clean(&mut server.client(), LONG).await;
    }
}

/// It might have several servers behind it, and shares its connections to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_replicas_behind_it() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let refused = manager.lock("k").min_replicas(1).acquire().await;
    let refused = refused.unwrap_err();
    let is_told = matches!(
        refused,
        Error::Unavailable {
            outage: Outage::Unsupported,
            ..
        }
    );
    assert!(is_told && !refused.is_retryable(), "{refused:?}");
    assert!(server.client().keys("*").is_empty());
}

/// Calls that end while nobody can be told are not looked for when the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_gone_is_looked_for_no_more() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let holder = connect(&server.url()).await;
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..10_i64 {
        let key = format!("k{number}");
        let lock = holder.lock(&key).lease(ms(1_000));
        held.push(lock.acquire().await.unwrap());
        waiting.push(acquire_later(&manager, &key, ms(1_000), ms(1_000)));
        until_queued(&mut server.client(), &key, 1).await;
    }
    server.kill();
    for call in waiting {
        let (refused, _) = within(LONG, call).await.unwrap();
        assert!(refused.is_err());
    }
    // Their releases are given up once nothing of them can be left.
    tokio::time::sleep(ms(4_000)).await;
    server.restart();
    let again = async || manager.lock("k").wait(ms(500)).acquire().await.is_ok();
    eventually_async(LONG, again).await;
    holder.shutdown().await;
    let calls = || {
        let stats = server.client().cmd(&["INFO", "commandstats"]);
        let scripts = stats.text().unwrap_or_default().lines();
        let calls = scripts.filter_map(|line| {
            let behind = line.strip_prefix("cmdstat_eval")?;
            let count = behind.split_once("calls=")?.1.split(',').next()?;
            count.parse::<u64>().ok()
        });
        calls.sum::<u64>()
    };
    eventually_async(LONG, async || {
        let before = calls();
        // Two looks.
        tokio::time::sleep(ms(1_000)).await;
        calls() == before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_and_its_server_come_and_go() {
    let server = RedisServer::builder().append_only().start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let guard = manager.lock("held").lease(LONG).acquire().await.unwrap();
    server.kill();
    let refused = manager.lock("k").wait(ms(500)).acquire().await.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    server.restart();
    let again = async || manager.lock("k").wait(ms(500)).acquire().await.is_ok();
    eventually_async(LONG, again).await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    guard.release().await.unwrap();
    assert!(!server.client().exists(&lock_key("held")));
    manager.shutdown().await;
    drop(proxy);
    let error = LockManager::builder()
        .url("redis://127.0.0.1:1")
        .connect_timeout(ms(200));
    assert!(matches!(
        error.connect().await,
        Err(Error::Unavailable { .. })
    ));
    // What is left are those of this test.
    let mut raw = server.client();
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
}
