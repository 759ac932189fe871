//! A lock over independent servers, while some of them are away, frozen, or have forgotten everything.

use std::time::Duration;

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisQuorum, Way, eventually_async, within};

use crate::kit::{LONG, SLACK, acquire_later, give_back, leftovers, lock_key, ms, queue_key};

/// Three servers that have been running for long.
fn three() -> RedisQuorum {
    let quorum = RedisQuorum::start(3);
    quorum.vote("distlock");
    quorum
}

async fn connect(quorum: &RedisQuorum) -> LockManager {
    LockManager::connect(quorum.url()).await.unwrap()
}

/// Waits until no server that runs has anything but fences and its epoch.
async fn until_clean(quorum: &RedisQuorum) {
    for place in 0..3 {
        let server = quorum.server(place);
        if !server.is_running() {
            continue;
        }
        let mut raw = server.client();
        eventually_async(LONG, async || {
            leftovers(&mut raw)
                .iter()
                .all(|key| key == "distlock:epoch")
        })
        .await;
    }
}

/// Waits until so many stand in the queue of one server.
async fn until_queued_at(quorum: &RedisQuorum, place: usize, key: &str, count: i64) {
    let mut raw = quorum.server(place).client();
    eventually_async(LONG, async || {
        raw.cmd(&["ZCARD", &queue_key(key)]).int() == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_at_most_servers_and_handed_on_in_order() {
    let quorum = three();
    let managers = [connect(&quorum).await, connect(&quorum).await];
    let guard = managers[0].lock("k").acquire().await.unwrap();
    // Two are enough for it to be held; the third is told as well.
    let held = format!(" {} ", guard.fencing_token());
    for place in 0..3 {
        let mut raw = quorum.server(place).client();
        let is_held = |value: String| value.starts_with("3 held ") && value.contains(&held);
        eventually_async(LONG, async || raw.get(&lock_key("k")).is_some_and(is_held)).await;
    }
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(acquire_later(&managers[number % 2], "k", ms(5_000), LONG));
        until_queued_at(&quorum, 0, "k", number as i64 + 1).await;
    }
    let mut last = guard.fencing_token();
    guard.release().await.unwrap();
    let mut ended = Vec::new();
    for waiting in waiting {
        let (token, at) = give_back(waiting).await;
        assert!(token > last, "{token} after {last}");
        (last, _) = (token, ended.push(at));
    }
    assert!(ended.is_sorted(), "first come, first served");
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_may_be_dead_or_frozen() {
    for is_frozen in [false, true] {
        let quorum = three();
        let managers = [connect(&quorum).await, connect(&quorum).await];
        // Held before, and renewed at the other two.
        let held = managers[0]
            .lock("held")
            .lease(ms(900))
            .acquire()
            .await
            .unwrap();
        if is_frozen {
            quorum.server(1).stop_process();
        } else {
            quorum.server(1).kill();
        }
        let mut last = None;
        for number in 0..20 {
            let lock = managers[number % 2].lock("k").wait(LONG);
            let guard = lock.acquire().await.unwrap();
            assert!(Some(guard.fencing_token()) > last);
            last = Some(guard.fencing_token());
            guard.release().await.unwrap();
        }
        let guard = managers[0].lock("k").acquire().await.unwrap();
        let waiting = acquire_later(&managers[1], "k", ms(5_000), LONG);
        until_queued_at(&quorum, 0, "k", 1).await;
        guard.release().await.unwrap();
        give_back(waiting).await;
        tokio::time::sleep(ms(1_800)).await;
        held.release().await.unwrap();
        if is_frozen {
            quorum.server(1).cont_process();
        }
        until_clean(&quorum).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_grants_nothing() {
    let quorum = three();
    let manager = connect(&quorum).await;
    quorum.server(0).kill();
    quorum.server(2).kill();
    let lock = manager.lock("k").wait(ms(600));
    let error = within(LONG, lock.acquire()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let told = error.to_string();
    assert!(told.contains("1 of 3 servers can be used"), "{told}");
    until_clean(&quorum).await;
    quorum.server(0).restart();
    quorum.vote_at(0, "distlock");
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

/// Who is cut off leaves the queues, and stands in them again when the servers are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_when_the_servers_are_back() {
    let quorum = three();
    let managers = [connect(&quorum).await, connect(&quorum).await];
    let guard = managers[0]
        .lock("k")
        .lease(ms(900))
        .acquire()
        .await
        .unwrap();
    let waiting = acquire_later(&managers[1], "k", ms(5_000), LONG);
    for place in 0..3 {
        until_queued_at(&quorum, place, "k", 1).await;
    }
    quorum.server(0).kill();
    quorum.server(1).kill();
    until_queued_at(&quorum, 2, "k", 0).await;
    let _ = within(LONG, guard.lost()).await;
    for place in [0, 1] {
        quorum.server(place).restart();
        quorum.vote_at(place, "distlock");
    }
    give_back(waiting).await;
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_renewed_at_too_few_is_lost() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let lease = ms(900);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    quorum.server(0).stop_process();
    quorum.server(1).stop_process();
    let error = within(lease + SLACK, guard.lost()).await;
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    quorum.server(0).cont_process();
    quorum.server(1).cont_process();
    assert!(!guard.is_held());
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_does_not_vote_until_it_is_safe() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let lease = ms(1_500);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    quorum.server(0).kill();
    quorum.server(0).restart();
    let mut raw = quorum.server(0).client();
    // Somebody asks, and it knows from when it votes.
    let other = connect(&quorum).await;
    let busy = other.lock("k").try_acquire().await.unwrap();
    assert!(busy.is_none());
    eventually_async(LONG, async || raw.exists("distlock:epoch")).await;
    assert!(!raw.exists(&lock_key("k")));
    // The others are enough to go on.
    tokio::time::sleep(lease * 2).await;
    assert!(guard.is_held());
    // And it is repaired as soon as it votes.
    quorum.vote_at(0, "distlock");
    eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_have_just_started_say_how_long_they_do_not_vote() {
    let quorum = RedisQuorum::start(3);
    let manager = connect(&quorum).await;
    let lock = manager.lock("k").wait(Duration::ZERO);
    let error = lock.acquire().await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("votes in "), "{told}");
    match error {
        Error::Unavailable { outage, .. } => assert_eq!(outage, Outage::NotReady),
        other => panic!("{other}"),
    }
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_server_are_refused() {
    let quorum = RedisQuorum::start(2);
    let port = quorum.server(0).port();
    let url = format!("{},localhost:{port}", quorum.url());
    let error = LockManager::connect(url).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("another name"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_fails_leaves_nothing() {
    let quorum = three();
    let managers = [connect(&quorum).await, connect(&quorum).await];
    let guard = managers[0].lock("k").acquire().await.unwrap();
    for _ in 0..5 {
        assert!(managers[1].lock("k").try_acquire().await.unwrap().is_none());
    }
    for place in 0..3 {
        let mut raw = quorum.server(place).client();
        eventually_async(LONG, async || !raw.exists(&queue_key("k"))).await;
    }
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_nobody_is_starved_and_nobody_shares() {
    let quorum = three();
    contended(&quorum).await;
    quorum.server(1).kill();
    contended(&quorum).await;
}

/// With two servers left each of two callers has the vote of the one that it is closer to, and neither gets further unless
/// one of them gives way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_too_few_votes_gives_way_to_the_earlier() {
    let quorum = three();
    quorum.server(1).kill();
    let far = [quorum.server(0).proxy(), quorum.server(2).proxy()];
    let ports = |first: u16, last: u16| {
        let dead = quorum.server(1).port();
        format!("redis+quorum://127.0.0.1:{first},127.0.0.1:{dead},127.0.0.1:{last}")
    };
    let urls = [
        ports(quorum.server(0).port(), far[1].port()),
        ports(far[0].port(), quorum.server(2).port()),
    ];
    let mut managers = Vec::new();
    for url in urls {
        managers.push(LockManager::connect(url).await.unwrap());
    }
    for proxy in &far {
        proxy.delay(Way::ToServer, ms(50));
    }
    for round in 0..3 {
        let key = format!("k{round}");
        let first = acquire_later(&managers[0], &key, ms(5_000), LONG);
        let second = acquire_later(&managers[1], &key, ms(5_000), LONG);
        tokio::join!(give_back(first), give_back(second));
    }
    until_clean(&quorum).await;
}

async fn contended(quorum: &RedisQuorum) {
    let mut tasks = tokio::task::JoinSet::new();
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    for _ in 0..4 {
        let manager = connect(quorum).await;
        for _ in 0..4 {
            let (manager, inside) = (manager.clone(), inside.clone());
            tasks.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..10 {
                    let lock = manager.lock("k").wait(LONG).lease(ms(5_000));
                    let guard = lock.acquire().await.unwrap();
                    let order = std::sync::atomic::Ordering::SeqCst;
                    assert_eq!(inside.fetch_add(1, order), 0, "somebody else is inside");
                    tokens.push(guard.fencing_token());
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, order);
                    guard.release().await.unwrap();
                }
                tokens
            });
        }
    }
    let mut all = Vec::new();
    while let Some(tokens) = tasks.join_next().await {
        let tokens = tokens.unwrap();
        assert!(tokens.is_sorted());
        all.extend(tokens);
    }
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "each has a token of its own");
    until_clean(quorum).await;
}
