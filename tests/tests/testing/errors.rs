//! Errors made without a lock equal those that locks return.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use distlock::testing::{InjectedLoss, TestLocks, error, holder};
use distlock::{BodyState, Error, LossReason};

use crate::service::{ms, secs};

/// Each variant once, as `cargo public-api` lists them in `tests/public-api.txt`.
#[test]
fn every_error_variant_has_a_constructor() {
    let api = include_str!("../../public-api.txt");
    let variants: Vec<_> = api
        .lines()
        .filter_map(|line| line.split_once("pub distlock::Error::"))
        .map(|(_, name)| name)
        // Excludes the fields of variants.
        .filter(|name| !name.contains(':'))
        .collect();
    assert!(variants.len() >= 10, "{variants:?}");
    let all = error::all("inventory:7");
    let made: HashSet<_> = all.iter().map(std::mem::discriminant).collect();
    assert_eq!(made.len(), variants.len(), "{variants:?}: {all:#?}");
    assert_eq!(all.len(), variants.len(), "{all:#?}");
    for error in &all {
        assert!(
            error.key().is_none_or(|key| key == "inventory:7"),
            "{error:?}"
        );
        assert!(!error.to_string().is_empty());
    }
}

/// An error made by the test kit reads like one that a lock returns.
#[tokio::test(start_paused = true)]
async fn constructed_errors_equal_those_of_locks() {
    let locks = TestLocks::new();
    let lock = locks.manager().lock("k").wait(ms(0));
    let other = holder("worker-2");
    locks.on("k").once().busy(other.clone());
    let given = lock.acquire().await.unwrap_err();
    assert_same(&given, &error::busy("k", Duration::ZERO, [other]));

    let forever = async |_| std::future::pending::<Result<(), Error>>().await;
    locks.on("k").once().lost_after(ms(5), InjectedLoss::Gone);
    let given = lock.run(forever).await.unwrap_err();
    let token = |place: usize| locks.acquisitions()[place].fencing_token;
    assert_same(
        &given,
        &error::lost("k", token(0), BodyState::Stopped, LossReason::Gone),
    );

    locks.on("k").once().max_hold_exceeded_after(secs(3));
    let given = lock.run(forever).await.unwrap_err();
    assert_same(
        &given,
        &error::max_hold_exceeded("k", token(1), secs(3), BodyState::Stopped),
    );

    let done_at = SystemTime::UNIX_EPOCH + secs(1_795_000_000);
    locks.on("k").once().already_ran(done_at);
    let job = lock.clone().once_per(secs(100));
    let given = job.run(forever).await.unwrap_err();
    assert_same(
        &given,
        &error::already_ran("k", done_at, done_at + secs(90)),
    );

    let guard = lock.acquire().await.unwrap();
    locks.lose("k", InjectedLoss::Gone);
    let given = guard.check().unwrap_err();
    assert_same(
        &given,
        &error::lost("k", token(2), BodyState::Running, LossReason::Gone),
    );
    let given = guard.release().await.unwrap_err();
    assert_same(
        &given,
        &error::lost("k", token(2), BodyState::Completed, LossReason::Gone),
    );
}

/// Compares all that errors show, because errors have no equality.
#[track_caller]
fn assert_same(given: &Error, made: &Error) {
    assert_eq!(shown(given), shown(made));
}

/// Returns the text, without the duration of a hold that still lasts.
fn shown(error: &Error) -> String {
    let text = error.to_string();
    match text.split_once(" for ").zip(text.split_once("; ")) {
        Some(((before, _), (_, after))) if matches!(error, Error::Busy { .. }) => {
            format!("{before}; {after}")
        }
        _ => text,
    }
}
