//! A server that loses its data: FLUSHALL, and a crash without persistence.

use std::sync::Mutex;
use std::time::Instant;

use distlock::{Error, LossReason, distributed_lock};
use distlock_tests::{RedisServer, Resp, within};

use crate::contended::Contended;
use crate::support::{
    HELD, LONG, SLACK, acquire_later, connect, expiry_after_renewal, give_back, hold, loss, ms,
    single, until_clean, until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_is_reported_and_waiters_continue() {
    let lease = ms(9_000);
    let mut this = Contended::start(lease).await;
    let second = acquire_later(&this.holder, "k", lease, LONG);
    until_queued(&mut this.raw, "k", 2).await;
    let waiters = [this.waiting, second].map(|waiting| tokio::spawn(give_back(waiting)));
    let flushed = Instant::now();
    this.raw.cmd(&["FLUSHALL"]);
    let error = within(LONG, this.guard.lost()).await;
    let delay = flushed.elapsed();
    assert!(delay < lease / 3 + SLACK, "notified after {delay:?}");
    assert!(error.is_lost());
    let mut turns = Vec::new();
    for waiter in waiters {
        turns.push(within(LONG, waiter).await.unwrap());
    }
    turns.sort();
    // A queue check, twice per second, finds the data gone.
    let delay = turns[0].1 - flushed;
    assert!(delay < ms(1_000) + SLACK, "{delay:?}");
    let mut last = this.guard.fencing_token();
    for (token, _) in turns {
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    // The release of the flushed hold changes nothing for other clients.
    assert!(this.guard.release().await.is_err());
    until_clean(&mut this.raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_persistence_is_detected() {
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    let mut last = 0;
    for _ in 0..3 {
        let guard = hold(&first, "k", lease).await;
        assert!(guard.fencing_token().get() > last);
        server.kill();
        server.restart();
        let back = Instant::now();
        // Documented: a server that lost its data may grant again before the holder learns of it.
        let rival = hold(&second, "k", lease).await;
        assert!(rival.fencing_token() > guard.fencing_token());
        within(LONG, guard.lost()).await;
        let delay = back.elapsed();
        assert!(
            delay < lease / 3 + ms(500) + SLACK,
            "notified after {delay:?}"
        );
        last = rival.fencing_token().get();
        assert!(guard.release().await.is_err());
        assert!(rival.is_held());
        rival.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_remembers_keeps_the_holder() {
    let server = RedisServer::builder().append_only().start();
    let manager = connect(&server.url()).await;
    let guard = hold(&manager, "k", ms(15_000)).await;
    server.kill();
    server.restart();
    let mut raw = server.client();
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    manager.lock("k").wait(ms(0)).acquire().await.unwrap_err();
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[distributed_lock(key = "annotated")]
async fn annotated(raw: &Mutex<Resp>, fails: bool) -> Result<u8, AnnotatedError> {
    raw.lock().unwrap().cmd(&["FLUSHALL"]);
    if fails {
        Err(AnnotatedError::Body)
    } else {
        Ok(7)
    }
}

#[distributed_lock(key = "finishing", on_lost = "finish")]
async fn finishing(raw: &Mutex<Resp>) -> Result<u8, AnnotatedError> {
    raw.lock().unwrap().cmd(&["FLUSHALL"]);
    Ok(7)
}

#[derive(Debug)]
enum AnnotatedError {
    Body,
    Lock(Error),
}

impl From<Error> for AnnotatedError {
    fn from(error: Error) -> Self {
        AnnotatedError::Lock(error)
    }
}

/// Panics unless the release found the loss, after the body had completed.
#[track_caller]
fn assert_gone(error: &Error, key: &str) {
    let (reason, completed) = loss(error);
    assert!(completed && matches!(reason, LossReason::Gone), "{error:?}");
    assert_eq!(error.key(), Some(key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_during_a_short_body_is_reported_by_its_release() {
    let (server, raw, manager) = single().await;
    let raw = Mutex::new(raw);
    let flush = || drop(raw.lock().unwrap().cmd(&["FLUSHALL"]));
    let ran = manager
        .lock("run")
        .run(async |_| {
            flush();
            Ok::<_, Error>(())
        })
        .await;
    assert_gone(&ran.unwrap_err(), "run");

    let annotated = async |fails| {
        let call = distlock::with_manager(manager.clone(), annotated(&raw, fails));
        match call.await.unwrap_err() {
            AnnotatedError::Lock(error) => error,
            AnnotatedError::Body => panic!("the body's error hides the loss"),
        }
    };
    assert_gone(&annotated(false).await, "annotated");
    assert_gone(&annotated(true).await, "annotated");
    let finished = distlock::with_manager(manager.clone(), finishing(&raw)).await;
    assert!(matches!(finished, Ok(7)), "{finished:?}");
    // A hold with `min_hold` is released once and handed off later, which is not a loss.
    let kept = manager.lock("kept").min_hold(ms(300));
    kept.acquire().await.unwrap().release().await.unwrap();
    until_clean(&mut server.client(), LONG).await;
    kept.acquire().await.unwrap().release().await.unwrap();
}

/// The promoted server may have the readers of before, and not the writer that came after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_phase_ends_with_a_failover() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let read = async || manager.rw_lock("k").lease(HELD).read().await.unwrap();
    let (first, second) = (read().await, read().await);
    assert_eq!(first.fencing_token(), second.fencing_token());
    let mut raw = server.client();
    // A promotion, without the time as a replica.
    raw.cmd(&["MULTI"]);
    raw.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    raw.cmd(&["REPLICAOF", "NO", "ONE"]);
    raw.cmd(&["EXEC"]);
    let (third, fourth) = (read().await, read().await);
    assert!(third.fencing_token() > first.fencing_token());
    assert_eq!(third.fencing_token(), fourth.fencing_token());
    for guard in [first, second, third, fourth] {
        guard.release().await.unwrap();
    }
    until_clean(&mut raw, LONG).await;
}
