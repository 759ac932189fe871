//! A server that forgets: FLUSHALL, and a death without persistence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use distlock::{Error, LossReason, distributed_lock};
use distlock_tests::{RedisServer, Resp, within};

use crate::kit::{LONG, SLACK, acquire_later, connect, give_back, ms, until_clean, until_queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_is_told_and_waiters_go_on() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiters = [&first, &second]
        .map(|manager| tokio::spawn(give_back(acquire_later(manager, "k", lease, LONG))));
    until_queued(&mut raw, "k", 2).await;
    let flushed = Instant::now();
    raw.cmd(&["FLUSHALL"]);
    let error = within(LONG, guard.lost()).await;
    assert!(
        flushed.elapsed() < lease / 3 + SLACK,
        "told after {:?}",
        flushed.elapsed()
    );
    assert!(error.is_lost());
    let mut last = guard.fencing_token();
    let mut seen = Vec::new();
    for waiter in waiters {
        seen.push(within(LONG, waiter).await.unwrap());
    }
    seen.sort();
    // A look each half second finds that everything is gone.
    assert!(
        seen[0].1 - flushed < ms(1_000) + SLACK,
        "{:?}",
        seen[0].1 - flushed
    );
    for (token, _) in seen {
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    // The release of the flushed hold changes nothing for others.
    assert!(guard.release().await.is_err());
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_without_persistence_is_found_out() {
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    let mut last = 0;
    for _ in 0..3 {
        let guard = first
            .lock("k")
            .lease(lease)
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        assert!(guard.fencing_token().get() > last);
        server.kill();
        server.restart();
        let back = Instant::now();
        // Documented: a server that forgets may grant again before the holder hears of it.
        let rival = second
            .lock("k")
            .lease(lease)
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        assert!(rival.fencing_token() > guard.fencing_token());
        within(LONG, guard.lost()).await;
        assert!(
            back.elapsed() < lease / 3 + ms(500) + SLACK,
            "told after {:?}",
            back.elapsed()
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
    let guard = manager.lock("k").lease(ms(15_000)).acquire().await.unwrap();
    server.kill();
    server.restart();
    let mut raw = server.client();
    crate::kit::expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    manager.lock("k").wait(ms(0)).acquire().await.unwrap_err();
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_nobody_elses_connection_is_killed() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let mut raw = server.client();
    let id_of = |list: &str| -> i64 {
        let line = list
            .lines()
            .find(|line| line.contains(" sub=1 "))
            .expect("a subscriber");
        let id = line.split(' ').find_map(|field| field.strip_prefix("id="));
        id.unwrap().parse().unwrap()
    };
    let old = id_of(raw.cmd(&["CLIENT", "LIST"]).text().unwrap());
    proxy.refuse_connections(true);
    server.restart();
    // The new server counts from the beginning: somebody else has that number now.
    let mut bystanders = Vec::new();
    loop {
        let mut bystander = server.client();
        let id = bystander.cmd(&["CLIENT", "ID"]).int();
        bystanders.push(bystander);
        if id >= old {
            assert!(id < old + 20, "the number was used up already");
            break;
        }
    }
    proxy.refuse_connections(false);
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    for bystander in &mut bystanders {
        assert!(
            bystander.try_cmd(&["PING"]).is_ok(),
            "a bystander was killed"
        );
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushes_under_load() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let manager = connect(&server.url()).await;
        for _ in 0..3 {
            let lock = manager.lock("k").lease(ms(600)).wait(LONG);
            let is_over = is_over.clone();
            tasks.push(tokio::spawn(async move {
                let (mut turns, mut last) = (0, None);
                while turns == 0 || !is_over.load(Ordering::SeqCst) {
                    let turn = lock.run(async |held| {
                        tokio::time::sleep(ms(5)).await;
                        held.fencing_token()
                    });
                    match turn.await {
                        Ok(token) => {
                            assert!(last < Some(token), "{token} after {last:?}");
                            last = Some(token);
                            turns += 1;
                        }
                        Err(error) => assert!(error.is_lost(), "{error}"),
                    }
                }
            }));
        }
    }
    for _ in 0..75 {
        raw.cmd(&["FLUSHALL"]);
        tokio::time::sleep(ms(40)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        within(LONG, task).await.expect("nobody starves");
    }
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

/// Lost, although nobody knew before the release.
#[track_caller]
fn assert_gone(error: &Error, key: &str) {
    assert!(
        matches!(
            error,
            Error::Lost {
                completed: true,
                reason: LossReason::Gone,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.key(), Some(key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_during_a_short_body_is_told_at_its_release() {
    let server = RedisServer::start();
    let raw = Mutex::new(server.client());
    let flush = || drop(raw.lock().unwrap().cmd(&["FLUSHALL"]));
    let manager = connect(&server.url()).await;
    let rival = connect(&server.url()).await;
    // Another one ran beside it.
    let guard = manager.lock("guard").acquire().await.unwrap();
    flush();
    let other = rival.lock("guard").try_acquire().await.unwrap().unwrap();
    assert_gone(&guard.release().await.unwrap_err(), "guard");
    assert!(other.is_held());
    other.release().await.unwrap();

    let ran = manager.lock("run").run(async |_| flush()).await;
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
    // A job that is kept for a while is released once, and handed on later: that is no loss.
    let kept = manager.lock("kept").min_hold(ms(300));
    kept.acquire().await.unwrap().release().await.unwrap();
    until_clean(&mut server.client(), LONG).await;
    kept.acquire().await.unwrap().release().await.unwrap();
}
