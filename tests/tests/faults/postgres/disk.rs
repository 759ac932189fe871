//! Servers whose disk is full.

use distlock::Outage;
use distlock_tests::{PostgresServer, eventually_async};

use crate::access::renewed;
use crate::outages::refused_after;
use crate::postgres::support::{Contended, Raw, assert_held, hand_on, installed};
use crate::support::{LONG, acquire_later, acquired, assert_message_contains, ms};

const LEASE: std::time::Duration = ms(60_000);

async fn contended() -> Contended {
    let server = installed(PostgresServer::builder().own_disk()).await;
    Contended::start(server, false, false, LEASE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_cannot_grow() {
    let this = contended().await;
    this.server.set_disk_full(true);
    // The tables have room for some more rows.
    let mut held = Vec::new();
    let (key, error) = loop {
        assert!(held.len() < 1_000, "the tables grow");
        let key = format!("k{}", held.len());
        let lock = this.waiter.lock(&key).lease(LEASE).wait(ms(1_000));
        match lock.acquire().await {
            Ok(guard) => held.push(guard),
            Err(error) => break (key, error),
        }
    };
    assert_eq!(error.outage(), Some(Outage::WritesRejected), "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    let address = format!("127.0.0.1:{}", this.server.port());
    let parts = [
        &*address,
        "No space left on device (SQLSTATE 53100)",
        "; free space on the server's disk",
    ];
    assert_message_contains(&error, &parts);
    let waiting = acquire_later(&this.waiter, &key, LEASE, LONG);
    this.server.set_disk_full(false);
    held.push(acquired(waiting).await);
    for guard in held {
        let token = guard.fencing_token().get();
        assert_eq!(this.raw.held_token(guard.key()).await, Some(token));
        guard.release().await.unwrap();
    }
    assert_held(&this.waiter, "k").await;
    this.hand_on().await;
}

/// The server cannot write its log of changes. It ends, and does not start before it has space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_grow() {
    let this = contended().await;
    this.server.set_disk_full(true);
    // The next change begins another file of the log.
    this.raw.sql("select pg_switch_wal()").await;
    let ended = "database system is shut down";
    eventually_async(LONG, async || this.server.log().contains(ended)).await;
    assert!(this.server.log().contains("PANIC"));
    refused_after(&this.waiter, LEASE, ms(1_500)).await;
    assert!(this.guard.is_held() && !this.waiting.is_finished());
    this.server.set_disk_full(false);
    this.server.restart();
    let raw = Raw::connect(&this.server).await;
    let token = this.guard.fencing_token();
    assert_eq!(raw.held_token("k").await, Some(token.get()));
    assert_held(&this.waiter, "k").await;
    renewed(&this.guard).await.unwrap();
    hand_on(this.guard, this.waiting, &raw).await;
}
