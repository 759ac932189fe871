//! TLS: a matching certificate is enough, and any mismatch is reported before anything is sent.

use std::path::{Path, PathBuf};

use distlock::{Error, LockManager, Outage, Tls};
use distlock_tests::{
    Authority, CertificateFiles, RedisServer, RedisServerBuilder, eventually_async,
};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::support::{
    LONG, acquire_later, assert_config, call_often, connections, hand_on, hold, kill, ms, ok,
    taken_once, until_clean, until_queued,
};

mod cluster;
mod quorum;
mod sentinel;

pub(crate) const HOST: &str = "127.0.0.1";

/// An authority with its certificate in a file.
pub(crate) struct Trust {
    pub(crate) authority: Authority,
    dir: TempDir,
}

impl Trust {
    pub(crate) fn new() -> Self {
        let trust = Trust {
            authority: Authority::new(),
            dir: tempfile::tempdir().unwrap(),
        };
        trust.authority.write(&trust.ca());
        trust
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the setting that trusts this authority.
    pub(crate) fn tls(&self) -> Tls {
        Tls::new().ca_file(self.ca())
    }

    /// Builds a server with a matching certificate and a second port that speaks only TLS.
    pub(crate) fn server(&self) -> RedisServerBuilder {
        self.server_with(&self.authority.sign(HOST, self.dir()))
    }

    /// Builds the same server with another certificate.
    fn server_with(&self, files: &CertificateFiles) -> RedisServerBuilder {
        RedisServer::builder().tls(&self.ca(), &files.certificate, &files.key)
    }
}

/// A server that speaks TLS, and the authority that signed its certificate.
struct Secured {
    server: RedisServer,
    trust: Trust,
}

impl Secured {
    /// Starts a server with a matching certificate.
    fn start() -> Self {
        Self::with(|authority, dir| authority.sign(HOST, dir), "no")
    }

    fn with(certify: fn(&Authority, &Path) -> CertificateFiles, auth_clients: &str) -> Self {
        let trust = Trust::new();
        let server = trust.server_with(&certify(&trust.authority, trust.dir()));
        let server = server.arg("--tls-auth-clients", auth_clients).start();
        Secured { server, trust }
    }

    /// Returns the authority of the `rediss://` URL.
    fn address(&self) -> String {
        format!("{HOST}:{}", self.server.tls_port())
    }

    async fn connect_with(&self, tls: Tls) -> Result<LockManager, Error> {
        let url = format!("rediss://{}", self.address());
        LockManager::builder().tls(tls).connect(&url).await
    }

    async fn connect(&self) -> LockManager {
        self.connect_with(self.trust.tls()).await.unwrap()
    }

    async fn refuses(&self, tls: Tls) -> Error {
        self.connect_with(tls).await.unwrap_err()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_handed_on_over_tls() {
    let secured = Secured::start();
    let mut raw = secured.server.client();
    let (one, two) = (secured.connect().await, secured.connect().await);
    let held = hold(&one, "k", LONG).await;
    let waiting = acquire_later(&two, "k", ms(15_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    hand_on(held, waiting, &mut raw).await;
    // Runtime connections are opened the same way.
    let before = connections(&mut raw);
    eventually_async(LONG, async || {
        call_often(&Handle::current(), &one, "warm").await;
        connections(&mut raw) > before
    })
    .await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused() {
    let elsewhere = "redis.internal";
    let expired = Secured::with(|ca, dir| ca.sign_expired(HOST, dir), "no");
    let other_name = Secured::with(|ca, dir| ca.sign("redis.internal", dir), "no");
    let self_signed = Secured::with(|_, dir| CertificateFiles::self_signed(HOST, dir), "no");
    let strange = Secured::start();
    let cases: [(_, _, &[&str]); 5] = [
        (
            &expired,
            expired.trust.tls(),
            &["expired", "renew it", "rediss://127.0.0.1"],
        ),
        (
            &other_name,
            other_name.trust.tls(),
            &["not for `127.0.0.1`", "Tls::server_name", elsewhere],
        ),
        (&self_signed, self_signed.trust.tls(), &["Tls::ca_file"]),
        (
            &strange,
            self_signed.trust.tls(),
            &["signed by a CA that is not trusted here", "Tls::ca_file"],
        ),
        // Not signed by a root of the system either, if it has some.
        (&strange, Tls::new(), &["Tls::ca_file"]),
    ];
    for (secured, tls, parts) in cases {
        assert_config(&secured.refuses(tls).await, parts);
        let keys = secured.server.client().keys("*");
        assert_eq!(keys, Vec::<String>::new(), "{parts:?}");
    }
    let named = other_name.trust.tls().server_name(elsewhere);
    other_name.connect_with(named).await.unwrap();
}

#[tokio::test]
async fn a_server_may_want_a_certificate_too() {
    let secured = Secured::with(|ca, dir| ca.sign(HOST, dir), "yes");
    let dir = secured.trust.dir();
    let ours = secured.trust.authority.sign("client", dir);
    let strangers = Authority::new().sign("client", dir);
    let with = |certificate, key| secured.trust.tls().client_certificate(certificate, key);
    let shown = with(&ours.certificate, &ours.key);
    let manager = secured.connect_with(shown).await.unwrap();
    taken_once(&manager, "k").await;
    let setting = "Tls::client_certificate";
    let cases: [(_, &[&str]); 3] = [
        (secured.trust.tls(), &[setting, "tls-ca-cert-file"]),
        (with(&strangers.certificate, &strangers.key), &[setting]),
        (
            with(&ours.certificate, &strangers.key),
            &["does not belong to", setting],
        ),
    ];
    for (tls, parts) in cases {
        assert_config(&secured.refuses(tls).await, parts);
    }
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_named() {
    let secured = Secured::start();
    for name in ["missing.pem", "empty.pem"] {
        let file = secured.trust.dir().join(name);
        if name == "empty.pem" {
            std::fs::write(&file, "").unwrap();
        }
        let error = secured.refuses(Tls::new().ca_file(&file)).await;
        assert_config(&error, &[name, "Tls::ca_file"]);
        let tls = secured.trust.tls().client_certificate(&file, &file);
        let error = secured.refuses(tls).await;
        assert_config(&error, &[name, "Tls::client_certificate"]);
    }
    let tls = secured.trust.tls();
    let error = secured.refuses(tls.clone().server_name("no name")).await;
    assert_config(&error, &["`no name`", "Tls::server_name"]);
    let plain = LockManager::builder().tls(tls);
    let error = plain.connect(&secured.server.url()).await.unwrap_err();
    assert_config(&error, &["`tls` was set", "rediss://"]);
    // A fragment that lets other clients skip verification is rejected.
    let insecure = format!("rediss://user:hunter2@{}/0#insecure", secured.address());
    let error = LockManager::connect(&insecure).await.unwrap_err();
    assert_config(&error, &["`#`"]);
}

/// The server's certificate and its CA change while the manager lives. The manager reads the file
/// again when it reconnects. Until the file is right, calls report the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_again_for_each_connection() {
    let secured = Secured::start();
    let mut raw = secured.server.client();
    let manager = secured.connect().await;
    let held = hold(&manager, "held", ms(60_000)).await;
    let next = Authority::new();
    let files = next.sign(HOST, secured.trust.dir());
    let [certificate, key] = [&files.certificate, &files.key].map(|path| path.to_str().unwrap());
    let set = ["tls-cert-file", certificate, "tls-key-file", key];
    ok(&mut raw, &[&["CONFIG", "SET"][..], &set].concat());
    kill(&mut raw, "normal");
    kill(&mut raw, "pubsub");
    eventually_async(LONG, async || {
        let refused = manager.lock("k").wait(ms(200)).acquire().await;
        refused.is_err_and(|error| error.outage() == Some(Outage::Tls))
    })
    .await;
    next.write(&secured.trust.ca());
    eventually_async(LONG, async || manager.lock("k").acquire().await.is_ok()).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}
