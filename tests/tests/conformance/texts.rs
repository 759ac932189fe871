//! The texts of errors: what happened, to which key, and the remedy.

use distlock::{Error, LockManager};

use crate::fixture::{PATIENCE, ms};

/// If a process waits for its own hold, the error names the possible self-deadlock.
#[tokio::test]
async fn a_possible_self_deadlock_is_named() {
    let manager = LockManager::in_memory();
    let _held = manager.lock("k").acquire().await.unwrap();
    let error = manager.lock("k").wait(ms(50)).acquire().await.unwrap_err();
    let message = error.to_string();
    for part in [
        "`k`",
        "waited",
        "(this process",
        "call tree",
        "release first",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert!(!message.contains("longer wait"), "{message}");
}

/// Holders that share a lock are listed once for each client. Permits of this process are no sign
/// of a self-deadlock.
#[tokio::test]
async fn the_holders_of_permits_are_listed_once() {
    let builder = LockManager::builder().client_name("web-1");
    let manager = builder.in_memory().unwrap();
    let exports = manager.semaphore("exports", 3).wait(ms(50));
    let mut held = Vec::new();
    for listed in ["held by web-1 for", " (2 holds); "] {
        held.push(exports.acquire_many(1).await.unwrap());
        let error = exports.acquire_many(3).await.unwrap_err();
        let message = error.to_string();
        for part in ["lock `exports`", listed, "allow a longer wait"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert_eq!(message.matches("web-1").count(), 1, "{message}");
        for hint in ["this process", "call tree", "deadlock"] {
            assert!(!message.contains(hint), "{hint} is in {message}");
        }
    }
}

/// If a call tree waits while it holds another key, the error names that key and the remedy.
#[tokio::test]
async fn a_possible_deadlock_of_two_keys_is_named() {
    let manager = LockManager::in_memory();
    let _held = manager.lock("b").acquire().await.unwrap();
    let lock = manager.lock("a");
    let nested = lock.run(async |_| {
        let once = manager.lock("b").try_acquire().await?;
        assert!(once.is_none());
        // `{a}` is the same lock, and is named once.
        let again = manager.lock("{a}");
        again
            .run(async |_| manager.lock("b").wait(ms(50)).acquire().await)
            .await
    });
    let error = nested.await.unwrap_err();
    let Error::Busy { held_keys, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(held_keys[..], ["a"]);
    let message = error.to_string();
    for part in ["lock `b`", "held `a` meanwhile", "`lock_all`"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

/// The code that uses a guard cannot be stopped.
#[tokio::test]
async fn a_guards_loss_claims_no_stopped_body() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("k").max_hold(ms(50)).acquire().await.unwrap();
    let limit = guard.lost().await;
    let other = manager.lock("other").acquire().await.unwrap();
    manager.shutdown().await;
    let shut = other.lost().await;
    assert!(limit.is_lost() && shut.is_lost(), "{limit:?}, {shut:?}");
    for error in [limit, shut] {
        let message = error.to_string();
        assert!(!message.contains("was stopped"), "{message}");
        assert!(message.contains("check for partial effects"), "{message}");
    }
}

/// A call waits by the manager's clock, which is not paused.
#[tokio::test]
async fn paused_time_ends_no_wait() {
    let manager = LockManager::in_memory();
    let held = manager.lock("k").acquire().await.unwrap();
    tokio::time::pause();
    let waiting = manager.lock("k").wait(PATIENCE);
    let gives_way = async {
        while manager.inspect("k").await.unwrap().queue_length == 0 {}
        held.release().await.unwrap();
    };
    let (acquired, ()) = tokio::join!(waiting.acquire(), gives_way);
    acquired.unwrap().release().await.unwrap();
}
