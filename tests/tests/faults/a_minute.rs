//! Hand-off without push messages. The file's name puts this minute-long test first, so that other
//! tests run in parallel with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_tests::{RedisServer, Spread, eventually_async};

use crate::support::{Exclusion, LONG, connect, ms, until_clean};

/// Number of turns while every push is dropped. Queue checks are half a second apart, so they take
/// about a minute.
const TURNS: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_without_messages_is_fair() {
    const CLIENTS: usize = 4;
    const WAITERS: usize = 2;
    let server = RedisServer::start();
    let proxy = server.proxy();
    proxy.drop_pushes(true);
    let exclusion = Exclusion::new();
    let mut waiters = Vec::new();
    let (mut managers, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let manager = connect(&server.url_via(&proxy)).await;
        for _ in 0..WAITERS {
            let lock = manager.lock("k").lease(ms(5_000)).wait(LONG * 10);
            let (exclusion, turns) = (exclusion.clone(), Arc::new(AtomicU64::new(0)));
            counts.push(turns.clone());
            waiters.push(tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await.unwrap();
                    drop(exclusion.enter(guard.fencing_token()));
                    turns.fetch_add(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
        managers.push(manager);
    }
    eventually_async(LONG * 10, async || exclusion.turns() >= TURNS).await;
    for waiter in &waiters {
        assert!(!waiter.is_finished(), "a waiter has failed");
        waiter.abort();
    }
    let stats = proxy.stats();
    assert!(
        stats.pushes_dropped >= TURNS / 2 && stats.pushes_passed == 0,
        "{stats:?}"
    );
    // A waiter loses its place only with its connection, which happens on a busy machine.
    let spread = Spread::of_counts(counts.iter().map(|turns| turns.load(Ordering::SeqCst)));
    assert!(spread.min() >= 0.5 * spread.mean(), "{counts:?}");
    until_clean(&mut server.client(), LONG).await;
}
