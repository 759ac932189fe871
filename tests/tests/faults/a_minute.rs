//! Hand-off without its messages. Its name puts it first: it takes a minute, and others run beside it.

use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, Spread};

use crate::kit::{Exclusion, LONG, connect, ms, until_clean};

/// How long every pushed message is dropped.
const WITHOUT_MESSAGES: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_messages_is_fair_and_goes_on() {
    const CLIENTS: usize = 4;
    const WAITERS: usize = 2;
    let server = RedisServer::start();
    let proxy = server.proxy();
    proxy.drop_pushes(true);
    let exclusion = Exclusion::new();
    let end = Instant::now() + WITHOUT_MESSAGES;
    let mut waiters = Vec::new();
    let mut managers = Vec::new();
    for _ in 0..CLIENTS {
        let manager = connect(&server.url_via(&proxy)).await;
        for _ in 0..WAITERS {
            let lock = manager
                .lock("k")
                .lease(ms(5_000))
                .wait(WITHOUT_MESSAGES * 2);
            let exclusion = exclusion.clone();
            waiters.push(tokio::spawn(async move {
                let mut turns = 0;
                let work = async {
                    loop {
                        let guard = lock.acquire().await.unwrap();
                        drop(exclusion.enter(guard.fencing_token()));
                        turns += 1;
                        guard.release().await.unwrap();
                    }
                };
                // Whoever waits at the end is cancelled.
                let _: Result<(), _> = tokio::time::timeout_at(end.into(), work).await;
                turns
            }));
        }
        managers.push(manager);
    }
    let mut turns = Vec::new();
    for waiter in waiters {
        turns.push(waiter.await.unwrap());
    }
    let spread = Spread::of_counts(turns.iter().copied());
    let stats = proxy.stats();
    assert!(
        stats.pushes_dropped >= 60 && stats.pushes_passed == 0,
        "{stats:?}"
    );
    // A look comes every half second.
    let seconds = WITHOUT_MESSAGES.as_secs();
    assert!(
        exclusion.turns() >= seconds,
        "{} turns in {seconds} s",
        exclusion.turns()
    );
    assert!(spread.min() >= 0.9 * spread.mean(), "{turns:?}");
    until_clean(&mut server.client(), LONG).await;
}
