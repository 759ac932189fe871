//! Servers that are no cluster, or not one that can be used.

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisCluster, RedisServer};

use crate::kit::{LONG, connect_patiently, ms, taken_once};

async fn refused(url: String) -> Error {
    let builder = LockManager::builder().url(url).connect_timeout(ms(5_000));
    builder.connect().await.unwrap_err()
}

fn assert_says(case: &str, error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "{case}: {error}");
    }
}

/// It says so at connect, in words that name the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_cannot_be_used_is_told() {
    let fresh = RedisServer::builder().args(["--cluster-enabled", "yes", "--cluster-port", "0"]);
    let fresh = fresh.start();
    let error = refused(fresh.url().replace("redis://", "redis+cluster://")).await;
    let is_typed =
        matches!(&error, Error::Unavailable { outage, .. } if *outage == Outage::NotReady);
    assert!(is_typed, "{error:?}");
    assert_says("a cluster that was not created", &error, &["created"]);

    let old = RedisServer::builder().args(["--rename-command", "SSUBSCRIBE", ""]);
    let old = RedisCluster::of(&old, 1, false);
    let guarded = RedisServer::builder().requirepass("right");
    let guarded = RedisCluster::of(&guarded.arg("--masterauth", "right"), 2, false);
    let wrong = guarded.url_of("redis+cluster://:hunter2@");
    for (case, url, words) in [
        ("old servers", old.url(), &["SSUBSCRIBE", "7.0"][..]),
        ("a wrong password", wrong, &["password"]),
    ] {
        let error = refused(url).await;
        assert!(matches!(error, Error::Config { .. }), "{case}: {error:?}");
        assert_says(case, &error, words);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{case}");
    }
    let right = guarded.url_of("redis+cluster://:right@");
    let right = connect_patiently(right).await.unwrap();
    for key in guarded.key_on_each("k") {
        taken_once(&right, &key).await;
    }
}

/// Without the right to INFO the nodes that do not have the slot of the key that is tried at the beginning say it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_single_server() {
    const SAYS: &[&str] = &["write redis+cluster://"];
    let cluster = RedisCluster::start(3);
    let words = "ACL SETUSER app on nopass ~* &* +@all -info";
    let words: Vec<_> = words.split(' ').collect();
    let mut connected = 0;
    for node in &cluster.masters {
        assert_says("at connect", &refused(node.url()).await, SAYS);
        assert!(!node.client().cmd(&words).is_error());
        let url = format!("redis://app:any@127.0.0.1:{}", node.port());
        let manager = match LockManager::connect(url).await {
            Err(error) => {
                assert_says("without INFO", &error, SAYS);
                continue;
            }
            Ok(manager) => manager,
        };
        connected += 1;
        let mut told = 0;
        for key in cluster.key_on_each("k") {
            let lock = manager.lock(key).wait(LONG);
            if let Err(error) = lock.run(async |_| ()).await {
                assert_says("at a call", &error, SAYS);
                told += 1;
            }
        }
        assert_eq!(told, 2);
    }
    assert_eq!(connected, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_answers_is_enough() {
    let cluster = RedisCluster::start(2);
    let nobody = RedisServer::start();
    nobody.kill();
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{}",
        nobody.port(),
        cluster.masters[1].port()
    );
    let manager = connect_patiently(url).await.unwrap();
    for key in cluster.key_on_each("k") {
        taken_once(&manager, &key).await;
    }
    let url = format!("redis+cluster://127.0.0.1:{}", nobody.port());
    let error = refused(url).await;
    let port = nobody.port().to_string();
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains(&port), "{error}");
}
