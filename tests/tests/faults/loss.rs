//! A holder learns of a loss while the server still keeps the lock, never after.

use std::time::Instant;

use distlock::{Error, LossReason};
use distlock_tests::{Directions, eventually_async, within};

use crate::contended::Contended;
use crate::support::{
    HELD, LONG, SLACK, acquired, assert_stored, believed_until, expiry_after_renewal, hold,
    lock_key, loss, ms, proxied, until_renewed_twice,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_frozen_server_are_lost_before_they_expire() {
    // The server drops the lock three seconds after the safe deadline.
    let lease = ms(30_000);
    let mut this = Contended::start(lease).await;
    let lock = this.holder.lock("body").lease(lease);
    let body = tokio::spawn(async move {
        let result = lock.run(async |_| std::future::pending::<Result<(), Error>>().await);
        (result.await, Instant::now())
    });
    eventually_async(LONG, async || this.raw.exists(&lock_key("body"))).await;
    // Neither hold is renewed for ten seconds. The body's hold began later.
    let remaining = this.raw.pttl(&lock_key("k"));
    let expires = Instant::now() + ms(u64::try_from(remaining).unwrap());
    this.server.stop_process();

    let error = within(lease * 2, this.guard.lost()).await;
    let lost = Instant::now();
    assert!(!this.guard.is_held() && this.guard.remaining().is_zero());
    assert!(lost < expires, "notified {:?} too late", lost - expires);
    let (reason, _) = loss(&error);
    assert!(matches!(reason, LossReason::NotRenewed { .. }), "{error:?}");
    let (result, stopped) = within(LONG, body).await.unwrap();
    let error = result.unwrap_err();
    assert!(!loss(&error).1, "{error:?}");
    assert!(
        stopped < expires,
        "the body ran {:?} too long",
        stopped - expires
    );

    tokio::time::sleep_until((expires + ms(50)).into()).await;
    assert!(!this.waiting.is_finished());
    this.server.cont_process();
    let (next, at) = within(LONG, this.waiting).await.unwrap();
    let next = next.unwrap();
    assert!(at > lost);
    assert!(next.fencing_token() > this.guard.fencing_token());
    // Releasing a lost hold touches no other hold.
    let error = this.guard.release().await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert_stored(&mut this.raw, &next);
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_black_hole_loses_nothing() {
    let (server, proxy, manager) = proxied().await;
    let lease = ms(24_000);
    let guard = hold(&manager, "k", lease).await;
    expiry_after_renewal(&mut server.client(), "k").await;
    proxy.black_hole(true);
    // One renewal is lost, and fifteen seconds are left for the next one. An attempt to connect
    // that began in the black hole may last for some of them.
    tokio::time::sleep(lease * 3 / 8).await;
    proxy.heal();
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_black_hole_loses_at_the_safe_deadline() {
    let (server, proxy, manager) = proxied().await;
    let guard = hold(&manager, "k", HELD).await;
    let expires = expiry_after_renewal(&mut server.client(), "k").await;
    // The client has received the renewal's reply, too.
    eventually_async(LONG, async || guard.remaining() > HELD * 8 / 10).await;
    proxy.black_hole(true);
    let promised = believed_until(&guard);
    assert!(promised < expires, "{:?} too late", promised - expires);
    within(LONG, guard.lost()).await;
    let lost = Instant::now();
    assert!(
        lost + ms(20) >= promised,
        "given up {:?} early",
        promised - lost
    );
    assert!(
        lost < promised + SLACK,
        "{:?} after the safe deadline",
        lost - promised
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_within_the_lease() {
    let (server, proxy, manager) = proxied().await;
    let guard = hold(&manager, "k", HELD).await;
    expiry_after_renewal(&mut server.client(), "k").await;
    // Nothing shows that these connections are dead; a new one keeps the lock.
    proxy.hold_requests();
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reply_makes_no_hold_longer() {
    let (_server, proxy, manager) = proxied().await;
    let (lease, slow) = (ms(6_000), ms(200));
    proxy.delay(Directions::ToClient, slow);
    let guard = hold(&manager, "k", lease).await;
    // From here on, the proof of the hold is as old as its last reply was slow.
    let longest = lease - slow;
    let until = Instant::now() + lease * 2 / 3;
    while Instant::now() < until {
        let remaining = guard.remaining();
        assert!(guard.is_held() && remaining < longest, "{remaining:?} left");
        tokio::time::sleep(ms(2)).await;
    }
}

/// A holder that finds its lock gone hands it off, because the next waiter may learn of it from no
/// other client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_is_handed_on_by_its_holder() {
    // Short, so that the holder learns of the loss long before its waiter counts as dead.
    let mut this = Contended::start(ms(1_500)).await;
    // The waiter is connected and can be notified, but its queue checks do not arrive.
    this.proxy.stop_reading(Directions::ToServer, true);
    this.raw.cmd(&["DEL", &lock_key("k")]);
    let error = within(LONG, this.guard.lost()).await;
    assert!(error.is_lost(), "{error:?}");
    eventually_async(LONG, async || this.raw.exists(&lock_key("k"))).await;
    this.proxy.heal();
    drop(acquired(this.waiting).await);
}
