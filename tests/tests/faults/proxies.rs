//! Proxies that pass on no pushes: waiting calls find their grants by queue checks.

use std::time::Instant;

use distlock::{Error, Outage};
use distlock_tests::{Middleman, RedisServer, equal, eventually_async, within};

use crate::support::{
    Exclusion, HELD, LONG, SLACK, acquire_later, acquired, connect, connections, give_back, hold,
    lock_key, ms, scripts, take, until_clean, until_queued, until_served,
};

/// Upper limit of the time until a grant is found: two queue checks, at most half a second apart,
/// and a busy machine's allowance.
const FOUND_WITHIN: std::time::Duration = ms(1_000 + SLACK.as_millis() as u64);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_granted_to_a_waiter_that_checks_the_queue() {
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
        let next = acquired(waiting).await;
        let found = released.elapsed();
        assert!(next.fencing_token() > token);
        assert!(found < FOUND_WITHIN, "{found:?}");
        next.release().await.unwrap();
    }
    until_clean(&mut raw, LONG).await;
}

/// First come, first served, one at a time, for subscribed waiters and for those behind a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxied_and_subscribed_waiters_share_one_queue() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let mut raw = server.client();
    let holder = hold(&connect(&server.url()).await, "k", LONG).await;
    let exclusion = Exclusion::new();
    let mut waiting = Vec::new();
    let mut managers = Vec::new();
    for number in 0..10 {
        let is_proxied = number % 2 == 0;
        let url = if is_proxied {
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
                Ok::<_, Error>(held.fencing_token())
            });
            turn.await.unwrap()
        }));
        managers.push(manager);
        until_queued(&mut raw, "k", number + 1).await;
    }
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

/// A proxy that is put in front of the server. What the client has in the store says that it gets
/// messages, and its other connections may lead to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_added_is_refused() {
    let server = RedisServer::start();
    let (route, added) = (server.proxy(), Middleman::before(&[&server]));
    let manager = connect(&server.url_via(&route)).await;
    take(manager.lock("k")).await;
    route.move_to(added.addr());
    route.reset_connections();
    eventually_async(LONG, async || {
        let refused = manager.lock("k").try_acquire().await;
        refused.is_err_and(|error| error.to_string().contains("no longer does"))
    })
    .await;
    let fresh = connect(&server.url_via(&route)).await;
    take(fresh.lock("k")).await;
}

/// Many locks on several servers, held and waited for at once. Each command reaches the server that
/// has its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_spread_over_the_servers_behind_a_proxy() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let proxy = Middleman::before(&servers.each_ref());
    let (first, second) = (connect(&proxy.url()).await, connect(&proxy.url()).await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..60 {
        // Dissimilar keys, because a proxy's hash may keep similar ones together.
        let key = format!("{}:{number}", number * 7_919 % 1_000);
        held.push(hold(&first, &key, HELD).await);
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

/// A proxy might have several servers behind it, and shares its connections to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_waits_for_replicas_behind_a_proxy() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let refused = manager.lock("k").min_replicas(1).acquire().await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.outage(), Some(Outage::Unsupported));
    assert!(!refused.is_retryable(), "{refused:?}");
    assert!(server.client().keys("*").is_empty());
}

/// Calls that end while the server is down cause no queue checks when it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_ended_cause_no_queue_checks() {
    let server = RedisServer::start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let holder = connect(&server.url()).await;
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..10_i64 {
        let key = format!("k{number}");
        held.push(hold(&holder, &key, ms(1_000)).await);
        waiting.push(acquire_later(&manager, &key, ms(1_000), ms(1_000)));
        until_queued(&mut server.client(), &key, 1).await;
    }
    server.kill();
    for call in waiting {
        let (refused, _) = within(LONG, call).await.unwrap();
        assert!(refused.is_err());
    }
    // Their releases are abandoned once nothing of the calls can be left.
    tokio::time::sleep(ms(4_000)).await;
    server.restart();
    until_served(&manager).await;
    holder.shutdown().await;
    let mut raw = server.client();
    eventually_async(LONG, async || {
        let before = scripts(&mut raw);
        // Time for two queue checks.
        tokio::time::sleep(ms(1_000)).await;
        equal(scripts(&mut raw), before)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_and_its_server_come_and_go() {
    let server = RedisServer::builder().append_only().start();
    let proxy = Middleman::before(&[&server]);
    let manager = connect(&proxy.url()).await;
    let guard = hold(&manager, "held", LONG).await;
    server.kill();
    let refused = manager.lock("k").wait(ms(500)).acquire().await.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    server.restart();
    until_served(&manager).await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    guard.release().await.unwrap();
    assert!(!server.client().exists(&lock_key("held")));
    manager.shutdown().await;
    drop(proxy);
    // Only the connection of this test is left.
    let mut raw = server.client();
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
}
