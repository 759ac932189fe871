//! One server gets a command of the quorum's client late, on a connection that was lost.

use distlock_tests::{RedisQuorum, eventually_async};

use crate::quorum::{three, until_clean, until_clean_at, until_held_at};
use crate::support::{HELD, LONG, connect_patiently, hold, lock_key, ms};

/// R2: the release overtakes the acquire, and is repeated. The lease is longer than the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_acquire_leaves_nothing() {
    let quorum = three();
    let late = quorum.server(2);
    let proxy = late.proxy();
    let [first, second] = [0, 1].map(|place| quorum.server(place).port());
    let url = RedisQuorum::url_at([first, second, proxy.port()]);
    let manager = connect_patiently(url).await.unwrap();
    // Each server then knows the scripts.
    let guard = hold(&manager, "warm", HELD).await;
    until_held_at(&quorum, 0..3, &guard).await;
    guard.release().await.unwrap();
    until_clean(&quorum).await;
    let mut monitor = late.monitor();
    let lock = lock_key("k");
    // The calls themselves, not the commands of their scripts.
    let mut until_seen = async |calls: usize| {
        let is_call = |line: &&String| line.contains(&lock) && !line.contains(" lua] ");
        eventually_async(LONG, async || {
            monitor.lines().iter().filter(is_call).count() >= calls
        })
        .await;
    };
    proxy.hold_requests();
    let guard = hold(&manager, "k", ms(40_000)).await;
    let proxied = proxy.handle();
    eventually_async(LONG, async || proxied.stats().requests_held > 0).await;
    proxy.reset_clients();
    guard.release().await.unwrap();
    until_seen(1).await;
    assert!(proxy.release_held() > 0);
    until_seen(2).await;
    until_clean_at(&quorum, 2).await;
}
