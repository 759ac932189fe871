//! Servers that are no cluster, or not one that can be used.

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisCluster, RedisServer, eventually_async};

use crate::kit::{LONG, connect_patiently, ms, taken_once};

async fn refused(url: String) -> Error {
    let builder = LockManager::builder().url(url).connect_timeout(ms(5_000));
    builder.connect().await.unwrap_err()
}

/// It says so at connect, in words that name the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_cluster_is_told() {
    let single = RedisServer::start();
    let node = || RedisServer::builder().args(["--cluster-enabled", "yes", "--cluster-port", "0"]);
    let fresh = node().start();
    let without = RedisServer::builder().args(["--rename-command", "SSUBSCRIBE", ""]);
    let without = RedisCluster::of(&without, 1, false);
    let guarded = RedisServer::builder().requirepass("right");
    let guarded = RedisCluster::of(&guarded.arg("--masterauth", "right"), 2, false);
    let as_cluster = |server: &RedisServer| server.url().replace("redis://", "redis+cluster://");
    let port = single.port().to_string();
    let cases: [(&str, String, bool, &[&str]); 4] = [
        (
            "a single server",
            as_cluster(&single),
            true,
            &["cluster-enabled", "write redis://", &port],
        ),
        (
            "a cluster that was not created",
            as_cluster(&fresh),
            false,
            &["created"],
        ),
        (
            "no sharded channels",
            without.url(),
            true,
            &["SSUBSCRIBE", "7.0"],
        ),
        (
            "a wrong password",
            guarded.url_of("redis+cluster://:hunter2@"),
            true,
            &["password"],
        ),
    ];
    for (case, url, is_config, words) in cases {
        let error = refused(url).await;
        let is_typed = match &error {
            Error::Config { .. } => is_config,
            Error::Unavailable { outage, .. } => !is_config && *outage == Outage::NotReady,
            _ => false,
        };
        assert!(is_typed, "{case}: {error:?}");
        for word in words {
            assert!(error.to_string().contains(word), "{case}: {error}");
        }
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{case}");
    }
    let right = guarded.url_of("redis+cluster://:right@");
    let right = connect_patiently(right).await.unwrap();
    for key in guarded.key_on_each("k") {
        taken_once(&right, &key).await;
    }
    // A manager that connects in the background says it at its calls.
    let lazy = LockManager::connect_lazy(as_cluster(&single)).unwrap();
    eventually_async(LONG, async || {
        let error = lazy.lock("k").try_acquire().await.unwrap_err();
        error.to_string().contains("write redis://")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_single_server() {
    const SAYS: &str = "write redis+cluster://";
    let cluster = RedisCluster::start(3);
    let keys = cluster.key_on_each("k");
    for node in &cluster.masters {
        let error = refused(node.url()).await;
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains(SAYS), "{error}");
        // One of them has the slot of the key that is tried at the beginning: without the right to INFO that is found later.
        let words = "ACL SETUSER app on nopass ~* &* +@all -info";
        let words: Vec<_> = words.split(' ').collect();
        assert!(!node.client().cmd(&words).is_error());
        let url = format!("redis://app:any@127.0.0.1:{}", node.port());
        match LockManager::connect(url).await {
            Err(error) => assert!(error.to_string().contains(SAYS), "{error}"),
            Ok(manager) => {
                let mut told = 0;
                for key in &keys {
                    let lock = manager.lock(key).wait(LONG);
                    if let Err(error) = lock.run(async |_| ()).await {
                        assert!(error.to_string().contains(SAYS), "{error}");
                        told += 1;
                    }
                }
                assert_eq!(told, 2);
            }
        }
    }
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
