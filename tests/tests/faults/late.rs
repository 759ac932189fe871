//! Commands that an old connection delivers late, and replies that never arrive.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::{
    After, Monitor, Proxy, RedisServer, Reply, Resp, Way, eventually_async, within,
};

use crate::kit;
use crate::kit::{
    Acquiring, LONG, SLACK, acquire_later, connect, give_back, lock_key, ms, queue_key,
    until_answered, until_clean, until_queued, warm,
};

/// Long, so that its commands may arrive up to a second late, and an orphan would stay.
const LEASE: Duration = ms(30_000);

/// Far below the lease: what is left after this is an orphan.
const SOON: Duration = ms(12_000);

/// A client behind a proxy whose ask is held back.
struct Late {
    server: RedisServer,
    proxy: Proxy,
    raw: Resp,
    manager: LockManager,
    monitor: Monitor,
    /// The connections that were open when it was asked.
    old: Vec<u64>,
}

impl Late {
    /// With or without the right to kill its old connection.
    async fn new(may_kill: bool) -> Self {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let mut raw = server.client();
        if !may_kill {
            let denied = ["ACL", "SETUSER", "default", "-client"];
            assert_eq!(raw.cmd(&denied), Reply::Status("OK".into()));
        }
        let manager = connect(&server.url_via(&proxy)).await;
        let monitor = server.monitor();
        Late {
            server,
            proxy,
            raw,
            manager,
            monitor,
            old: Vec::new(),
        }
    }

    /// Makes the next call ask over a connection of this runtime, unless the run has none.
    async fn open_runtime_connection(&self) {
        if std::env::var("DISTLOCK_LANES").is_ok_and(|limit| limit == "0") {
            return;
        }
        let calls = async || {
            let lock = self.manager.lock("warm").wait(LONG);
            let calls = tokio::spawn(async move {
                for _ in 0..20 {
                    lock.run(async |_| ()).await.unwrap();
                }
            });
            calls.await.unwrap();
        };
        let proxy = self.proxy.handle();
        eventually_async(LONG, async || {
            calls().await;
            proxy.connections().len() > 2
        })
        .await;
        calls().await;
    }

    /// Asks for "k" on a connection that is held back.
    async fn ask(&mut self) -> Acquiring {
        self.proxy.hold_requests();
        let asking = acquire_later(&self.manager, "k", LEASE, LONG);
        let proxy = self.proxy.handle();
        eventually_async(LONG, async || proxy.stats().requests_held > 0).await;
        self.old = proxy.connections();
        asking
    }

    /// Asks, gives up, and has the cancel arrive on a new connection.
    async fn ask_and_cancel(&mut self) {
        let asking = self.ask().await;
        // The connection first: the cancel must not follow the ask into it.
        self.proxy.reset_clients();
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        self.until_seen().await;
    }

    /// A script for "k" has come to the server, and its reply to the client.
    async fn until_seen(&mut self) {
        let lock = lock_key("k");
        let monitor = &mut self.monitor;
        // The call itself, not what the script does.
        let seen = |line: &String| line.contains(&lock) && !line.contains(" lua] ");
        eventually_async(LONG, async || monitor.lines().iter().any(seen)).await;
        until_answered(&self.manager).await;
    }

    /// The old connections deliver what they held, and end.
    async fn deliver(&self) {
        self.proxy.release_held();
        let proxy = self.proxy.handle();
        let is_old = |id: &u64| self.old.contains(id);
        eventually_async(LONG, async || !proxy.connections().iter().any(is_old)).await;
    }

    /// How many asks of this client were executed: only they name the TTL of its lease.
    fn asks(&mut self) -> usize {
        let call = format!("\"4\" \"{}\"", lock_key("k"));
        let ttl = LEASE + (LEASE / 10).max(ms(250));
        let calls = self.monitor.lines();
        let from_clients = calls.iter().filter(|line| line.contains(&call));
        from_clients
            .filter(|line| line.contains(&format!("\"{}\"", ttl.as_millis())))
            .count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ask_dies_with_its_connection() {
    for on_runtime in [false, true] {
        let mut late = Late::new(true).await;
        if on_runtime {
            late.open_runtime_connection().await;
        }
        late.ask_and_cancel().await;
        late.deliver().await;
        assert_eq!(late.asks(), 0, "the old connection was not killed");
        until_clean(&mut late.raw, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ask_that_cannot_be_killed_leaves_nothing() {
    for on_runtime in [false, true] {
        let mut late = Late::new(false).await;
        if on_runtime {
            late.open_runtime_connection().await;
        }
        late.ask_and_cancel().await;
        late.deliver().await;
        assert_eq!(late.asks(), 1, "the ask was to arrive late");
        until_clean(&mut late.raw, SOON).await;
        // And it stays so.
        let other = connect(&late.server.url()).await;
        let guard = other.lock("k").try_acquire().await.unwrap();
        assert!(guard.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ask_does_not_touch_anothers_lock() {
    let mut late = Late::new(false).await;
    let other = connect(&late.server.url()).await;
    late.ask_and_cancel().await;
    let guard = other.lock("k").lease(LEASE).acquire().await.unwrap();
    let value = late.raw.get(&lock_key("k"));
    late.deliver().await;
    assert_eq!(late.asks(), 2, "the ask was to arrive late");
    assert_eq!(
        late.raw.get(&lock_key("k")),
        value,
        "the lock changed hands"
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // Whoever comes next does not wait until a grant to somebody who gave up has expired.
    let released = Instant::now();
    let next = other
        .lock("k")
        .lease(LEASE)
        .wait(SOON)
        .acquire()
        .await
        .unwrap();
    let delay = released.elapsed();
    assert!(delay < ms(1_000) + SLACK, "delayed by {delay:?}");
    next.release().await.unwrap();
    until_clean(&mut late.raw, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ask_that_was_repeated_and_answered_leaves_nothing() {
    for may_kill in [true, false] {
        let mut rounds = 1..=10;
        while !late_ask_leaves_nothing(may_kill).await {
            assert!(rounds.next().is_some(), "no ask could be late in time");
        }
    }
}

/// Returns false if the machine was too busy for the late ask to arrive while the script still accepts it.
async fn late_ask_leaves_nothing(may_kill: bool) -> bool {
    let mut late = Late::new(may_kill).await;
    let asking = late.ask().await;
    let asked = Instant::now();
    late.proxy.reset_clients();
    // The same id asks again on the new connection, and has the lock.
    let guard = within(LONG, asking).await.unwrap().0.unwrap();
    guard.release().await.unwrap();
    assert_eq!(late.raw.get(&lock_key("k")), None);
    let is_in_time = asked.elapsed() < ms(900);
    late.deliver().await;
    assert_eq!(late.asks(), if may_kill { 1 } else { 2 });
    until_clean(&mut late.raw, SOON).await;
    is_in_time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_ask_of_a_holder_keeps_its_hold() {
    let mut late = Late::new(false).await;
    let asking = late.ask().await;
    late.proxy.reset_clients();
    let guard = within(LONG, asking).await.unwrap().0.unwrap();
    late.deliver().await;
    let value = late.raw.get(&lock_key("k")).expect("it is held");
    assert!(value.contains(&guard.fencing_token().to_string()));
    assert_eq!(late.raw.cmd(&["ZCARD", &queue_key("k")]), Reply::Int(0));
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut late.raw, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_far_too_late_is_refused_by_the_script() {
    let mut late = Late::new(false).await;
    late.ask_and_cancel().await;
    // Its time has run out, whatever else protects from it.
    tokio::time::sleep(ms(1_100)).await;
    let mut fences = late.server.monitor();
    late.deliver().await;
    assert_eq!(late.asks(), 1, "the ask was to arrive late");
    assert_eq!(fences.count("\"SET\""), 0, "it was applied");
    until_clean(&mut late.raw, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_without_its_reply_is_not_busy_by_itself() {
    for after in [After::Reset, After::Silence] {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let manager = connect(&server.url_via(&proxy)).await;
        let mut raw = server.client();
        proxy.swallow_reply_to(&lock_key("k"), after);
        let guard = manager
            .lock("k")
            .lease(ms(5_000))
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        assert_eq!(proxy.stats().replies_swallowed, 1);
        let value = raw.get(&lock_key("k")).expect("it is held");
        let token = guard.fencing_token().to_string();
        assert_eq!(value.split(' ').nth(2), Some(token.as_str()), "{after:?}");
        guard.release().await.unwrap();
        until_clean(&mut raw, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_without_its_reply_leaves_nothing() {
    for after in [After::Reset, After::Silence] {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let manager = connect(&server.url_via(&proxy)).await;
        let mut raw = server.client();
        proxy.swallow_reply_to(&lock_key("k"), after);
        let error = manager
            .lock("k")
            .lease(LEASE)
            .try_acquire()
            .await
            .unwrap_err();
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        until_clean(&mut raw, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_in_the_queue_survives_a_lost_reply() {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let (first, second) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = first.lock("k").lease(LEASE).acquire().await.unwrap();
    proxy.swallow_reply_to(&lock_key("k"), After::Reset);
    let waiting = acquire_later(&second, "k", LEASE, LONG);
    let behind = {
        until_queued(&mut raw, "k", 1).await;
        acquire_later(&first, "k", LEASE, LONG)
    };
    until_queued(&mut raw, "k", 2).await;
    eventually_async(LONG, async || proxy.stats().replies_swallowed == 1).await;
    // Whoever is not connected is passed over: it must be back.
    eventually_async(LONG, async || second.inspect("k").await.is_ok()).await;
    let waiting = tokio::spawn(give_back(waiting));
    let behind = tokio::spawn(give_back(behind));
    guard.release().await.unwrap();
    let served = within(LONG, waiting).await.unwrap();
    let later = within(LONG, behind).await.unwrap();
    assert!(served < later, "it lost its place");
    until_clean(&mut raw, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_its_reply_is_repeated_and_hands_on_once() {
    for after in [After::Reset, After::Silence] {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let mut raw = server.client();
        let (first, second) = (
            connect(&server.url_via(&proxy)).await,
            connect(&server.url()).await,
        );
        let guard = first.lock("k").lease(ms(5_000)).acquire().await.unwrap();
        let waiting = acquire_later(&second, "k", ms(5_000), LONG);
        until_queued(&mut raw, "k", 1).await;
        let mut monitor = server.monitor();
        proxy.swallow_reply_to(&lock_key("k"), after);
        // The lock is free whatever became of the reply.
        guard.release().await.unwrap();
        let next = within(LONG, waiting).await.unwrap().0.unwrap();
        let token = next.fencing_token();
        let release = format!("\"4\" \"{}\"", lock_key("k"));
        // The repetition has come.
        eventually_async(LONG, async || monitor.count(&release) >= 2).await;
        let value = raw.get(&lock_key("k")).expect("it is held");
        assert!(
            value.contains(&token.to_string()) && next.is_held(),
            "{after:?}: {value}"
        );
        next.release().await.unwrap();
        until_clean(&mut raw, SOON).await;
    }
}

/// Repeated, a release counts what `min_hold` keeps from its first attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_release_keeps_the_key_no_longer() {
    let outage = ms(8_000);
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let manager = connect(&server.url_via(&proxy)).await;
    let lock = manager.lock("k").lease(LEASE).min_hold(LONG);
    let guard = lock.acquire().await.unwrap();
    let mut monitor = server.monitor();
    let mut calls = || {
        let lines = monitor.lines();
        let of_clients = lines.iter().filter(|line| !line.contains(" lua] "));
        of_clients
            .filter(|line| line.contains(&lock_key("k")))
            .count()
    };
    let mut expires = || kit::expires(&mut raw, &lock_key("k"));
    // The first attempt is applied, and its reply is lost with everything that follows.
    proxy.drop_data(Way::ToClient, true);
    let releasing = tokio::spawn(guard.release());
    eventually_async(LONG, async || calls() > 0).await;
    let first = expires();
    assert!(first > 0, "min_hold keeps the key");
    proxy.black_hole(true);
    // As long as the outage is, a repetition has less to keep.
    tokio::time::sleep(outage).await;
    let before = calls();
    proxy.heal();
    eventually_async(LONG, async || calls() > before).await;
    let later = expires() - first;
    let half = i64::try_from(outage.as_millis() / 2).unwrap();
    assert!(later < half, "kept {later} ms longer for the repetition");
    within(LONG, releasing).await.unwrap().unwrap();
}

/// A pushed grant that a connection delivers after its successor has asked again is out of date.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replaced_connection_still_delivers_costs_no_place() {
    // The old connection is open for a second after its loss: on a slow machine a round may miss it.
    for _ in 0..3 {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let mut raw = server.client();
        let near = connect(&server.url()).await;
        // A lane that nobody uses would be open for as long as it is idle.
        let far = LockManager::builder().url(server.url_via(&proxy)).lanes(0);
        let far = far.connect().await.unwrap();
        let guard = near.lock("k").lease(LEASE).acquire().await.unwrap();
        let waiting = acquire_later(&far, "k", LEASE, LONG);
        until_queued(&mut raw, "k", 1).await;
        // Behind the answer to the ask: that one has arrived.
        until_answered(&far).await;
        let old = proxy.connections();
        proxy.refuse_connections(true);
        proxy.limit_to(&old);
        proxy.stop_reading(Way::ToClient, true);
        // Commands under way keep the old connection open in the client.
        let asking = tokio::spawn({
            let far = far.clone();
            async move {
                loop {
                    let far = far.clone();
                    tokio::spawn(async move { far.inspect("k").await });
                    tokio::time::sleep(ms(50)).await;
                }
            }
        });
        // The grant is published to the old connection, and then taken away.
        guard.release().await.unwrap();
        raw.cmd(&["DEL", &lock_key("k")]);
        let guard = near.lock("k").lease(LEASE).acquire().await.unwrap();
        until_queued(&mut raw, "k", 0).await;
        // Connected anew, the call stands in the queue again, and somebody behind it.
        proxy.refuse_connections(false);
        until_queued(&mut raw, "k", 1).await;
        let behind = acquire_later(&near, "k", LEASE, LONG);
        until_queued(&mut raw, "k", 2).await;
        proxy.stop_reading(Way::ToClient, false);
        // The connection for renewals may go on.
        let left = || {
            let open = proxy.connections();
            old.iter().filter(|id| open.contains(id)).count()
        };
        eventually_async(LONG, async || left() <= 1).await;
        asking.abort();
        // What must not happen may take its time.
        tokio::time::sleep(ms(200)).await;
        let waiting = tokio::spawn(give_back(waiting));
        let behind = tokio::spawn(give_back(behind));
        guard.release().await.unwrap();
        let served = within(LONG, waiting).await.unwrap();
        let later = within(LONG, behind).await.unwrap();
        assert!(served < later, "it lost its place");
        until_clean(&mut raw, SOON).await;
    }
}
