//! Unannounced partitions: half-open, and one way only.

use std::time::Instant;

use distlock_tests::{Directions, ProxyHandle, RedisServer, eventually_async, within};

use crate::support::{
    HELD, LONG, SLACK, acquire_later, believed_until, connect, expiry_after_renewal, ms,
    until_clean,
};

/// A function that begins a partition.
type Cut = fn(&ProxyHandle);

/// Cuts off a holder and a caller, but not their rival.
async fn partitioned(begin: Cut) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let far = connect(&server.url_via(&proxy)).await;
    let near = connect(&server.url()).await;
    let guard = far.lock("k").lease(HELD).acquire().await.unwrap();
    let rival = acquire_later(&near, "k", HELD, LONG);
    crate::support::until_queued(&mut raw, "k", 1).await;
    let expires = expiry_after_renewal(&mut raw, "k").await;
    // The client has received the reply, too.
    eventually_async(LONG, async || guard.remaining() > HELD * 8 / 10).await;
    begin(&proxy);
    let cut = Instant::now();
    let promised = believed_until(&guard);
    assert!(promised < expires, "{:?} too late", promised - expires);
    // This call begins on connections that nothing shows to be dead.
    let wait = ms(700);
    let error = far.lock("other").wait(wait).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert!(
        cut.elapsed() + ms(20) >= wait && cut.elapsed() < wait + ms(250) + SLACK,
        "after {:?}",
        cut.elapsed()
    );
    within(LONG, guard.lost()).await;
    let lost = Instant::now();
    assert!(lost - cut < HELD + SLACK, "notified after {:?}", lost - cut);
    assert!(guard.release().await.unwrap_err().is_lost());
    proxy.heal();
    let (next, acquired) = within(LONG, rival).await.unwrap();
    let next = next.unwrap();
    assert!(acquired > promised && next.is_held(), "two holders at once");
    // The client that was cut off recovers by itself, and its old commands have no late effect.
    let waiting = acquire_later(&far, "k", HELD, LONG);
    crate::support::until_queued(&mut raw, "k", 1).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    let last = within(LONG, waiting).await.unwrap().0.unwrap();
    last.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_off_is_notified_and_comes_back() {
    let kinds: [(&str, Cut); 3] = [
        ("sockets hang", |proxy| {
            proxy.stop_reading(Directions::Both, true)
        }),
        ("requests are lost", |proxy| {
            proxy.drop_data(Directions::ToServer, true)
        }),
        ("replies are lost", |proxy| {
            proxy.drop_data(Directions::ToClient, true)
        }),
    ];
    for (kind, begin) in kinds {
        println!("{kind}");
        partitioned(begin).await;
    }
}
