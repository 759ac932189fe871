//! A quorum over TLS.

use distlock::LockManager;
use distlock_tests::{CertificateFiles, RedisQuorum, RedisServer};

use crate::quorum::nodes::until_logged;
use crate::quorum::works;
use crate::support::{LONG, assert_config, hold, lock_key};
use crate::tls::{HOST, Trust};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_reached_over_tls() {
    let trust = Trust::new();
    let quorum = RedisQuorum::of([(); 3].map(|()| trust.server().start()));
    quorum.vote("distlock");
    let odd = trust.server_with(&CertificateFiles::self_signed(HOST, trust.dir()));
    let odd = odd.start();
    let builder = LockManager::builder()
        .tls(trust.tls())
        .connect_timeout(LONG);
    let url = |servers: [&RedisServer; 3]| {
        let url = RedisQuorum::url_at(servers.map(RedisServer::tls_port));
        url.replacen("redis", "rediss", 1)
    };
    let [one, two, three] = [0, 1, 2].map(|place| quorum.server(place));
    let all = url([one, two, three]);
    let (first, second) = (
        builder.clone().connect(&all).await,
        builder.clone().connect(&all).await,
    );
    works(&quorum, &first.unwrap(), &second.unwrap()).await;
    // One node cannot prove its identity, so nothing is sent to it and it does not count.
    let with_odd = url([one, two, &odd]);
    let error = builder.clone().connect(&with_odd).await.unwrap_err();
    let named = format!("rediss://{HOST}:{}", odd.tls_port());
    assert_config(&error, &["Tls::ca_file", &named]);
    let lazy = builder.connect_lazy(&with_odd).unwrap();
    let guard = hold(&lazy, "k", LONG).await;
    assert!(one.client().exists(&lock_key("k")));
    guard.release().await.unwrap();
    two.kill();
    until_logged(&lazy, &["Tls::ca_file", &named]).await;
    assert_eq!(odd.client().keys("*"), Vec::<String>::new());
}
