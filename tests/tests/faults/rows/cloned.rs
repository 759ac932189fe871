//! A machine that is cloned while it runs, such as a snapshot that is started twice. All clones
//! have the same memory, and so the same name in the store. A client with nothing there takes
//! another name with its next connection. Clones so do not take each other's locks for their own.

use distlock::Error;
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::support::{LONG, acquire_later, connect, ms, take, until_queued};

/// Returns the names under which clients are subscribed.
fn listening(raw: &mut Resp) -> Vec<String> {
    let channels = raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    let name = |channel: &distlock_tests::Reply| channel.text().unwrap().to_owned();
    channels.array().iter().map(name).collect()
}

/// Closes the subscribed connection, as in a clone, and returns the names after the new one.
async fn reconnected(raw: &mut Resp) -> Vec<String> {
    let subscriber = |raw: &mut Resp| {
        let list = raw.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.text().unwrap_or_default().to_owned()
    };
    let old = subscriber(raw);
    let id = old.split_whitespace().next().expect("a subscriber");
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually_async(LONG, async || {
        let now = subscriber(raw);
        !now.is_empty() && !now.contains(&format!("{id} "))
    })
    .await;
    listening(raw)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_data_takes_a_new_id() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lock = manager.lock("k").lease(ms(5_000)).wait(LONG);
    take(lock.clone()).await;
    let first = listening(&mut raw);
    let second = reconnected(&mut raw).await;
    assert_ne!(first, second, "the same name again");
    // Under the new name, everything works.
    let held = lock.acquire().await.unwrap();
    let value = raw.get("distlock:lock:{k}").unwrap();
    let name = second[0].strip_prefix("distlock:client:").unwrap();
    assert!(
        value.starts_with(&format!("2 {name}:")),
        "{value} is not of {name}"
    );
    let waiting = acquire_later(&manager, "k", ms(5_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    // A hold and a waiter use the name, so the client keeps it.
    assert_eq!(reconnected(&mut raw).await, second);
    assert!(held.is_held());
    held.release().await.unwrap();
    let next = within(LONG, waiting).await.unwrap().0.unwrap();
    next.release().await.unwrap();
}

/// The key may outlive the hold, and its release needs the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_has_ended_keeps_the_client_name() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lock = manager.lock("k").lease(LONG * 3).max_hold(ms(200));
    let guard = lock.acquire().await.unwrap();
    let name = listening(&mut raw);
    assert!(matches!(guard.lost().await, Error::MaxHoldExceeded { .. }));
    assert_eq!(reconnected(&mut raw).await, name);
    assert!(raw.exists("distlock:lock:{k}"));
    assert!(guard.release().await.is_err());
    assert!(!raw.exists("distlock:lock:{k}"), "the lock was not deleted");
}
