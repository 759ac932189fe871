//! A guard releases wherever and however it is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use distlock_tests::eventually_async;

use crate::fixture::{Fixture, HELD, PATIENCE, SOON, until_renewed_twice};

for_each_store! {
    async fn inside_of_a_runtime(store) {
        drop(store.hold("k").await);
        store.until_free("k", SOON).await;
    }

    async fn on_a_plain_thread(store) {
        let guard = store.hold("k").await;
        thread::spawn(move || drop(guard)).join().unwrap();
        store.until_free("k", SOON).await;
    }

    async fn with_a_waiter_behind_it(store) {
        let guard = store.hold("k").await;
        let lock = store.manager().await.lock("k").wait(PATIENCE);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        store.until_waiting("k", 1).await;
        thread::spawn(move || drop(guard)).join().unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }

    /// A task owns it, and its runtime goes away.
    async fn with_the_runtime_of_its_task(store) {
        let manager = store.manager().await;
        let lock = manager.lock("k");
        thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let (acquired, told) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let _guard = lock.acquire().await.unwrap();
                acquired.send(()).unwrap();
                std::future::pending::<()>().await;
            });
            told.recv().unwrap();
            drop(runtime);
        })
        .join()
        .unwrap();
        store.until_free("k", SOON).await;
        drop(manager);
    }

    /// The same while a body runs, and while calls wait.
    async fn with_the_runtime_of_its_body_and_of_its_waiters(store) {
        let manager = store.manager().await;
        let lock = manager.lock("k").wait(PATIENCE);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (started, told) = tokio::sync::oneshot::channel();
                let body = lock.clone();
                tokio::spawn(async move {
                    body.run(async move |_| {
                        started.send(()).unwrap();
                        std::future::pending::<()>().await;
                    })
                    .await
                });
                told.await.unwrap();
                tokio::spawn(async move { lock.acquire().await });
                tokio::task::yield_now().await;
            });
            drop(runtime);
        })
        .join()
        .unwrap();
        store.until_free("k", SOON).await;
        drop(manager);
    }

    /// It is the last that knows its manager, and its process goes on.
    async fn with_its_manager(store) {
        let guard = {
            let manager = store.manager().await;
            manager.lock("k").lease(HELD).acquire().await.unwrap()
        };
        // The manager lives as long as its guards: it still renews.
        until_renewed_twice(&guard).await;
        drop(guard);
        store.until_free("k", SOON).await;
    }

    async fn in_a_panic_of_the_body_which_goes_on(store) {
        let lock = store.manager().await.lock("k");
        let task = tokio::spawn(async move {
            lock.run(async |_| -> u32 { panic!("a reason of its own") }).await
        });
        let payload = task.await.unwrap_err().into_panic();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"a reason of its own"));
        store.until_free("k", SOON).await;
    }

    async fn in_a_panic_of_its_thread(store) {
        let guard = store.hold("k").await;
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        store.until_free("k", SOON).await;
    }

    async fn many_at_once(store) {
        let manager = store.manager().await;
        let mut guards = Vec::new();
        for number in 0..300 {
            guards.push(manager.lock(format!("k{number}")).acquire().await.unwrap());
        }
        drop(guards);
        for number in 0..300 {
            store.until_free(&format!("k{number}"), SOON).await;
        }
    }

    /// Managers that were dropped with releases under way still finish them.
    async fn together_with_ten_managers(store) {
        for number in 0..10 {
            let manager = store.manager().await;
            let guard = manager.lock(format!("k{number}")).acquire().await.unwrap();
            drop(guard);
            drop(manager);
        }
        for number in 0..10 {
            store.until_free(&format!("k{number}"), SOON).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_that_are_dropped_close_their_connections() {
    let fixture = Fixture::own_redis().await;
    let mut raw = fixture.raw();
    let mut clients = move || {
        raw.cmd(&["CLIENT", "LIST"])
            .text()
            .map(|list| list.lines().count())
    };
    let before = clients();
    let managers = fixture.managers(10).await;
    assert_eq!(
        clients(),
        before.map(|count| count + 20),
        "two connections each"
    );
    for manager in &managers {
        manager
            .lock("k")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    drop(managers);
    eventually_async(PATIENCE, async || clients() == before).await;
}
