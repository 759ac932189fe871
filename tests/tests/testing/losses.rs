//! Holds that are lost, or exceed a limit.

use distlock::testing::{InjectedLoss, assert_locked, assert_not_locked};
use distlock::{BodyState, Error, LossReason, Outage};
use tokio::time::Instant;

use crate::service::{Inventory, LEASE, is_about, ms, secs};

#[track_caller]
fn loss(error: Error) -> (BodyState, LossReason) {
    match error {
        Error::Lost { body, reason, .. } => (body, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_before_the_loss_is_unaffected() {
    let shop = Inventory::new();
    shop.locks
        .on("inventory:7")
        .lost_after(secs(2), InjectedLoss::Gone);
    shop.reduce(7, secs(1)).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    shop.reduce(7, secs(1)).await.unwrap();
}

/// A hold is lost on command, in a task that knows nothing of the test.
#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_on_command() {
    let shop = Inventory::new();
    let task = tokio::spawn({
        let shop = shop.clone();
        async move { shop.reduce(7, secs(3_600)).await }
    });
    shop.locks.wait_until_held("inventory:7").await;
    assert_locked!(shop.locks, "inventory:7");
    let lost_at = Instant::now();
    shop.locks.lose("inventory:7", InjectedLoss::Gone);
    assert_not_locked!(shop.locks, "inventory:7");
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(loss(error), (BodyState::Stopped, LossReason::Gone));
    assert_eq!(lost_at.elapsed(), ms(0));
}

/// The test acts on the store itself, which its rule makes unavailable for everything else.
#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_on_command_while_the_store_is_unavailable() {
    for injected in [InjectedLoss::Gone, InjectedLoss::Revoked] {
        let shop = Inventory::new();
        let task = tokio::spawn({
            let shop = shop.clone();
            async move { shop.reduce(7, secs(3_600)).await }
        });
        shop.locks.wait_until_held("inventory:7").await;
        shop.locks.on_all().unavailable(Outage::Unreachable);
        let lost_at = Instant::now();
        shop.locks.lose("inventory:7", injected);
        let (_, reason) = loss(task.await.unwrap().unwrap_err());
        match injected {
            InjectedLoss::Gone => assert_eq!(reason, LossReason::Gone),
            _ => assert!(matches!(reason, LossReason::Revoked { .. }), "{reason:?}"),
        }
        assert!(lost_at.elapsed() < LEASE / 2, "not by its clock");
    }
}

/// As after a `DEL`: the next holder has the lock and a higher token while the first still works.
#[tokio::test(start_paused = true)]
async fn a_deleted_lock_is_noticed_by_the_next_renewal() {
    let shop = Inventory::new();
    shop.locks
        .on("inventory:7")
        .once()
        .lost_after(ms(100), InjectedLoss::GoneSilently);
    let started = Instant::now();
    let second = async {
        tokio::time::sleep(ms(50)).await;
        let token = shop.reduce(7, ms(200)).await.unwrap();
        (token, started.elapsed())
    };
    let (first, (token, ended)) = tokio::join!(shop.reduce(7, secs(3_600)), second);
    assert!(is_about(ended, ms(300)), "{ended:?}");
    // A third of the lease after the acquisition.
    let elapsed = started.elapsed();
    assert!(elapsed > LEASE / 4 && elapsed <= LEASE / 3, "{elapsed:?}");
    match first.unwrap_err() {
        Error::Lost {
            body: BodyState::Stopped,
            reason: LossReason::Gone,
            fencing_token,
            ..
        } => assert!(fencing_token < Some(token)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lock_is_noticed_by_the_release() {
    let shop = Inventory::new();
    shop.locks
        .on("inventory:7")
        .lost_after(ms(100), InjectedLoss::GoneSilently);
    let error = shop.reduce(7, ms(200)).await.unwrap_err();
    assert_eq!(loss(error), (BodyState::Completed, LossReason::Gone));
    assert_eq!(shop.done(), 1);
}

/// The safe deadline counts from the last renewal that got a reply.
#[tokio::test(start_paused = true)]
async fn an_unrenewed_lock_is_lost_at_its_safe_deadline() {
    let safe = LEASE - LEASE / 100 - ms(2);
    for (after, earliest, latest) in [
        (secs(0), safe, safe + ms(5)),
        // One renewal has succeeded by then, a third of the lease after the start at the latest.
        (secs(6), safe + LEASE / 4, safe + LEASE / 3),
    ] {
        let shop = Inventory::new();
        shop.locks
            .on("inventory:7")
            .lost_after(after, InjectedLoss::NotRenewed);
        let started = Instant::now();
        let error = shop.reduce(7, secs(3_600)).await.unwrap_err();
        let elapsed = started.elapsed();
        assert!(elapsed >= earliest && elapsed <= latest, "{elapsed:?}");
        let (body, reason) = loss(error);
        assert_eq!(body, BodyState::Stopped);
        assert!(
            matches!(reason, LossReason::NotRenewed { last_error: Some(error), .. } if error.contains("no answer"))
        );
        assert_eq!(shop.dropped(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn cleared_outcomes_do_not_occur() {
    let shop = Inventory::new();
    for how in [
        InjectedLoss::Gone,
        InjectedLoss::NotRenewed,
        InjectedLoss::GoneSilently,
    ] {
        shop.locks.on("inventory:7").once().lost_after(secs(4), how);
        let clear = async {
            tokio::time::sleep(secs(3)).await;
            shop.locks.on("inventory:7").clear();
        };
        let (reduced, ()) = tokio::join!(shop.reduce(7, secs(60)), clear);
        reduced.unwrap();
        // Clearing also ends an effect that has begun: renewals get replies again.
        shop.locks
            .on("inventory:7")
            .lost_after(secs(0), InjectedLoss::NotRenewed);
        let clear = async {
            tokio::time::sleep(secs(12)).await;
            shop.locks.on("inventory:7").clear();
        };
        let (reduced, ()) = tokio::join!(shop.reduce(7, secs(60)), clear);
        reduced.unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(
    expected = "lock `inventory:7` cannot be lost because it is not held; held: `inventory:8`"
)]
async fn a_lock_without_a_holder_cannot_be_lost() {
    let shop = Inventory::new();
    let _guard = shop.locks.manager().lock("inventory:8").acquire().await;
    shop.locks.lose("inventory:7", InjectedLoss::Gone);
}

/// One command renews many holds, and each hold gets its own reply.
#[tokio::test(start_paused = true)]
async fn each_hold_of_a_batch_has_its_own_loss() {
    let shop = Inventory::new();
    let work = |item: u32| {
        let shop = shop.clone();
        let how = [
            None,
            Some(InjectedLoss::NotRenewed),
            Some(InjectedLoss::GoneSilently),
        ][item as usize % 3];
        if let Some(how) = how {
            let on = shop.locks.on(&format!("inventory:{item}"));
            on.lost_after(secs(1), how);
        }
        let started = Instant::now();
        tokio::spawn(async move {
            let reduced = shop.reduce(item, secs(60)).await;
            (how, reduced, started.elapsed())
        })
    };
    let tasks: Vec<_> = (0..30).map(work).collect();
    for task in tasks {
        let (how, reduced, lasted) = task.await.unwrap();
        match (how, reduced) {
            (None, Ok(_)) => {}
            (Some(InjectedLoss::GoneSilently), Err(error)) => {
                assert_eq!(loss(error), (BodyState::Stopped, LossReason::Gone));
                assert!(lasted <= LEASE / 3 + ms(5), "{lasted:?}");
            }
            (Some(_), Err(error)) => {
                let reason = loss(error).1;
                assert!(
                    matches!(reason, LossReason::NotRenewed { .. }),
                    "{reason:?}"
                );
            }
            (how, reduced) => panic!("{how:?}: {reduced:?}"),
        }
    }
}
