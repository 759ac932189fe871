//! A server that answers but refuses to write: nobody runs without a lock in it, and when it takes
//! writes again everybody has a turn.

use std::sync::Arc;
use std::time::Instant;

use distlock_tests::{RedisServer, RedisServerBuilder, Reply, Resp, eventually_async, within};

use crate::kit::{
    Exclusion, HELD, LONG, SLACK, assert_in_redis, connect, leftovers, lock_key, ms, until_clean,
    until_queued, until_renewed_twice,
};

const WAITERS: usize = 6;

/// A way to refuse.
struct Refusal {
    builder: RedisServerBuilder,
    begin: fn(&RedisServer, &mut Resp),
    end: fn(&mut Resp),
    /// Whether the lock can be handed on meanwhile.
    hands_on: bool,
}

#[track_caller]
fn ok(raw: &mut Resp, words: &[&str]) {
    assert_eq!(raw.cmd(words), Reply::Status("OK".into()), "{words:?}");
}

/// A holder releases while the server refuses and others wait.
async fn release_under(refusal: Refusal) {
    let server = Arc::new(refusal.builder.start());
    let mut raw = server.client();
    let lease = ms(1_000);
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = managers[0].lock("k").lease(lease).acquire().await.unwrap();
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
                    });
                    match result.await {
                        Ok(()) => return,
                        // What cannot be renewed is lost; the turn is had again.
                        Err(error) if error.is_lost() => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    until_queued(&mut raw, "k", WAITERS as i64).await;
    (refusal.begin)(&server, &mut raw);
    drop(guard);
    // Two grant leases and several looks: time for everything that could go wrong.
    let refused_until = Instant::now() + ms(2_000);
    if refusal.hands_on {
        eventually_async(LONG, async || exclusion.turns() >= WAITERS as u64).await;
    } else {
        tokio::time::sleep_until(refused_until.into()).await;
        assert_eq!(
            exclusion.turns(),
            0,
            "a body ran although nothing can be written"
        );
    }
    (refusal.end)(&mut raw);
    for waiter in waiters {
        within(LONG, waiter).await.unwrap();
    }
    assert!(exclusion.turns() >= WAITERS as u64);
    until_clean(&mut raw, LONG).await;
}

fn plain() -> RedisServerBuilder {
    RedisServer::builder()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    release_under(Refusal {
        builder: plain(),
        begin: |_, raw| ok(raw, &["CONFIG", "SET", "maxmemory", "1"]),
        end: |raw| ok(raw, &["CONFIG", "SET", "maxmemory", "0"]),
        hands_on: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_that_fail() {
    release_under(Refusal {
        builder: plain(),
        begin: |server, raw| {
            // A snapshot cannot replace a directory.
            std::fs::create_dir(server.dir().join("dump.rdb")).expect("a directory");
            raw.cmd(&["BGSAVE"]);
            distlock_tests::eventually(LONG, || raw.info_field("rdb_last_bgsave_status") == "err");
            ok(raw, &["CONFIG", "SET", "save", "3600 1"]);
            let refused = raw.cmd(&["SET", "probe", "1"]);
            assert!(
                matches!(&refused, Reply::Error(e) if e.starts_with("MISCONF")),
                "{refused:?}"
            );
        },
        end: |raw| ok(raw, &["CONFIG", "SET", "save", ""]),
        hands_on: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    release_under(Refusal {
        builder: plain(),
        begin: |_, raw| ok(raw, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
        end: |raw| ok(raw, &["CONFIG", "SET", "min-replicas-to-write", "0"]),
        hands_on: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master() {
    release_under(Refusal {
        builder: plain(),
        // A master that cannot be reached: it keeps its data, and only reads.
        begin: |_, raw| ok(raw, &["REPLICAOF", "127.0.0.1", "1"]),
        end: |raw| ok(raw, &["REPLICAOF", "NO", "ONE"]),
        hands_on: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_right_to_publish() {
    release_under(Refusal {
        builder: plain(),
        begin: |_, raw| ok(raw, &["ACL", "SETUSER", "default", "-publish"]),
        end: |raw| ok(raw, &["ACL", "SETUSER", "default", "+publish"]),
        hands_on: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_releases_work_without_memory() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    ok(&mut raw, &["CONFIG", "SET", "maxmemory", "1"]);
    until_renewed_twice(&guard).await;
    let refused = manager
        .lock("other")
        .wait(ms(0))
        .acquire()
        .await
        .unwrap_err();
    assert!(
        refused.is_unavailable() && refused.to_string().contains("memory"),
        "{refused}"
    );
    guard.release().await.unwrap();
    assert!(!raw.exists(&lock_key("k")));
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_renewed_is_lost_and_says_why() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = HELD;
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    ok(&mut raw, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = Instant::now();
    let error = within(LONG, guard.lost()).await;
    assert!(refused.elapsed() < lease + SLACK);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
}
