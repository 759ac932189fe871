//! Locks that replicas or disks must acknowledge: `min_replicas` and `fsync`.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager, LossReason, Outage};
use distlock_tests::{RedisServer, RedisServerBuilder, Resp, eventually_async, within};

use crate::support::{
    LONG, SLACK, acquire_later, acquired, assert_config, assert_message_contains, assert_stored,
    calls, connect, connections, expiry_after_renewal, hold, kill, lock_key, loss, ms, ok, take,
    until_clean, until_queued,
};

/// A command may take a tenth of it, enough for a replica on a loaded machine.
const LEASE: Duration = ms(8_000);

/// Starts a primary that does not let its replicas wait for each other.
pub(crate) fn primary() -> RedisServer {
    let builder = RedisServer::builder();
    builder.arg("--repl-diskless-sync-delay", "0").start()
}

/// Starts a replica that has all data of its primary.
pub(crate) async fn replica_of(primary: &RedisServer) -> RedisServer {
    replica_by(RedisServer::builder(), primary).await
}

async fn replica_by(builder: RedisServerBuilder, primary: &RedisServer) -> RedisServer {
    let port = primary.port().to_string();
    let replica = builder.args(["--replicaof", "127.0.0.1", &port]).start();
    let mut raw = replica.client();
    eventually_async(LONG, async || raw.info_field("master_link_status") == "up").await;
    // The primary counts the replica, too.
    let mut raw = primary.client();
    eventually_async(LONG, async || {
        raw.cmd(&["SET", "is-it-there", "1"]);
        let there = raw.cmd(&["WAIT", "1", "100"]).int() > 0;
        raw.cmd(&["DEL", "is-it-there"]);
        there
    })
    .await;
    replica
}

/// A primary, its replica, and a manager with locks that need the replica.
struct Replicated {
    primary: RedisServer,
    replica: RedisServer,
    manager: LockManager,
    /// Connection to the primary.
    raw: Resp,
}

impl Replicated {
    async fn start() -> Self {
        let primary = primary();
        let replica = replica_of(&primary).await;
        Replicated {
            manager: connect_for(&primary, 1).await,
            raw: primary.client(),
            primary,
            replica,
        }
    }

    /// Waits until the primary has a lock.
    async fn until_stored(&mut self, key: &str) {
        let raw = &mut self.raw;
        eventually_async(LONG, async || raw.exists(&lock_key(key))).await;
    }
}

/// Connects a manager with locks that need this many replicas.
async fn connect_for(server: &RedisServer, replicas: u32) -> LockManager {
    let builder = LockManager::builder();
    builder
        .min_replicas(replicas)
        .connect(&server.url())
        .await
        .unwrap()
}

#[track_caller]
fn assert_too_few(error: &Error, parts: &[&str]) {
    assert_eq!(error.outage(), Some(Outage::TooFewReplicas), "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    assert_message_contains(error, parts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_on_the_replica_from_the_start() {
    let mut this = Replicated::start().await;
    let (first, second) = (this.manager.clone(), connect_for(&this.primary, 1).await);
    let mut copy = this.replica.client();
    for n in 0..50 {
        let guard = first.lock(format!("k{n}")).acquire().await.unwrap();
        assert_stored(&mut copy, &guard);
        guard.release().await.unwrap();
    }
    // The lock is handed off back and forth, over several leases.
    let lease = ms(6_000);
    let mut guard = hold(&first, "k", lease).await;
    for turn in 0..6 {
        let next = if turn % 2 == 0 { &second } else { &first };
        let waiting = acquire_later(next, "k", lease, LONG);
        until_queued(&mut this.raw, "k", 1).await;
        if turn < 2 {
            expiry_after_renewal(&mut copy, "k").await;
        }
        assert!(guard.is_held());
        guard.release().await.unwrap();
        guard = acquired(waiting).await;
        // The new holder has its full lease there: the replica received the grant and its
        // confirmation.
        assert_stored(&mut copy, &guard);
        // A grant that is not confirmed lasts for a second.
        let remaining = copy.pttl(&lock_key("k"));
        assert!(remaining > 2_000, "{remaining}");
    }
    guard.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_is_an_outage_and_leaves_nothing() {
    let mut this = Replicated::start().await;
    this.replica.stop_process();
    let lock = this.manager.lock("k").lease(LEASE);
    let requested_at = Instant::now();
    let error = lock.clone().wait(ms(1_200)).acquire().await.unwrap_err();
    let took = requested_at.elapsed();
    let port = this.primary.port().to_string();
    let parts = [
        "`k`",
        "min_replicas",
        "fewer than 1",
        "INFO replication",
        &port,
    ];
    assert_too_few(&error, &parts);
    assert!(took >= ms(1_200), "it was not tried again");
    assert!(took < ms(10_000) + SLACK, "{took:?}");
    until_clean(&mut this.raw, LONG).await;
    assert_too_few(&lock.try_acquire().await.unwrap_err(), &[]);
    until_clean(&mut this.raw, LONG).await;
    // A call that needs no replica acquires at once.
    let alone = lock.clone().min_replicas(0);
    take(alone).await;
    this.replica.cont_process();
    take(lock.wait(LONG)).await;
}

/// Acquires fail without the replica, and a downgrade waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_needs_its_replica() {
    let mut this = Replicated::start().await;
    let manager = connect(&this.primary.url()).await;
    let semaphore = manager.semaphore("permits", 3).lease(LEASE).min_replicas(1);
    let rw_lock = manager.rw_lock("rw").lease(LEASE).min_replicas(1);
    let both = manager.lock_all(["a", "b"]).lease(LEASE).min_replicas(1);
    this.replica.stop_process();
    let wait = ms(1_200);
    let (permit, write, all) = (
        semaphore.clone().wait(wait),
        rw_lock.clone().wait(wait),
        both.clone().wait(wait),
    );
    let (permit, write, all) = tokio::join!(permit.acquire(), write.write(), all.acquire());
    for result in [permit.map(drop), write.map(drop), all.map(drop)] {
        assert_too_few(&result.unwrap_err(), &["min_replicas"]);
    }
    until_clean(&mut this.raw, LONG).await;
    this.replica.cont_process();
    let permit = semaphore.wait(LONG).acquire().await.unwrap();
    let all = both.wait(LONG).acquire().await.unwrap();
    let write = rw_lock.wait(LONG).write().await.unwrap();
    this.replica.stop_process();
    let mut downgrade = std::pin::pin!(write.downgrade());
    let early = tokio::time::timeout(ms(500), &mut downgrade).await;
    assert!(early.is_err(), "without the replica: {early:?}");
    this.replica.cont_process();
    let read = within(LONG, downgrade).await.unwrap();
    read.release().await.unwrap();
    permit.release().await.unwrap();
    all.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_wait_for_a_replica_that_resumes() {
    let mut this = Replicated::start().await;
    let (first, second) = (this.manager.clone(), connect_for(&this.primary, 1).await);
    // A waiter that is granted the lock waits for the replica as well, and keeps its turn.
    let guard = hold(&first, "k", LEASE).await;
    let mut waiting = Vec::new();
    for (manager, place) in [&second, &first, &second].into_iter().zip(1..) {
        waiting.push(acquire_later(manager, "k", LEASE, LONG));
        until_queued(&mut this.raw, "k", place).await;
    }
    this.replica.stop_process();
    guard.release().await.unwrap();
    let fresh = acquire_later(&first, "fresh", LEASE, LONG);
    this.until_stored("fresh").await;
    let owner = |raw: &mut Resp| {
        let value = raw.get(&lock_key("k")).expect("it was handed on");
        value.split(' ').nth(1).expect("an owner").to_owned()
    };
    let granted = owner(&mut this.raw);
    // Long enough for more than one attempt of each call.
    tokio::time::sleep(ms(1_500)).await;
    assert!(!fresh.is_finished() && waiting.iter().all(|turn| !turn.is_finished()));
    assert_eq!(owner(&mut this.raw), granted, "it lost its turn");
    this.replica.cont_process();
    for turn in [fresh].into_iter().chain(waiting) {
        acquired(turn).await.release().await.unwrap();
    }
    until_clean(&mut this.raw, LONG).await;
}

/// The replica freezes just after a renewal, for half a lease or forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_renewals_lose_the_lock_at_the_safe_deadline() {
    for thaws in [true, false] {
        let mut this = Replicated::start().await;
        let guard = hold(&this.manager, "k", LEASE).await;
        expiry_after_renewal(&mut this.raw, "k").await;
        this.replica.stop_process();
        let frozen = Instant::now();
        if thaws {
            // A renewal falls into this time, and fails at first.
            tokio::time::sleep(LEASE / 2).await;
            this.replica.cont_process();
            let remaining = guard.remaining();
            eventually_async(LONG, async || guard.remaining() > remaining).await;
            assert!(guard.is_held());
            guard.release().await.unwrap();
            continue;
        }
        // The server keeps the lock, because the holder continues to renew it.
        let error = within(LONG, guard.lost()).await;
        let after = frozen.elapsed();
        assert!(!guard.is_held());
        assert!(after < LEASE + SLACK, "valid for {after:?}");
        let (reason, _) = loss(&error);
        assert!(
            matches!(reason, LossReason::NotRenewed { last_error: Some(error), .. } if error.contains("min_replicas")),
            "{error:?}"
        );
        drop(guard);
        until_clean(&mut this.raw, LONG).await;
    }
}

/// Calls that need one replica, or none, do not wait for a call that needs two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_may_be_frozen() {
    let this = Replicated::start().await;
    let _other = replica_of(&this.primary).await;
    let both = this.manager.lock("both").lease(LEASE).min_replicas(2);
    take(both.clone().wait(LONG)).await;
    this.replica.stop_process();
    let guard = hold(&this.manager, "one", LEASE).await;
    let two = tokio::spawn(async move { both.wait(LONG / 2).acquire().await });
    for n in 0..40 {
        let lock = this.manager.lock(format!("k{n}")).lease(LEASE);
        take(lock.min_replicas(n % 2)).await;
    }
    assert!(!two.is_finished());
    let remaining = guard.remaining();
    eventually_async(LONG, async || guard.remaining() > remaining).await;
    let error = within(LONG, two).await.unwrap().unwrap_err();
    assert_too_few(&error, &["fewer than 2"]);
    guard.release().await.unwrap();
}

/// A call that leaves does not leave its place behind a `WAIT` to the next, nor its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wait_command_is_in_flight_even_if_calls_are_cancelled() {
    let mut this = Replicated::start().await;
    drop(hold(&this.manager, "warm", LEASE).await);
    let before = calls(&mut this.raw, "wait");
    this.replica.stop_process();
    let frozen = Instant::now();
    for n in 0..50 {
        let key = format!("k{n}");
        let acquiring = acquire_later(&this.manager, &key, ms(30_000), LONG);
        this.until_stored(&key).await;
        acquiring.abort();
    }
    let took = frozen.elapsed();
    this.replica.cont_process();
    let guard = hold(&this.manager, "after", LEASE).await;
    assert_stored(&mut this.replica.client(), &guard);
    // A `WAIT` ends after a second, and the next call sends its own.
    let waits = calls(&mut this.raw, "wait") - before;
    let most = 5 + took.as_secs();
    assert!(
        waits <= most,
        "{waits} WAITs for 50 cancelled calls in {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_for_acks_is_replaced() {
    let mut this = Replicated::start().await;
    let guard = hold(&this.manager, "held", LEASE).await;
    for n in 0..25 {
        if n < 5 {
            // All connections except this one and the replica's.
            kill(&mut this.raw, "normal");
            kill(&mut this.raw, "pubsub");
        }
        this.raw.cmd(&["SCRIPT", "FLUSH"]);
        let lock = this.manager.lock(format!("k{n}")).lease(LEASE).wait(LONG);
        take(lock).await;
    }
    this.raw.cmd(&["SCRIPT", "FLUSH"]);
    expiry_after_renewal(&mut this.raw, "held").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_distinguished_from_missing_replicas() {
    let this = Replicated::start().await;
    let guard = hold(&this.manager, "k", LEASE).await;
    this.primary.stop_process();
    let error = within(LONG, guard.lost()).await;
    let reason = error.to_string();
    assert!(
        error.is_lost() && !reason.contains("min_replicas"),
        "{error:?}"
    );
}

/// `fsync` works or fails with a clear error, depending on the server under test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsync_is_acknowledged_or_an_error() {
    let server = RedisServer::builder().append_only().start();
    let mut raw = server.client();
    let builder = LockManager::builder().fsync(true);
    let manager = builder.connect(&server.url()).await.unwrap();
    let lock = manager.lock("k").lease(LEASE).wait(LONG);
    let unsupported = async |part: &str| {
        let requested_at = Instant::now();
        let error = lock.acquire().await.unwrap_err();
        assert!(requested_at.elapsed() < LONG / 2, "waiting does not help");
        assert_eq!(error.outage(), Some(Outage::Unsupported));
        assert!(!error.is_retryable());
        let port = server.port().to_string();
        assert_message_contains(&error, &[part, "`k`", "fsync", &port]);
        until_clean(&mut server.client(), LONG).await;
        // Without `fsync` the lock can be acquired.
        let lock = manager.lock("k").fsync(false);
        take(lock).await;
    };
    if raw.cmd(&["WAITAOF", "0", "0", "1"]).is_error() {
        unsupported("WAITAOF").await;
        return;
    }
    let guard = lock.acquire().await.unwrap();
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    server.kill();
    server.restart();
    let mut raw = server.client();
    assert_stored(&mut raw, &guard);
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // No replica has the lock on disk, because there is none.
    let on_two = lock.clone().min_replicas(1).wait(ms(800));
    assert_too_few(&on_two.acquire().await.unwrap_err(), &["disks"]);
    ok(&mut raw, &["CONFIG", "SET", "appendonly", "no"]);
    unsupported("appendonly yes").await;
}

#[tokio::test]
async fn the_memory_store_rejects_min_replicas_and_fsync() {
    let memory = LockManager::in_memory();
    let lock = memory.lock("k");
    for lock in [lock.clone().min_replicas(1), lock.clone().fsync(true)] {
        let error = lock.acquire().await.unwrap_err();
        assert_config(&error, &["`k`", "min_replicas"]);
    }
    let lock = lock.min_replicas(0).fsync(false);
    take(lock).await;
    let builder = || LockManager::builder().min_replicas(1);
    let made = [
        builder().in_memory(),
        builder().in_memory_on_current_runtime(),
        builder().connect_lazy("memory:"),
        builder().connect("memory:").await,
    ];
    for manager in made {
        assert_config(&manager.unwrap_err(), &[]);
    }
}

/// A lock that cannot be acknowledged for lack of a connection is released, because it was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_acquires_are_released() {
    let primary = primary();
    let _replica = replica_of(&primary).await;
    let builder = LockManager::builder().max_runtime_connections(0);
    let manager = builder
        .min_replicas(1)
        .connect(&primary.url())
        .await
        .unwrap();
    let mut raw = primary.client();
    let most = connections(&mut raw).to_string();
    ok(&mut raw, &["CONFIG", "SET", "maxclients", &most]);
    // The end of the lease would come too late.
    let lock = manager.lock("k").lease(LONG * 2).wait(ms(1_200));
    let error = lock.acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    until_clean(&mut raw, LONG).await;
    let error = lock.try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    until_clean(&mut raw, LONG).await;
    raw.cmd(&["CONFIG", "SET", "maxclients", "1000"]);
    take(lock.wait(LONG)).await;
}

/// Unblocks the clients that wait on the server. Returns how many there were.
fn unblock(raw: &mut Resp) -> usize {
    let list = raw.cmd(&["CLIENT", "LIST"]);
    let is_blocked = |line: &&str| {
        let mut fields = line.split(' ');
        let flags = fields.find_map(|field| field.strip_prefix("flags="));
        flags.is_some_and(|flags| flags.contains('b'))
    };
    let blocked = list.text().unwrap().lines().filter(is_blocked);
    let ids = blocked.filter_map(|line| line.split([' ', '=']).nth(1));
    ids.filter(|id| raw.cmd(&["CLIENT", "UNBLOCK", id]).int() == 1)
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledgments_are_those_that_the_server_counts() {
    let this = Replicated::start().await;
    server_side_acknowledgments_decide(&this.manager, &this.primary, &this.replica).await;
}

/// The same for disks, depending on the server under test: the disks of replicas count, or the
/// error is clear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fsync_the_disks_of_replicas_count() {
    let server = || {
        let builder = RedisServer::builder().append_only();
        builder.arg("--repl-diskless-sync-delay", "0")
    };
    let primary = server().start();
    let builder = LockManager::builder().min_replicas(1);
    let manager = builder.fsync(true).connect(&primary.url()).await.unwrap();
    let known = primary.client().cmd(&["WAITAOF", "0", "0", "1"]);
    if known.is_error() {
        let error = manager.lock("held").acquire().await.unwrap_err();
        assert_eq!(error.outage(), Some(Outage::Unsupported));
        return assert_message_contains(&error, &["WAITAOF"]);
    }
    let replica = replica_by(server(), &primary).await;
    server_side_acknowledgments_decide(&manager, &primary, &replica).await;
}

async fn server_side_acknowledgments_decide(
    manager: &LockManager,
    primary: &RedisServer,
    replica: &RedisServer,
) {
    let guard = manager.lock("held").lease(LEASE).acquire().await.unwrap();
    replica.stop_process();
    let mut raw = primary.client();
    let acquiring = acquire_later(manager, "k", LEASE, ms(3_000));
    let mut early = 0;
    let deadline = Instant::now() + LONG;
    // The client does not take the early reply, with no replica, for an acknowledgement.
    while !acquiring.is_finished() && Instant::now() < deadline {
        early += unblock(&mut raw);
        tokio::time::sleep(ms(5)).await;
    }
    assert!(early > 0, "no command waited");
    let error = within(LONG, acquiring).await.unwrap().0.unwrap_err();
    assert_too_few(&error, &[]);
    // A renewal does not either.
    let mut lost = std::pin::pin!(guard.lost());
    let error = loop {
        tokio::select! {
            error = &mut lost => break error,
            () = tokio::time::sleep(ms(5)) => drop(unblock(&mut raw)),
        }
        assert!(Instant::now() < deadline, "it is held without a replica");
    };
    assert_message_contains(&error, &["min_replicas"]);
}
