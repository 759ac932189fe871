//! Holds and managers that end at an awkward time: before a body has started, twice, with several
//! bodies, or without a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{Error, LockManager, distributed_lock};
use distlock_tests::{eventually_async, within};
use tokio::sync::oneshot;

use crate::fixture::{PATIENCE, ms};

#[distributed_lock(key = "endings", max_hold = "20ms", on_lost = "finish", manager = locks)]
async fn finishes(locks: &LockManager) -> Result<bool, Error> {
    Ok(distlock::current().is_held())
}

#[distributed_lock(key = "endings", max_hold = "20ms", manager = locks)]
async fn is_cancelled(locks: &LockManager) -> Result<bool, Error> {
    Ok(distlock::current().is_held())
}

/// Runs a call, and lets its grant expire before the call is polled again.
async fn a_hold_that_ends_before_its_next_poll(
    manager: &LockManager,
    call: impl Future<Output = Result<bool, Error>>,
) -> Result<bool, Error> {
    let held = manager.lock("endings").acquire().await.unwrap();
    let mut call = std::pin::pin!(call);
    assert!(futures::poll!(call.as_mut()).is_pending());
    let first = manager.inspect("endings").await.unwrap().last_fencing_token;
    held.release().await.unwrap();
    let granted = manager.inspect("endings").await.unwrap();
    assert!(granted.last_fencing_token > first && granted.holders.len() == 1);
    tokio::time::advance(ms(100)).await;
    call.await
}

/// The call acquires the lock again.
#[tokio::test(start_paused = true)]
async fn a_body_never_starts_after_its_lock_has_ended() {
    let manager = LockManager::builder()
        .in_memory_on_current_runtime()
        .unwrap();
    let finished = a_hold_that_ends_before_its_next_poll(&manager, finishes(&manager)).await;
    let cancelled = a_hold_that_ends_before_its_next_poll(&manager, is_cancelled(&manager)).await;
    assert!(
        finished.unwrap() && cancelled.unwrap(),
        "it ran without a lock"
    );
}

for_each_store! {
    async fn several_bodies_that_do_not_stop_cost_one_lease(store) {
        let manager = store.manager().await;
        let lease = ms(6_000);
        let mut scopes = Vec::new();
        for number in 0..5 {
            let guard = manager.lock(format!("k{number}")).lease(lease).acquire().await.unwrap();
            let (entered, entered_rx) = oneshot::channel();
            scopes.push(tokio::spawn(async move {
                guard.scope(async {
                    entered.send(()).unwrap();
                    std::future::pending::<()>().await;
                }).await;
            }));
            entered_rx.await.unwrap();
        }
        let plain = manager.lock("plain").lease(lease).acquire().await.unwrap();
        let began = Instant::now();
        let ending = { let manager = manager.clone(); tokio::spawn(async move { manager.shutdown().await }) };
        // A guard without a body does not wait for the bodies of other guards.
        eventually_async(PATIENCE, async || store.inspect("plain").await.holders.is_empty()).await;
        assert!(began.elapsed() < lease, "{:?}", began.elapsed());
        within(PATIENCE, ending).await.unwrap();
        assert!(began.elapsed() < 3 * lease, "{:?}", began.elapsed());
        for number in 0..5 {
            assert_eq!(store.inspect(&format!("k{number}")).await.holders, []);
        }
        drop(plain);
        for scope in scopes {
            scope.abort();
        }
    }

    async fn a_second_shutdown_waits_for_the_first(store) {
        let manager = store.manager().await;
        let lease = Duration::from_secs(3);
        let ended = Arc::new(AtomicBool::new(false));
        let (started, started_rx) = oneshot::channel();
        let lock = manager.lock("k").lease(lease);
        let flag = ended.clone();
        let body = std::thread::spawn(move || {
            futures::executor::block_on(lock.run(async |_| {
                started.send(()).unwrap();
                std::thread::sleep(lease / 2);
                flag.store(true, Ordering::SeqCst);
                Ok::<_, Error>(())
            }))
        });
        started_rx.await.unwrap();
        let first = { let manager = manager.clone(); tokio::spawn(async move { manager.shutdown().await }) };
        // After the watchdog has removed the holds that ended.
        tokio::time::sleep(lease * 2 / 5).await;
        within(PATIENCE, manager.shutdown()).await;
        assert!(ended.load(Ordering::SeqCst), "it returned before the body had ended");
        assert_eq!(store.inspect("k").await.holders, []);
        within(PATIENCE, first).await.unwrap();
        assert!(body.join().unwrap().unwrap_err().is_lost());
    }
}

#[tokio::test]
async fn a_manager_on_the_current_runtime_ends_with_its_last_clone() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for _ in 0..20 {
        let manager = LockManager::builder()
            .in_memory_on_current_runtime()
            .unwrap();
        let guard = manager.lock("k").acquire().await.unwrap();
        drop(manager);
        guard.release().await.unwrap();
    }
    eventually_async(PATIENCE, async || metrics.num_alive_tasks() <= before).await;
}
