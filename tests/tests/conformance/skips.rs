//! `try_run`: a busy lock is a skip, and everything else is a result of `run`.

use std::time::Duration;

use distlock::{Error, HeldLock, Holder, Lock, RunOutcome, SkipReason};
use distlock_tests::within;

use crate::fixture::{PATIENCE, answered, ms};

/// Returns the holders of a lock that is busy. The body must not run.
async fn skipped(lock: &Lock) -> Vec<Holder> {
    let body = async |_: HeldLock| -> Result<(), Error> { panic!("a skipped body ran") };
    match answered(async || lock.try_run(body).await).await {
        RunOutcome::Skipped(SkipReason::Busy { holders, .. }) => holders,
        other => panic!("{other:?}"),
    }
}

/// Runs a body under a free lock.
async fn completed(lock: &Lock) -> RunOutcome<u64> {
    answered(async || {
        lock.try_run(async |held| {
            held.check()?;
            Ok::<_, Error>(held.fencing_token().get())
        })
        .await
    })
    .await
}

for_each_store! {
    async fn a_busy_lock_is_skipped_with_its_holder_and_a_free_one_runs_the_body(store) {
        let held = store.named("first").await.lock("k").acquire().await.unwrap();
        let lock = store.manager().await.lock("k");
        let holders = skipped(&lock).await;
        let named: Vec<_> = holders.iter().map(|holder| &*holder.client).collect();
        assert_eq!(named, ["first"]);
        assert_eq!(holders[0].fencing_token, Some(held.fencing_token()));
        let token = held.fencing_token().get();
        held.release().await.unwrap();
        let outcome = completed(&lock).await;
        assert!(matches!(outcome, RunOutcome::Completed(newer) if newer > token), "{outcome:?}");
        assert!(store.inspect("k").await.holders.is_empty());
    }

    /// Such as an inner lock that is busy.
    async fn an_error_of_the_body_is_no_skip(store) {
        let _held = store.hold("inner").await;
        let manager = store.manager().await;
        let inner = manager.lock("inner").wait(ms(300));
        let outer = manager.lock("k").wait(PATIENCE);
        let outcome = outer.try_run(async |_| inner.acquire().await.map(drop)).await;
        let error = outcome.unwrap_err();
        assert!(error.is_busy() && error.key() == Some("inner"), "{error:?}");
    }

    async fn other_errors_remain_errors(store) {
        let manager = store.manager().await;
        let nothing = async |_: HeldLock| Ok::<_, Error>(());
        let invalid = manager.lock("k").lease(Duration::ZERO).try_run(nothing).await;
        assert!(matches!(invalid, Err(Error::Config { .. })), "{invalid:?}");
        manager.shutdown().await;
        let late = manager.lock("k").try_run(nothing).await;
        assert!(matches!(late, Err(Error::ShutDown { .. })), "{late:?}");
    }

    /// With an explicit `wait` the call waits in the queue, and is skipped at the end of the wait.
    async fn an_explicit_wait_is_waited(store) {
        let held = store.hold("k").await;
        let lock = store.manager().await.lock("k");
        let started = std::time::Instant::now();
        assert!(!skipped(&lock.clone().wait(ms(300))).await.is_empty());
        assert!(started.elapsed() >= ms(300));
        store.until_waiting("k", 0).await;
        let call = tokio::spawn(async move {
            lock.wait(PATIENCE).try_run(async |_| Ok::<_, Error>("done")).await
        });
        store.until_waiting("k", 1).await;
        held.release().await.unwrap();
        let outcome = within(PATIENCE, call).await.unwrap().unwrap();
        assert_eq!(outcome, RunOutcome::Completed("done"));
    }
}
