//! A cluster over TLS.

use distlock::LockManager;
use distlock_tests::RedisCluster;

use crate::support::{LONG, acquire_later, hand_on, hold, lock_key, ms, until_queued};
use crate::tls::{HOST, Trust};

/// The nodes use TLS among each other, because Redis 7.0 knows other nodes' TLS ports only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_found_at_their_tls_ports() {
    let trust = Trust::new();
    let cluster = RedisCluster::of(&trust.server().arg("--tls-cluster", "yes"), 3, false);
    let url = format!(
        "rediss+cluster://{HOST}:{}",
        cluster.primaries[0].tls_port()
    );
    let connect = async || {
        let builder = LockManager::builder().tls(trust.tls());
        builder.connect(&url).await.unwrap()
    };
    let (first, second) = (connect().await, connect().await);
    for (key, node) in cluster.key_on_each("k").iter().zip(&cluster.primaries) {
        let mut raw = node.client();
        let guard = hold(&first, key, LONG).await;
        assert!(raw.exists(&lock_key(key)));
        let waiting = acquire_later(&second, key, ms(3_000), LONG);
        until_queued(&mut raw, key, 1).await;
        hand_on(guard, waiting, &mut raw).await;
    }
}
