//! Semaphores: weights, nested calls, the number of permits of each call, and their holders. `kinds`
//! shows that what is held fits.

use distlock::{Error, HoldKind, LockKind, LossReason, RevokeOutcome, Semaphore, SemaphorePermit};
use distlock_tests::within;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, HELD, PATIENCE, SOON, answered, ms};

type Call = JoinHandle<Result<SemaphorePermit, Error>>;

/// Starts a call for permits, and returns once it is the last of `waiting` waiters.
async fn queued(store: &Fixture, semaphore: &Semaphore, weight: u32, waiting: u64) -> Call {
    let semaphore = semaphore.clone().wait(PATIENCE);
    let call = tokio::spawn(async move { semaphore.acquire_many(weight).await });
    let key = "k";
    store.until_waiting(key, waiting).await;
    call
}

async fn served(call: Call) -> SemaphorePermit {
    within(PATIENCE, call).await.unwrap().unwrap()
}

async fn tried(semaphore: &Semaphore, weight: u32) -> Option<SemaphorePermit> {
    answered(async || semaphore.try_acquire_many(weight).await).await
}

for_each_queueing_store! {
    async fn weights_add_up(store) {
        let semaphore = store.manager().await.semaphore("k", 3).lease(HELD);
        let two = semaphore.acquire_many(2).await.unwrap();
        assert_eq!((two.weight(), two.key(), two.held().weight()), (2, "k", 2));
        assert!(two.is_held() && two.check().is_ok());
        two.confirmed().await.unwrap();
        assert!(two.remaining() > ms(0));
        assert!(tried(&semaphore, 2).await.is_none());
        let one = tried(&semaphore, 1).await.unwrap();
        assert!(tried(&semaphore, 1).await.is_none());
        two.release().await.unwrap();
        let two = tried(&semaphore, 2).await.unwrap();
        one.release().await.unwrap();
        two.release().await.unwrap();
        let all = semaphore.run(async |held| Ok::<_, Error>((held.weight(), held)));
        let (weight, held) = all.await.unwrap();
        assert!(weight == 1 && !held.is_held());
        store.until_free("k", SOON).await;
    }

    /// The permits of a call tree count together, each hold once.
    async fn nested_permits_add_up(store) {
        let semaphore = store.manager().await.semaphore("k", 3).wait(PATIENCE);
        let first = semaphore.acquire().await.unwrap();
        first.scope(first.scope(async {
            let second = semaphore.acquire().await.unwrap();
            second.scope(async {
                let error = semaphore.acquire_many(2).await.unwrap_err();
                assert!(error.to_string().contains("holds 2 permits"), "{error}");
                semaphore.acquire().await.unwrap().release().await.unwrap();
            })
            .await;
            second.release().await.unwrap();
            semaphore.acquire_many(2).await.unwrap().release().await.unwrap();
        }))
        .await;
        first.release().await.unwrap();
        store.until_free("k", SOON).await;
        // Permits that were lost are no longer in use here.
        let lost = semaphore.clone().lease(HELD).max_hold(ms(200)).acquire_many(3).await.unwrap();
        let nested = lost.scope(async {
            within(PATIENCE, lost.lost()).await;
            tried(&semaphore, 3).await
        });
        assert!(nested.await.is_none(), "the store keeps them until the release");
    }

    /// As in a deployment that changes the number. The queue keeps its order.
    async fn a_call_is_granted_by_its_own_number(store) {
        let (old, new) = (store.manager().await, store.manager().await);
        let old = old.semaphore("k", 2).lease(HELD);
        let new = new.semaphore("k", 5).lease(HELD);
        let permits = async || match store.inspect("k").await.kind {
            Some(LockKind::Semaphore { permits }) => permits,
            other => panic!("{other:?}"),
        };
        let both = old.acquire_many(2).await.unwrap();
        let two = tried(&new, 2).await.expect("its number is 5");
        assert_eq!(permits().await, 5, "that of the last call that was granted");
        assert!(tried(&old, 1).await.is_none(), "4 are held, and its number is 2");
        assert!(tried(&new, 2).await.is_none(), "4 of 5 are held");
        let head = queued(store, &old, 1, 1).await;
        let behind = queued(store, &new, 3, 2).await;
        both.release().await.unwrap();
        // Now the second waiter would fit. The waiters check the queue meanwhile.
        tokio::time::sleep(ms(700)).await;
        assert!(!head.is_finished() && !behind.is_finished(), "2 are held");
        assert!(tried(&new, 1).await.is_none(), "a try passed the queue");
        two.release().await.unwrap();
        let (one, three) = (served(head).await, served(behind).await);
        assert_eq!(permits().await, 5);
        three.release().await.unwrap();
        let other = tried(&old, 1).await.unwrap();
        assert_eq!(permits().await, 2);
        assert!(tried(&old, 1).await.is_none());
        for permit in [one, other] {
            permit.release().await.unwrap();
        }
        store.until_free("k", SOON).await;
    }

    async fn an_inspection_shows_the_permits_of_each_holder(store) {
        let (first, second) = (store.named("first").await, store.named("second").await);
        assert_eq!(store.inspect("k").await.kind, None);
        let _two = first.semaphore("k", 3).acquire_many(2).await.unwrap();
        let _one = second.semaphore("k", 3).acquire().await.unwrap();
        let _waiting = queued(store, &second.semaphore("k", 3), 1, 1).await;
        let state = store.inspect("k").await;
        assert_eq!(state.kind, Some(LockKind::Semaphore { permits: 3 }));
        let mut holders: Vec<_> = state.holders.iter().map(|holder| (&*holder.client, holder.weight)).collect();
        holders.sort_unstable();
        assert_eq!(holders, [("first", 2), ("second", 1)]);
        assert!(state.holders.iter().all(|holder| holder.kind == HoldKind::Semaphore));
        assert!(state.holders.iter().all(|holder| holder.fencing_token.is_none()));
        assert_eq!(state.waiters.len(), 1);
        assert!(state.expires_in.is_some());
        if !store.is_proxied() {
            let listed = first.list("k").await.unwrap();
            assert_eq!((listed.len(), listed[0].kind), (1, state.kind));
        }
    }

    /// The holder that an inspection names loses all of its permits, and the others keep theirs.
    async fn one_holder_or_all_are_revoked(store) {
        let (first, second) = (store.named("first").await, store.named("second").await);
        let lease = HELD;
        let lost = first.semaphore("k", 3).lease(lease).acquire().await.unwrap();
        let also_lost = first.semaphore("k", 3).lease(lease).acquire().await.unwrap();
        let mut kept = second.semaphore("k", 3).lease(lease).acquire().await.unwrap();
        for holder in [Some("first"), None] {
            let (revoked, others) = match holder {
                Some(_) => (&lost, 1),
                None => (&kept, 0),
            };
            let revoke = second.revoke("k").wait(ms(0));
            let revoke = match holder {
                Some(holder) => revoke.holder(holder),
                None => revoke,
            };
            let revocation = revoke.await.unwrap();
            assert_eq!(revocation.outcome, RevokeOutcome::Pending);
            assert_eq!(revocation.holders.len(), 3 - others, "{revocation:?}");
            within(PATIENCE, also_lost.lost()).await;
            let error = within(PATIENCE, revoked.lost()).await;
            assert!(matches!(
                error,
                Error::Lost { reason: LossReason::Revoked { .. }, fencing_token: None, .. }
            ), "{error:?}");
            assert_eq!(usize::from(kept.is_held()), others);
        }
        kept = {
            drop((lost, also_lost, kept));
            second.semaphore("k", 3).wait(PATIENCE).acquire_many(3).await.unwrap()
        };
        kept.release().await.unwrap();
        let absent = second.revoke("k").holder("absent").await.unwrap();
        assert_eq!(absent.outcome, RevokeOutcome::NotHeld);
    }
}
