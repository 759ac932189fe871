//! A server that forgets its scripts costs nothing but a longer command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock_tests::{eventually_async, within};

use crate::exclusion::Room;
use crate::fixture::{Fixture, HELD, PATIENCE, SOON, ms, until_renewed_twice};

fn flush(fixture: &Fixture) {
    let reply = fixture.raw().cmd(&["SCRIPT", "FLUSH"]);
    assert_eq!(reply.text(), Some("OK"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_each_command() {
    let fixture = Fixture::own_redis().await;
    let (manager, other) = (fixture.manager().await, fixture.manager().await);
    flush(&fixture);
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    flush(&fixture);
    assert!(fixture.seen("k").await.holders().len() == 1, "inspect");
    // Renewals: each of several meets a server that knows nothing.
    for _ in 0..2 {
        flush(&fixture);
        until_renewed_twice(&guard).await;
    }
    flush(&fixture);
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { other.lock("k").wait(PATIENCE).acquire().await });
    fixture.until_waiting("k", 1).await;
    flush(&fixture);
    guard.release().await.unwrap();
    // The confirmation of what was handed over.
    flush(&fixture);
    let guard = waiting.await.unwrap().unwrap();
    let third = manager.lock("k").wait(ms(1_500));
    assert!(third.acquire().await.is_err(), "two at once");
    assert!(guard.is_held());
    flush(&fixture);
    guard.release().await.unwrap();
    // What was given up is undone in the background, and so is a release that gets no answer in its time.
    eventually_async(PATIENCE, async || fixture.left_over().is_empty()).await;
}

/// Looking is what finds a lock that nobody released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_a_look() {
    let fixture = Fixture::own_redis().await;
    let manager = fixture.manager().await;
    fixture.hold_elsewhere("k", "gone", PATIENCE);
    let waiting = tokio::spawn(async move { manager.lock("k").wait(PATIENCE).acquire().await });
    fixture.until_waiting("k", 1).await;
    flush(&fixture);
    fixture.raw().cmd(&["DEL", &fixture.name("lock", "k")]);
    let guard = within(PATIENCE / 2, waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn again_and_again_under_load() {
    let fixture = Fixture::own_redis().await;
    let done = Arc::new(AtomicBool::new(false));
    let flushing = std::thread::spawn({
        let (done, mut raw) = (done.clone(), fixture.raw());
        move || {
            let mut times = 0;
            while !done.load(Ordering::SeqCst) {
                raw.cmd(&["SCRIPT", "FLUSH"]);
                times += 1;
                std::thread::sleep(ms(2));
            }
            times
        }
    });
    let room = Arc::new(Room::default());
    let mut tasks = Vec::new();
    for manager in fixture.managers(3).await {
        for _ in 0..3 {
            let (lock, room) = (manager.lock("k").wait(PATIENCE), room.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    lock.run(async |_| room.visit().await).await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert!(flushing.join().unwrap() > 3, "nothing was tested");
    assert_eq!(room.visits(), 3 * 3 * 20);
    fixture.until_free("k", SOON).await;
}
