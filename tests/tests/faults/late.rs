//! Commands that an old connection delivers late, and replies that never arrive.

use std::time::Duration;

use distlock::{LockGuard, LockManager};
use distlock_tests::{
    After, Directions, Monitor, Proxy, RedisServer, Resp, eventually_async, within,
};

use crate::contended::Contended;
use crate::support::{
    Acquiring, LONG, SLACK, acquire_later, acquired, assert_stored, connect, expires, give_back,
    hold, lock_key, ms, proxied, until_answered, until_clean, until_queued, warm,
};

/// Long, so that commands may arrive up to a second late, and an orphan would stay.
const LEASE: Duration = ms(30_000);

/// The command timeout for this lease.
const COMMAND_TIMEOUT: Duration = ms(1_000);

/// Far below the lease, so a key that is left after this is an orphan.
const SOON: Duration = ms(12_000);

/// A client behind a proxy that holds back its acquire.
struct Late {
    server: RedisServer,
    proxy: Proxy,
    raw: Resp,
    manager: LockManager,
    monitor: Monitor,
    /// The connections that were open when the acquire was sent.
    old: Vec<u64>,
}

impl Late {
    async fn new() -> Self {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let raw = server.client();
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

    /// Acquires "k" on a connection that is held back, gives up, and waits for the cancel to arrive
    /// on a new one.
    async fn acquire_and_cancel(&mut self) {
        self.proxy.hold_requests();
        let acquiring = acquire_later(&self.manager, "k", LEASE, LONG);
        let proxy = self.proxy.handle();
        eventually_async(LONG, async || proxy.stats().requests_held > 0).await;
        self.old = proxy.connections();
        // Resets the connection first, because the cancel must not follow the acquire into it.
        self.proxy.reset_clients();
        acquiring.abort();
        assert!(acquiring.await.is_err_and(|error| error.is_cancelled()));
        self.until_seen().await;
    }

    /// Waits until the server has received a script for "k", and the client its reply.
    async fn until_seen(&mut self) {
        let lock = lock_key("k");
        let monitor = &mut self.monitor;
        // The call itself, not the commands of the script.
        let seen = |line: &String| line.contains(&lock) && !line.contains(" lua] ");
        eventually_async(LONG, async || monitor.lines().iter().any(seen)).await;
        until_answered(&self.manager).await;
    }

    /// Lets the old connections deliver what they held, and waits until they have closed.
    async fn deliver(&self) {
        self.proxy.release_held();
        let proxy = self.proxy.handle();
        let is_old = |id: &u64| self.old.contains(id);
        eventually_async(LONG, async || !proxy.connections().iter().any(is_old)).await;
    }

    /// Returns how many acquires of this client were executed; only these have its lease's TTL.
    fn acquires(&mut self) -> usize {
        let call = format!("\"2\" \"{}\"", lock_key("k"));
        let ttl = LEASE + (LEASE / 10).max(ms(250));
        let ttl = format!("\"{}\"", ttl.as_millis());
        let lines = self.monitor.lines();
        let is_acquire = |line: &&String| line.contains(&call) && line.contains(&ttl);
        lines.iter().filter(is_acquire).count()
    }
}

/// Its release came first, so the acquire takes the key until the second release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_acquire_is_gone_within_two_command_timeouts() {
    // On a slow machine an acquire may arrive too late to be applied.
    for _ in 0..5 {
        let mut late = Late::new().await;
        late.acquire_and_cancel().await;
        let mut fences = late.server.monitor();
        late.deliver().await;
        eventually_async(LONG, async || late.acquires() == 1).await;
        until_clean(&mut late.raw, 2 * COMMAND_TIMEOUT + SLACK).await;
        if fences.count("\"SET\"") > 0 {
            return;
        }
    }
    panic!("no late acquire was applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_beyond_its_deadline_is_rejected_by_the_script() {
    let mut late = Late::new().await;
    late.acquire_and_cancel().await;
    // Its apply-by has passed by then.
    tokio::time::sleep(COMMAND_TIMEOUT + ms(100)).await;
    let mut fences = late.server.monitor();
    late.deliver().await;
    assert_eq!(late.acquires(), 1, "the acquire must arrive late");
    assert_eq!(fences.count("\"SET\""), 0, "it was applied");
    until_clean(&mut late.raw, SOON).await;
}

/// A call that tries once sends no further command after one without a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_for_several_keys_ends_with_a_lost_reply() {
    let mut late = Late::new().await;
    late.proxy.swallow_reply_to(&lock_key("k"), After::Silence);
    let both = late.manager.lock_all(["k", "l"]).lease(LEASE);
    let error = both.try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(late.proxy.stats().replies_swallowed, 1);
    until_clean(&mut late.raw, SOON).await;
    assert_eq!(late.acquires(), 0, "an acquire of one key followed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_with_a_lost_reply_is_not_busy_by_itself() {
    for after in [After::Reset, After::Silence] {
        let (server, proxy, manager) = proxied().await;
        warm(&server).await;
        let mut raw = server.client();
        proxy.swallow_reply_to(&lock_key("k"), after);
        let guard = hold(&manager, "k", ms(5_000)).await;
        assert_eq!(proxy.stats().replies_swallowed, 1, "{after:?}");
        assert_stored(&mut raw, &guard);
        guard.release().await.unwrap();
        until_clean(&mut raw, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_in_the_queue_survives_a_lost_reply() {
    let (server, proxy, second) = proxied().await;
    warm(&server).await;
    let (mut raw, first) = (server.client(), connect(&server.url()).await);
    let guard = hold(&first, "k", LEASE).await;
    proxy.swallow_reply_to(&lock_key("k"), After::Reset);
    let waiting = acquire_later(&second, "k", LEASE, LONG);
    until_queued(&mut raw, "k", 1).await;
    let behind = acquire_later(&first, "k", LEASE, LONG);
    until_queued(&mut raw, "k", 2).await;
    eventually_async(LONG, async || proxy.stats().replies_swallowed == 1).await;
    // Waiters without a connection are passed over, so the client must be connected again.
    until_answered(&second).await;
    assert_order(guard, waiting, behind, &mut raw).await;
}

/// Releases, and checks that the waiter that came first is served first.
async fn assert_order(guard: LockGuard, waiting: Acquiring, behind: Acquiring, raw: &mut Resp) {
    let waiting = tokio::spawn(give_back(waiting));
    let behind = tokio::spawn(give_back(behind));
    guard.release().await.unwrap();
    let served = within(LONG, waiting).await.unwrap();
    let later = within(LONG, behind).await.unwrap();
    assert!(served < later, "it lost its place");
    until_clean(raw, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_its_reply_is_repeated_and_hands_on_once() {
    for after in [After::Reset, After::Silence] {
        let server = RedisServer::start();
        warm(&server).await;
        let mut this = Contended::with_far_holder(server, ms(5_000)).await;
        let mut monitor = this.server.monitor();
        this.proxy.swallow_reply_to(&lock_key("k"), after);
        // The lock is free, whatever became of the reply.
        this.guard.release().await.unwrap();
        let next = acquired(this.waiting).await;
        let release = format!("\"2\" \"{}\"", lock_key("k"));
        // The repeated release has arrived.
        eventually_async(LONG, async || monitor.count(&release) >= 2).await;
        assert_stored(&mut this.raw, &next);
        assert!(next.is_held(), "{after:?}");
        next.release().await.unwrap();
        until_clean(&mut this.raw, SOON).await;
    }
}

/// A repeated release counts `min_hold` from the first attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_release_keeps_the_key_no_longer() {
    let outage = ms(8_000);
    let (server, proxy, manager) = proxied().await;
    warm(&server).await;
    let mut raw = server.client();
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
    // The first attempt is applied. Its reply is lost with everything that follows.
    proxy.drop_data(Directions::ToClient, true);
    let releasing = tokio::spawn(guard.release());
    eventually_async(LONG, async || calls() > 0).await;
    let first = expires(&mut raw, &lock_key("k"));
    assert!(first > 0, "min_hold keeps the key");
    proxy.black_hole(true);
    // The repeated release has less to keep, by the length of the outage.
    tokio::time::sleep(outage).await;
    let before = calls();
    proxy.heal();
    eventually_async(LONG, async || calls() > before).await;
    let later = expires(&mut raw, &lock_key("k")) - first;
    let half = i64::try_from(outage.as_millis() / 2).unwrap();
    assert!(later < half, "kept {later} ms longer for the repetition");
    within(LONG, releasing).await.unwrap().unwrap();
}

/// A pushed grant is out of date if a connection delivers it after its successor repeated the
/// acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_commands_of_a_replaced_connection_cost_no_queue_place() {
    // The old connection stays open for a second after its loss; on a slow machine a round may miss
    // it.
    for _ in 0..3 {
        let server = RedisServer::start();
        warm(&server).await;
        let proxy = server.proxy();
        let mut raw = server.client();
        let near = connect(&server.url()).await;
        // An unused runtime connection would stay open for as long as it is idle.
        let far = LockManager::builder().max_runtime_connections(0);
        let far = far.connect(&server.url_via(&proxy)).await.unwrap();
        let guard = hold(&near, "k", LEASE).await;
        let waiting = acquire_later(&far, "k", LEASE, LONG);
        until_queued(&mut raw, "k", 1).await;
        // This reply follows the one to the acquire, so that has arrived.
        until_answered(&far).await;
        let old = proxy.connections();
        proxy.refuse_connections(true);
        proxy.limit_to(&old);
        proxy.stop_reading(Directions::ToClient, true);
        // Commands in flight keep the old connection open in the client.
        let inspecting = tokio::spawn(async move {
            loop {
                let far = far.clone();
                tokio::spawn(async move { far.inspect("k").await });
                tokio::time::sleep(ms(50)).await;
            }
        });
        // The grant is published to the old connection, and then removed.
        guard.release().await.unwrap();
        raw.cmd(&["DEL", &lock_key("k")]);
        let guard = hold(&near, "k", LEASE).await;
        until_queued(&mut raw, "k", 0).await;
        // On a new connection the call is queued again, and another one behind it.
        proxy.refuse_connections(false);
        until_queued(&mut raw, "k", 1).await;
        let behind = acquire_later(&near, "k", LEASE, LONG);
        until_queued(&mut raw, "k", 2).await;
        proxy.stop_reading(Directions::ToClient, false);
        // The connection for renewals may stay.
        let remaining = || {
            let open = proxy.connections();
            old.iter().filter(|id| open.contains(id)).count()
        };
        eventually_async(LONG, async || remaining() <= 1).await;
        inspecting.abort();
        // Gives the fault time to show.
        tokio::time::sleep(ms(200)).await;
        assert_order(guard, waiting, behind, &mut raw).await;
    }
}
