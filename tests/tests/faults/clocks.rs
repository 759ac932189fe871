//! A server whose wall clock steps.

use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, within};

use crate::kit::{
    HELD, LONG, SLACK, acquire_later, connect, grace, ms, until_clean, until_queued,
    until_renewed_twice,
};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_is_freed_after_a_backward_step() {
    let server = RedisServer::builder().own_clock().start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let (dead, live) = (
        connect(&server.url_via(&proxy)).await,
        connect(&server.url()).await,
    );
    let lease = ms(1_000);
    let guard = dead.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&live, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    proxy.black_hole(true);
    server.step_clock(false, HOUR);
    let stepped = Instant::now();
    let (next, acquired) = within(LONG, waiting).await.unwrap();
    let (next, delay) = (next.unwrap(), acquired - stepped);
    assert!(
        delay <= lease + grace(lease) + ms(1_000) + SLACK,
        "freed after {delay:?}"
    );
    assert!(!guard.is_held());
    assert!(next.fencing_token() > guard.fencing_token(), "tokens rise");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_holder_keeps_its_lock_over_a_backward_step() {
    let server = RedisServer::builder().own_clock().start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = first.lock("k").lease(HELD).acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", HELD, LONG);
    until_queued(&mut raw, "k", 1).await;
    server.step_clock(false, HOUR);
    until_renewed_twice(&guard).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    next.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_step_frees_the_lock_and_tells_its_holder() {
    let server = RedisServer::builder().own_clock().start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    server.step_clock(true, HOUR);
    let stepped = Instant::now();
    within(LONG, guard.lost()).await;
    assert!(
        stepped.elapsed() < lease / 3 + SLACK,
        "told after {:?}",
        stepped.elapsed()
    );
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // Back again: the token stays ahead of the clock.
    server.step_clock(true, Duration::ZERO);
    let token = next.fencing_token();
    next.release().await.unwrap();
    let last = second
        .lock("k")
        .lease(lease)
        .wait(LONG)
        .acquire()
        .await
        .unwrap();
    assert!(last.fencing_token() > token);
    last.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_refuses_nobody() {
    let server = RedisServer::builder().own_clock().start();
    let mut raw = server.client();
    let mut last = None;
    for ahead in [true, false] {
        // Each has a fresh idea of the time, which the step makes wrong.
        let managers = [connect(&server.url()).await, connect(&server.url()).await];
        server.step_clock(ahead, HOUR / 2);
        let guard = managers[0]
            .lock("k")
            .lease(LONG)
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        assert!(last < Some(guard.fencing_token()), "ahead: {ahead}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        let guard = managers[1]
            .lock("k")
            .lease(LONG)
            .try_acquire()
            .await
            .unwrap();
        let guard = guard.expect("nobody has it");
        assert!(last < Some(guard.fencing_token()), "ahead: {ahead}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
    }
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_across_a_step_are_confirmed_first() {
    let server = RedisServer::builder().own_clock().start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(5_000);
    for ahead in [false, true, false] {
        let guard = first
            .lock("k")
            .lease(lease)
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        let waiting = acquire_later(&second, "k", lease, LONG);
        until_queued(&mut raw, "k", 1).await;
        // A step that is too small for the lock to expire: the grant seems older or younger.
        server.step_clock(ahead, ms(1_500));
        guard.release().await.unwrap();
        let next = within(LONG, waiting).await.unwrap().0.unwrap();
        tokio::select! {
            error = next.lost() => panic!("ahead {ahead}: {error}"),
            () = tokio::time::sleep(ms(1_500)) => {}
        }
        next.release().await.unwrap();
    }
    until_clean(&mut raw, LONG).await;
}
