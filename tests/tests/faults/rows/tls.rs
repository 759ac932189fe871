//! Encryption that this build does not have: nothing is sent in the clear instead, and nothing is locked.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::{RedisServer, Resp};

use crate::kit::{SLACK, ms};

/// A certificate of another host, which expired the day after it was made, and its key:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1
/// -subj /CN=wrong.example -addext subjectAltName=DNS:wrong.example -keyout key.pem -out cert.pem`
const CERTIFICATE: &str = include_str!("tls/cert.pem");
const KEY: &str = include_str!("tls/key.pem");

/// The default limit of a connect, and what a loaded machine adds.
const CONNECT: Duration = ms(2_000 + SLACK.as_millis() as u64);

/// A server with a second port that speaks only TLS.
fn with_tls() -> (RedisServer, u16) {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, CERTIFICATE).unwrap();
    std::fs::write(&key, KEY).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let server = RedisServer::builder()
        .arg("--tls-port", &port.to_string())
        .arg("--tls-cert-file", certificate.to_str().unwrap())
        .arg("--tls-key-file", key.to_str().unwrap())
        .arg("--tls-auth-clients", "no")
        .start();
    (server, port)
}

#[tokio::test]
async fn a_plain_url_to_a_tls_port_is_an_error() {
    let (server, port) = with_tls();
    // It is there, and it does not take plain text.
    let mut plain = Resp::connect(([127, 0, 0, 1], port).into()).unwrap();
    assert!(plain.try_cmd(&["PING"]).is_err());
    let mut raw = server.client();
    let asked = Instant::now();
    for url in ["redis://", "valkey://"] {
        let error = LockManager::connect(format!("{url}127.0.0.1:{port}"))
            .await
            .unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }
    assert!(asked.elapsed() < CONNECT * 2, "after {:?}", asked.elapsed());
    assert_eq!(raw.keys("*"), Vec::<String>::new());
}

/// Refused before anything is sent: not even a name, and certainly no password.
#[tokio::test]
async fn a_tls_url_is_refused_before_anything_is_sent() {
    let (server, tls_port) = with_tls();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listened = listener.local_addr().unwrap().port();
    for port in [tls_port, server.port(), listened] {
        for scheme in ["rediss", "valkeys"] {
            for more in ["", "/0#insecure", "?insecure=true"] {
                let url = format!("{scheme}://user:hunter2@127.0.0.1:{port}{more}");
                let error = LockManager::connect(&url).await.unwrap_err();
                assert!(matches!(error, Error::Config { .. }), "{error:?}");
                let shown = format!("{error} {error:?}");
                assert!(shown.contains("TLS"), "{shown}");
                assert!(
                    !shown.contains("hunter2") && !error.is_retryable(),
                    "{shown}"
                );
            }
        }
    }
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(server.client().keys("*"), Vec::<String>::new());
}
