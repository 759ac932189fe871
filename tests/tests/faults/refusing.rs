//! A server that replies but rejects writes. No body runs without its lock in the server, and every
//! waiter has a turn once writes work again.

use std::sync::Arc;
use std::time::Instant;

use distlock::Error;
use distlock_tests::{RedisServer, Reply, Resp, eventually, eventually_async, within};
use futures::future::join_all;

use crate::support::{
    Exclusion, HELD, LONG, SLACK, assert_in_redis, connect, hold, ms, ok, single, until_clean,
    until_queued,
};

const WAITERS: usize = 6;

/// A way in which the server rejects commands.
struct Refusal {
    name: &'static str,
    begin: fn(&RedisServer, &mut Resp),
    end: &'static [&'static str],
    /// Set if the lock can be handed off meanwhile.
    hands_on: bool,
}

/// Releases a lock while the server refuses and others wait.
async fn release_under(refusal: &Refusal) {
    let name = refusal.name;
    let server = Arc::new(RedisServer::start());
    let mut raw = server.client();
    let lease = ms(1_000);
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = hold(&managers[0], "k", lease).await;
    let exclusion = Exclusion::new();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|i| {
            let lock = managers[i % 2].lock("k").lease(lease).wait(ms(60_000));
            let (server, exclusion) = (server.clone(), exclusion.clone());
            tokio::spawn(async move {
                loop {
                    let result = lock.run(async |held| {
                        assert_in_redis(&server, &held);
                        let _inside = exclusion.enter(held.fencing_token());
                        tokio::time::sleep(ms(20)).await;
                        assert_in_redis(&server, &held);
                        Ok::<_, Error>(())
                    });
                    match result.await {
                        Ok(()) => return,
                        // A hold that cannot be renewed is lost, and the waiter takes another turn.
                        Err(error) if error.is_lost() => {}
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            })
        })
        .collect();
    until_queued(&mut raw, "k", WAITERS as i64).await;
    (refusal.begin)(&server, &mut raw);
    drop(guard);
    // Two grant leases and several queue checks, time for everything that could go wrong.
    let refused_until = Instant::now() + ms(2_000);
    if refusal.hands_on {
        eventually_async(LONG, async || exclusion.turns() >= WAITERS as u64).await;
    } else {
        tokio::time::sleep_until(refused_until.into()).await;
        assert_eq!(
            exclusion.turns(),
            0,
            "{name}: a body ran although nothing can be written"
        );
    }
    ok(&mut raw, refusal.end);
    for waiter in waiters {
        within(LONG, waiter).await.unwrap();
    }
    assert!(exclusion.turns() >= WAITERS as u64, "{name}");
    until_clean(&mut raw, LONG).await;
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "out of memory",
        begin: |_, raw| ok(raw, &["CONFIG", "SET", "maxmemory", "1"]),
        end: &["CONFIG", "SET", "maxmemory", "0"],
        hands_on: true,
    },
    Refusal {
        name: "no permission to publish",
        begin: |_, raw| ok(raw, &["ACL", "SETUSER", "default", "-publish"]),
        end: &["ACL", "SETUSER", "default", "+publish"],
        hands_on: true,
    },
    Refusal {
        name: "snapshots that fail",
        begin: |server, raw| {
            // A snapshot cannot replace a directory.
            std::fs::create_dir(server.dir().join("dump.rdb")).expect("a directory");
            raw.cmd(&["BGSAVE"]);
            eventually(LONG, || raw.info_field("rdb_last_bgsave_status") == "err");
            ok(raw, &["CONFIG", "SET", "save", "3600 1"]);
            let refused = raw.cmd(&["SET", "probe", "1"]);
            let is_misconf = matches!(&refused, Reply::Error(e) if e.starts_with("MISCONF"));
            assert!(is_misconf, "{refused:?}");
        },
        end: &["CONFIG", "SET", "save", ""],
        hands_on: false,
    },
    Refusal {
        name: "too few replicas",
        begin: |_, raw| ok(raw, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
        end: &["CONFIG", "SET", "min-replicas-to-write", "0"],
        hands_on: false,
    },
    Refusal {
        name: "a demoted primary",
        // A replica of an unreachable primary keeps its data and is read-only.
        begin: |_, raw| ok(raw, &["REPLICAOF", "127.0.0.1", "1"]),
        end: &["REPLICAOF", "NO", "ONE"],
        hands_on: false,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_on_without_memory_or_messages() {
    release_under_each(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_runs_without_its_lock_in_the_server() {
    release_under_each(false).await;
}

async fn release_under_each(hands_on: bool) {
    let refusals = REFUSALS.iter().filter(|one| one.hands_on == hands_on);
    // These mostly wait, so all run at once.
    join_all(refusals.map(release_under)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_renewal_loses_the_lock_and_reports_its_reason() {
    let (_server, mut raw, manager) = single().await;
    let guard = hold(&manager, "k", HELD).await;
    ok(&mut raw, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = Instant::now();
    let error = within(LONG, guard.lost()).await;
    assert!(refused.elapsed() < HELD + SLACK);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
}
