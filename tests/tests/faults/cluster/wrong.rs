//! Servers that are no cluster, or not one that can be used.

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisCluster, RedisServer, eventually_async};

use crate::kit::{LONG, connect_patiently, ms};

async fn refused(url: String) -> Error {
    let builder = LockManager::builder().url(url).connect_timeout(ms(5_000));
    builder.connect().await.unwrap_err()
}

fn is_config(error: &Error, words: &[&str]) {
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_is_no_cluster() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "redis+cluster://");
    let error = refused(url.clone()).await;
    let port = server.port().to_string();
    is_config(&error, &["cluster-enabled", "write redis://", &port]);
    let manager = LockManager::connect_lazy(url).unwrap();
    eventually_async(LONG, async || {
        let error = manager.lock("k").try_acquire().await.unwrap_err();
        error.to_string().contains("write redis://")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    for node in &cluster.masters {
        is_config(&refused(node.url()).await, &["write redis+cluster://"]);
        // One of them has the slot of the key that is tried at the beginning: without the right to INFO that is found later.
        let mut raw = node.client();
        raw.cmd(&[
            "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info",
        ]);
        let url = format!("redis://app:any@127.0.0.1:{}", node.port());
        match LockManager::connect(url).await {
            Err(error) => is_config(&error, &["write redis+cluster://"]),
            Ok(manager) => {
                let mut told = 0;
                for key in &keys {
                    match manager.lock(key).wait(LONG).acquire().await {
                        Ok(guard) => guard.release().await.unwrap(),
                        Err(error) => {
                            let said = error.to_string();
                            assert!(said.contains("write redis+cluster://"), "{error}");
                            told += 1;
                        }
                    }
                }
                assert_eq!(told, 2);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_was_not_created_is_told() {
    let node = RedisServer::builder().arg("--cluster-enabled", "yes");
    let node = node.arg("--cluster-port", "0").start();
    let error = refused(node.url().replace("redis://", "redis+cluster://")).await;
    let is_told = matches!(
        error,
        Error::Unavailable {
            outage: Outage::NotReady,
            ..
        }
    );
    assert!(is_told, "{error:?}");
    assert!(error.to_string().contains("created"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_sharded_channels_are_told() {
    let node = RedisServer::builder().args(["--rename-command", "SSUBSCRIBE", ""]);
    let cluster = RedisCluster::of(&node, 1, false);
    is_config(&refused(cluster.url()).await, &["SSUBSCRIBE", "7.0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_answers_is_enough() {
    let cluster = RedisCluster::start(2);
    let nobody = distlock_tests::RedisServer::start();
    nobody.kill();
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        nobody.port(),
        cluster.masters[1].port()
    );
    let manager = connect_patiently(url).await.unwrap();
    for key in cluster.key_on_each("k") {
        let guard = manager.lock(&key).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let url = format!("redis+cluster://127.0.0.1:{}", nobody.port());
    let error = refused(url).await;
    let port = nobody.port().to_string();
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains(&port), "{error}");
}

/// A password that is wrong is told, and not shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_told() {
    let node = RedisServer::builder()
        .requirepass("right")
        .arg("--masterauth", "right");
    let cluster = RedisCluster::of(&node, 2, false);
    let error = refused(cluster.url_of("redis+cluster://:hunter2@")).await;
    is_config(&error, &["password"]);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let manager = connect_patiently(cluster.url_of("redis+cluster://:right@"));
    let manager = manager.await.unwrap();
    for key in cluster.key_on_each("k") {
        let guard = manager.lock(&key).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}
