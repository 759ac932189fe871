//! Servers allowed as nodes: one per name, and no replica.

use distlock::{Error, LockManager};
use distlock_tests::{RedisQuorum, RedisServer, eventually_async, within};

use crate::quorum::{serves, three, until_clean, until_clean_at};
use crate::replicas::{primary, replica_of};
use crate::support::{LONG, connect_patiently, ms, ok, taken_once};

/// Panics unless `connect` rejects these nodes at once.
pub(super) async fn is_refused(url: &str, part: &str) {
    let error = within(LONG, connect_patiently(url)).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(part), "{message}");
}

/// Waits until acquires fail because two nodes cannot be used, and the error contains all
/// `parts`.
pub(crate) async fn until_logged(manager: &LockManager, parts: &[&str]) {
    eventually_async(LONG, async || {
        let tried = manager.lock("k").wait(ms(100)).acquire().await;
        let message = tried.unwrap_err().to_string();
        message.contains("1 of 3 servers usable") && parts.iter().all(|part| message.contains(part))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_server_are_refused() {
    let quorum = RedisQuorum::start(2);
    quorum.vote("distlock");
    let port = quorum.server(0).port();
    let url = format!("{},localhost:{port}", quorum.url());
    is_refused(&url, "the same server as redis://").await;
    // A lazy manager counts this server once, so it needs the other server.
    let manager = LockManager::connect_lazy(&url).unwrap();
    serves(&manager).await;
    quorum.server(1).kill();
    until_logged(&manager, &["the same server as redis://"]).await;
    until_clean_at(&quorum, 0).await;
}

/// The same is detected later if one node was down at connect, or if its name has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_later_resolves_to_another_node_does_not_count() {
    for was_down in [false, true] {
        let quorum = three();
        let [first, second, third] = [0, 1, 2].map(|place| quorum.server(place));
        let proxy = third.proxy();
        if was_down {
            proxy.move_to(first.addr());
            proxy.refuse_connections(true);
        }
        let url = RedisQuorum::url_at([first.port(), second.port(), proxy.port()]);
        let manager = connect_patiently(url).await.unwrap();
        serves(&manager).await;
        if was_down {
            proxy.refuse_connections(false);
        } else {
            proxy.move_to(first.addr());
            proxy.reset_connections();
        }
        second.kill();
        until_logged(&manager, &["the same server as redis://", "refused"]).await;
        // The name counts again once it reaches a server of its own.
        proxy.move_to(third.addr());
        serves(&manager).await;
        until_clean(&quorum).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused() {
    let (first, second) = (primary(), RedisServer::start());
    let replica = replica_of(&first).await;
    let mut raw = replica.client();
    ok(&mut raw, &["CONFIG", "SET", "replica-read-only", "no"]);
    let url = RedisQuorum::url_at([&first, &second, &replica].map(RedisServer::port));
    is_refused(&url, "is a replica").await;
    // The same server, once it is no longer a replica.
    let manager = LockManager::connect_lazy(&url).unwrap();
    second.stop_process();
    let address = format!("127.0.0.1:{}", replica.port());
    until_logged(&manager, &["is a replica", &address]).await;
    second.cont_process();
    ok(&mut raw, &["REPLICAOF", "NO", "ONE"]);
    within(LONG, connect_patiently(&url)).await.unwrap();
}

/// A node that becomes a replica while in use does not count from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_becomes_a_replica_does_not_count() {
    let quorum = three();
    let manager = connect_patiently(quorum.url()).await.unwrap();
    taken_once(&manager, "k").await;
    let port = quorum.server(0).port().to_string();
    let mut raw = quorum.server(2).client();
    raw.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    serves(&manager).await;
    quorum.server(1).kill();
    until_logged(&manager, &["is a replica", "refused"]).await;
    raw.cmd(&["REPLICAOF", "NO", "ONE"]);
    quorum.vote_at(2, "distlock");
    serves(&manager).await;
    until_clean(&quorum).await;
}
