//! Outcomes of every kind of lock, and of several keys.

use std::future::pending;

use distlock::testing::{InjectedLoss, TestLocks, assert_locked, assert_not_locked, holder};
use distlock::{BodyState, Error, HoldKind, LossReason, Outage};
use tokio::time::Instant;

use crate::service::{assert_took, ms, secs};

/// A way to hold the key `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// With a `max_hold` of its own.
    Mutex,
    Semaphore,
    Read,
    Write,
    Several,
}

/// Runs a body that ends only when it is stopped.
async fn run_forever(locks: &TestLocks, call: Call) -> Error {
    let (manager, wait) = (locks.manager(), secs(1));
    let forever = async || pending::<Result<(), Error>>().await;
    let (mutex, rw_lock) = (
        manager.lock("k").wait(wait),
        manager.rw_lock("k").wait(wait),
    );
    let ended = match call {
        Call::Mutex => {
            mutex
                .max_hold(secs(3_600))
                .run(async |_| forever().await)
                .await
        }
        Call::Semaphore => {
            let semaphore = manager.semaphore("k", 3).wait(wait);
            semaphore.run(async |_| forever().await).await
        }
        Call::Read => rw_lock.run_read(async |_| forever().await).await,
        Call::Write => rw_lock.run_write(async |_| forever().await).await,
        Call::Several => {
            let several = manager.lock_all(["a", "k"]).wait(wait);
            several.run(async |_| forever().await).await
        }
    };
    let error = ended.expect_err("the body is stopped");
    assert_eq!(error.key(), Some("k"), "{call:?}: {error:?}");
    error
}

#[tokio::test(start_paused = true)]
async fn every_outcome_happens_to_every_kind() {
    for call in [
        Call::Mutex,
        Call::Semaphore,
        Call::Read,
        Call::Write,
        Call::Several,
    ] {
        let locks = TestLocks::new();
        let once = || locks.on("k").once();
        once().busy(holder("worker-2"));
        let error = run_forever(&locks, call).await;
        assert!(error.is_busy(), "{call:?}: {error:?}");
        assert_eq!(error.holders()[0].client, "worker-2", "{call:?}");

        once().unavailable(Outage::OutOfMemory);
        let error = run_forever(&locks, call).await;
        assert_eq!(
            error.outage(),
            Some(Outage::OutOfMemory),
            "{call:?}: {error:?}"
        );

        once().key_conflict("a list is stored there");
        match run_forever(&locks, call).await {
            Error::KeyConflict { detail, .. } => assert_eq!(detail, "a list is stored there"),
            other => panic!("{call:?}: {other:?}"),
        }

        once().max_hold_exceeded_after(ms(500));
        let started = Instant::now();
        match run_forever(&locks, call).await {
            Error::MaxHoldExceeded { max_hold, body, .. } => {
                assert_eq!((max_hold, body), (ms(500), BodyState::Stopped), "{call:?}");
            }
            other => panic!("{call:?}: {other:?}"),
        }
        assert_took(started, ms(500));

        for loss in [
            InjectedLoss::Gone,
            InjectedLoss::Revoked,
            InjectedLoss::NotRenewed,
        ] {
            once().lost_after(ms(500), loss);
            let started = Instant::now();
            match run_forever(&locks, call).await {
                Error::Lost {
                    body,
                    reason,
                    fencing_token,
                    ..
                } => {
                    assert_eq!(body, BodyState::Stopped, "{call:?} {loss:?}");
                    let is_expected = match loss {
                        InjectedLoss::Gone => reason == LossReason::Gone,
                        InjectedLoss::Revoked => matches!(reason, LossReason::Revoked { .. }),
                        _ => matches!(reason, LossReason::NotRenewed { .. }),
                    };
                    assert!(is_expected, "{call:?} {loss:?}: {reason:?}");
                    assert_eq!(fencing_token.is_none(), call == Call::Semaphore, "{call:?}");
                }
                other => panic!("{call:?} {loss:?}: {other:?}"),
            }
            if loss != InjectedLoss::NotRenewed {
                assert_took(started, ms(500));
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
}
