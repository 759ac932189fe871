//! Traits of public types, tested by compiling. `tests/public-api.txt` lists the other traits.

use std::fmt::Debug;
use std::future::IntoFuture;

use distlock::testing::{AcquireRecord, InjectedLoss, TestLocks};
use distlock::{
    BodyState, Credentials, Error, FencingToken, HeldLock, HeldPermit, Holder, Lock, LockGuard,
    LockManager, LockManagerBuilder, LockState, LossReason, MultiLock, MultiLockGuard, Outage,
    Quorum, Revocation, Revoke, RevokeOutcome, RunOutcome, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, SemaphorePermit, ServerState, SkipReason, Tls, Waiter, observer,
};

/// The auto traits of every public type, as tokio's counterparts have them.
fn shared<T: Send + Sync + Unpin + Debug + 'static>() {}
fn value<T: Clone + Send + Sync + Unpin + Debug + 'static>() {}
fn send<T: Send>(future: T) -> T {
    future
}

#[tokio::test]
async fn bounds() {
    shared::<LockGuard>();
    shared::<(MultiLockGuard, SemaphorePermit)>();
    shared::<(RwLockReadGuard, RwLockWriteGuard)>();
    value::<LockManager>();
    value::<LockManagerBuilder>();
    value::<Credentials>();
    value::<Tls>();
    value::<Quorum>();
    value::<(Lock, MultiLock, RwLock, Semaphore)>();
    value::<(HeldLock, HeldPermit)>();
    value::<Revoke>();
    value::<(Revocation, RevokeOutcome)>();
    value::<(Error, BodyState, LossReason, Outage)>();
    value::<(RunOutcome<()>, SkipReason)>();
    value::<(FencingToken, Holder, Waiter, LockState, ServerState)>();
    value::<(observer::Event, observer::Operation, observer::Connection)>();
    value::<(TestLocks, AcquireRecord, InjectedLoss)>();

    let manager = LockManager::in_memory();
    let lock = manager.lock("k");
    drop(send(LockManager::connect("memory:")));
    drop(send(LockManager::from_env()));
    drop(send(LockManager::builder().connect("memory:")));
    drop(send(manager.inspect("k")));
    drop(send(manager.list("")));
    drop(send(manager.ping()));
    drop(send(manager.revoke("k").into_future()));
    drop(send(manager.shutdown()));
    drop(send(distlock::shutdown()));
    drop(send(distlock::with_manager(manager.clone(), async {})));
    drop(send(lock.acquire()));
    drop(send(lock.try_acquire()));
    drop(send(
        lock.run(async |held| Ok::<_, Error>(held.fencing_token())),
    ));
    drop(send(lock.try_run(async |_| Ok::<_, Error>(()))));

    let both = manager.lock_all(["k", "l"]);
    drop(send(both.try_acquire()));
    drop(send(both.run(async |_| Ok::<_, Error>(()))));
    let guard = send(both.acquire()).await.unwrap();
    drop(send(guard.confirmed()));
    drop(send(guard.lost()));
    drop(send(guard.scope(async {})));
    drop(send(guard.release()));

    let semaphore = manager.semaphore("s", 3);
    drop(send(semaphore.try_acquire()));
    drop(send(semaphore.try_acquire_many(2)));
    drop(send(semaphore.acquire_many(2)));
    drop(send(semaphore.run(async |_| Ok::<_, Error>(()))));
    let permit = send(semaphore.acquire()).await.unwrap();
    drop(send(permit.lost()));
    let held: HeldPermit = permit.scope(async { distlock::current_permit() }).await;
    drop(send(held.confirmed()));
    drop(send(held.lost()));
    drop(send(permit.release()));

    let rw_lock = manager.rw_lock("rw");
    drop(send(rw_lock.read()));
    drop(send(rw_lock.try_read()));
    drop(send(rw_lock.try_write()));
    drop(send(rw_lock.run_read(async |_| Ok::<_, Error>(()))));
    drop(send(rw_lock.run_write(async |_| Ok::<_, Error>(()))));
    let write = send(rw_lock.write()).await.unwrap();
    drop(send(write.lost()));
    let read = send(write.downgrade()).await.unwrap();
    drop(send(read.scope(async {})));
    drop(send(read.release()));

    let guard = send(
        lock.clone()
            .wait(std::time::Duration::from_secs(20))
            .acquire(),
    )
    .await
    .unwrap();
    drop(send(guard.lost()));
    drop(send(guard.scope(async {})));
    let held = guard.scope(async { distlock::current() }).await;
    drop(send(held.lost()));
    drop(send(guard.release()));

    // A body that borrows from outside and from its `HeldLock` can be spawned.
    let shared = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let spawned = tokio::spawn({
        let (lock, shared) = (lock.clone(), shared.clone());
        async move {
            let body = lock.run(async |held: HeldLock| {
                tokio::task::yield_now().await;
                shared.lock().unwrap().push(held.fencing_token());
                held.check()
            });
            body.await
        }
    });
    spawned.await.unwrap().unwrap();
    assert_eq!(shared.lock().unwrap().len(), 1);
}
