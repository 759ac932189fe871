//! Hand-off without push messages. The file's name puts this minute-long test first, so that other
//! tests run in parallel with it.

use distlock_tests::{RedisServer, Spread, eventually_async};

use crate::cluster::callers::Crowd;
use crate::support::{HELD, LONG, until_clean};

/// Number of turns while every push is dropped. Queue checks are half a second apart, so they take
/// about a minute.
const TURNS: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_without_messages_is_fair() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    proxy.drop_pushes(true);
    let (url, keys) = (server.url_via(&proxy), ["k".to_owned()]);
    let crowd = Crowd::start(&url, &keys, 4, HELD, Result::unwrap).await;
    eventually_async(LONG * 10, async || crowd.counts().sum::<u64>() >= TURNS).await;
    let counts: Vec<_> = crowd.counts().collect();
    let stats = proxy.stats();
    assert!(
        stats.pushes_dropped >= TURNS / 2 && stats.pushes_passed == 0,
        "{stats:?}"
    );
    // A waiter loses its place only with its connection, which happens on a busy machine.
    let spread = Spread::of_counts(counts.iter().copied());
    assert!(spread.min() >= 0.5 * spread.mean(), "{counts:?}");
    proxy.heal();
    let _managers = crowd.end().await;
    until_clean(&mut server.client(), LONG).await;
}
