//! Keys and durations that cannot work are rejected before any command is sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Error, Lock, LockManager};

use crate::fixture::{SOON, ms, take};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the error of each way to use a lock. None of them may run the body.
async fn refusals(lock: &Lock) -> [Error; 3] {
    let ran = AtomicBool::new(false);
    let run = lock
        .run(async |_| {
            ran.store(true, Ordering::SeqCst);
            Ok::<_, Error>(())
        })
        .await;
    assert!(!ran.load(Ordering::SeqCst), "it ran unlocked");
    [
        lock.acquire().await.unwrap_err(),
        lock.try_acquire().await.unwrap_err(),
        run.unwrap_err(),
    ]
}

async fn assert_invalid_key(manager: &LockManager, key: &str, remedy: &str) {
    let mut errors = Vec::from(refusals(&manager.lock(key)).await);
    errors.push(manager.inspect(key).await.unwrap_err());
    for error in errors {
        let message = error.to_string();
        assert!(message.contains(remedy), "{message}");
        assert!(message.chars().all(|c| !c.is_control()), "{message:?}");
        assert!(message.len() < 500, "{message}");
        assert!(!error.is_retryable() && !error.is_busy() && !error.is_lost());
        match error {
            Error::InvalidKey { key: named, .. } => {
                let start: String = key.chars().take(20).collect();
                assert!(
                    named.starts_with(&*start.escape_debug().to_string()),
                    "{named}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn assert_config(lock: &Lock, remedy: &str) {
    for error in refusals(lock).await {
        let message = error.to_string();
        assert!(
            message.contains("`k`") && message.contains(remedy),
            "{message}"
        );
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }
}

for_each_store! {
    async fn keys_that_name_no_lock(store) {
        let manager = store.manager().await;
        assert_invalid_key(&manager, "", "name what the lock protects").await;
        assert_invalid_key(&manager, &"x".repeat(513), "at most 512").await;
        assert_invalid_key(&manager, &"é".repeat(300), "600 bytes").await;
        assert_invalid_key(&manager, "a\nb", "control character").await;
        assert_invalid_key(&manager, "a\0b", "control character").await;
        assert_invalid_key(&manager, "a{", "hash tag").await;
        assert_invalid_key(&manager, "{}", "hash tag").await;
        assert_invalid_key(&manager, "{a}{b}", "hash tag").await;
        if store.is_redis() {
            assert_eq!(store.keys(), Vec::<String>::new(), "a command was sent");
        }
    }

    async fn keys_at_the_edge_are_locks(store) {
        let manager = store.manager().await;
        let long = "x".repeat(512);
        let tricky = [
            long.as_str(),
            "k",
            " ",
            "with space",
            "*",
            "[a-z]?",
            "\\",
            "\"'",
            "%25",
            "日本語",
            "a:b:c",
            "k:1",
            "{tenant:7}:stock",
            "--",
        ];
        let mut guards = Vec::new();
        for key in tricky {
            let guard = manager.lock(key).acquire().await.unwrap();
            assert_eq!(guard.key(), key);
            assert!(store.inspect(key).await.holders.len() == 1);
            guards.push(guard);
        }
        // A hand-off names such a key correctly too.
        for (key, guard) in tricky.into_iter().zip(guards) {
            let waiter = store.waiter(key).await;
            guard.release().await.unwrap();
            waiter.guard().await.release().await.unwrap();
        }
    }

    async fn durations_out_of_bounds(store) {
        let manager = store.manager().await;
        let lock = || manager.lock("k");
        assert_config(&lock().lease(ms(49)), "at least 50ms").await;
        assert_config(&lock().lease(Duration::ZERO), "at least 50ms").await;
        assert_config(&lock().lease(DAY + ms(1)), "at most 24h").await;
        assert_config(&lock().lease(Duration::from_secs(25 * 3_600)), "at most 24h").await;
        assert_config(&lock().lease(Duration::MAX), "at most 24h").await;
        assert_config(&lock().max_hold(Duration::ZERO), "max_hold").await;
        assert_config(&lock().min_hold(DAY + ms(1)), "at most 24h").await;
        assert_config(&lock().min_hold(ms(600)).max_hold(ms(500)), "max_hold of 500ms").await;
        assert_config(&lock().min_hold(ms(600)).wait(ms(600)), "less than the min_hold of 600ms").await;
        assert_config(&lock().wait(DAY).min_hold(ms(600)), "less than the min_hold of 600ms").await;
        for wait in [DAY + ms(1), Duration::from_secs(25 * 3_600), Duration::MAX] {
            let error = lock().wait(wait).acquire().await.unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{error:?}");
            let message = error.to_string();
            assert!(message.contains("`k`") && message.contains("at most 24h"), "{message}");
        }
        if store.is_redis() {
            assert_eq!(store.keys(), Vec::<String>::new(), "a command was sent");
        }
    }

    async fn durations_at_the_edge(store) {
        let manager = store.manager().await;
        let edges = [
            manager.lock("once").wait(Duration::ZERO),
            manager.lock("longest").lease(DAY).wait(DAY).min_hold(Duration::ZERO),
            manager.lock("unlimited").max_hold(Duration::MAX),
        ];
        for lock in edges {
            take(lock.clone()).await;
            store.until_free(lock.key(), SOON).await;
        }
        // A busy machine may need a second attempt, and lose these holds before it releases them.
        for lease in [50_000_000, 50_000_001].map(Duration::from_nanos) {
            let shortest = manager.lock("shortest").lease(lease);
            drop(shortest.acquire().await.unwrap());
            store.until_free("shortest", SOON).await;
        }
        // `min_hold` is rounded up to a millisecond, never down to zero.
        take(manager.lock("short").min_hold(Duration::from_nanos(1))).await;
        store.until_free("short", SOON).await;
    }

    async fn names_that_cannot_work(store) {
        let space = "x".repeat(65);
        let bad = [
            (store.builder().namespace(""), "namespace"),
            (store.builder().namespace("a b"), "namespace"),
            (store.builder().namespace("{a}"), "namespace"),
            (store.builder().namespace(space), "namespace"),
            (store.builder().connect_timeout(Duration::ZERO), "timeout"),
            (store.builder().fence_ttl(ms(59_999)), "fence TTL is 59.999s"),
            (store.builder().fence_ttl(Duration::from_secs(366 * 86_400 + 1)), "fence TTL"),
            (store.builder().fence_ttl(Duration::MAX), "fence TTL"),
        ];
        // `tests/inside/urls.rs` tests all other invalid URLs.
        let nowhere = [
            ("memory", store.builder(), "redis://"),
            ("memory:", store.builder().min_replicas(1), "`min_replicas`"),
        ];
        let bad = bad.map(|(builder, what)| (&*store.url, builder, what));
        for (url, builder, what) in bad.into_iter().chain(nowhere) {
            let error = builder.connect(url).await.unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{error:?}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    /// A client name may contain spaces, because it is the last field everywhere.
    async fn a_client_name_is_cleaned_and_cut(store) {
        let id = std::process::id().to_string();
        let (long, cut) = ("é".repeat(64) + "xy", "é".repeat(64));
        for (name, shown) in [
            ("checkout 3 (blue) %s", "checkout 3 (blue) %s"),
            ("a\nb\u{1f}c\u{202e}d", "a b c d"),
            (&*long, &*cut),
            (&*(long.clone() + "é"), &*cut),
            (&*("x".to_owned() + &long), &*("x".to_owned() + &cut[2..])),
            // The default.
            ("", &*id),
            ("\t", &*id),
        ] {
            let manager = store.named(name).await;
            let guard = manager.lock("k").wait(SOON).acquire().await.unwrap();
            let client = store.inspect("k").await.holders[0].client.clone();
            assert!(client == shown || client.ends_with(&format!(":{shown}")), "{name:?}: {client}");
            guard.release().await.unwrap();
        }
    }
}
