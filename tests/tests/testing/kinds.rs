//! Outcomes of semaphores and readers-writer locks.

use distlock::testing::{InjectedLoss, TestLocks, assert_locked, assert_not_locked, holder};
use distlock::{BodyState, Error, HoldKind, LockKind, LossReason, Outage};

use crate::service::{ms, secs};

/// The three ways to hold a lock with other holders or other kinds of calls.
const KINDS: [HoldKind; 3] = [HoldKind::Semaphore, HoldKind::Read, HoldKind::Write];

/// Runs a body that ends only when it is stopped.
async fn run_forever(locks: &TestLocks, kind: HoldKind) -> Error {
    let manager = locks.manager();
    let forever = async || std::future::pending::<Result<(), Error>>().await;
    let ended = match kind {
        HoldKind::Semaphore => {
            let semaphore = manager.semaphore("k", 3).wait(secs(1));
            semaphore.run(async |_| forever().await).await
        }
        HoldKind::Read => {
            let lock = manager.rw_lock("k").wait(secs(1));
            lock.run_read(async |_| forever().await).await
        }
        _ => {
            let lock = manager.rw_lock("k").wait(secs(1));
            lock.run_write(async |_| forever().await).await
        }
    };
    ended.expect_err("the body is stopped")
}

#[tokio::test(start_paused = true)]
async fn every_outcome_happens_to_every_kind() {
    for kind in KINDS {
        let locks = TestLocks::new();
        locks.on("k").once().busy(holder("worker-2"));
        let error = run_forever(&locks, kind).await;
        assert!(error.is_busy(), "{kind}: {error:?}");
        assert_eq!(error.holders()[0].client, "worker-2", "{kind}");

        locks.on("k").once().unavailable(Outage::OutOfMemory);
        let error = run_forever(&locks, kind).await;
        assert_eq!(
            error.outage(),
            Some(Outage::OutOfMemory),
            "{kind}: {error:?}"
        );

        locks.on("k").once().key_conflict("a list is stored there");
        let error = run_forever(&locks, kind).await;
        assert!(
            matches!(error, Error::KeyConflict { .. }),
            "{kind}: {error:?}"
        );

        locks.on("k").once().max_hold_exceeded_after(ms(500));
        let error = run_forever(&locks, kind).await;
        assert!(
            matches!(error, Error::MaxHoldExceeded { .. }),
            "{kind}: {error:?}"
        );

        for loss in [
            InjectedLoss::Gone,
            InjectedLoss::Revoked,
            InjectedLoss::NotRenewed,
        ] {
            locks.on("k").once().lost_after(ms(500), loss);
            match run_forever(&locks, kind).await {
                Error::Lost {
                    body,
                    reason,
                    fencing_token,
                    ..
                } => {
                    assert_eq!(body, BodyState::Stopped, "{kind} {loss:?}");
                    let is_expected = match loss {
                        InjectedLoss::Gone => reason == LossReason::Gone,
                        InjectedLoss::Revoked => matches!(reason, LossReason::Revoked { .. }),
                        _ => matches!(reason, LossReason::NotRenewed { .. }),
                    };
                    assert!(is_expected, "{kind} {loss:?}: {reason:?}");
                    assert_eq!(
                        fencing_token.is_none(),
                        kind == HoldKind::Semaphore,
                        "{kind}"
                    );
                }
                other => panic!("{kind} {loss:?}: {other:?}"),
            }
        }
    }
}

/// The loss of one permit does not affect the others.
#[tokio::test(start_paused = true)]
async fn acquisitions_of_permits_are_recorded_one_by_one() {
    let locks = TestLocks::new();
    let semaphore = locks.manager().semaphore("k", 3);
    locks.on("k").once().lost_after(ms(500), InjectedLoss::Gone);
    let lost = semaphore.acquire().await.unwrap();
    let kept = semaphore.acquire_many(2).await.unwrap();
    assert!(lost.lost().await.is_lost());
    assert!(kept.is_held());
    assert_locked!(locks, "k");
    assert_eq!(locks.acquire_count("k"), 2);
    let records = locks.acquisitions();
    assert!(
        records
            .iter()
            .all(|it| it.kind == HoldKind::Semaphore && it.fencing_token.is_none())
    );
    kept.release().await.unwrap();
    drop(lost);
    assert_not_locked!(locks, "k");
    let guard = locks.manager().lock("k").acquire().await.unwrap();
    match semaphore.acquire().await.unwrap_err() {
        Error::WrongKind { existing, .. } => assert_eq!(existing, LockKind::Mutex),
        other => panic!("{other:?}"),
    }
    guard.release().await.unwrap();
}
