//! A guard releases its lock wherever and however it is dropped.

use std::thread;

use distlock::Error;
use distlock_tests::eventually_async;

use crate::fixture::{Fixture, HELD, PATIENCE, SOON, take, until_renewed_twice};

for_each_store! {
    async fn a_drop_on_a_plain_thread_grants_to_the_waiter(store) {
        let guard = store.hold("k").await;
        let waiter = store.waiter("k").await;
        thread::spawn(move || drop(guard)).join().unwrap();
        waiter.guard().await.release().await.unwrap();
    }

    /// The runtime of the guard's task is dropped while a waiter is queued and a body runs.
    async fn with_the_runtime_of_its_task(store) {
        let manager = store.manager().await;
        let (lock, running) = (manager.lock("k").wait(PATIENCE), manager.lock("running"));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (acquired, acquired_rx) = std::sync::mpsc::channel();
        let (second, started) = (lock.clone(), acquired.clone());
        runtime.spawn(async move {
            let _guard = lock.acquire().await.unwrap();
            acquired.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        runtime.spawn(async move {
            running.run(async move |_| {
                started.send(()).unwrap();
                std::future::pending::<()>().await;
                Ok::<_, Error>(())
            })
            .await
        });
        for _ in 0..2 {
            acquired_rx.recv_timeout(PATIENCE).unwrap();
        }
        runtime.spawn(async move { second.acquire().await });
        store.until_waiting("k", 1).await;
        thread::spawn(move || drop(runtime)).join().unwrap();
        store.until_free("k", SOON).await;
        store.until_free("running", SOON).await;
        drop(manager);
    }

    /// The guard is the last reference to its manager, and the process continues.
    async fn with_its_manager(store) {
        let guard = {
            let manager = store.manager().await;
            manager.lock("k").lease(HELD).acquire().await.unwrap()
        };
        // The manager lives as long as its guards, so it still renews.
        until_renewed_twice(&guard).await;
        drop(guard);
        store.until_free("k", SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_that_are_dropped_close_their_connections() {
    let fixture = Fixture::own_redis().await;
    let before = fixture.connections();
    let managers = fixture.managers(10).await;
    let connections = fixture.connections();
    assert_eq!(connections, before + 20, "two connections each");
    for manager in &managers {
        take(manager.lock("k")).await;
    }
    drop(managers);
    eventually_async(PATIENCE, async || fixture.connections() == before).await;
}
