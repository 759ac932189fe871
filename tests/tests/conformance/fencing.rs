//! Tokens rise with every acquisition, whatever happened in between.

use std::time::Duration;

use distlock::{Error, FencingToken, LockManager};
use distlock_tests::{RedisServer, eventually_async};

use crate::fixture::{Fixture, HELD, PATIENCE, micros_since_epoch, ms, until_renewed_twice};

const HOUR: Duration = Duration::from_secs(3_600);

async fn next_token(manager: &LockManager) -> FencingToken {
    let guard = manager.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

pub(crate) fn assert_rising(tokens: &[FencingToken]) {
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?} of {tokens:?}");
    }
}

for_each_store! {
    async fn tokens_rise_after_a_holder_vanishes(store) {
        let manager = store.manager().await;
        let before = next_token(&manager).await;
        store.vanished_holder("k", ms(300)).await;
        let during = store.inspect("k").await.last_fencing_token.unwrap();
        let after = next_token(&manager).await;
        assert_rising(&[before, during, after]);
    }

    async fn renewal_and_re_entry_keep_the_token(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
        let token = guard.fencing_token();
        until_renewed_twice(&guard).await;
        assert_eq!(guard.fencing_token(), token);
        assert_eq!(store.inspect("k").await.last_fencing_token, Some(token));
        let lock = manager.lock("k").wait(PATIENCE);
        let inner = guard.scope(lock.run(async |inner| Ok::<_, Error>(inner.fencing_token()))).await;
        assert_eq!(inner.unwrap(), token);
        assert_eq!(store.inspect("k").await.last_fencing_token, Some(token));
        guard.release().await.unwrap();
        assert!(store.inspect("other").await.last_fencing_token.is_none(), "they are of one key each");
    }

    async fn tokens_are_microseconds_and_fit_signed_numbers(store) {
        let before = micros_since_epoch();
        let token = next_token(&store.manager().await).await;
        let after = micros_since_epoch();
        // A second for the difference between ways to read the clock.
        assert!(u128::from(token.get()) + 1_000_000 > before, "{token}");
        assert!(u128::from(token.get()) < after + 1_000_000, "{token}");
        assert_eq!(u64::from(token), token.get());
        let column = token.as_i64();
        assert_eq!(FencingToken::try_from(column), Ok(token));
        assert_eq!(token.to_string().parse(), Ok(token));
        assert!(FencingToken::try_from(-1).is_err() && FencingToken::new(u64::MAX).as_i64() == i64::MAX);
        assert_eq!(token.to_string(), token.get().to_string());
    }
}

for_redis! {
    /// On each way to acquire, the token exceeds a stored one that is ahead of the server's clock.
    async fn tokens_rise_above_a_stored_token_that_is_ahead(fixture) {
        let managers = fixture.managers(2).await;
        let ahead = micros_since_epoch() + HOUR.as_micros();
        let fence = fixture.name("fence", "k");
        fixture.raw().cmd(&["SET", &fence, &ahead.to_string(), "PX", "100000"]);
        let guard = managers[0].lock("k").acquire().await.unwrap();
        assert_eq!(u128::from(guard.fencing_token().get()), ahead + 1);
        // The fence must outlive the time at which the server's clock reaches the token.
        assert!(fixture.raw().pttl(&fence) > 2 * 3_600_000 + 3_000_000);
        let waiter = fixture.queued(managers[1].lock("k")).await;
        guard.release().await.unwrap();
        let guard = waiter.guard().await;
        assert_eq!(u128::from(guard.fencing_token().get()), ahead + 2);
        assert!(fixture.raw().pttl(&fence) > 2 * 3_600_000 + 3_000_000);
        guard.release().await.unwrap();
    }
}

/// The limit of the promise, and the setting that moves it. The clock is ahead, the key is unused
/// for longer than its token is stored, and the clock is then corrected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_a_clock_was_ahead_while_the_fence_is_stored() {
    for (fence_ttl, rises) in [(2 * HOUR, false), (72 * HOUR, true)] {
        let fixture = Fixture::on(RedisServer::builder().own_clock().start()).await;
        let connecting = fixture.builder().fence_ttl(fence_ttl).connect(&fixture.url);
        let manager = connecting.await.unwrap();
        fixture.server().step_clock(true, 24 * HOUR);
        let ahead = next_token(&manager).await;
        fixture.server().step_clock(true, 26 * HOUR + HOUR / 60);
        let fence = fixture.name("fence", "k");
        // Some servers still have an expired key, and would return it once the clock is corrected.
        eventually_async(PATIENCE, async || {
            let keys = fixture.raw().cmd(&["DBSIZE"]).int();
            fixture.raw().exists(&fence) == rises && keys == i64::from(rises)
        })
        .await;
        fixture.server().step_clock(true, Duration::ZERO);
        let corrected = next_token(&manager).await;
        assert_eq!(
            corrected > ahead,
            rises,
            "{fence_ttl:?}: {corrected} after {ahead}"
        );
        // After the correction, tokens rise again in either case.
        assert_rising(&[corrected, next_token(&manager).await]);
    }
}
