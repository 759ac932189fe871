//! One manager on many runtimes, and code that blocks its runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use distlock::Error;
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{HELD, PATIENCE, SOON, ms};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

for_each_store! {
    /// As when `#[tokio::test]`s share a manager in a `static`: the first runtime connects it.
    async fn one_manager_serves_twenty_runtimes(store) {
        let (builder, url) = (store.builder(), store.url.clone());
        thread::spawn(move || {
            let manager = current_thread().block_on(builder.connect(&url)).unwrap();
            let mut last = None;
            for round in 0..20 {
                let runtime = current_thread();
                let token = runtime.block_on(async {
                    let lock = manager.lock("k").wait(PATIENCE);
                    let token = lock.run(async |held| Ok::<_, Error>(held.fencing_token())).await.unwrap();
                    let guard = lock.acquire().await.unwrap();
                    if round % 2 == 0 {
                        // The guard is left to a task that ends with its runtime.
                        tokio::spawn(async move {
                            let _guard = guard;
                            std::future::pending::<()>().await;
                        });
                        tokio::task::yield_now().await;
                    } else {
                        guard.release().await.unwrap();
                    }
                    token
                });
                assert!(Some(token) > last);
                last = Some(token);
            }
        })
        .join()
        .unwrap();
    }

    /// Blocks for more than a lease on the only thread of the runtime that connected the manager.
    async fn a_blocked_runtime_keeps_its_lock(store) {
        let (builder, url) = (store.builder(), store.url.clone());
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        let (started, started_rx) = tokio::sync::oneshot::channel();
        let blocking = thread::spawn(move || {
            current_thread().block_on(async {
                let manager = builder.connect(&url).await.unwrap();
                let lock = manager.lock("k").lease(HELD);
                lock.run(async |held| {
                    started.send(()).unwrap();
                    thread::sleep(HELD * 5 / 4);
                    flag.store(true, Ordering::SeqCst);
                    Ok::<_, Error>(held.is_held())
                })
                .await
            })
        });
        started_rx.await.unwrap();
        let other = store.manager().await.lock("k").wait(ms(50));
        while other.acquire().await.is_err() {}
        assert!(ended.load(Ordering::SeqCst), "two holders at once");
        let held = tokio::task::block_in_place(|| blocking.join().unwrap());
        assert!(held.expect("the lock was lost"));
        store.until_free("k", SOON).await;
    }

    /// Without a runtime, the caller has no timer, but the manager's limits apply.
    async fn calls_work_without_any_runtime(store) {
        let manager = store.manager().await;
        let holder = store.hold("taken").await;
        thread::spawn(move || {
            let call = async {
                let guard = manager.lock("k").acquire().await.unwrap();
                let busy = manager.lock("taken").wait(ms(3_000)).acquire().await.unwrap_err();
                assert!(busy.is_busy(), "{busy:?}");
                guard.release().await.unwrap();
                let lock = manager.lock("k").wait(ms(1_000));
                let body = lock.run(async |_| {
                    let nested = lock.acquire().await.unwrap();
                    // Another branch besides the nested call does not get its turn.
                    let busy = lock.acquire().await.unwrap_err();
                    nested.release().await.unwrap();
                    Ok::<_, Error>(busy)
                });
                body.await.unwrap()
            };
            let busy = futures::executor::block_on(call);
            let [holder] = busy.holders() else { panic!("{busy:?}") };
            let held = holder.held_since.elapsed().unwrap_or_default();
            assert!(busy.is_busy() && holder.this_process && held < PATIENCE, "{holder:?}");
        })
        .join()
        .unwrap();
        holder.release().await.unwrap();
        store.until_free("k", SOON).await;
    }
}
