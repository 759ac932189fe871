//! A lost lock: the holder is notified, its body stops, and no other client is affected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{BodyState, Error, LockGuard, LossReason};
use distlock_tests::within;

use crate::fixture::{Fixture, PATIENCE, ms};
use crate::holding::Dropped;

/// The next renewal is at most two seconds away.
const LEASE: Duration = ms(6_000);

async fn short(fixture: &Fixture) -> LockGuard {
    let lock = fixture.manager().await.lock("k").lease(LEASE);
    lock.acquire().await.unwrap()
}

fn delete(fixture: &Fixture) {
    let deleted = fixture.raw().cmd(&["DEL", &fixture.name("lock", "k")]);
    assert_eq!(deleted.int(), 1);
}

fn assert_gone(error: &Error, after_completion: bool) {
    let message = error.to_string();
    assert!(message.contains("`k`"), "{message}");
    match error {
        Error::Lost {
            key,
            body,
            reason: LossReason::Gone,
            ..
        } => {
            assert_eq!(key, "k");
            assert_eq!(*body == BodyState::Completed, after_completion);
        }
        other => panic!("{other:?}"),
    }
}

for_redis! {
    async fn a_guard_learns_that_its_key_was_deleted(fixture) {
        let guard = short(fixture).await;
        let held = guard.scope(async { distlock::current() }).await;
        delete(fixture);
        let started = Instant::now();
        let error = within(PATIENCE, guard.lost()).await;
        // At the next renewal, long before the end of the lease and grace period.
        assert!(started.elapsed() < LEASE, "after {:?}", started.elapsed());
        assert_gone(&error, false);
        match error {
            Error::Lost { fencing_token, .. } => assert_eq!(fencing_token, Some(guard.fencing_token())),
            other => panic!("{other:?}"),
        }
        assert!(!guard.is_held() && guard.remaining().is_zero());
        assert!(!held.is_held());
        assert_gone(&held.check().unwrap_err(), false);
        assert_gone(&within(PATIENCE, held.lost()).await, false);
        assert_gone(&guard.release().await.unwrap_err(), true);
    }

    async fn a_body_is_dropped_when_its_key_was_deleted(fixture) {
        let dropped = AtomicBool::new(false);
        let lock = fixture.manager().await.lock("k").lease(LEASE);
        let running = lock.run(async |_| {
            let _flag = Dropped(&dropped);
            delete(fixture);
            std::future::pending::<()>().await;
            Ok::<_, Error>(())
        });
        let error = within(PATIENCE, running).await.unwrap_err();
        assert!(dropped.load(Ordering::SeqCst), "the body outlived the call");
        assert_gone(&error, false);
    }

    /// A client that acquired the lock in the meantime keeps it, however the old holder releases,
    /// and also if it does not know of the loss yet.
    async fn a_release_after_the_loss_touches_no_other_hold(fixture) {
        for (is_known, dropping) in [(true, true), (true, false), (false, false)] {
            let loser = if is_known { short(fixture).await } else { fixture.hold("k").await };
            delete(fixture);
            let winner = fixture.named("winner").await;
            let winner = winner.lock("k").wait(PATIENCE).acquire().await.unwrap();
            if is_known {
                within(PATIENCE, loser.lost()).await;
            }
            if dropping {
                drop(loser);
            } else {
                assert_gone(&loser.release().await.unwrap_err(), true);
            }
            // A dropped release is still in flight: the winner must keep the lock.
            let state = fixture.inspect("k").await;
            assert_eq!(state.holders[0].client, "winner");
            let third = fixture.manager().await.lock("k").wait(ms(300));
            assert!(third.acquire().await.is_err(), "two holders at once");
            assert!(winner.is_held());
            winner.release().await.unwrap();
        }
    }

    async fn a_foreign_value_is_a_loss_and_stays_unchanged(fixture) {
        let name = fixture.name("lock", "k");
        for command in [["SET", "foreign"], ["LPUSH", "foreign"]] {
            let mut raw = fixture.raw();
            let guard = short(fixture).await;
            raw.cmd(&["DEL", &name]);
            raw.cmd(&[command[0], &name, command[1]]);
            assert_gone(&within(PATIENCE, guard.lost()).await, false);
            assert_gone(&guard.release().await.unwrap_err(), true);
            assert_eq!(raw.pttl(&name), -1, "it was touched");
            match command[0] {
                "SET" => assert_eq!(raw.get(&name).as_deref(), Some("foreign")),
                _ => assert_eq!(raw.cmd(&["LLEN", &name]).int(), 1),
            }
            raw.cmd(&["DEL", &name]);
        }
    }

    /// A renewal extends an existing key, and creates none.
    async fn a_renewal_never_brings_a_key_back(fixture) {
        let guard = short(fixture).await;
        delete(fixture);
        within(PATIENCE, guard.lost()).await;
        tokio::time::sleep(LEASE / 2).await;
        assert!(!fixture.raw().exists(&fixture.name("lock", "k")));
        drop(guard);
    }
}
