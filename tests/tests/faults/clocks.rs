//! Steps of the server's wall clock.

use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, within};

use crate::contended::Contended;
use crate::support::{
    HELD, LONG, SLACK, acquired, connect, grace, hold, ms, until_clean, until_renewed_twice,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn server() -> RedisServer {
    RedisServer::builder().own_clock().start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_is_freed_after_a_backward_step() {
    let lease = ms(1_000);
    let this = Contended::with_far_holder(server(), lease).await;
    this.proxy.black_hole(true);
    this.server.step_clock(false, HOUR);
    let stepped = Instant::now();
    let next = acquired(this.waiting).await;
    let delay = stepped.elapsed();
    assert!(
        delay <= lease + grace(lease) + ms(1_000) + SLACK,
        "freed after {delay:?}"
    );
    assert!(!this.guard.is_held());
    assert!(next.fencing_token() > this.guard.fencing_token());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_holder_keeps_its_lock_over_a_backward_step() {
    let this = Contended::on(server(), HELD).await;
    this.server.step_clock(false, HOUR);
    until_renewed_twice(&this.guard).await;
    assert!(!this.waiting.is_finished());
    this.hand_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_step_frees_the_lock_and_notifies_its_holder() {
    let lease = ms(9_000);
    let mut this = Contended::on(server(), lease).await;
    this.server.step_clock(true, HOUR);
    let stepped = Instant::now();
    within(LONG, this.guard.lost()).await;
    let delay = stepped.elapsed();
    assert!(delay < lease / 3 + SLACK, "notified after {delay:?}");
    let next = acquired(this.waiting).await;
    let token = next.fencing_token();
    assert!(token > this.guard.fencing_token());
    // The clock is back again, and the token stays ahead of it.
    this.server.step_clock(true, Duration::ZERO);
    next.release().await.unwrap();
    let last = hold(&this.waiter, "k", lease).await;
    assert!(last.fencing_token() > token);
    last.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_step_rejects_no_call() {
    let server = server();
    let mut last = None;
    for ahead in [true, false] {
        // Each manager has a fresh estimate of the time, which the step makes wrong.
        let managers = [connect(&server.url()).await, connect(&server.url()).await];
        server.step_clock(ahead, HOUR / 2);
        let waited = hold(&managers[0], "k", LONG).await;
        assert!(last < Some(waited.fencing_token()), "ahead: {ahead}");
        last = Some(waited.fencing_token());
        waited.release().await.unwrap();
        let lock = managers[1].lock("k").lease(LONG);
        let tried = lock.try_acquire().await.unwrap().expect("it is free");
        assert!(last < Some(tried.fencing_token()), "ahead: {ahead}");
        last = Some(tried.fencing_token());
        tried.release().await.unwrap();
    }
    until_clean(&mut server.client(), LONG).await;
}

/// The step is too small for the lock to expire; it makes the grant seem older or younger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_across_a_step_are_confirmed_first() {
    for ahead in [false, true] {
        let this = Contended::on(server(), HELD).await;
        this.server.step_clock(ahead, ms(1_500));
        this.guard.release().await.unwrap();
        let next = acquired(this.waiting).await;
        let lost = tokio::time::timeout(ms(1_500), next.lost()).await;
        assert!(lost.is_err(), "ahead: {ahead}: {lost:?}");
        next.release().await.unwrap();
    }
}
