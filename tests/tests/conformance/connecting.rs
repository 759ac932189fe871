//! Connecting: each obstacle has its own error, at once or after two seconds.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use distlock::{Error, LockManager, Outage};
use distlock_tests::RedisServer;

use crate::fixture::{PATIENCE, ms};

/// The timeout of a connect, with the delay of a loaded machine.
const CONNECT: Duration = ms(2_000 + 4_000);

async fn connect_error(url: &str) -> Error {
    let started = Instant::now();
    let error = LockManager::connect(url).await.unwrap_err();
    assert!(started.elapsed() < CONNECT, "after {:?}", started.elapsed());
    if let Error::Unavailable { waited, key, .. } = &error {
        assert!(*waited <= started.elapsed(), "it did not try so long");
        assert_eq!(*key, None);
    }
    error
}

#[tokio::test]
async fn without_a_server() {
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    let error = connect_error(&url).await;
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert_eq!(error.outage(), Some(Outage::Unreachable), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&server.port().to_string()), "{message}");
}

/// The server accepts the connection and sends nothing.
#[tokio::test]
async fn without_a_response() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let error = connect_error(&url).await;
    assert_eq!(error.outage(), Some(Outage::TimedOut), "{error:?}");
    let patient = LockManager::builder().connect_timeout(ms(3_000));
    let started = Instant::now();
    assert!(patient.connect(&url).await.unwrap_err().is_unavailable());
    assert!(
        started.elapsed() >= ms(3_000),
        "the given limit was ignored"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_waits_for_a_server_that_starts_later() {
    let server = RedisServer::start();
    server.kill();
    let connecting = LockManager::builder().connect_timeout(PATIENCE);
    let url = server.url();
    let connecting = tokio::spawn(async move { connecting.connect(&url).await });
    // By now the server has refused at least one attempt.
    tokio::time::sleep(ms(300)).await;
    assert!(!connecting.is_finished(), "it gave up at once");
    server.restart();
    let manager = connecting.await.unwrap().unwrap();
    manager
        .lock("k")
        .run(async |_| Ok::<_, Error>(()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_manager_never_waits_and_its_calls_do() {
    let server = RedisServer::start();
    server.kill();
    // Also outside a runtime.
    let url = server.url();
    let manager = std::thread::spawn(move || LockManager::connect_lazy(&url).unwrap());
    let manager = manager.join().unwrap();
    let error = manager.lock("k").try_acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    let error = manager.lock("k").wait(ms(300)).acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&server.port().to_string()), "{message}");
    let error = manager.inspect("k").await.unwrap_err();
    assert!(
        error.is_unavailable() && error.key() == Some("k"),
        "{error:?}"
    );
    let waiting = manager.lock("k").wait(PATIENCE);
    let waiting = tokio::spawn(async move { waiting.run(async |_| Ok::<_, Error>(7)).await });
    server.restart();
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
    manager.shutdown().await;
}

#[tokio::test]
async fn a_lazy_manager_finds_a_wrong_password_at_its_first_call() {
    let server = RedisServer::builder().requirepass("right").start();
    let url = server.url().replace("right", "wrong");
    let manager = LockManager::connect_lazy(&url).unwrap();
    let started = Instant::now();
    let error = loop {
        let error = manager.lock("k").wait(ms(100)).acquire().await.unwrap_err();
        if !error.is_retryable() {
            break error;
        }
        assert!(started.elapsed() < PATIENCE, "{error:?}");
    };
    assert_eq!(error.outage(), Some(Outage::Denied), "{error:?}");
    assert!(
        !format!("{error} {error:?}").contains("wrong@"),
        "{error:?}"
    );
    let error = LockManager::connect_lazy("nonsense").unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
}
