//! Hand-off: at once, from holders that die, and while messages and connections are lost.

use std::time::Instant;

use distlock_tests::{RedisServer, Way, within};

use crate::child::child;
use crate::kit::{
    Exclusion, LONG, SLACK, acquire_later, connect, give_back, grace, ms, until_answered,
    until_clean, until_queued,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_delays_others_by_its_lease() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = ms(3_000);
    let holder = child("hold", &server.url(), "k", lease, 1);
    let token: u64 = holder.expect_line("held", LONG).parse().unwrap();
    let waiting = acquire_later(&manager, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    let killed = Instant::now();
    holder.kill();
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let (guard, delay) = (guard.unwrap(), acquired - killed);
    assert!(
        delay <= lease + grace(lease) + ms(1_000) + SLACK,
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
    let proxy = server.proxy();
    let mut raw = server.client();
    let first = connect(&server.url()).await;
    let second = connect(&server.url_via(&proxy)).await;
    // Nothing that the waiter says arrives, so only the message can have brought it the lock. A grant that comes a second
    // late is not believed: on a busy machine a round may end so.
    for _ in 0..5 {
        let guard = first.lock("k").acquire().await.unwrap();
        let mut waiting = acquire_later(&second, "k", ms(30_000), LONG * 2);
        until_queued(&mut raw, "k", 1).await;
        until_answered(&second).await;
        proxy.stop_reading(Way::ToServer, true);
        guard.release().await.unwrap();
        let served = tokio::time::timeout(ms(3_000), &mut waiting).await;
        proxy.heal();
        if let Ok(served) = served {
            assert!(served.unwrap().0.is_ok());
            return;
        }
        give_back(waiting).await;
    }
    panic!("no message has brought the lock");
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
