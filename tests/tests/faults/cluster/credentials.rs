//! Credentials from a source, for all nodes of a cluster.

use distlock::Credentials;
use distlock_tests::{RedisCluster, eventually_async};

use crate::credentials::{Vault, add_user, users};
use crate::kit::{LONG, ms, taken_once};

/// Each node is told who we are when it is opened, and again while its connections live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_told_the_credentials_of_the_moment() {
    let cluster = RedisCluster::start(2);
    let keys = cluster.key_on_each("k");
    for node in cluster.nodes() {
        add_user(&mut node.client(), "one", "first");
        add_user(&mut node.client(), "two", "second");
    }
    let vault = Vault::new("one", "first");
    let builder = vault.builder(&cluster.url());
    let manager = builder
        .credentials_every(ms(1_000))
        .connect()
        .await
        .unwrap();
    let guards = [
        manager.lock(&keys[0]).acquire().await.unwrap(),
        manager.lock(&keys[1]).acquire().await.unwrap(),
    ];
    let are = |user: &str| {
        cluster
            .nodes()
            .all(|node| users(&mut node.client()) == [user; 2])
    };
    eventually_async(LONG, async || are("one")).await;
    vault.set(Ok(Credentials::new("two", "second")));
    eventually_async(LONG, async || are("two")).await;
    // Nothing depends on the old one any more, neither what lives nor what is opened.
    for node in cluster.nodes() {
        node.client().cmd(&["ACL", "DELUSER", "one"]);
    }
    assert!(are("two"), "none was cut");
    let asked = vault.asked();
    for (guard, node) in guards.into_iter().zip(cluster.nodes()) {
        assert!(guard.is_held());
        guard.release().await.unwrap();
        for kind in ["normal", "pubsub"] {
            node.client().cmd(&["CLIENT", "KILL", "TYPE", kind]);
        }
    }
    eventually_async(LONG, async || are("two")).await;
    assert!(vault.asked() >= asked + 4, "it was asked for each");
    for key in &keys {
        taken_once(&manager, key).await;
    }
}
