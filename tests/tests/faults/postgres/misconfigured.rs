//! Misconfigurations: connecting fails, with an error that names state, cause and one remedy, and
//! nothing is left behind.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager, LockManagerBuilder, Outage, Quorum, Tls};
use distlock_tests::{PostgresServer, equal, eventually_async};

use crate::postgres::support::{Raw, hand_on, installed, server};
use crate::support::{
    LONG, SLACK, acquire_later, assert_config, assert_message_contains, connect, hold, ms,
    taken_once,
};
use crate::tls::{HOST, Trust};

/// Long enough that only an immediate failure comes before it.
const TIMEOUT: Duration = ms(10_000);

async fn refused(builder: LockManagerBuilder, url: &str) -> Error {
    let error = builder.connect(url).await.expect_err(url);
    println!("{error}");
    // One remedy follows the cause.
    let text = error.to_string();
    assert_eq!(text.matches("; ").count(), 1, "{text}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_an_error_at_once() {
    let server = installed(PostgresServer::builder().require_passwords()).await;
    let password = "login password 'right'";
    server.sql(&format!(
        "create role shop {password}; create role idle nologin password 'right'; \
        create role remote {password}; create role old {password}; \
        create database private; revoke connect on database private from public"
    ));
    // The server rejects one role, and has the version of an older one for another.
    let hba = server.dir().join("data/pg_hba.conf");
    let lines = std::fs::read_to_string(&hba).unwrap();
    let lines = format!("host all remote 127.0.0.1/32 reject\n{lines}");
    std::fs::write(&hba, lines).unwrap();
    server.sql(
        "select pg_reload_conf(); create schema old; grant usage on schema old to old; \
        create function old.current_setting(name text) returns text return case name \
        when 'server_version_num' then '130016' else pg_catalog.current_setting(name) end; \
        alter role old set search_path = old, pg_catalog",
    );
    let raw = Raw::connect(&server).await;
    let of =
        |login: &str, rest: &str| format!("postgres://{login}@127.0.0.1:{}/{rest}", server.port());
    let cases: [(String, &[&str]); 9] = [
        (
            of("idle:right", "locks"),
            &["not permitted to log in", "28000", "its right to `LOGIN`"],
        ),
        (
            of("remote:right", "locks"),
            &["28000", "; add a line for it to `pg_hba.conf`"],
        ),
        (
            of("shop:right", "private"),
            &["42501", "; grant the role `CONNECT` on the database"],
        ),
        (
            of("old:right", "locks"),
            &["the server is PostgreSQL 13", "; upgrade it to 14 or newer"],
        ),
        (
            of("shop:hunter2", "locks"),
            &["password authentication failed", "; fix user and password"],
        ),
        (
            of("stranger:hunter2", "locks"),
            &["password authentication failed", "; fix user and password"],
        ),
        (
            of("shop", "locks"),
            &["asks for a password", "write it into the URL"],
        ),
        (
            of("distlock:hunter2", "nothing"),
            &[
                "database \"nothing\" does not exist",
                "; create the database",
            ],
        ),
        (
            of("shop:hunter2", "locks?sslmode=verify-full"),
            &["the server has no TLS", "`sslmode=disable`"],
        ),
    ];
    for (url, parts) in cases {
        let began = Instant::now();
        let error = refused(LockManager::builder().connect_timeout(TIMEOUT), &url).await;
        assert_config(&error, parts);
        let address = format!("127.0.0.1:{}", server.port());
        assert_message_contains(&error, &[&address]);
        assert!(began.elapsed() < TIMEOUT, "not at once");
        // A lazy manager finds it at its first call.
        let lazy = LockManager::builder().connect_lazy(&url).unwrap();
        let error = lazy.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
        assert_message_contains(&error, parts);
        assert!(began.elapsed() < TIMEOUT, "not at once");
    }
    eventually_async(LONG, async || equal(raw.sessions().await, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_does_not_fit_is_refused() {
    let (server, trust, strange) = (server().await, Trust::new(), Trust::new());
    let own = trust.authority.sign(HOST, trust.dir());
    let files = [
        ("server.crt", own.certificate),
        ("server.key", own.key),
        ("root.crt", trust.ca()),
    ];
    for (name, path) in files {
        let text = std::fs::read_to_string(path).unwrap();
        // The server's user must own a key.
        server.sql(&format!(
            "copy (select regexp_split_to_table('{text}', e'\\n')) to program 'umask 077; cat > {name}'"
        ));
    }
    server.sql(
        "alter system set ssl_ca_file = 'root.crt'; alter system set ssl = on; \
        select pg_reload_conf()",
    );
    eventually_async(LONG, async || equal(server.sql("show ssl"), "on")).await;
    let url = format!("{}?sslmode=verify-full", server.url());
    let stranger = strange.authority.sign(HOST, strange.dir());
    let presented = trust.tls();
    let presented = presented.client_certificate(stranger.certificate, stranger.key);
    let cases: [(Tls, &[&str]); 2] = [
        (
            strange.tls(),
            &["signed by a CA that is not trusted here", "`Tls::ca_file`"],
        ),
        // In TLS 1.3 the server rejects it after the handshake.
        (
            presented,
            &["`Tls::client_certificate`", "`ssl_ca_file` (PostgreSQL)"],
        ),
    ];
    for (tls, parts) in cases {
        let builder = LockManager::builder().connect_timeout(TIMEOUT).tls(tls);
        assert_config(&refused(builder, &url).await, parts);
    }
    let builder = LockManager::builder().connect_timeout(LONG);
    let manager = builder.tls(trust.tls()).connect(&url).await.unwrap();
    taken_once(&manager, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_an_outage() {
    let cases: [(&str, &[&str]); 2] = [
        (
            "postgres://shop:hunter2@127.0.0.1:1/locks",
            &["127.0.0.1:1", "Connection refused"],
        ),
        (
            "postgres://shop:hunter2@no-such-host.invalid/locks",
            &["no-such-host.invalid:5432"],
        ),
    ];
    for (url, parts) in cases {
        let began = Instant::now();
        let error = refused(LockManager::builder().connect_timeout(ms(1_000)), url).await;
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        assert_message_contains(&error, parts);
        assert_message_contains(&error, &["check the server and the network"]);
        assert!(began.elapsed() <= ms(1_000) + SLACK);
    }
    let primary = server().await;
    let standby = primary.standby();
    let builder = LockManager::builder().connect_timeout(ms(1_000));
    let error = refused(builder, &standby.url()).await;
    assert_eq!(error.outage(), Some(Outage::ReadOnly), "{error:?}");
    let parts = [
        "read-only",
        "the server is a standby",
        "name the primary in the URL",
    ];
    assert_message_contains(&error, &parts);
}

/// No server listens there, so the error comes before anything is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_have_no_meaning_here_are_refused() {
    const NOWHERE: &str = "postgres://shop:hunter2@127.0.0.1:1/locks";
    let builder = LockManager::builder;
    let cases: [(LockManagerBuilder, &str, &[&str]); 7] = [
        (
            builder().max_runtime_connections(3),
            NOWHERE,
            &[
                "`max_runtime_connections` was set",
                "up to four connections",
            ],
        ),
        (
            builder().min_replicas(1),
            NOWHERE,
            &["`min_replicas` or `fsync` is set", "synchronous"],
        ),
        (
            builder().fsync(true),
            NOWHERE,
            &["`min_replicas` or `fsync` is set", "synchronous"],
        ),
        (
            builder().quorum(Quorum::new()),
            NOWHERE,
            &["`quorum` was set", "names PostgreSQL", "remove the setting"],
        ),
        (
            builder(),
            "postgres://127.0.0.1:1/locks",
            &["names no user"],
        ),
        (
            builder(),
            "postgres://shop:hunter2@127.0.0.1:1",
            &["names no database"],
        ),
        (
            builder(),
            "postgres://shop:hunter2@127.0.0.1:1/locks?sslmode=prefer",
            &["`sslmode`", "write `verify-full`"],
        ),
    ];
    for (builder, url, parts) in cases {
        assert_config(&refused(builder.clone(), url).await, parts);
        let error = builder.connect_lazy(url).unwrap_err();
        assert_config(&error, parts);
    }
    // The same for a lock.
    let lazy = builder().connect_lazy(NOWHERE).unwrap();
    let locks = [lazy.lock("k").min_replicas(1), lazy.lock("k").fsync(true)];
    for lock in locks {
        let error = lock.wait(LONG).acquire().await.unwrap_err();
        assert_config(&error, &["`min_replicas` or `fsync` is set"]);
    }
    let error = lazy.lock("a\0b").wait(LONG).acquire().await.unwrap_err();
    assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_this_client_cannot_use() {
    let install = "run `distlock install --url postgres://...`";
    let cases: [(&str, &[&str]); 5] = [
        (
            "drop schema distlock cascade",
            &["\"distlock.version\" does not exist", install],
        ),
        (
            "update distlock.version set version = 0",
            &["has version 0, and this client needs 1", install],
        ),
        (
            "update distlock.version set version = 7, oldest_client = 2",
            &["needs a client of version 2 or newer", "upgrade distlock"],
        ),
        (
            "delete from distlock.version",
            &["`distlock.version` is empty", install],
        ),
        (
            "drop function distlock.warm",
            &["distlock.warm() does not exist", install],
        ),
    ];
    let server = PostgresServer::start();
    for (statement, parts) in cases {
        println!("{statement}");
        LockManager::install_schema(&server.url()).await.unwrap();
        server.sql(statement);
        let builder = LockManager::builder().connect_timeout(TIMEOUT);
        let error = refused(builder, &server.url()).await;
        assert_config(&error, parts);
        if parts.contains(&install) {
            LockManager::install_schema(&server.url()).await.unwrap();
            taken_once(&connect(&server.url()).await, "k").await;
        }
        server.sql("drop schema if exists distlock cascade");
    }
    // A newer schema that still serves this client.
    LockManager::install_schema(&server.url()).await.unwrap();
    server.sql("update distlock.version set version = 7");
    taken_once(&connect(&server.url()).await, "k").await;
    let error = LockManager::install_schema(&server.url())
        .await
        .unwrap_err();
    assert_config(
        &error,
        &["newer than that of this program", "upgrade distlock"],
    );
}

/// A schema that changes while clients run: they continue, and a client that connects again waits
/// until it may use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_changes_while_clients_run() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = hold(&managers[0], "k", LONG * 2).await;
    let waiting = acquire_later(&managers[1], "k", LONG * 2, LONG);
    raw.until_queued("k", 1).await;
    server.sql("update distlock.version set version = 7, oldest_client = 2");
    taken_once(&managers[0], "another").await;
    assert!(raw.terminate("true").await >= 4);
    let error = crate::outages::refused_after(&managers[0], LONG, ms(1_000)).await;
    assert_message_contains(&error, &["needs a client of version 2 or newer"]);
    server.sql("update distlock.version set oldest_client = 1");
    hand_on(guard, waiting, &raw).await;
    // Installed again over clients that run.
    server.sql("update distlock.version set version = 1");
    let guard = hold(&managers[0], "k", LONG * 2).await;
    LockManager::install_schema(&server.url()).await.unwrap();
    let waiting = acquire_later(&managers[1], "k", LONG * 2, LONG);
    raw.until_queued("k", 1).await;
    hand_on(guard, waiting, &raw).await;
}
