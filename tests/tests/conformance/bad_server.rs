//! Servers that reject commands: the error of each kind, and how long it takes.

use std::time::Instant;

use distlock::Outage;

use crate::fixture::{Fixture, HELD, PATIENCE, ms, until_renewed_twice};

async fn assert_unavailable(fixture: &Fixture, expected: Outage, words: &[&str]) {
    // Lazily, because connecting to a replica fails.
    let manager = fixture.builder().connect_lazy(&fixture.url).unwrap();
    let started = Instant::now();
    let wait = ms(3_000);
    let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
    let elapsed = started.elapsed();
    assert!(
        elapsed >= wait && elapsed < wait + PATIENCE / 4,
        "after {elapsed:?}"
    );
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert_eq!(error.key(), Some("k"));
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
    }
    assert_eq!(error.outage(), Some(expected), "{error:?}");
    let tried = manager.lock("k").try_acquire().await.unwrap_err();
    assert!(tried.is_unavailable(), "{tried:?}");
}

#[tokio::test]
async fn a_read_only_replica() {
    let fixture = Fixture::own_redis().await;
    fixture.raw().cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_unavailable(&fixture, Outage::ReadOnly, &["`k`", "primary"]).await;
    // The replica becomes a primary while a call waits for it.
    let manager = fixture.builder().connect_lazy(&fixture.url).unwrap();
    let waiting = tokio::spawn(async move { manager.lock("k").wait(PATIENCE).acquire().await });
    fixture.raw().cmd(&["REPLICAOF", "NO", "ONE"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_memory() {
    let fixture = Fixture::own_redis().await;
    fixture.raw().cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_unavailable(&fixture, Outage::OutOfMemory, &["`k`", "maxmemory"]).await;
    assert_eq!(
        fixture.keys(),
        Vec::<String>::new(),
        "half of it was written"
    );
    fixture.raw().cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    // A hold is renewed and released although the server is out of memory.
    let manager = fixture.manager().await;
    let guard = manager.lock("k").lease(HELD).acquire().await.unwrap();
    fixture.raw().cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    until_renewed_twice(&guard).await;
    guard.release().await.unwrap();
    assert_eq!(fixture.left_over(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_refuses_writes() {
    let fixture = Fixture::own_redis().await;
    fixture
        .raw()
        .cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_unavailable(&fixture, Outage::WritesRejected, &["`k`", "rejects writes"]).await;
    assert_eq!(
        fixture.keys(),
        Vec::<String>::new(),
        "half of it was written"
    );
}
