//! A call that is dropped while its effect is unknown.

use distlock_tests::{RedisServer, eventually_async};

use crate::support::{LONG, connect, lock_key, ms, until_clean, warm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_while_the_server_sleeps_leaves_nothing() {
    let server = RedisServer::start();
    warm(&server).await;
    let manager = connect(&server.url()).await;
    let mut raw = server.client();
    let mut monitor = server.monitor();
    // An orphan would stay for much longer than this test waits.
    let lease = ms(60_000);
    server.stop_process();
    let lock = manager.lock("k").lease(lease).wait(LONG);
    let dropped = tokio::time::timeout(ms(300), lock.acquire()).await;
    assert!(dropped.is_err(), "{dropped:?}");
    server.cont_process();
    // The acquire was applied nevertheless.
    let taken = format!("\"SET\" \"{}\"", lock_key("k"));
    eventually_async(LONG, async || monitor.count(&taken) == 1).await;
    until_clean(&mut raw, LONG).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}
