//! Hand-off: at once, from holders that die, and while messages and connections are lost.

use std::time::Instant;

use distlock_tests::{RedisServer, within};

use crate::child::child;
use crate::kit::{
    Exclusion, LONG, SLACK, acquire_later, connect, grace, ms, until_clean, until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_delays_others_by_its_lease() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = ms(1_500);
    let holder = child("hold", &server.url(), "k", lease, 1);
    let token: u64 = holder.expect_line("held", LONG).parse().unwrap();
    let waiting = acquire_later(&manager, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    let killed = Instant::now();
    holder.kill();
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let (guard, delay) = (guard.unwrap(), acquired - killed);
    assert!(
        delay <= lease + grace(lease) + ms(1_000),
        "delayed by {delay:?}"
    );
    assert!(guard.fencing_token().get() > token);
    guard.release().await.unwrap();
    manager.shutdown().await;
    assert_eq!(crate::kit::leftovers(&mut raw), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_makes_the_hand_off_immediate() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    // The fastest of several: each alone may meet a look, or a busy machine.
    let mut delays = Vec::new();
    for _ in 0..5 {
        let guard = first.lock("k").acquire().await.unwrap();
        let waiting = acquire_later(&second, "k", ms(30_000), LONG);
        until_queued(&mut raw, "k", 1).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (guard, acquired) = within(LONG, waiting).await.unwrap();
        delays.push(acquired - released);
        guard.unwrap().release().await.unwrap();
    }
    assert!(delays.iter().min().unwrap() < &ms(50), "{delays:?}");
    assert!(
        delays.iter().max().unwrap() < &(ms(500) + SLACK),
        "{delays:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_messages_and_resets_under_load_keep_the_order_of_tokens() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let exclusion = Exclusion::new();
    let end = Instant::now() + ms(3_000);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let manager = connect(&server.url_via(&proxy)).await;
        for _ in 0..3 {
            let lock = manager.lock("k").lease(ms(1_000)).wait(LONG);
            let exclusion = exclusion.clone();
            tasks.push(tokio::spawn(async move {
                let mut turns = 0;
                while Instant::now() < end {
                    let result = lock.run(async |held| {
                        let _inside = exclusion.enter(held.fencing_token());
                        tokio::time::sleep(ms(3)).await;
                    });
                    result.await.unwrap();
                    turns += 1;
                }
                turns
            }));
        }
    }
    let mut dropping = false;
    while Instant::now() < end {
        dropping = !dropping;
        proxy.drop_pushes(dropping);
        proxy.reset_connections();
        tokio::time::sleep(ms(250)).await;
    }
    proxy.heal();
    for task in tasks {
        assert!(task.await.unwrap() > 0, "somebody starved");
    }
    until_clean(&mut server.client(), LONG).await;
}
