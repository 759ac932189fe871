//! Permissions that are missing in the middle of a script, and credentials that change while a lock
//! is held.

use std::time::Instant;

use distlock::Outage;
use distlock_tests::{RedisServer, Reply, Resp, eventually_async, within};

use crate::support::{
    HELD, LONG, SLACK, connect_patiently, leftovers, until_clean, until_renewed_twice, warm,
};

const PLACES: &[&str] = &["~*", "&*", "+@all"];

/// Changes the user that takes the locks; everything else runs as another user.
fn set_user(raw: &mut Resp, rules: &[&str]) {
    let words = [&["ACL", "SETUSER", "app"], rules].concat();
    assert_eq!(raw.cmd(&words), Reply::Status("OK".into()), "{words:?}");
}

fn url(server: &RedisServer, password: &str) -> String {
    format!("redis://app:{password}@127.0.0.1:{}", server.port())
}

/// A command that a script needs is denied. The commands before it have changed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_fails_half_way_leaves_no_lock() {
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    for denied in [
        "time", "get", "mget", "set", "zcard", "exists", "pexpire", "zadd", "hset", "evalsha",
    ] {
        set_user(&mut raw, &[&["reset", "on", ">secret"], PLACES].concat());
        let manager = connect_patiently(url(&server, "secret")).await.unwrap();
        set_user(&mut raw, &[&format!("-{denied}")]);
        let taken = manager.lock("taken").try_acquire().await;
        // No lock is half taken, whether a free lock needs the command or only a waiter.
        match &taken {
            Ok(guard) => assert!(guard.as_ref().is_some_and(|guard| guard.is_held())),
            Err(error) => {
                assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
                assert!(
                    error.to_string().contains("permissions"),
                    "{denied}: {error}"
                );
                let left = leftovers(&mut raw);
                assert_eq!(left, Vec::<String>::new(), "without {denied}");
            }
        }
        let free = taken.is_err();
        set_user(&mut raw, &[&format!("+{denied}")]);
        drop(taken);
        until_clean(&mut raw, LONG).await;
        if matches!(denied, "time" | "mget" | "set" | "evalsha") {
            assert!(free, "{denied} is not needed to take a lock");
        }
        manager.shutdown().await;
    }
}

/// With a new password or without the user, live connections go on, and lost ones are not retried
/// forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_change_while_a_lock_is_held() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let create = [&["reset", "on", ">secret"], PLACES].concat();
    for delete in [false, true] {
        set_user(&mut raw, &create);
        let manager = connect_patiently(url(&server, "secret")).await.unwrap();
        let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
        if delete {
            // The server closes the user's connections.
            assert_eq!(raw.cmd(&["ACL", "DELUSER", "app"]).int(), 1);
        } else {
            set_user(&mut raw, &["resetpass", ">secret-2"]);
            // Live connections do not authenticate again.
            until_renewed_twice(&guard).await;
            for kind in ["normal", "pubsub"] {
                raw.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
            }
        }
        let refused = Instant::now();
        let error = within(LONG, guard.lost()).await;
        assert!(error.is_lost(), "{error:?}");
        let delay = refused.elapsed();
        assert!(delay < HELD + SLACK, "notified after {delay:?}");
        let (requested_at, lock) = (Instant::now(), manager.lock("other").wait(LONG));
        let error = lock.acquire().await.unwrap_err();
        assert!(
            requested_at.elapsed() < LONG / 2,
            "{:?}",
            requested_at.elapsed()
        );
        assert!(!error.is_retryable(), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(error.outage(), Some(Outage::Denied), "{error:?}");
        // The old credentials are right again, and the manager recovers by itself.
        set_user(&mut raw, &create);
        let again = manager.lock("k").lease(HELD).wait(LONG);
        eventually_async(LONG, async || again.acquire().await.is_ok()).await;
        drop(guard);
        manager.shutdown().await;
        until_clean(&mut raw, LONG).await;
    }
}
