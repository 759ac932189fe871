//! Sentinels and servers that are reached over TLS.

use distlock::{LockManager, Tls};
use distlock_tests::sentinel::Sentinels;
use distlock_tests::{Authority, RedisServer};

use crate::kit::{LONG, ms, taken_once};
use crate::tls::HOST;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = dir.path().join("ca.pem");
    authority.write(&ca);
    let files = authority.sign(HOST, dir.path());
    let server = RedisServer::builder().tls(&ca, &files.certificate, &files.key);
    let all = Sentinels::of(&server, &server.clone().sentinel());
    let url = all.url_of("rediss+sentinel://", Sentinels::SERVICE);
    let builder = LockManager::builder()
        .url(&url)
        .tls(Tls::new().ca_file(&ca));
    let manager = builder.connect().await.unwrap();
    taken_once(&manager, "before").await;
    all.servers[0].kill();
    let guard = manager
        .lock("after")
        .wait(LONG * 3)
        .acquire()
        .await
        .unwrap();
    let new = all.until_another(&all.servers[0]);
    assert!(new.client().exists("distlock:lock:{after}"));
    guard.release().await.unwrap();

    // Nobody who is not trusted names the master, and the setting is told.
    let strangers = dir.path().join("strangers.pem");
    Authority::new().write(&strangers);
    let builder = LockManager::builder().url(&url).connect_timeout(ms(2_000));
    let error = builder
        .tls(Tls::new().ca_file(strangers))
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, distlock::Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("Tls::ca_file"), "{error}");
}
