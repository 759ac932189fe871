//! Loss is told while the server still keeps the lock, never after.

use std::time::Instant;

use distlock::{Error, LossReason};
use distlock_tests::{RedisServer, Way, eventually_async, within};

use crate::access::renewed;
use crate::kit::{
    HELD, LONG, SLACK, Stopped, acquire_later, believed_until, connect, expiry_after_renewal,
    lock_key, ms, until_renewed_twice,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_lost_before_it_lets_go() {
    let server = RedisServer::start();
    let mut raw = server.client();
    // The server lets go three seconds after the safe deadline.
    let (lease, wait) = (ms(30_000), LONG * 4);
    let holder = connect(&server.url()).await;
    let other = connect(&server.url()).await;
    let guard = holder.lock("guard").lease(lease).acquire().await.unwrap();
    let stopped = Stopped::default();
    let body = tokio::spawn({
        let (lock, stopped) = (holder.lock("body").lease(lease), stopped.clone());
        async move {
            lock.run(async |_| {
                let _running = stopped.body();
                std::future::pending::<()>().await;
            })
            .await
        }
    });
    let rival = acquire_later(&other, "guard", lease, wait);
    crate::kit::until_queued(&mut raw, "guard", 1).await;
    eventually_async(LONG, async || raw.exists(&lock_key("body"))).await;
    // Neither is renewed for ten seconds. The body was taken later.
    let expires = Instant::now() + ms(u64::try_from(raw.pttl(&lock_key("guard"))).unwrap());
    server.stop_process();

    let error = within(lease * 2, guard.lost()).await;
    let lost = Instant::now();
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(lost < expires, "told {:?} too late", lost - expires);
    assert!(
        matches!(
            error,
            Error::Lost {
                reason: LossReason::NotRenewed { .. },
                ..
            }
        ),
        "{error:?}"
    );
    let error = within(LONG, body).await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            Error::Lost {
                completed: false,
                ..
            }
        ),
        "{error:?}"
    );
    let stopped = stopped.at().expect("the body was dropped");
    assert!(
        stopped < expires,
        "the body ran {:?} too long",
        stopped - expires
    );

    tokio::time::sleep_until((expires + ms(50)).into()).await;
    assert!(!rival.is_finished());
    server.cont_process();
    let (rival, acquired) = within(LONG, rival).await.unwrap();
    let rival = rival.unwrap();
    assert!(acquired > lost);
    assert!(rival.fencing_token() > guard.fencing_token());
    // The release of what was lost touches nobody else's lock.
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    assert!(
        raw.get(&lock_key("guard"))
            .unwrap()
            .contains(&rival.fencing_token().to_string())
    );
    assert!(rival.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_is_lost_at_the_next_renewal() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = ms(9_000);
    for foreign in [false, true] {
        let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
        let deleted = Instant::now();
        raw.cmd(&["DEL", &lock_key("k")]);
        if foreign {
            raw.cmd(&["SET", &lock_key("k"), "somebody's"]);
        }
        let error = within(LONG, guard.lost()).await;
        assert!(
            deleted.elapsed() < lease / 3 + SLACK,
            "told after {:?}",
            deleted.elapsed()
        );
        assert!(
            matches!(
                error,
                Error::Lost {
                    reason: LossReason::Gone,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(guard.release().await.is_err());
        let left = raw.get(&lock_key("k"));
        assert_eq!(
            left.as_deref(),
            foreign.then_some("somebody's"),
            "never re-created or removed"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_black_hole_loses_nothing() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let lease = ms(24_000);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    let mut raw = server.client();
    expiry_after_renewal(&mut raw, "k").await;
    proxy.black_hole(true);
    // A renewal is lost in it, and fifteen seconds are left for the next one. An attempt to connect
    // that began in it may last for some of them.
    tokio::time::sleep(lease * 3 / 8).await;
    proxy.heal();
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_black_hole_loses_at_the_safe_deadline() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let lease = HELD;
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    let mut raw = server.client();
    let expires = expiry_after_renewal(&mut raw, "k").await;
    // The reply has come, too.
    eventually_async(LONG, async || guard.remaining() > lease * 8 / 10).await;
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
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    let mut raw = server.client();
    expiry_after_renewal(&mut raw, "k").await;
    // Nothing says that these are dead; a new one keeps the lock.
    proxy.hold_requests();
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_lose_nothing() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    let mut resets = 0;
    for _ in 0..12 {
        resets += proxy.reset_connections();
        renewed(&guard).await.unwrap();
    }
    assert!(resets >= 10, "only {resets} connections were reset");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reply_makes_no_hold_longer() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    let (lease, slow) = (ms(6_000), ms(200));
    proxy.delay(Way::ToClient, slow);
    let asked = manager
        .lock("asked")
        .lease(lease)
        .wait(LONG)
        .acquire()
        .await
        .unwrap();
    // From here on its proof is as old as its last reply was slow.
    let longest = lease - slow;
    assert!(asked.remaining() < longest, "{:?} left", asked.remaining());
    let until = Instant::now() + lease * 2 / 3;
    while Instant::now() < until {
        let left = asked.remaining();
        assert!(asked.is_held() && left < longest, "{left:?} left");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Whoever finds its lock gone hands it on, for the next in the queue may hear of it from nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_is_handed_on_by_its_holder() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let (holder, far) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    // Short, so that the holder learns of it long before its waiter is taken for dead.
    let lock = holder.lock("k").lease(ms(1_500));
    let guard = lock.acquire().await.unwrap();
    let waiting = acquire_later(&far, "k", ms(5_000), LONG);
    crate::kit::until_queued(&mut raw, "k", 1).await;
    // It is there and can be told, but its looks do not arrive.
    proxy.stop_reading(Way::ToServer, true);
    raw.cmd(&["DEL", &lock_key("k")]);
    let error = within(LONG, guard.lost()).await;
    assert!(error.is_lost(), "{error:?}");
    eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
    proxy.heal();
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    next.release().await.unwrap();
}
