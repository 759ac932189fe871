//! The text that a call gives its hold: other clients see it, and it changes nothing else.

use distlock::Holder;
use distlock_tests::within;

use crate::fixture::{Fixture, PATIENCE, ms};

const JOB: &str = "nightly report, run 42";

/// Returns the client and the metadata of the only holder.
async fn holder(store: &Fixture, key: &str) -> (String, Option<String>) {
    let [holder] = &store.inspect(key).await.holders[..] else {
        panic!("{key}: not one holder")
    };
    named(holder)
}

fn named(holder: &Holder) -> (String, Option<String>) {
    (holder.client.clone(), holder.metadata.clone())
}

fn of(client: &str, metadata: &str) -> (String, Option<String>) {
    (client.into(), Some(metadata.into()))
}

for_each_store! {
    async fn a_holders_metadata_is_in_errors_inspections_and_lists(store) {
        let manager = store.named("first").await;
        let lock = manager.lock("k").metadata(JOB);
        let guard = lock.acquire().await.unwrap();
        guard.confirmed().await.unwrap();
        assert_eq!(holder(store, "k").await, of("first", JOB));
        let other = store.named("second").await;
        let error = other.lock("k").wait(ms(300)).acquire().await.unwrap_err();
        assert_eq!(named(&error.holders()[0]), of("first", JOB), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("held by first [nightly report, run 42] for "), "{text}");
        if !store.is_proxied() {
            let listed = other.list("k").await.unwrap();
            assert_eq!(named(&listed[0].holders[0]), of("first", JOB));
        }
        // An operator names the client alone.
        let revocation = other.revoke("k").holder("first").wait(ms(0)).await.unwrap();
        assert_eq!(named(&revocation.holders[0]), of("first", JOB));
        let _ = guard.release().await;
        manager.lock("k").wait(PATIENCE).acquire().await.unwrap().release().await.unwrap();
    }

    async fn a_waiter_brings_its_metadata_along(store) {
        let guard = store.named("first").await.lock("k").acquire().await.unwrap();
        let manager = store.named("second").await;
        let waiter = store.queued(manager.lock("k").metadata(JOB)).await;
        let state = store.inspect("k").await;
        assert_eq!(named(&state.holders[0]), ("first".into(), None));
        let waiters: Vec<_> = state.waiters.iter().map(|waiter| &*waiter.client).collect();
        assert_eq!(waiters, if store.is_quorum() { vec![] } else { vec!["second"] });
        guard.release().await.unwrap();
        let guard = waiter.guard().await;
        guard.confirmed().await.unwrap();
        assert_eq!(holder(store, "k").await, of("second", JOB));
        // An inner call of another text re-enters this hold.
        let inner = manager.lock("k").metadata("inner");
        guard.scope(async { inner.acquire().await.unwrap().release().await.unwrap() }).await;
        assert_eq!(holder(store, "k").await, of("second", JOB));
    }

    async fn a_kept_key_names_the_finished_work(store) {
        let lock = store.named("first").await.lock("k").metadata(JOB);
        let lock = lock.min_hold(PATIENCE * 3);
        lock.acquire().await.unwrap().release().await.unwrap();
        let error = store.manager().await.lock("k").wait(ms(300)).acquire().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("work finished by first [nightly report, run 42]"), "{text}");
    }

    async fn each_of_several_keys_has_it(store) {
        let locks = store.named("first").await.lock_all(["a", "b"]).metadata(JOB);
        let guard = locks.wait(PATIENCE).acquire().await.unwrap();
        for key in ["a", "b"] {
            assert_eq!(holder(store, key).await, of("first", JOB), "{key}");
        }
        guard.release().await.unwrap();
    }

    async fn the_longest_name_and_text_are_whole(store) {
        let name = "n".repeat(128);
        let manager = store.named(&name).await;
        for text in ["x".repeat(256), "é".repeat(128), " a: {b} %1 \\ ' \" ".into()] {
            let guard = manager.lock("k").metadata(&text).wait(PATIENCE).acquire().await.unwrap();
            assert_eq!(holder(store, "k").await, of(&name, &text));
            guard.release().await.unwrap();
        }
        let guard = manager.lock("k").metadata("").wait(PATIENCE).acquire().await.unwrap();
        assert_eq!(holder(store, "k").await, (name, None), "an empty text is none");
        guard.release().await.unwrap();
    }

    async fn another_text_is_cleaned_and_cut(store) {
        let manager = store.named("first").await;
        let (accents, cut) = ("é".repeat(129), "é".repeat(128));
        for (text, seen) in [
            (&*"x".repeat(257), &*"x".repeat(256)),
            (&*accents, &*cut),
            (&*("x".to_owned() + &accents), &*("x".to_owned() + &cut[2..])),
            ("a\nb\u{1f}c\u{202e}d", "a b c d"),
            // Blanks are shorter than what they replace.
            (&*"\u{2028}".repeat(256), &*" ".repeat(256)),
        ] {
            let guard = manager.lock("k").metadata(text).wait(PATIENCE).acquire().await.unwrap();
            assert_eq!(holder(store, "k").await, of("first", seen));
            guard.release().await.unwrap();
        }
    }
}

/// Stores that have semaphores and readers-writer locks.
mod counting {
    use super::*;

    for_each_queueing_store! {
        async fn permits_reads_and_writes_have_it(store) {
            let manager = store.named("first").await;
            let permit = manager.semaphore("s", 2).metadata(JOB).wait(PATIENCE).acquire().await.unwrap();
            assert_eq!(holder(store, "s").await, of("first", JOB));
            let second = manager.semaphore("s", 2).metadata("another").wait(PATIENCE);
            let second = second.acquire().await.unwrap();
            let mut both: Vec<_> = store.inspect("s").await.holders.iter().map(named).collect();
            both.sort();
            assert_eq!(both, [of("first", "another"), of("first", JOB)]);
            permit.release().await.unwrap();
            second.release().await.unwrap();

            let write = manager.rw_lock("rw").metadata(JOB).wait(PATIENCE).write().await.unwrap();
            assert_eq!(holder(store, "rw").await, of("first", JOB));
            let reader = store.named("second").await.rw_lock("rw").metadata("a read");
            let call = tokio::spawn(async move { reader.wait(PATIENCE).read().await });
            store.until_waiting("rw", 1).await;
            assert_eq!(store.inspect("rw").await.waiters[0].client, "second");
            write.release().await.unwrap();
            let read = within(PATIENCE, call).await.unwrap().unwrap();
            assert_eq!(holder(store, "rw").await, of("second", "a read"));
            read.release().await.unwrap();
        }
    }
}

for_redis! {
    /// Clients that do not know metadata read the same record as before.
    async fn a_record_without_metadata_is_as_it_was(store) {
        let manager = store.named("first").await;
        let record = async |metadata: &str| {
            let lock = manager.lock("k").wait(PATIENCE);
            let guard = lock.metadata(metadata).acquire().await.unwrap();
            let reply = store.raw().cmd(&["GET", &store.name("lock", "k")]);
            guard.release().await.unwrap();
            reply.text().unwrap().split(' ').skip(5).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(record("").await, "first");
        assert_eq!(record("job 7").await, "first\u{1f}job 7");
    }
}
