//! Rights that a role has, lacks, or loses, and the limits that its settings set.

use std::time::Duration;

use distlock::{LockManager, LossReason, Outage};
use distlock_tests::{PostgresServer, eventually_async, within};

use crate::access::renewed;
use crate::cluster::callers::Crowd;
use crate::postgres::support::{Raw, at_once, hand_on, installed};
use crate::support::{
    LONG, acquire_later, acquired, assert_config, assert_message_contains, connect,
    connect_patiently, hold, loss, ms, taken_once, tried,
};

const LEASE: Duration = ms(60_000);

/// What the documentation of the installation names.
const GRANTS: [&str; 2] = [
    "grant usage on schema distlock to shop",
    "grant select, insert, update, delete on all tables in schema distlock to shop",
];

/// Starts a server with a role that has no rights yet.
async fn server() -> PostgresServer {
    let server = installed(PostgresServer::builder().require_passwords()).await;
    server.sql("create role shop login password 'hunter2'");
    server
}

fn url(server: &PostgresServer) -> String {
    server.url_as("shop", "hunter2")
}

/// Uses every verb.
async fn use_everything(url: &str, raw: &Raw) {
    let (first, second) = (connect(url).await, connect(url).await);
    let guard = hold(&first, "k", ms(3_000)).await;
    let waiting = acquire_later(&second, "k", LEASE, LONG);
    raw.until_queued("k", 1).await;
    renewed(&guard).await.unwrap();
    assert_eq!(second.inspect("k").await.unwrap().queue_length, 1);
    assert_eq!(second.list("").await.unwrap().len(), 1);
    hand_on(guard, waiting, raw).await;
    let write = first.rw_lock("rw").wait(LONG).write().await.unwrap();
    let read = write.downgrade().await.unwrap();
    second
        .rw_lock("rw")
        .wait(LONG)
        .read()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    read.release().await.unwrap();
    let permits = first.semaphore("p", 3).wait(LONG);
    permits
        .acquire_many(2)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let several = first.lock_all(["a", "b"]).wait(LONG);
    several.acquire().await.unwrap().release().await.unwrap();
    let once = first.lock("once").once_per(LONG * 60).wait(LONG);
    once.run(async |_| Ok::<_, distlock::Error>(()))
        .await
        .unwrap();
    let kept = first.lock("kept").min_hold(ms(100));
    kept.acquire().await.unwrap().release().await.unwrap();
    let revoked = hold(&first, "revoked", LEASE).await;
    second.revoke("revoked").await.unwrap();
    assert!(matches!(
        loss(&within(LONG, revoked.lost()).await).0,
        LossReason::Revoked { .. }
    ));
    drop(revoked);
    raw.until_clean().await;
    raw.sql("select distlock.sweep()").await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_grants_are_enough_and_each_is_needed() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let remedy = "grant the role `USAGE` on the schema `distlock`";
    let refused = async |what: &str| {
        let error = connect_patiently(url(&server)).await.expect_err(what);
        assert_config(&error, &["permission denied", "SQLSTATE 42501", remedy]);
        raw.until_alone().await;
    };
    refused("nothing is granted").await;
    server.sql(GRANTS[0]);
    refused("no table is granted").await;
    server.sql(GRANTS[1]);
    use_everything(&url(&server), &raw).await;
    for right in ["select", "insert", "update", "delete"] {
        let tables = "on distlock.lock, distlock.hold, distlock.queue";
        server.sql(&format!("revoke {right} {tables} from shop"));
        refused(right).await;
        server.sql(&format!("grant {right} {tables} to shop"));
    }
    server.sql("revoke usage on schema distlock from shop");
    refused("usage is revoked").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_while_locks_are_held() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    server.sql(&GRANTS.join(";"));
    let managers = [connect(&url(&server)).await, connect(&url(&server)).await];
    let long = hold(&managers[0], "long", LEASE).await;
    let short = hold(&managers[0], "short", ms(3_000)).await;
    let waiting = acquire_later(&managers[1], "long", LEASE, LONG);
    raw.until_queued("long", 1).await;
    server.sql("revoke all on all tables in schema distlock from shop");
    // A call fails at once, because it cannot succeed by itself.
    let error = managers[1]
        .lock("k")
        .wait(LONG)
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(error.outage(), Some(Outage::Denied), "{error:?}");
    assert!(!error.is_retryable());
    let address = format!("127.0.0.1:{}", server.port());
    let parts = [
        "not permitted",
        &*address,
        "permission denied",
        "grant the role `USAGE`",
    ];
    assert_message_contains(&error, &parts);
    // A hold is lost at its safe deadline, with the reason.
    let error = within(LONG, short.lost()).await;
    let LossReason::NotRenewed { last_error, .. } = loss(&error).0 else {
        panic!("{error:?}");
    };
    let reason = last_error.as_deref().unwrap_or_default();
    assert!(reason.contains("permission denied"), "{reason}");
    assert!(long.is_held());
    server.sql(GRANTS[1]);
    taken_once(&managers[1], "k").await;
    renewed(&long).await.unwrap();
    // The waiter was refused, or still waits.
    long.release().await.unwrap();
    if let (Ok(next), _) = within(LONG, waiting).await.unwrap() {
        next.release().await.unwrap();
    }
    drop(short);
    raw.until_clean().await;
}

/// A direct session has settings of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_role_and_of_the_database_change_nothing() {
    at_once(["role shop", "database locks"].map(|of| {
        (of, async move {
            let server = server().await;
            server.sql(&GRANTS.join(";"));
            for setting in [
                "statement_timeout = '300ms'",
                "lock_timeout = '1ms'",
                "idle_in_transaction_session_timeout = '1ms'",
                "idle_session_timeout = '1s'",
                "default_transaction_isolation = 'serializable'",
                "plan_cache_mode = 'force_custom_plan'",
            ] {
                server.sql(&format!("alter {of} set {setting}"));
            }
            let raw = Raw::connect(&server).await;
            raw.sql("set idle_session_timeout = 0; set statement_timeout = 0")
                .await;
            let url = url(&server);
            // It is idle for longer than the timeout.
            let idle = connect(&url).await;
            let since = "select count(*) from pg_stat_activity where usename = 'shop' and \
            state_change < clock_timestamp() - interval '2 s'";
            eventually_async(LONG, async || raw.number(since).await >= 2).await;
            let crowd = Crowd::start(&url, &["k".to_owned()], 3, LEASE, Result::unwrap).await;
            let managers = crowd.end().await;
            // A transaction that keeps the lock's row for longer than the timeout.
            let row = "insert into distlock.lock values ('distlock:lock:row', 0, now()); \
            begin; select 1 from distlock.lock where key = 'distlock:lock:row' for update";
            raw.sql("set idle_in_transaction_session_timeout = 0").await;
            raw.sql(row).await;
            let waiting = acquire_later(&managers[0], "row", LEASE, LONG);
            let blocked = "select count(*) from pg_locks where not granted";
            eventually_async(LONG, async || raw.number(blocked).await >= 1).await;
            raw.sql("commit").await;
            acquired(waiting).await.release().await.unwrap();
            taken_once(&idle, "k").await;
            let log = server.log();
            assert!(!log.contains("idle-session timeout"), "{log}");
            raw.until_clean().await;
        })
    }))
    .await;
}

/// An installation that fails leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_without_rights_creates_nothing() {
    let server = PostgresServer::builder().require_passwords().start();
    let raw = Raw::connect(&server).await;
    server.sql("create role shop login password 'hunter2'");
    let install = async || LockManager::install_schema(&url(&server)).await;
    let error = install().await.unwrap_err();
    let parts = [
        "permission denied",
        "or as a role with `CREATE` on the database",
    ];
    assert_config(&error, &parts);
    let schemas = "select count(*) from pg_namespace where nspname = 'distlock'";
    assert_eq!(raw.number(schemas).await, 0);
    // It fails half-way.
    server.sql(
        "grant create on database locks to shop; \
        create function refuse() returns event_trigger language plpgsql as \
        $$ begin if tg_tag = 'CREATE FUNCTION' then raise 'refused'; end if; end $$; \
        create event trigger refuse on ddl_command_start execute function refuse()",
    );
    let error = install().await.unwrap_err();
    assert_message_contains(&error, &["refused", "127.0.0.1"]);
    assert_eq!(raw.number(schemas).await, 0);
    server.sql("drop event trigger refuse");
    install().await.unwrap();
    // The owner may use it, and install again.
    install().await.unwrap();
    let manager = connect(&url(&server)).await;
    assert!(tried(&manager.lock("k")).await.is_some());
}
