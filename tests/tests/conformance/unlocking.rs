//! Operators list holders, and revoke a lock without two holders at once.

use std::time::Duration;

use distlock::{Error, LossReason, RevokeOutcome};
use distlock_tests::{eventually_async, within};

use crate::fixture::{PATIENCE, ms};
use crate::holding::stopped_before_the_next_holder;

fn assert_revoked(error: &Error) {
    let Error::Lost { reason, .. } = error else {
        panic!("{error:?}")
    };
    assert!(matches!(reason, LossReason::Revoked { .. }), "{error:?}");
    assert!(error.to_string().contains("revoked"), "{error}");
}

/// A lease with an early renewal, at which the holder learns of the revocation if no push arrives.
const LEASE: Duration = ms(6_000);

for_each_store! {
    async fn held_locks_are_listed_by_prefix(store) {
        let manager = store.named("lister").await;
        if store.is_proxied() {
            let error = manager.list("").await.unwrap_err();
            assert!(error.to_string().contains("proxy"), "{error}");
            return;
        }
        let keys = ["shop:1", "shop:2", "shop:{eu}:3", "shop*", "shelf:1", "{shop:4}"];
        let mut guards = Vec::new();
        for key in keys {
            guards.push(manager.lock(key).acquire().await.unwrap());
        }
        let another = store.connect(store.builder().namespace(store.another_namespace())).await;
        let _elsewhere = another.lock("shop:elsewhere").acquire().await.unwrap();
        let waiter = store.waiter("shop:2").await;

        let listed = async |prefix: &str| -> Vec<String> {
            let locks = manager.list(prefix).await.unwrap();
            locks.into_iter().map(|lock| lock.key).collect()
        };
        assert_eq!(listed("shop:").await, ["shop:1", "shop:2", "shop:4", "shop:{eu}:3"]);
        assert_eq!(listed("shop*").await, ["shop*"]);
        assert_eq!(listed("").await.len(), keys.len());
        assert_eq!(listed("nothing").await, Vec::<String>::new());
        let locks = manager.list("shop:2").await.unwrap();
        let counted = u64::from(!store.is_quorum());
        assert_eq!((locks[0].queue_length, locks[0].waiters.len()), (counted, 0), "not named");
        assert_eq!(locks[0].holders[0].client, "lister");
        assert!(locks[0].expires_in.unwrap() > Duration::ZERO);
        for guard in guards {
            guard.release().await.unwrap();
        }
        waiter.guard().await.release().await.unwrap();
        assert_eq!(listed("").await, Vec::<String>::new());
    }

    /// More locks than one step of a scan returns.
    async fn many_are_listed(store) {
        if store.is_proxied() {
            return;
        }
        let manager = store.manager().await;
        let mut guards = Vec::new();
        for number in 0..1_200 {
            let lock = manager.lock(format!("k{number:04}")).lease(PATIENCE * 30);
            guards.push(lock.acquire().await.unwrap());
        }
        let expected: Vec<_> = (0..1_200).map(|number| format!("k{number:04}")).collect();
        // In a quorum, a slow server may learn of the last locks a little later.
        eventually_async(PATIENCE, async || {
            let locks = manager.list("k").await.unwrap();
            locks.iter().map(|lock| &lock.key).eq(&expected)
        })
        .await;
    }

    /// The body is stopped before the next waiter has the lock, with a higher token.
    async fn a_body_is_stopped_when_its_lock_is_revoked(store) {
        let lock = store.named("holder").await.lock("k").lease(LEASE);
        let (token, running, next) = stopped_before_the_next_holder(store, lock).await;
        let operator = store.named("operator").await;
        let revocation = within(PATIENCE, operator.revoke("k").wait(PATIENCE).into_future()).await.unwrap();
        assert_eq!(revocation.outcome, RevokeOutcome::Released);
        assert_eq!(revocation.holders[0].client, "holder");
        assert_revoked(&running.await.unwrap().unwrap_err());
        let guard = next.await.unwrap();
        let after = guard.fencing_token();
        match revocation.fencing_token {
            Some(newest) => assert!(newest > token && after > newest, "{token}, {newest}, {after}"),
            // In a quorum, the lock may be released before enough servers have marked it.
            None => assert!(store.is_quorum() && after > token, "{token}, {after}"),
        }
        guard.release().await.unwrap();
    }

    /// The user of a guard is notified, not stopped. The lock expires with its lease, not before.
    async fn a_revoked_guard_is_notified_and_cannot_renew(store) {
        let guard = store.named("holder").await.lock("k").lease(LEASE).acquire().await.unwrap();
        let operator = store.named("operator").await;
        let revocation = operator.revoke("k").wait(ms(1)).await.unwrap();
        assert_eq!((revocation.outcome, &*revocation.holders[0].client), (RevokeOutcome::Pending, "holder"));
        assert!(revocation.fencing_token > Some(guard.fencing_token()), "a fenced resource needs it");
        let error = within(PATIENCE, guard.lost()).await;
        assert_revoked(&error);
        assert!(!guard.is_held());
        // A second `unlock` finds the same hold.
        let forced = within(PATIENCE, operator.revoke("k").wait_until_free(true).into_future()).await.unwrap();
        assert_eq!(forced.outcome, RevokeOutcome::Expired);
        assert_revoked(&guard.release().await.unwrap_err());
        store.until_free("k", PATIENCE).await;
    }

    async fn a_free_lock_stays_free(store) {
        let operator = store.manager().await;
        let revocation = operator.revoke("k").await.unwrap();
        assert_eq!((revocation.outcome, revocation.holders), (RevokeOutcome::NotHeld, vec![]));
        assert!(matches!(operator.revoke("").await, Err(Error::InvalidKey { .. })));
    }

    /// Only the hold that the operator saw is revoked, not the one that follows.
    async fn the_next_holder_keeps_the_lock(store) {
        for _ in 0..store.hand_offs(10, 2) {
            let holder = store.manager().await;
            let guard = holder.lock("k").lease(LEASE).acquire().await.unwrap();
            let next = store.waiter("k").await;
            let operator = store.manager().await;
            let unlocking = tokio::spawn(async move { operator.revoke("k").wait(PATIENCE).await });
            within(PATIENCE, guard.lost()).await;
            drop(guard);
            assert_eq!(unlocking.await.unwrap().unwrap().outcome, RevokeOutcome::Released);
            let next = next.guard().await;
            assert!(next.is_held());
            next.release().await.unwrap();
        }
    }

    /// The operator's assertion is not enough to delete the lock.
    async fn nothing_of_a_connected_client_is_deleted(store) {
        let guard = store.named("holder").await.lock("k").lease(LEASE).acquire().await.unwrap();
        let operator = store.manager().await;
        let unlocking = operator.revoke("k").assume_holder_dead(true).wait(ms(1)).into_future();
        let revocation = within(PATIENCE, unlocking).await.unwrap();
        assert_eq!(revocation.outcome, RevokeOutcome::Pending);
        let other = store.manager().await.lock("k");
        assert!(store.tried(&other).await.is_none());
        // In a quorum the hold may have been revoked. There are never two holders.
        drop(guard);
        store.until_free("k", PATIENCE).await;
    }

    async fn a_lock_kept_by_min_hold_can_be_revoked(store) {
        store.vanished_holder("k", Duration::from_secs(3)).await;
        let operator = store.manager().await;
        let revocation = within(PATIENCE, operator.revoke("k").wait_until_free(true).into_future()).await.unwrap();
        assert!(matches!(revocation.outcome, RevokeOutcome::Released | RevokeOutcome::Expired), "{revocation:?}");
        store.until_free("k", PATIENCE).await;
    }
}

for_redis! {
    /// A process that has exited, as far as the server and the operator know.
    async fn locks_of_a_dead_process_are_deleted_at_once(fixture) {
        fixture.hold_elsewhere("k", "dead", Duration::from_secs(3_600));
        let next = fixture.waiter("k").await;
        let operator = fixture.manager().await;
        let revocation = operator.revoke("k").wait(ms(1)).await.unwrap();
        assert_eq!(revocation.outcome, RevokeOutcome::Pending, "no process is left to release it");
        let unlocking = operator.revoke("k").assume_holder_dead(true).into_future();
        let revocation = within(PATIENCE, unlocking).await.unwrap();
        assert_eq!(revocation.outcome, RevokeOutcome::Deleted);
        let guard = next.guard().await;
        assert!(guard.fencing_token() > revocation.fencing_token.unwrap());
        guard.release().await.unwrap();
    }

    /// A revocation does not shorten TTLs. A holder that is not notified holds until its safe
    /// deadline, and other clients may store the token for longer than the operator. A lock without
    /// a TTL gets the longest that its holder may set.
    async fn a_revoked_lock_keeps_its_ttl(fixture) {
        let operator = fixture.manager().await;
        let revoke = async |key: &str| {
            let revocation = operator.revoke(key).wait(ms(1)).await.unwrap();
            assert_eq!(revocation.outcome, RevokeOutcome::Pending);
            fixture.inspect(key).await.expires_in.unwrap()
        };
        fixture.hold_elsewhere("k", "deaf", Duration::from_secs(3_600));
        let left = revoke("k").await;
        assert!(left <= Duration::from_secs(3_600) && left > Duration::from_secs(3_500), "{left:?}");

        let long = Duration::from_secs(30 * 24 * 3_600);
        let holder = fixture.connect(fixture.builder().fence_ttl(long)).await;
        let guard = holder.lock("endless").acquire().await.unwrap();
        fixture.raw().cmd(&["PERSIST", &fixture.name("lock", "endless")]);
        let left = revoke("endless").await;
        assert!(left > Duration::from_secs(20), "{left:?}");
        let left = fixture.raw().pttl(&fixture.name("fence", "endless"));
        assert!(left > 29 * 24 * 3_600_000, "{left}");
        drop(guard);
    }

    /// A revocation that fails leaves the lock to its holder.
    async fn a_foreign_fence_prevents_revocation(fixture) {
        let guard = fixture.hold("k").await;
        fixture.raw().cmd(&["SET", &fixture.name("fence", "k"), "text"]);
        let operator = fixture.manager().await;
        for unlock in [operator.revoke("k"), operator.revoke("k").assume_holder_dead(true)] {
            let refused = unlock.wait(ms(1)).into_future().await.unwrap_err();
            assert!(!refused.is_busy() || refused.is_unavailable(), "{refused:?}");
        }
        assert_eq!(fixture.inspect("k").await.holders.len(), 1, "two may have it");
        assert!(guard.is_held());
        fixture.raw().cmd(&["DEL", &fixture.name("fence", "k")]);
        guard.release().await.unwrap();
    }

    /// A client that may publish, but not read the locks, cannot revoke one.
    async fn a_message_with_another_token_changes_nothing(fixture) {
        let manager = fixture.manager().await;
        let guard = manager.lock("k").lease(LEASE).acquire().await.unwrap();
        let name = fixture.name("lock", "k");
        let value = fixture.raw().cmd(&["GET", &name]);
        let owner = value.text().unwrap().split(' ').nth(1).unwrap().to_owned();
        let client = owner.split(':').next().unwrap();
        let channel = fixture.name("client", "").replace("{}", client);
        let token = guard.fencing_token().get();
        for message in [
            format!("revoked {} {name}\noperator", token + 1),
            format!("revoked 0 {name}\noperator"),
            format!("revoked {token} {}\noperator", fixture.name("lock", "another")),
            format!("revoked {token}"),
        ] {
            assert_eq!(fixture.raw().cmd(&["PUBLISH", &channel, &message]).int(), 1, "{message}");
        }
        // Pushes arrive in order.
        let other = fixture.waiter("k").await;
        assert!(guard.is_held());
        let right = format!("revoked {token} {name}\noperator");
        fixture.raw().cmd(&["PUBLISH", &channel, &right]);
        let error = within(PATIENCE, guard.lost()).await;
        assert!(error.to_string().contains("revoked by operator"), "{error}");
        drop(guard);
        other.guard().await.release().await.unwrap();
    }

    /// A key of another type, or with a foreign text, is not a lock.
    async fn foreign_keys_are_not_listed(fixture) {
        let guard = fixture.hold("mine").await;
        fixture.raw().cmd(&["SET", &fixture.name("lock", "foreign"), "text"]);
        fixture.raw().cmd(&["LPUSH", &fixture.name("lock", "list"), "text"]);
        let manager = fixture.manager().await;
        let locks = manager.list("").await.unwrap();
        assert_eq!(locks.len(), 1);
        assert!(matches!(manager.revoke("foreign").await, Err(Error::KeyConflict { .. })));
        guard.release().await.unwrap();
        eventually_async(PATIENCE, async || manager.list("").await.unwrap().is_empty()).await;
    }
}
