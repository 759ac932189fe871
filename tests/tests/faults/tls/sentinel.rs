//! Sentinels and servers over TLS.

use distlock::LockManager;
use distlock_tests::sentinel::Sentinels;

use crate::support::{LONG, assert_config, lock_key, ms, taken_once};
use crate::tls::Trust;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_over_tls() {
    let trust = Trust::new();
    let server = trust.server();
    let all = Sentinels::of(&server, &server.clone().sentinel());
    let url = all.url_of("rediss+sentinel://", Sentinels::SERVICE);
    let builder = LockManager::builder();
    let trusting = builder.clone().tls(trust.tls());
    let manager = trusting.connect(&url).await.unwrap();
    taken_once(&manager, "before").await;
    all.servers[0].kill();
    let lock = manager.lock("after").wait(LONG * 3);
    let guard = lock.acquire().await.unwrap();
    let new = all.until_another(&all.servers[0]);
    assert!(new.client().exists(&lock_key("after")));
    guard.release().await.unwrap();
    // An untrusted sentinel does not name the primary, and the error names the setting.
    let strange = builder.connect_timeout(ms(2_000)).tls(Trust::new().tls());
    let error = strange.connect(&url).await.unwrap_err();
    assert_config(&error, &["Tls::ca_file"]);
}
