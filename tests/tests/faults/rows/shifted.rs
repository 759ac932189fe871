//! A reply that is lost or inserted on a connection that stays open: every later reply reaches the
//! wrong caller. No network does this, but client libraries and proxies have done it.

use std::sync::{Arc, Mutex};

use distlock::__inside::runtime_connections_at_once;
use distlock::{Error, LockManager, LossReason};
use distlock_tests::{After, RedisServer, Resp, within};
use tokio::task::JoinSet;

use crate::support::{LONG, connect, expiry_after_renewal, lock_key, ms, until_clean};

const ROUNDS: usize = 6;
const KEYS: usize = 16;

/// Returns the fencing token of the holder of a key.
fn stored_token(raw: &mut Resp, key: &str) -> Option<u64> {
    let value = raw.cmd(&["GET", &lock_key(key)]);
    value.text()?.split(' ').nth(2)?.parse().ok()
}

/// Runs many callers at once on keys of their own, with one fault in each round. The token of every
/// guard is the stored one.
async fn each_caller_has_its_own(limit: usize, fault: After) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let builder = runtime_connections_at_once(LockManager::builder());
    let manager = builder
        .max_runtime_connections(limit)
        .connect(&server.url_via(&proxy))
        .await
        .unwrap();
    let raw = Arc::new(Mutex::new(server.client()));
    let accepted = proxy.stats().accepted;
    for _ in 0..ROUNDS {
        proxy.swallow_reply_to("distlock:lock:{k", fault);
        let mut calls = JoinSet::new();
        for number in 0..KEYS {
            let (manager, raw) = (manager.clone(), raw.clone());
            calls.spawn(async move {
                let key = format!("k{number}");
                let guard = manager.lock(&*key).wait(LONG).acquire().await.unwrap();
                let token = u64::from(guard.fencing_token());
                let stored = stored_token(&mut raw.lock().unwrap(), &key);
                assert_eq!(
                    stored,
                    Some(token),
                    "`{key}` is held with the token of another call"
                );
                // A hold that was lost with the connection is released nevertheless.
                let _ = guard.release().await;
            });
        }
        within(LONG, calls.join_all()).await;
    }
    let replaced = proxy.stats().accepted - accepted;
    assert!(replaced > 0, "no connection was replaced");
    proxy.heal();
    until_clean(&mut server.client(), LONG).await;
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_lost_or_inserted_reply_no_caller_gets_anothers_hold() {
    let inserted = ["+OK\r\n", "$21\r\nheld 1700000000000000\r\n"].map(After::Inserted);
    for fault in [After::GoOn].into_iter().chain(inserted) {
        for limit in [0, 8] {
            each_caller_has_its_own(limit, fault).await;
        }
    }
}

/// An empty reply means that a whole batch was renewed. Before the reply for a lost hold it would
/// extend that hold, and the reply itself would end another hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inserted_reply_to_a_renewal_extends_nothing_and_ends_no_other_hold() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let manager = connect(&server.url_via(&proxy)).await;
    let lock = |key| manager.lock(key).wait(LONG);
    // Due at different times, so that they are renewed in separate batches.
    let gone = lock("gone").lease(ms(6_000)).acquire().await.unwrap();
    let other = lock("other").lease(ms(9_100)).acquire().await.unwrap();
    let accepted = proxy.stats().accepted;
    raw.cmd(&["DEL", &lock_key("gone")]);
    proxy.swallow_reply_to(&lock_key("gone"), After::Inserted("*0\r\n"));
    let lost = within(LONG, gone.lost()).await;
    let Error::Lost { reason, .. } = &lost else {
        panic!("{lost:?}");
    };
    assert_eq!(*reason, LossReason::Gone);
    expiry_after_renewal(&mut raw, "other").await;
    assert!(other.is_held());
    let replaced = proxy.stats().accepted - accepted;
    assert!(replaced > 0, "no connection was replaced");
    manager.shutdown().await;
}
