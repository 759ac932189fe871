//! Steps of the server's wall clock.

use std::time::{Duration, Instant};

use distlock_tests::{PostgresServer, within};

use crate::postgres::support::{Contended, Raw, give_back, installed};
use crate::support::{HELD, LONG, SLACK, acquired, connect, grace, hold, ms, until_renewed_twice};

const HOUR: Duration = Duration::from_secs(3_600);

async fn server() -> PostgresServer {
    installed(PostgresServer::builder().own_clock()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_step_frees_the_lock_and_notifies_its_holder() {
    let lease = ms(9_000);
    let this = Contended::start(server().await, false, false, lease).await;
    this.server.set_clock(true, HOUR);
    let stepped = Instant::now();
    within(LONG, this.guard.lost()).await;
    let delay = stepped.elapsed();
    assert!(delay < lease / 3 + SLACK, "notified after {delay:?}");
    let next = acquired(this.waiting).await;
    let token = next.fencing_token();
    assert!(token > this.guard.fencing_token());
    // The clock is back again, and the token stays ahead of it.
    this.server.set_clock(true, Duration::ZERO);
    next.release().await.unwrap();
    let last = hold(&this.waiter, "k", lease).await;
    assert!(last.fencing_token() > token);
    last.release().await.unwrap();
    this.raw.until_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_holder_keeps_its_lock_over_a_backward_step() {
    let this = Contended::start(server().await, false, false, HELD).await;
    this.server.set_clock(false, HOUR);
    until_renewed_twice(&this.guard).await;
    assert!(!this.waiting.is_finished());
    this.hand_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_is_freed_after_a_backward_step() {
    let lease = ms(1_000);
    let this = Contended::start(server().await, true, false, lease).await;
    this.proxy.black_hole(true);
    this.server.set_clock(false, HOUR);
    let stepped = Instant::now();
    let token = this.guard.fencing_token();
    give_back(token, this.waiting, &this.raw).await;
    let delay = stepped.elapsed();
    let bound = lease + grace(lease) + ms(1_000) + SLACK;
    assert!(delay <= bound, "freed after {delay:?}");
    assert!(!this.guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_rejects_no_call() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let mut last = None;
    for ahead in [true, false] {
        // The manager has an estimate of the time, which the step makes wrong.
        let manager = connect(&server.url()).await;
        server.set_clock(ahead, HOUR / 2);
        for _ in 0..2 {
            let guard = hold(&manager, "k", LONG).await;
            assert!(last < Some(guard.fencing_token()), "ahead: {ahead}");
            last = Some(guard.fencing_token());
            guard.release().await.unwrap();
        }
    }
    raw.until_clean().await;
}
