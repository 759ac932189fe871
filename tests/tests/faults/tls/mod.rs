//! TLS: a certificate that fits is enough, and one that does not is told apart, before anything is sent.

use std::path::PathBuf;

use distlock::{Error, LockManager, LockManagerBuilder, Outage, Tls};
use distlock_tests::{Authority, CertificateFiles, RedisServer, Resp, eventually_async, within};
use tempfile::TempDir;

use crate::kit::{LONG, acquire_later, ms, taken_once, until_clean, until_queued};
mod cluster;
mod quorum;
mod sentinel;

const HOST: &str = "127.0.0.1";

/// A server with a second port that speaks only TLS, and who signed its certificate.
struct Secured {
    server: RedisServer,
    authority: Authority,
    dir: TempDir,
}

impl Secured {
    /// With a certificate that fits.
    fn start() -> Self {
        Self::with(|authority, dir| authority.sign(HOST, dir.path()), "no")
    }

    fn with(
        certify: impl Fn(&Authority, &TempDir) -> CertificateFiles,
        auth_clients: &str,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let ca = dir.path().join("ca.pem");
        authority.write(&ca);
        let files = certify(&authority, &dir);
        let server = RedisServer::builder()
            .tls(&ca, &files.certificate, &files.key)
            .arg("--tls-auth-clients", auth_clients)
            .start();
        Secured {
            server,
            authority,
            dir,
        }
    }

    fn url(&self) -> String {
        format!("rediss://{HOST}:{}", self.server.tls_port())
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// What trusts it.
    fn tls(&self) -> Tls {
        Tls::new().ca_file(self.ca())
    }

    fn builder(&self, tls: Tls) -> LockManagerBuilder {
        LockManager::builder().url(self.url()).tls(tls)
    }

    async fn connect(&self) -> LockManager {
        self.builder(self.tls()).connect().await.unwrap()
    }

    async fn refuses(&self, tls: Tls) -> Error {
        self.builder(tls).connect().await.unwrap_err()
    }
}

/// It is told at once, and says which setting is to be looked at.
#[track_caller]
fn assert_config(error: &Error, says: &[&str]) {
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(!error.is_retryable(), "{error:?}");
    let shown = error.to_string();
    for word in says {
        assert!(shown.contains(word), "`{word}` is missing: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_handed_on_over_tls() {
    let secured = Secured::start();
    let mut raw = secured.server.client();
    let (one, two) = (secured.connect().await, secured.connect().await);
    let held = one.lock("k").acquire().await.unwrap();
    let waiting = acquire_later(&two, "k", ms(15_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    held.release().await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    guard.release().await.unwrap();
    // Lanes are opened the same way.
    let connections = raw.cmd(&["CLIENT", "LIST"]).text().unwrap().lines().count();
    eventually_async(LONG, async || {
        let lock = one.lock("warm").wait(LONG);
        tokio::spawn(async move {
            for _ in 0..20 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        })
        .await
        .unwrap();
        raw.cmd(&["CLIENT", "LIST"]).text().unwrap().lines().count() > connections
    })
    .await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused() {
    let expired = Secured::with(|ca, dir| ca.sign_expired(HOST, dir.path()), "no");
    let error = expired.refuses(expired.tls()).await;
    assert_config(&error, &["expired", "rediss://127.0.0.1"]);

    let other_name = Secured::with(|ca, dir| ca.sign("redis.internal", dir.path()), "no");
    let error = other_name.refuses(other_name.tls()).await;
    assert_config(
        &error,
        &["not for `127.0.0.1`", "Tls::server_name", "redis.internal"],
    );
    let named = other_name.tls().server_name("redis.internal");
    other_name.builder(named).connect().await.unwrap();

    let nobodys = Secured::with(
        |_, dir| CertificateFiles::self_signed(HOST, dir.path()),
        "no",
    );
    let error = nobodys.refuses(nobodys.tls()).await;
    assert_config(&error, &["Tls::ca_file"]);

    let strange = Secured::start();
    let error = strange.refuses(Tls::new().ca_file(nobodys.ca())).await;
    assert_config(
        &error,
        &["signed by nobody who is trusted here", "Tls::ca_file"],
    );
    // Nor by any of the system's roots, if it has some.
    let error = strange.refuses(Tls::new()).await;
    assert_config(&error, &["Tls::ca_file"]);

    for secured in [expired, other_name, nobodys, strange] {
        let mut raw = secured.server.client();
        assert_eq!(raw.keys("*"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_server_may_want_a_certificate_too() {
    let secured = Secured::with(|ca, dir| ca.sign(HOST, dir.path()), "yes");
    let ours = secured.authority.sign("client", secured.dir.path());
    let shown = secured
        .tls()
        .client_certificate(&ours.certificate, &ours.key);
    let manager = secured.builder(shown).connect().await.unwrap();
    taken_once(&manager, "k").await;

    let error = secured.refuses(secured.tls()).await;
    assert_config(&error, &["Tls::client_certificate", "tls-ca-cert-file"]);
    let strangers = Authority::new().sign("client", secured.dir.path());
    let shown = secured
        .tls()
        .client_certificate(&strangers.certificate, &strangers.key);
    assert_config(&secured.refuses(shown).await, &["Tls::client_certificate"]);
    let mixed = secured
        .tls()
        .client_certificate(&ours.certificate, &strangers.key);
    let error = secured.refuses(mixed).await;
    assert_config(&error, &["does not belong to", "Tls::client_certificate"]);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let secured = Secured::start();
    let missing = secured.dir.path().join("missing.pem");
    let empty = secured.dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for file in [&missing, &empty] {
        let name = file.file_name().unwrap().to_str().unwrap();
        let error = secured.refuses(Tls::new().ca_file(file)).await;
        assert_config(&error, &[name, "Tls::ca_file"]);
        let error = secured
            .refuses(secured.tls().client_certificate(file, file))
            .await;
        assert_config(&error, &[name, "Tls::client_certificate"]);
    }
    let error = secured.refuses(secured.tls().server_name("no name")).await;
    assert_config(&error, &["`no name`", "Tls::server_name"]);
}

/// The server's certificate and its CA are changed while the manager lives: the file is read again when it has to
/// connect again, and until it is right calls are told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_again_for_each_connection() {
    let secured = Secured::start();
    let mut raw = secured.server.client();
    let manager = secured.connect().await;
    let held = manager
        .lock("held")
        .lease(ms(60_000))
        .acquire()
        .await
        .unwrap();
    let next = Authority::new();
    let files = next.sign(HOST, secured.dir.path());
    let set = raw.cmd(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        files.certificate.to_str().unwrap(),
        "tls-key-file",
        files.key.to_str().unwrap(),
    ]);
    assert_eq!(set.text().unwrap(), "OK");
    raw.cmd(&["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"]);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "PUBSUB"]);
    eventually_async(LONG, async || {
        match manager.lock("k").wait(ms(200)).acquire().await {
            Err(Error::Unavailable { outage, .. }) => outage == Outage::Untrusted,
            _ => false,
        }
    })
    .await;
    next.write(&secured.ca());
    eventually_async(LONG, async || manager.lock("k").acquire().await.is_ok()).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// The error says what would be right.
#[tokio::test]
async fn the_wrong_port_or_scheme_is_told() {
    let secured = Secured::start();
    let plain = secured.server.url().replace("redis://", "rediss://");
    let error = LockManager::builder()
        .url(plain)
        .tls(secured.tls())
        .connect()
        .await;
    assert_config(&error.unwrap_err(), &["write redis:// instead"]);

    let error = LockManager::builder()
        .url(secured.server.url())
        .tls(secured.tls())
        .connect();
    assert_config(&error.await.unwrap_err(), &["`tls` was set", "rediss://"]);

    // It is there, and it does not take plain text.
    let mut plain = Resp::connect(([127, 0, 0, 1], secured.server.tls_port()).into()).unwrap();
    assert!(plain.try_cmd(&["PING"]).is_err());
    for url in ["redis://", "valkey://"] {
        let error =
            LockManager::connect(format!("{url}{HOST}:{}", secured.server.tls_port())).await;
        assert_config(&error.unwrap_err(), &["write rediss:// instead"]);
    }
    // What other clients take for permission not to look is refused.
    let url = format!(
        "rediss://user:hunter2@{HOST}:{}/0#insecure",
        secured.server.tls_port()
    );
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_config(&error, &["`#`"]);
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    let mut raw = secured.server.client();
    assert_eq!(raw.keys("*"), Vec::<String>::new());
}
