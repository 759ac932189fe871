//! Values that distlock did not write are reported, and left unchanged.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::Resp;

use crate::fixture::{PATIENCE, SOON, take};

/// Writes a foreign value to a key of a lock, and returns a dump of it.
fn spoil(raw: &mut Resp, name: &str, value: &[&str]) -> String {
    let mut words = vec![value[0], name];
    words.extend(&value[1..]);
    let reply = raw.cmd(&words);
    assert!(!reply.is_error(), "{reply:?}");
    dump(raw, name)
}

fn dump(raw: &mut Resp, name: &str) -> String {
    let kind = raw.cmd(&["TYPE", name]);
    let value = match kind.text() {
        Some("string") => raw.cmd(&["GET", name]),
        Some("list") => raw.cmd(&["LRANGE", name, "0", "-1"]),
        Some("hash") => raw.cmd(&["HGETALL", name]),
        _ => raw.cmd(&["ZRANGE", name, "0", "-1"]),
    };
    format!("{kind:?} {value:?} {}", raw.pttl(name))
}

async fn assert_foreign(manager: &LockManager, waits: bool) {
    let lock = manager
        .lock("k")
        .wait(if waits { PATIENCE } else { Duration::ZERO });
    let started = Instant::now();
    let error = lock.acquire().await.unwrap_err();
    assert!(
        started.elapsed() < PATIENCE / 2,
        "it waited for a foreign key"
    );
    assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
    assert_eq!(error.key(), Some("k"));
    let message = error.to_string();
    // The lock, the keys in Redis to check, and the remedy.
    for words in [
        "lock `k`",
        ":lock:{k}`",
        ":fence:{k}`",
        "remove the conflicting key",
    ] {
        assert!(message.contains(words), "no {words:?} in {message}");
    }
    assert!(!error.is_retryable() && !error.is_busy());
}

for_redis! {
    async fn a_foreign_value_at_the_locks_key(fixture) {
        let manager = fixture.manager().await;
        let name = fixture.name("lock", "k");
        let mut raw = fixture.raw();
        let values: [&[&str]; 8] = [
            &["SET", "foreign"],
            &["SET", ""],
            &["SET", "42"],
            &["SET", "2 xyz:1 2 3 4 name"],
            &["SET", "2 ab:x 2 3 4 name"],
            &["SET", "foreign", "PX", "155555555"],
            &["HSET", "field", "value"],
            &["RPUSH", "a", "b"],
        ];
        for value in values {
            let mut before = spoil(&mut raw, &name, value);
            assert_foreign(&manager, true).await;
            assert_foreign(&manager, false).await;
            assert!(manager.lock("k").try_acquire().await.is_err());
            let error = manager.inspect("k").await.unwrap_err();
            assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
            let mut after = dump(&mut raw, &name);
            if value.len() == 4 {
                // Only the remaining TTL may differ.
                before.truncate(before.len() - 8);
                after.truncate(before.len());
            }
            assert_eq!(before, after);
            raw.cmd(&["DEL", &name]);
        }
        assert_eq!(fixture.left_over(), Vec::<String>::new(), "a queue is not empty");
        take(manager.lock("k")).await;
    }

    /// A foreign value that appears while calls wait ends their waits with an error.
    async fn a_foreign_value_ends_waits(fixture) {
        let name = fixture.name("lock", "k");
        for value in [["SET", "foreign"], ["RPUSH", "foreign"]] {
            let guard = fixture.hold("k").await;
            let waiter = fixture.waiter("k").await;
            let mut raw = fixture.raw();
            raw.cmd(&["DEL", &name]);
            // If the waiter acquires the lock first, there is nothing to test.
            if raw.cmd(&["EXISTS", &name]).int() == 0 {
                raw.cmd(&["MULTI"]);
                raw.cmd(&["DEL", &name]);
                raw.cmd(&[value[0], &name, value[1]]);
                raw.cmd(&["EXEC"]);
            }
            let error = distlock_tests::within(PATIENCE / 2, waiter.0).await.unwrap().unwrap_err();
            assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
            drop(guard);
            raw.cmd(&["DEL", &name]);
            fixture.until_free("k", SOON).await;
        }
    }

    async fn a_wrong_type_at_the_other_keys(fixture) {
        let manager = fixture.manager().await;
        let mut raw = fixture.raw();
        let values: [(&str, &[&str]); 7] = [
            ("queue", &["SET", "foreign"]),
            ("queue", &["RPUSH", "a"]),
            ("fence", &["RPUSH", "a"]),
            ("fence", &["SET", "not a number"]),
            ("fence", &["SET", ""]),
            // As long as a token, and below the server's time as texts.
            ("fence", &["SET", "1 foreign value!"]),
            ("fence", &["SET", "----------------"]),
        ];
        for (kind, value) in values {
            let name = fixture.name(kind, "k");
            let before = spoil(&mut raw, &name, value);
            assert_foreign(&manager, true).await;
            assert_foreign(&manager, false).await;
            let error = manager.inspect("k").await.unwrap_err();
            assert!(matches!(error, Error::KeyConflict { .. }), "{value:?}: {error:?}");
            assert_eq!(before, dump(&mut raw, &name));
            assert!(!raw.exists(&fixture.name("lock", "k")), "it was taken all the same");
            raw.cmd(&["DEL", &name]);
            take(manager.lock("k")).await;
            raw.cmd(&["DEL", &fixture.name("fence", "k")]);
        }
    }

    /// The entries are read only for waiters.
    async fn a_wrong_type_at_the_entries(fixture) {
        let manager = fixture.manager().await;
        let mut raw = fixture.raw();
        let name = fixture.name("entry", "k");
        let guard = fixture.hold("k").await;
        let before = spoil(&mut raw, &name, &["SET", "foreign"]);
        assert_foreign(&manager, true).await;
        assert_eq!(before, dump(&mut raw, &name));
        guard.release().await.unwrap();
        assert!(!raw.exists(&fixture.name("lock", "k")), "it could not be released");
    }
}
