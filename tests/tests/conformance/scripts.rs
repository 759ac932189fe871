//! A server that forgets its scripts only makes a command take longer.

use distlock_tests::eventually_async;

use crate::fixture::{Fixture, HELD, PATIENCE, ms, until_renewed_twice};

fn flush(fixture: &Fixture) {
    let reply = fixture.raw().cmd(&["SCRIPT", "FLUSH"]);
    assert_eq!(reply.text(), Some("OK"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_each_command() {
    let fixture = Fixture::own_redis().await;
    let (manager, other) = (fixture.manager().await, fixture.manager().await);
    flush(&fixture);
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    flush(&fixture);
    assert!(fixture.inspect("k").await.holders.len() == 1, "inspect");
    // Each of several renewals reaches a server that does not know the scripts.
    for _ in 0..2 {
        flush(&fixture);
        until_renewed_twice(&guard).await;
    }
    flush(&fixture);
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    let waiter = fixture.queued(other.lock("k")).await;
    flush(&fixture);
    guard.release().await.unwrap();
    // The confirmation of a hand-off.
    flush(&fixture);
    let guard = waiter.guard().await;
    let third = manager.lock("k").wait(ms(1_500));
    assert!(third.acquire().await.is_err(), "two holders at once");
    assert!(guard.is_held());
    flush(&fixture);
    guard.release().await.unwrap();
    // Cancels continue in the background, as do releases without a timely reply.
    eventually_async(PATIENCE, async || fixture.left_over().is_empty()).await;
}
