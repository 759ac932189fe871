//! A cluster that is reached over TLS.

use distlock::{LockManager, Tls};
use distlock_tests::{Authority, RedisCluster, RedisServer};

use crate::kit::{LONG, acquire_later, lock_key, ms, until_queued};
use crate::tls::HOST;

/// Nodes among each other speak TLS too, for Redis 7.0 knows the others' TLS ports only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_found_at_their_tls_ports() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = dir.path().join("ca.pem");
    authority.write(&ca);
    let files = authority.sign(HOST, dir.path());
    let node = RedisServer::builder().tls(&ca, &files.certificate, &files.key);
    let cluster = RedisCluster::of(&node.arg("--tls-cluster", "yes"), 3, false);
    let seed = cluster.masters[0].tls_port();
    let url = format!("rediss+cluster://{HOST}:{seed}");
    let connect = async || {
        let builder = LockManager::builder().url(&url);
        let builder = builder.tls(Tls::new().ca_file(&ca));
        builder.connect().await.unwrap()
    };
    let (first, second) = (connect().await, connect().await);
    for (key, node) in cluster.key_on_each("k").iter().zip(&cluster.masters) {
        let mut raw = node.client();
        let guard = first.lock(key).acquire().await.unwrap();
        assert!(raw.exists(&lock_key(key)));
        let waiting = acquire_later(&second, key, ms(3_000), LONG);
        until_queued(&mut raw, key, 1).await;
        guard.release().await.unwrap();
        let (guard, _) = waiting.await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
}
