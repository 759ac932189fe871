//! The memory store on the caller's runtime, where paused time is exact and takes none.

use std::time::Duration;

use distlock::{Error, LockManager, LossReason};
use tokio::time::Instant;

use crate::fixture::ms;

const HOUR: Duration = Duration::from_secs(3_600);

fn manager() -> LockManager {
    LockManager::builder()
        .in_memory_on_current_runtime()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_to_the_millisecond() {
    let manager = manager();
    let _guard = manager.lock("k").acquire().await.unwrap();
    for wait in [ms(1), ms(700), Duration::from_secs(10), 20 * HOUR] {
        let started = Instant::now();
        let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        let elapsed = started.elapsed();
        assert!(
            elapsed >= wait && elapsed < wait + ms(260),
            "{wait:?}: {elapsed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn several_keys_have_one_wait_in_common() {
    let manager = manager();
    let a = manager.lock("a").acquire().await.unwrap();
    let _c = manager.lock("c").acquire().await.unwrap();
    let (wait, started) = (ms(10_000), Instant::now());
    let all = manager.lock_all(["a", "b", "c"]).wait(wait);
    let freed = async {
        tokio::time::sleep(wait * 2 / 3).await;
        a.release().await.unwrap();
    };
    let (result, ()) = tokio::join!(all.acquire(), freed);
    match result.unwrap_err() {
        Error::Busy { key, waited, .. } => assert!(key == "c" && waited >= wait, "{waited:?}"),
        other => panic!("{other:?}"),
    }
    let elapsed = started.elapsed();
    assert!(elapsed < wait + ms(260), "{elapsed:?}");
}

/// A key that the call already holds outlives its first lease.
#[tokio::test(start_paused = true)]
async fn keys_are_renewed_while_a_call_waits_for_another() {
    let manager = manager();
    let b = manager.lock("b").acquire().await.unwrap();
    let both = manager.lock_all(["a", "b"]).lease(ms(1_000)).wait(HOUR);
    let token_of_a = async || manager.inspect("a").await.unwrap().holders[0].fencing_token;
    let freed = async {
        tokio::time::sleep(ms(100)).await;
        let first = token_of_a().await;
        tokio::time::sleep(HOUR / 2).await;
        assert_eq!(token_of_a().await, first);
        b.release().await.unwrap();
        first
    };
    let (both, first) = tokio::join!(both.acquire(), freed);
    assert_eq!(both.unwrap().fencing_token("a"), first);
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_before_its_confirmation_reports_the_loss() {
    let manager = manager();
    let first = manager.lock("k").acquire().await.unwrap();
    let second = manager.lock("k");
    let (second, released) = tokio::join!(second.acquire(), first.release());
    let (second, ()) = (second.unwrap(), released.unwrap());
    assert!(second.remaining() < ms(1_000), "not a short grant");
    let (confirmed, ()) = tokio::join!(second.confirmed(), manager.shutdown());
    let error = confirmed.unwrap_err();
    let Error::Lost { reason, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(reason, LossReason::ShutDown);
}

/// A hold counts as lost a hundredth of its lease and 2 ms before the lease ends.
#[tokio::test(start_paused = true)]
async fn a_hold_is_valid_for_less_than_its_lease() {
    for (lease, believed) in [
        (ms(50), ms(47)),
        (ms(1_000), ms(988)),
        (HOUR, HOUR - ms(36_002)),
    ] {
        let guard = manager().lock("k").lease(lease).acquire().await.unwrap();
        let remaining = guard.remaining();
        let expected = believed..=believed + ms(1);
        assert!(expected.contains(&remaining), "{lease:?}: {remaining:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_max_hold_ends_to_the_millisecond() {
    let lock = manager().lock("k").max_hold(HOUR);
    let started = Instant::now();
    let result = lock
        .run(async |_| std::future::pending::<Result<(), Error>>().await)
        .await;
    assert!(
        matches!(result, Err(Error::MaxHoldExceeded { .. })),
        "{result:?}"
    );
    let elapsed = started.elapsed();
    assert!(elapsed >= HOUR && elapsed < HOUR + ms(2), "{elapsed:?}");
    let guard = lock.acquire().await.unwrap();
    let started = Instant::now();
    assert!(guard.lost().await.is_lost());
    assert!(started.elapsed() <= HOUR + ms(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_ends_to_the_millisecond() {
    let manager = manager();
    let started = Instant::now();
    let guard = manager.lock("k").min_hold(HOUR).acquire().await.unwrap();
    tokio::time::sleep(ms(10_000)).await;
    guard.release().await.unwrap();
    assert!(started.elapsed() < ms(10_010), "the release waited");
    let guard = manager.lock("k").wait(2 * HOUR).acquire().await.unwrap();
    let elapsed = started.elapsed();
    assert!(elapsed >= HOUR && elapsed < HOUR + ms(502), "{elapsed:?}");
    guard.release().await.unwrap();
}

/// Wall time also advances, and tokens rise with it.
#[tokio::test(start_paused = true)]
async fn tokens_follow_the_clock() {
    let manager = manager();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = manager.lock("k").acquire().await.unwrap();
        tokens.push(guard.fencing_token().get());
        guard.release().await.unwrap();
        tokio::time::sleep(HOUR).await;
    }
    let hour = 3_600_000_000;
    for pair in tokens.windows(2) {
        let passed = pair[1] - pair[0];
        assert!(passed >= hour && passed < hour + 1_000_000, "{passed}");
    }
}

#[test]
fn outside_of_a_runtime_the_panic_names_the_remedy() {
    let error = LockManager::builder()
        .in_memory_on_current_runtime()
        .unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(
        error.to_string().contains("LockManager::in_memory()"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_stored_for_the_fence_ttl() {
    let minute = Duration::from_secs(60);
    for (builder, ttl) in [
        (LockManager::builder(), 2 * HOUR),
        (LockManager::builder().fence_ttl(minute), minute),
        (LockManager::builder().fence_ttl(72 * HOUR), 72 * HOUR),
    ] {
        let manager = builder.in_memory_on_current_runtime().unwrap();
        let guard = manager.lock("k").acquire().await.unwrap();
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        tokio::time::advance(ttl - ms(1_000)).await;
        let last = manager.inspect("k").await.unwrap().last_fencing_token;
        assert_eq!(last, Some(token), "{ttl:?}");
        tokio::time::advance(ms(1_000)).await;
        let last = manager.inspect("k").await.unwrap().last_fencing_token;
        assert_eq!(last, None, "{ttl:?}");
    }
}
