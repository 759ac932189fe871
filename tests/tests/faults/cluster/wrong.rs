//! Servers that are not a cluster, or not a usable one.

use std::net::TcpListener;

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisCluster, RedisServer};

use crate::support::{
    LONG, assert_config, assert_message_contains, connect_patiently, ms, taken_once,
};

async fn refused(url: String) -> Error {
    let builder = LockManager::builder().connect_timeout(ms(5_000));
    builder.connect(&url).await.unwrap_err()
}

/// `connect` fails, and the error names the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_cluster_is_reported() {
    let fresh = RedisServer::builder().arg("--cluster-enabled", "yes");
    let fresh = fresh.start();
    let error = refused(fresh.url().replace("redis://", "redis+cluster://")).await;
    assert_eq!(error.outage(), Some(Outage::NotReady), "{error:?}");
    assert_message_contains(&error, &["create the cluster"]);

    let guarded = RedisServer::builder().requirepass("right");
    let guarded = RedisCluster::of(&guarded.arg("--masterauth", "right"), 2, false);
    let wrong = guarded.url_of("redis+cluster://:hunter2@");
    // It never replies, so its error comes later and says less.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("{wrong},{}", listener.local_addr().unwrap());
    for url in [wrong, silent] {
        assert_config(&refused(url).await, &["password"]);
    }
    // One node that replies is enough to find the others.
    let dead = RedisServer::start();
    dead.kill();
    let [dead, alive] = [&dead, &guarded.primaries[1]].map(RedisServer::port);
    let hosts = format!("127.0.0.1:{dead},127.0.0.1:{alive}");
    let right = connect_patiently(format!("redis+cluster://:right@{hosts}"));
    let right = right.await.unwrap();
    for key in guarded.key_on_each("k") {
        taken_once(&right, &key).await;
    }
    let error = refused(format!("redis+cluster://127.0.0.1:{dead}")).await;
    assert!(error.is_retryable(), "{error:?}");
    assert_message_contains(&error, &[&dead.to_string()]);
}

/// Without the permission to INFO, a redirect reveals the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_single_server() {
    const SAYS: &[&str] = &["write redis+cluster://"];
    let cluster = RedisCluster::start(3);
    let words = "ACL SETUSER app on nopass ~* &* +@all -info";
    let words: Vec<_> = words.split(' ').collect();
    let mut failed_calls = Vec::new();
    for node in &cluster.primaries {
        assert_message_contains(&refused(node.url()).await, SAYS);
        assert!(!node.client().cmd(&words).is_error());
        let url = format!("redis://app:any@127.0.0.1:{}", node.port());
        let manager = LockManager::connect_lazy(&url).unwrap();
        let mut failed = 0;
        for key in cluster.key_on_each("k") {
            let lock = manager.lock(key).wait(LONG);
            if let Err(error) = lock.run(async |_| Ok::<_, Error>(())).await {
                assert_message_contains(&error, SAYS);
                failed += 1;
            }
        }
        failed_calls.push(failed);
    }
    // One of the nodes has the slot of the key that is tried first.
    failed_calls.sort_unstable();
    assert_eq!(failed_calls, [2, 3, 3]);
}
