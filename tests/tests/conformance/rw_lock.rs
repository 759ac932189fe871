//! Readers-writer locks: one writer, or several readers, in the order of the queue.

use distlock::{Error, HoldKind, LockKind, LossReason, RevokeOutcome};
use distlock_tests::{eventually_async, within};
use tokio::task::JoinHandle;

use crate::dropped_acquires::poll_times;
use crate::exclusion::Room;
use crate::fixture::{HELD, PATIENCE, SOON, answered, ms};

/// Starts a call, such as `RwLock::read`, and returns once it is the last of `waiting` waiters.
macro_rules! queued {
    ($store:ident, $lock:expr, $call:ident, $waiting:expr) => {{
        let lock = $lock.clone().wait(PATIENCE);
        let call = tokio::spawn(async move { lock.$call().await });
        $store.until_waiting("k", $waiting).await;
        call
    }};
}

async fn served<G>(call: JoinHandle<Result<G, Error>>) -> G {
    within(PATIENCE, call).await.unwrap().unwrap()
}

for_each_queueing_store! {
    async fn a_reader_does_not_pass_a_queued_writer(store) {
        let lock = store.manager().await.rw_lock("k");
        let reading = lock.read().await.unwrap();
        let write = queued!(store, lock, write, 1);
        assert!(answered(async || lock.try_read().await).await.is_none(), "a try passed the writer");
        let late = queued!(store, lock, read, 2);
        reading.release().await.unwrap();
        let write = served(write).await;
        assert!(!late.is_finished());
        let token = write.fencing_token();
        // The hand-off is confirmed first.
        let mine = write.downgrade().await.unwrap();
        let late = served(late).await;
        assert!(late.fencing_token() > token && late.fencing_token() == mine.fencing_token());
        mine.release().await.unwrap();
        late.release().await.unwrap();
        store.until_free("k", SOON).await;
    }

    async fn a_read_that_ended_is_not_re_entered(store) {
        let lock = store.manager().await.rw_lock("k").lease(HELD).wait(PATIENCE);
        let read = lock.clone().max_hold(ms(200)).read().await.unwrap();
        let nested = read.scope(async {
            within(PATIENCE, read.lost()).await;
            [lock.read().await.map(drop), lock.write().await.map(drop)]
        });
        for result in nested.await {
            assert!(matches!(result, Err(Error::MaxHoldExceeded { .. })), "{result:?}");
        }
    }

    /// Readers start together, up to the first writer behind them.
    async fn queued_readers_are_served_together(store) {
        let lock = store.manager().await.rw_lock("k");
        let writing = lock.write().await.unwrap();
        let mut reads = Vec::new();
        for waiting in 1..=3 {
            reads.push(queued!(store, lock, read, waiting));
        }
        let write = queued!(store, lock, write, 4);
        let behind = queued!(store, lock, read, 5);
        writing.release().await.unwrap();
        let mut guards = Vec::new();
        for read in reads {
            guards.push(served(read).await);
        }
        assert!(guards.iter().all(|guard| guard.fencing_token() == guards[0].fencing_token()));
        assert!(!write.is_finished() && !behind.is_finished());
        drop(guards);
        served(write).await.release().await.unwrap();
        served(behind).await.release().await.unwrap();
        store.until_free("k", SOON).await;
    }

    /// Both siblings are inside at the same time, even while a writer waits.
    async fn nested_reads_run_at_the_same_time(store) {
        let lock = store.manager().await.rw_lock("k").wait(PATIENCE);
        let inside = tokio::sync::Barrier::new(2);
        let body = lock.run_read(async |outer| {
            let write = queued!(store, lock, write, 1);
            let nested = async || {
                let read = lock.run_read(async |inner| {
                    inside.wait().await;
                    Ok::<_, Error>(inner.fencing_token())
                });
                read.await.unwrap()
            };
            let (first, second) = tokio::join!(nested(), nested());
            assert_eq!([first, second], [outer.fencing_token(); 2]);
            write.abort();
            Ok::<_, Error>(())
        });
        within(PATIENCE, body).await.unwrap();
        store.until_free("k", SOON).await;
    }

    async fn siblings_inside_a_write_take_turns(store) {
        let lock = store.manager().await.rw_lock("k").wait(PATIENCE);
        let room = Room::default();
        let body = lock.run_write(async |outer| {
            let visit = async |held: distlock::HeldLock| {
                assert_eq!(held.fencing_token(), outer.fencing_token());
                room.visit().await;
                Ok::<_, Error>(())
            };
            for _ in 0..5 {
                let (read, write, other) =
                    tokio::join!(lock.run_read(visit), lock.run_write(visit), lock.run_read(visit));
                read.and(write).and(other).unwrap();
            }
            Ok::<_, Error>(())
        });
        within(PATIENCE, body).await.unwrap();
        assert_eq!(room.visits(), 15);
        store.until_free("k", SOON).await;
    }

    /// No writer gets in between, and the readers at the head of the queue have the lock with the
    /// reply. Those behind the writer wait for it.
    async fn a_downgrade_lets_readers_in_and_no_writer(store) {
        let lock = store.manager().await.rw_lock("k").lease(HELD);
        let writing = lock.write().await.unwrap();
        let reads = [queued!(store, lock, read, 1), queued!(store, lock, read, 2)];
        let write = queued!(store, lock, write, 3);
        let behind = queued!(store, lock, read, 4);
        let (held, token) = (writing.held(), writing.fencing_token());
        let mine = within(PATIENCE, writing.downgrade()).await.unwrap();
        let state = store.inspect("k").await;
        assert_eq!((state.holders.len(), state.queue_length), (3, 2));
        assert!(mine.is_held() && mine.fencing_token() > token);
        let error = within(PATIENCE, held.lost()).await;
        assert!(matches!(error, Error::Released { .. }), "{error:?}");
        for read in reads {
            let read = served(read).await;
            assert_eq!(read.fencing_token(), mine.fencing_token());
            read.release().await.unwrap();
        }
        assert_eq!(store.inspect("k").await.queue_length, 2);
        assert!(!write.is_finished() && !behind.is_finished());
        // The hold is a read now.
        let nested = mine.scope(lock.write()).await.unwrap_err();
        assert!(matches!(nested, Error::UpgradeDeadlock { .. }), "{nested:?}");
        mine.scope(lock.read()).await.unwrap().release().await.unwrap();
        // It is renewed: the rest of the lease rises again after it has fallen.
        let full = mine.remaining();
        eventually_async(PATIENCE, async || mine.remaining() + ms(200) < full).await;
        let aged = mine.remaining();
        eventually_async(PATIENCE, async || mine.remaining() > aged).await;
        mine.release().await.unwrap();
        served(write).await.release().await.unwrap();
        served(behind).await.release().await.unwrap();
        store.until_free("k", SOON).await;
    }

    async fn a_downgrade_that_is_dropped_at_any_await_leaves_nothing(store) {
        let lock = store.manager().await.rw_lock("k").wait(PATIENCE);
        for polls in 1..5 {
            let write = lock.write().await.unwrap();
            drop(poll_times(write.downgrade(), polls).await);
            store.until_free("k", SOON).await;
        }
        let outer = lock.write().await.unwrap();
        let nested = outer.scope(lock.write()).await.unwrap().downgrade().await.unwrap();
        assert_eq!(nested.fencing_token(), outer.fencing_token(), "it is the write");
        nested.release().await.unwrap();
        assert!(outer.is_held());
        outer.release().await.unwrap();
    }

    async fn an_inspection_shows_readers_and_writers(store) {
        let (first, second) = (store.named("first").await, store.named("second").await);
        let reads = [first.rw_lock("k").read().await.unwrap(), second.rw_lock("k").read().await.unwrap()];
        let state = store.inspect("k").await;
        assert_eq!((state.kind, state.holders.len()), (Some(LockKind::ReadWrite), 2));
        for holder in &state.holders {
            assert_eq!((holder.kind, holder.weight), (HoldKind::Read, 1));
            assert_eq!(holder.fencing_token, Some(reads[0].fencing_token()));
        }
        for read in reads {
            read.release().await.unwrap();
        }
        let write = first.rw_lock("k").wait(PATIENCE).write().await.unwrap();
        let holder = &store.inspect("k").await.holders[0];
        assert_eq!((holder.kind, holder.weight), (HoldKind::Write, 1));
        assert_eq!(holder.fencing_token, Some(write.fencing_token()));
    }

    /// A resource that has seen the new token rejects all of them, so all are revoked.
    async fn all_readers_of_a_phase_are_revoked_together(store) {
        let (first, second) = (store.named("first").await, store.named("second").await);
        let one = first.rw_lock("k").lease(HELD).read().await.unwrap();
        let two = second.rw_lock("k").lease(HELD).read().await.unwrap();
        let revocation = second.revoke("k").holder("first").wait(ms(0)).await.unwrap();
        assert_eq!(revocation.outcome, RevokeOutcome::Pending);
        assert_eq!(revocation.holders.len(), 2);
        let new = revocation.fencing_token.unwrap();
        assert!(new > one.fencing_token());
        for read in [one, two] {
            let error = within(PATIENCE, read.lost()).await;
            let is_revoked = matches!(error, Error::Lost { reason: LossReason::Revoked { .. }, .. });
            assert!(is_revoked, "{error:?}");
        }
        let write = second.rw_lock("k").wait(PATIENCE).write().await.unwrap();
        assert!(write.fencing_token() > new);
    }
}
