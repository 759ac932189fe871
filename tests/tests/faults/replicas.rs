//! Locks that replicas have to acknowledge, and disks: `min_replicas` and `fsync`.

use std::time::Instant;

use distlock::{Error, LockGuard, LockManager, LossReason, Outage};
use distlock_tests::{RedisServer, RedisServerBuilder, Reply, Resp, eventually_async, within};

use crate::kit::{
    Acquiring, HELD, LONG, SLACK, acquire_later, calls, connect, connections, expiry_after_renewal,
    leftovers, lock_key, ms, until_clean, until_queued,
};

/// A tenth of it is how long a command may take: enough for a replica on a loaded machine.
const LEASE: std::time::Duration = ms(8_000);

/// A server that does not let its replicas wait for each other.
pub(crate) fn master() -> RedisServer {
    let builder = RedisServer::builder();
    builder.arg("--repl-diskless-sync-delay", "0").start()
}

/// A replica that has all that its master has.
pub(crate) async fn replica_of(master: &RedisServer) -> RedisServer {
    replica_by(RedisServer::builder(), master).await
}

async fn replica_by(builder: RedisServerBuilder, master: &RedisServer) -> RedisServer {
    let port = master.port().to_string();
    let replica = builder.args(["--replicaof", "127.0.0.1", &port]).start();
    let mut raw = replica.client();
    eventually_async(LONG, async || raw.info_field("master_link_status") == "up").await;
    // And its master counts it.
    let mut raw = master.client();
    eventually_async(LONG, async || {
        raw.cmd(&["SET", "is-it-there", "1"]);
        let there = raw.cmd(&["WAIT", "1", "100"]).int() > 0;
        raw.cmd(&["DEL", "is-it-there"]);
        there
    })
    .await;
    replica
}

/// A manager whose locks need a replica.
async fn connect_for(server: &RedisServer, replicas: u32) -> LockManager {
    let builder = LockManager::builder().url(server.url());
    builder.min_replicas(replicas).connect().await.unwrap()
}

fn too_few(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable {
            outage: Outage::TooFewReplicas,
            ..
        }
    )
}

/// A master, its replica, and a hold of a lock `k` that needs it: the replica freezes just after a renewal.
async fn held_when_the_replica_freezes() -> (RedisServer, RedisServer, LockGuard) {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    let guard = manager.lock("k").lease(LEASE).acquire().await.unwrap();
    expiry_after_renewal(&mut master.client(), "k").await;
    replica.stop_process();
    (master, replica, guard)
}

async fn acquired(acquiring: Acquiring) -> LockGuard {
    within(LONG, acquiring).await.unwrap().0.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_at_the_replica_from_the_first_moment() {
    let master = master();
    let replica = replica_of(&master).await;
    let (first, second) = (connect_for(&master, 1).await, connect_for(&master, 1).await);
    let mut copy = replica.client();
    for n in 0..50 {
        let guard = first.lock(format!("k{n}")).acquire().await.unwrap();
        assert!(copy.exists(&lock_key(&format!("k{n}"))));
        guard.release().await.unwrap();
    }
    // Handed on, over several leases, to and fro.
    let lease = ms(6_000);
    let mut guard = first.lock("k").lease(lease).acquire().await.unwrap();
    for turn in 0..6 {
        let next = if turn % 2 == 0 { &second } else { &first };
        let waiting = acquire_later(next, "k", lease, LONG);
        until_queued(&mut master.client(), "k", 1).await;
        if turn < 2 {
            expiry_after_renewal(&mut master.client(), "k").await;
            expiry_after_renewal(&mut copy, "k").await;
        }
        let token = guard.fencing_token();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        guard = acquired(waiting).await;
        assert!(guard.fencing_token() > token);
        // By its new holder, for the full lease: the replica has heard of the grant and of its confirmation.
        let value = copy.get(&lock_key("k")).expect("a lock");
        assert!(
            value.contains(&guard.fencing_token().to_string()),
            "{value}"
        );
        // A grant that is not confirmed lasts for a second.
        let left = copy.pttl(&lock_key("k"));
        assert!(left > 2_000, "{left}");
    }
    for _ in 0..2 {
        expiry_after_renewal(&mut copy, "k").await;
        assert!(guard.is_held());
    }
    guard.release().await.unwrap();
    until_clean(&mut master.client(), LONG).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_is_an_outage_and_leaves_nothing() {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect(&master.url()).await;
    replica.stop_process();
    let lock = manager.lock("k").lease(LEASE).min_replicas(1);
    let asked = Instant::now();
    let error = lock.clone().wait(ms(1_200)).acquire().await.unwrap_err();
    assert!(too_few(&error) && error.is_retryable(), "{error:?}");
    for part in [
        "`k`",
        "min_replicas",
        "fewer than 1",
        &master.port().to_string(),
    ] {
        assert!(
            error.to_string().contains(part),
            "{part} is not in: {error}"
        );
    }
    assert!(asked.elapsed() >= ms(1_200), "it was not tried again");
    assert!(
        asked.elapsed() < ms(10_000) + SLACK,
        "{:?}",
        asked.elapsed()
    );
    let mut raw = master.client();
    until_clean(&mut raw, LONG).await;
    let error = lock.try_acquire().await.unwrap_err();
    assert!(too_few(&error), "{error:?}");
    until_clean(&mut raw, LONG).await;
    // Who asks for no replica has the lock at once.
    manager.lock("k").run(async |_| ()).await.unwrap();
    replica.cont_process();
    lock.clone().wait(LONG).run(async |_| ()).await.unwrap();
    lock.min_replicas(0).run(async |_| ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_replicas_says_so() {
    let server = RedisServer::start();
    let manager = connect_for(&server, 1).await;
    let lock = manager.lock("k").lease(LEASE).wait(ms(800));
    let error = lock.acquire().await.unwrap_err();
    assert!(too_few(&error), "{error:?}");
    assert!(error.to_string().contains("INFO replication"), "{error}");
    until_clean(&mut server.client(), LONG).await;
    let guard = manager.lock("k").min_replicas(0).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_thaws_is_waited_for() {
    let master = master();
    let replica = replica_of(&master).await;
    let (first, second) = (connect_for(&master, 1).await, connect_for(&master, 1).await);
    // One that is granted in the queue waits for it as well, and keeps its turn.
    let guard = first.lock("k").lease(LEASE).acquire().await.unwrap();
    let mut raw = master.client();
    let mut waiting = Vec::new();
    for (manager, place) in [&second, &first, &second].into_iter().zip(1..) {
        waiting.push(acquire_later(manager, "k", LEASE, LONG));
        until_queued(&mut raw, "k", place).await;
    }
    replica.stop_process();
    guard.release().await.unwrap();
    let fresh = acquire_later(&first, "fresh", LEASE, LONG);
    eventually_async(LONG, async || raw.exists(&lock_key("fresh"))).await;
    let whose = |raw: &mut Resp| {
        let value = raw.get(&lock_key("k")).expect("it was handed on");
        value.split(' ').nth(1).expect("an owner").to_owned()
    };
    let granted = whose(&mut raw);
    // Long enough for more than one attempt of each.
    tokio::time::sleep(ms(1_500)).await;
    assert!(!fresh.is_finished() && waiting.iter().all(|turn| !turn.is_finished()));
    assert_eq!(whose(&mut raw), granted, "it lost its turn");
    replica.cont_process();
    acquired(fresh).await.release().await.unwrap();
    for turn in waiting {
        acquired(turn).await.release().await.unwrap();
    }
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_does_not_hear_of_is_lost_at_the_safe_deadline() {
    let (master, _replica, guard) = held_when_the_replica_freezes().await;
    let frozen = Instant::now();
    // The server lets go of nothing: it goes on to renew.
    let error = within(LONG, guard.lost()).await;
    let after = frozen.elapsed();
    assert!(!guard.is_held());
    assert!(after < LEASE + SLACK, "believed for {after:?}");
    let Error::Lost { reason, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(reason, LossReason::NotRenewed { last_failure } if last_failure.contains("min_replicas")),
        "{error:?}"
    );
    drop(guard);
    until_clean(&mut master.client(), LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_freeze_loses_nothing() {
    let (_master, replica, guard) = held_when_the_replica_freezes().await;
    // A renewal falls into it, and fails at first.
    tokio::time::sleep(LEASE / 2).await;
    replica.cont_process();
    let left = guard.remaining();
    eventually_async(LONG, async || guard.remaining() > left).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_may_be_frozen() {
    let master = master();
    let (frozen, _other) = (replica_of(&master).await, replica_of(&master).await);
    let manager = connect(&master.url()).await;
    let both = manager.lock("both").lease(LEASE).min_replicas(2);
    both.clone().wait(LONG).run(async |_| ()).await.unwrap();
    frozen.stop_process();
    let one = manager.lock("one").lease(LEASE).min_replicas(1);
    let guard = one.clone().acquire().await.unwrap();
    let two = tokio::spawn(async move { both.wait(LONG / 2).acquire().await });
    // Those who need one wait for nobody who needs two.
    for n in 0..20 {
        let lock = manager.lock(format!("k{n}")).lease(LEASE).min_replicas(1);
        lock.run(async |_| ()).await.unwrap();
    }
    assert!(!two.is_finished());
    let left = guard.remaining();
    eventually_async(LONG, async || guard.remaining() > left).await;
    let error = within(LONG, two).await.unwrap().unwrap_err();
    assert!(too_few(&error), "{error:?}");
    assert!(error.to_string().contains("fewer than 2"), "{error}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_no_replica_is_not_delayed() {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect(&master.url()).await;
    let held = manager.lock("held").lease(HELD).acquire().await.unwrap();
    replica.stop_process();
    let durable = manager.lock("durable").min_replicas(1).wait(LONG);
    let durable = tokio::spawn(async move { durable.acquire().await });
    let mut raw = master.client();
    eventually_async(LONG, async || raw.exists(&lock_key("durable"))).await;
    let began = Instant::now();
    for n in 0..100 {
        let lock = manager.lock(format!("k{n}")).lease(ms(900));
        lock.run(async |_| ()).await.unwrap();
    }
    // Behind a WAIT it would be a tenth of a second each.
    let took = began.elapsed();
    assert!(took < ms(8_000), "{took:?}");
    expiry_after_renewal(&mut raw, "held").await;
    assert!(held.is_held() && !durable.is_finished());
    replica.cont_process();
    let durable = within(LONG, durable).await.unwrap().unwrap();
    durable.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_share_what_they_wait_for() {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    manager.lock("warm").run(async |_| ()).await.unwrap();
    let mut raw = master.client();
    let before = calls(&mut raw, "wait");
    // So that all of them wait when the first one does.
    replica.stop_process();
    let lease = ms(30_000);
    let waiting: Vec<_> = (0..50)
        .map(|n| acquire_later(&manager, &format!("k{n}"), lease, LONG))
        .collect();
    eventually_async(LONG, async || leftovers(&mut raw).len() >= 50).await;
    replica.cont_process();
    for acquiring in waiting {
        acquired(acquiring).await.release().await.unwrap();
    }
    let waits = calls(&mut raw, "wait") - before;
    println!("50 acquisitions, {waits} WAITs");
    assert!(waits <= 12, "{waits} for 50 acquisitions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_has_what_was_held() {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    manager.lock("warm").run(async |_| ()).await.unwrap();
    replica.stop_process();
    let lease = ms(20_000);
    let acquiring = acquire_later(&manager, "k", lease, LONG);
    let mut raw = master.client();
    eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
    tokio::time::sleep(ms(300)).await;
    assert!(!acquiring.is_finished(), "held by the master's word alone");
    replica.cont_process();
    let guard = acquired(acquiring).await;
    master.kill();
    let mut raw = replica.client();
    let ok = Reply::Status("OK".into());
    assert_eq!(raw.cmd(&["REPLICAOF", "NO", "ONE"]), ok);
    let other = connect(&replica.url()).await;
    assert!(guard.is_held());
    let second = other.lock("k").try_acquire().await.unwrap();
    assert!(second.is_none(), "two holders");
    let value = raw.get(&lock_key("k")).expect("the lock");
    assert!(
        value.contains(&guard.fencing_token().to_string()),
        "{value}"
    );
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_that_waits_is_replaced() {
    let master = master();
    let _replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    let guard = manager.lock("held").lease(LEASE).acquire().await.unwrap();
    let mut raw = master.client();
    for n in 0..5 {
        // All but this one and the replica's.
        raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        raw.cmd(&["SCRIPT", "FLUSH"]);
        let lock = manager.lock(format!("k{n}")).lease(LEASE).wait(LONG);
        lock.run(async |_| ()).await.unwrap();
    }
    for n in 0..20 {
        raw.cmd(&["SCRIPT", "FLUSH"]);
        let lock = manager.lock(format!("k{n}")).lease(LEASE).wait(LONG);
        lock.run(async |_| ()).await.unwrap();
    }
    expiry_after_renewal(&mut raw, "held").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_told_apart_from_its_replicas() {
    let master = master();
    let _replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    let guard = manager.lock("k").lease(LEASE).acquire().await.unwrap();
    master.stop_process();
    let error = within(LONG, guard.lost()).await;
    let reason = error.to_string();
    assert!(
        error.is_lost() && !reason.contains("min_replicas"),
        "{error:?}"
    );
    master.cont_process();
    drop(guard);
    let lock = manager.lock("k").lease(LEASE).wait(LONG);
    lock.run(async |_| ()).await.unwrap();
    until_clean(&mut master.client(), LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_wait_is_told_its_name() {
    let master = master();
    let _replica = replica_of(&master).await;
    let mut raw = master.client();
    let set = ["ACL", "SETUSER", "default", "-wait"];
    assert_eq!(raw.cmd(&set), Reply::Status("OK".into()));
    let manager = connect_for(&master, 1).await;
    let asked = Instant::now();
    let lock = manager.lock("k").wait(LONG);
    let error = lock.acquire().await.unwrap_err();
    assert!(asked.elapsed() < LONG / 2, "waiting does not help");
    assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
    for part in ["+wait", "min_replicas"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    until_clean(&mut raw, LONG).await;
    let guard = manager.lock("k").min_replicas(0).acquire().await.unwrap();
    // Granted in the queue it is no different.
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_queued(&mut raw, "k", 1).await;
    guard.release().await.unwrap();
    let error = within(LONG, waiting).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("+wait"), "{error}");
    until_clean(&mut raw, LONG).await;
}

/// By what the server under test can do: all of it, or a clear error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_on_disk_is_there_or_an_error() {
    let server = RedisServer::builder().append_only().start();
    let mut raw = server.client();
    let builder = LockManager::builder().url(server.url()).fsync(true);
    let manager = builder.connect().await.unwrap();
    let lock = manager.lock("k").lease(LEASE).wait(LONG);
    let unsupported = async |what: &[&str]| {
        let asked = Instant::now();
        let error = lock.acquire().await.unwrap_err();
        assert!(asked.elapsed() < LONG / 2, "waiting does not help");
        assert!(
            matches!(
                error,
                Error::Unavailable {
                    outage: Outage::Unsupported,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(!error.is_retryable());
        let port = server.port().to_string();
        for part in what.iter().chain(&["`k`", "fsync", &*port]) {
            assert!(
                error.to_string().contains(part),
                "{part} is not in: {error}"
            );
        }
        until_clean(&mut server.client(), LONG).await;
        // Without it there is nothing against it.
        manager
            .lock("k")
            .fsync(false)
            .run(async |_| ())
            .await
            .unwrap();
    };
    if raw.cmd(&["WAITAOF", "0", "0", "1"]).is_error() {
        unsupported(&["WAITAOF"]).await;
        return;
    }
    let guard = lock.acquire().await.unwrap();
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    server.kill();
    server.restart();
    let mut raw = server.client();
    let value = raw.get(&lock_key("k")).expect("it was on the disk");
    assert!(
        value.contains(&guard.fencing_token().to_string()),
        "{value}"
    );
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // No replica has a disk, for there is none.
    let error = lock
        .clone()
        .min_replicas(1)
        .wait(ms(800))
        .acquire()
        .await
        .unwrap_err();
    assert!(
        too_few(&error) && error.to_string().contains("disks"),
        "{error:?}"
    );
    let off = ["CONFIG", "SET", "appendonly", "no"];
    assert_eq!(raw.cmd(&off), Reply::Status("OK".into()));
    unsupported(&["appendonly yes"]).await;
}

#[tokio::test]
async fn the_memory_store_has_neither() {
    let memory = LockManager::memory();
    let lock = memory.lock("k");
    for lock in [lock.clone().min_replicas(1), lock.clone().fsync(true)] {
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(
            error.to_string().contains("`k`") && error.to_string().contains("min_replicas"),
            "{error}"
        );
    }
    lock.min_replicas(0)
        .fsync(false)
        .run(async |_| ())
        .await
        .unwrap();
    let builder = || LockManager::builder().min_replicas(1);
    let made = [
        builder().memory(),
        builder().memory_on_current_runtime(),
        builder().url("memory:").connect_lazy(),
        builder().url("memory:").connect().await,
    ];
    for manager in made {
        let error = manager.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
    }
}

/// What cannot be acknowledged, because there is no connection for that, was taken all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_acknowledged_is_given_back() {
    let master = master();
    let _replica = replica_of(&master).await;
    let builder = LockManager::builder().url(master.url()).lanes(0);
    let manager = builder.min_replicas(1).connect().await.unwrap();
    let mut raw = master.client();
    let most = connections(&mut raw).to_string();
    let set = ["CONFIG", "SET", "maxclients", &most];
    assert_eq!(raw.cmd(&set), Reply::Status("OK".into()));
    // Its own end would come too late.
    let lock = manager.lock("k").lease(LONG * 2).wait(ms(1_200));
    let error = lock.acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    until_clean(&mut raw, LONG).await;
    let error = lock.try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    until_clean(&mut raw, LONG).await;
    raw.cmd(&["CONFIG", "SET", "maxclients", "1000"]);
    lock.wait(LONG).run(async |_| ()).await.unwrap();
}

/// Ends what clients wait for on the server: how many of them there were.
fn unblock(raw: &mut Resp) -> usize {
    let list = raw.cmd(&["CLIENT", "LIST"]);
    let blocked = |line: &str| {
        let field = |name| line.split(' ').find_map(|field| field.strip_prefix(name));
        let is_blocked = field("flags=").is_some_and(|flags: &str| flags.contains('b'));
        is_blocked
            .then(|| field("id=").map(str::to_owned))
            .flatten()
    };
    let blocked = list.text().unwrap().lines().filter_map(blocked);
    let unblocked = |id: &String| raw.cmd(&["CLIENT", "UNBLOCK", id]).int() == 1;
    blocked.filter(unblocked).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_counts_is_what_counts() {
    let master = master();
    let replica = replica_of(&master).await;
    let manager = connect_for(&master, 1).await;
    what_the_server_counts_decides(&manager, &master, &replica).await;
}

/// The same for disks, by what the server under test can do: the disks of the replicas count, or a clear error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fsync_the_disks_of_replicas_are_what_counts() {
    let server = || {
        let builder = RedisServer::builder().append_only();
        builder.arg("--repl-diskless-sync-delay", "0")
    };
    let master = server().start();
    let builder = LockManager::builder().url(master.url()).min_replicas(1);
    let manager = builder.fsync(true).connect().await.unwrap();
    let known = master.client().cmd(&["WAITAOF", "0", "0", "1"]);
    if known.is_error() {
        let error = manager.lock("held").acquire().await.unwrap_err();
        let Error::Unavailable {
            outage: Outage::Unsupported,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        return assert!(error.to_string().contains("WAITAOF"), "{error}");
    }
    let replica = replica_by(server(), &master).await;
    what_the_server_counts_decides(&manager, &master, &replica).await;
}

async fn what_the_server_counts_decides(
    manager: &LockManager,
    master: &RedisServer,
    replica: &RedisServer,
) {
    let lease = LEASE;
    let guard = manager.lock("held").lease(lease).acquire().await.unwrap();
    replica.stop_process();
    let mut raw = master.client();
    let acquiring = acquire_later(manager, "k", lease, ms(3_000));
    let mut early = 0;
    let deadline = Instant::now() + LONG;
    // Told at once that there is none, it does not take that for an acknowledgement.
    while !acquiring.is_finished() && Instant::now() < deadline {
        early += unblock(&mut raw);
        tokio::time::sleep(ms(5)).await;
    }
    assert!(early > 0, "nobody waited");
    let error = within(LONG, acquiring).await.unwrap().0.unwrap_err();
    assert!(too_few(&error), "{error:?}");
    // No more does a renewal.
    let mut lost = std::pin::pin!(guard.lost());
    let error = loop {
        tokio::select! {
            error = &mut lost => break error,
            () = tokio::time::sleep(ms(5)) => drop(unblock(&mut raw)),
        }
        assert!(Instant::now() < deadline, "it is held without a replica");
    };
    assert!(error.to_string().contains("min_replicas"), "{error}");
}
