//! The shortest lease in the units of the server: a TTL of zero would delete the key.

use std::time::Duration;

use distlock_tests::{RedisServer, within};

use crate::kit::{LONG, acquire_later, calls, connect, ms, until_clean, until_queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shortest_lease_never_becomes_a_ttl_of_nothing() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let monitor = server.monitor();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    // Neither is a whole number of milliseconds, which is what the server counts in.
    let lease = Duration::from_nanos(50_000_001);
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    // Renewed, handed on, confirmed, renewed and kept for less than a millisecond.
    tokio::time::sleep(ms(300)).await;
    let _ = guard.release().await;
    let mut guard = within(LONG, waiting).await.unwrap().0.unwrap();
    tokio::time::sleep(ms(300)).await;
    let _ = guard.release().await;
    // A busy machine loses so short a lease at once, and seldom renews it.
    for _ in 0..50 {
        if calls(&mut raw, "pexpire") >= 5 {
            break;
        }
        guard = first
            .lock("k")
            .lease(lease)
            .wait(LONG)
            .acquire()
            .await
            .unwrap();
        tokio::time::sleep(ms(300)).await;
        let _ = guard.release().await;
    }
    let kept = second
        .lock("kept")
        .lease(lease)
        .min_hold(Duration::from_nanos(1));
    kept.acquire().await.unwrap().release().await.unwrap();
    let mut ttls = Vec::new();
    for line in monitor.stop() {
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('"')).collect();
        for (at, word) in words.iter().enumerate() {
            if matches!(*word, "PEXPIRE") && line.contains(" lua] ") {
                ttls.push(words[at + 2].parse::<f64>().unwrap());
            }
        }
    }
    assert!(ttls.len() >= 5, "nothing was renewed: {ttls:?}");
    // 51 ms and the grace.
    assert!(ttls.iter().all(|ttl| *ttl >= 1.0), "{ttls:?}");
    assert!(ttls.contains(&301.0), "rounded down: {ttls:?}");
    until_clean(&mut raw, LONG).await;
}
