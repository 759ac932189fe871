//! A quorum that is reached over TLS.

use distlock::{Error, LockManager, Tls};
use distlock_tests::{Authority, CertificateFiles, RedisQuorum, RedisServer};

use crate::kit::{LONG, lock_key};
use crate::quorum::members::until_told;
use crate::quorum::works;
use crate::tls::HOST;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_are_reached_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = dir.path().join("ca.pem");
    authority.write(&ca);
    let server = |files: CertificateFiles| {
        let builder = RedisServer::builder().tls(&ca, &files.certificate, &files.key);
        builder.start()
    };
    let good = || server(authority.sign(HOST, dir.path()));
    let quorum = RedisQuorum::of([good(), good(), good()]);
    quorum.vote("distlock");
    let odd = server(CertificateFiles::self_signed(HOST, dir.path()));
    let url = |servers: [&RedisServer; 3]| {
        let url = RedisQuorum::url_at(servers.map(RedisServer::tls_port));
        url.replacen("redis", "rediss", 1)
    };
    let builder = |url: String| {
        let tls = Tls::new().ca_file(&ca);
        let builder = LockManager::builder().url(url).tls(tls);
        builder.connect_timeout(LONG)
    };
    let [one, two, three] = [0, 1, 2].map(|place| quorum.server(place));
    let all = url([one, two, three]);
    let first = builder(all.clone()).connect().await.unwrap();
    let second = builder(all).connect().await.unwrap();
    works(&quorum, &first, &second).await;
    // One of them cannot prove who it is: nothing is said to it, and it has no vote.
    let with_odd = url([one, two, &odd]);
    let error = builder(with_odd.clone()).connect().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let told = error.to_string();
    let named = format!("rediss://{HOST}:{}", odd.tls_port());
    assert!(
        told.contains("Tls::ca_file") && told.contains(&named),
        "{told}"
    );
    let lazy = builder(with_odd).connect_lazy().unwrap();
    let lock = lazy.lock("k").wait(LONG);
    let guard = lock.acquire().await.unwrap();
    assert!(one.client().exists(&lock_key("k")));
    guard.release().await.unwrap();
    two.kill();
    until_told(&lazy, &["Tls::ca_file", &named]).await;
    assert_eq!(odd.client().keys("*"), Vec::<String>::new());
}
