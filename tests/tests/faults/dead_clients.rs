//! Waiters whose process stands still or is gone do not hold up the living.

use std::time::Instant;

use distlock_tests::{RedisServer, Resp, within};

use crate::child::child;
use crate::kit::{
    LONG, SLACK, acquire_later, connect, give_back, grace, grant_lease, leftovers, lock_key, ms,
    queue_key, until_queued,
};

/// Freezes a process whose 100 waiters stand before a live one.
async fn a_hundred_frozen_waiters(somebody_listens_to_everything: bool) {
    const FROZEN: usize = 100;
    let server = RedisServer::start();
    let mut raw = server.client();
    let _listener = somebody_listens_to_everything.then(|| {
        let mut listener: Resp = server.client();
        listener.cmd(&["PSUBSCRIBE", "*"]);
        listener
    });
    // A long one, so that it is seen when it is taken for the grant's.
    let lease = ms(10_000);
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    let mut frozen = child("queue", &server.url(), "k", lease, FROZEN);
    until_queued(&mut raw, "k", FROZEN as i64).await;
    let waiting = acquire_later(&live, "k", lease, LONG);
    until_queued(&mut raw, "k", FROZEN as i64 + 1).await;
    frozen.stop_process();

    let released = Instant::now();
    guard.release().await.unwrap();
    assert!(
        raw.exists(&lock_key("k")),
        "the lock went to the head of the queue"
    );
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let (guard, delay) = (guard.unwrap(), acquired - released);
    let bound = grant_lease(lease) + grace(grant_lease(lease)) + ms(1_000) + SLACK;
    assert!(delay <= bound, "delayed by {delay:?}, not {bound:?}");

    frozen.cont_process();
    until_queued(&mut raw, "k", FROZEN as i64).await;
    guard.release().await.unwrap();
    let mut last = 0;
    for _ in 0..FROZEN {
        let token: u64 = frozen.expect_line("turn", LONG).parse().unwrap();
        assert_ne!(token, last);
        last = token;
    }
    frozen.expect_line("done", LONG);
    assert!(frozen.wait(LONG).success());
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_with_a_hundred_waiters_costs_a_grant() {
    a_hundred_frozen_waiters(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_costs_no_more_while_somebody_listens_to_all_channels() {
    a_hundred_frozen_waiters(true).await;
}

/// It waited for a minute; nobody else has to, for a place among the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_no_queue_that_is_full_of_its_waiters() {
    const KILLED: usize = 250;
    let server = RedisServer::start();
    let mut raw = server.client();
    let small = distlock::LockManager::builder()
        .url(server.url())
        .max_waiters(KILLED as u32 + 1);
    let (holder, live) = (connect(&server.url()).await, small.connect().await.unwrap());
    let lease = ms(10_000);
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    // One who lives stands before them all.
    let patient = acquire_later(&holder, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    let killed = child("queue", &server.url(), "k", lease, KILLED);
    until_queued(&mut raw, "k", KILLED as i64 + 1).await;
    let error = live.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_busy(), "all of them live: {error:?}");
    let last = raw.cmd(&["ZRANGE", &queue_key("k"), "-1", "-1"]);
    let last = last.array()[0].text().unwrap();
    let dead = last.split(':').next().unwrap().to_owned();
    killed.kill();
    // The server has noticed.
    distlock_tests::eventually(LONG, || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
        channels.array().len() == 2
    });
    let waiting = [(); 2].map(|()| acquire_later(&live, "k", lease, LONG));
    distlock_tests::eventually_async(LONG, async || {
        assert!(
            !waiting.iter().any(|waiting| waiting.is_finished()),
            "{waiting:?}"
        );
        let queue = raw.cmd(&["ZRANGE", &queue_key("k"), "0", "-1"]);
        let owners = queue.array().iter().filter_map(|owner| owner.text());
        owners.filter(|owner| !owner.starts_with(&dead)).count() == 3
    })
    .await;
    guard.release().await.unwrap();
    within(LONG, give_back(patient)).await;
    // Which of them asked first is not known.
    let [first, second] = waiting.map(give_back);
    within(LONG, async { tokio::join!(first, second) }).await;
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_with_a_thousand_waiters_costs_next_to_nothing() {
    const KILLED: usize = 1_000;
    let server = RedisServer::start();
    let mut raw = server.client();
    // PUBLISH counts it, whoever a message is for.
    let mut listener = server.client();
    listener.cmd(&["PSUBSCRIBE", "*"]);
    let lease = ms(10_000);
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    let killed = child("queue", &server.url(), "k", lease, KILLED);
    until_queued(&mut raw, "k", KILLED as i64).await;
    let waiting = acquire_later(&live, "k", lease, LONG);
    until_queued(&mut raw, "k", KILLED as i64 + 1).await;
    killed.kill();
    // The server has noticed.
    distlock_tests::eventually(LONG, || {
        raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"])
            .array()
            .len()
            == 2
    });

    let released = Instant::now();
    guard.release().await.unwrap();
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let delay = acquired - released;
    assert!(delay <= ms(1_500) + SLACK, "delayed by {delay:?}");
    guard.unwrap().release().await.unwrap();
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

/// One call removes a bounded number of dead waiters; a look goes on at once, not half a second later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_look_passes_ten_thousand_dead_waiters() {
    const FILL: &str = "local now = redis.call('TIME')[1] * 1000000
        for i = 1, 10000 do
            local owner = string.format('%x:%d', 0xdead0000 + i, i)
            redis.call('ZADD', KEYS[1], i, owner)
            redis.call('HSET', KEYS[2], owner, string.format('%.0f 1000 1250 dead', now + 3600e6))
        end";
    let server = RedisServer::start();
    let mut raw = server.client();
    // A holder that is not there to notice anything: nobody but the one who waits drives the queue.
    let holder = format!("2 {}:1 1 60000 1 gone", "a".repeat(32));
    raw.cmd(&["SET", &lock_key("k"), &holder, "PX", "60000"]);
    let live = connect(&server.url()).await;
    let waiting = acquire_later(&live, "k", ms(10_000), 6 * LONG);
    until_queued(&mut raw, "k", 1).await;
    // They stand before it, and nobody listens for them.
    let entries = queue_key("k").replace(":queue:", ":entry:");
    raw.cmd(&["EVAL", FILL, "2", &queue_key("k"), &entries]);
    until_queued(&mut raw, "k", 10_001).await;
    // A hundred removals every half second would take most of a minute.
    raw.cmd(&["DEL", &lock_key("k")]);
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    next.release().await.unwrap();
    until_queued(&mut raw, "k", 0).await;
}
