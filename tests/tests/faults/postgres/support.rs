//! Servers with the schema, and what their tables contain.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use distlock::{FencingToken, LockGuard, LockManager};
use distlock_tests::{PostgresServer, PostgresServerBuilder, Proxy, equal, eventually_async};
use futures::FutureExt as _;
use futures::future::join_all;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::support::{Acquiring, LONG, acquire_later, acquired, connect, hold, loss, tried};

/// The sessions of distlock: those of `Raw` have no name.
const SESSIONS: &str = "backend_type = 'client backend' and application_name not in ('', 'psql') and pid <> pg_backend_pid()";

/// Starts a server with the schema.
pub(crate) async fn server() -> PostgresServer {
    installed(PostgresServer::builder()).await
}

/// Starts a server with these options and the schema.
pub(crate) async fn installed(builder: PostgresServerBuilder) -> PostgresServer {
    let server = builder.start();
    LockManager::install_schema(&server.url()).await.unwrap();
    server
}

/// A session that shares no code with the store.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) tokio_postgres::Client);

impl Raw {
    pub(crate) async fn connect(server: &PostgresServer) -> Raw {
        Raw(client(&server.url()).await)
    }

    /// Runs a statement, and returns the first column of its rows, one in a line.
    pub(crate) async fn sql(&self, text: &str) -> String {
        let messages = self.0.simple_query(text).await;
        let messages = messages.unwrap_or_else(|error| panic!("{error:?} in: {text}"));
        let cells = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("")),
            _ => None,
        });
        cells.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        let text = self.sql(text).await;
        text.parse().unwrap_or_else(|_| panic!("{text:?}"))
    }

    /// Returns the token of the hold of a mutex, if there is one.
    pub(crate) async fn held_token(&self, key: &str) -> Option<u64> {
        let query = format!(
            "select token from distlock.hold where key = 'distlock:lock:{key}' and weight > 0"
        );
        let token = self.sql(&query).await;
        (!token.is_empty()).then(|| token.parse().unwrap())
    }

    /// Waits until exactly `count` calls are queued.
    pub(crate) async fn until_queued(&self, key: &str, count: i64) {
        let query =
            format!("select count(*) from distlock.queue where key = 'distlock:lock:{key}'");
        eventually_async(LONG, async || equal(self.number(&query).await, count)).await;
    }

    /// Returns the numbers of the waiters in their order.
    pub(crate) async fn places(&self, key: &str) -> Vec<i64> {
        let query = format!(
            "select place from distlock.queue where key = 'distlock:lock:{key}' order by place"
        );
        let places = self.sql(&query).await;
        places.lines().map(|place| place.parse().unwrap()).collect()
    }

    /// Waits until the server has neither a hold nor a place in a queue. What was released while a
    /// transaction had its row is no hold.
    pub(crate) async fn until_clean(&self) {
        let query = "select key from distlock.hold where expires > clock_timestamp() \
            union all select key from distlock.queue";
        eventually_async(LONG, async || equal(self.sql(query).await, "")).await;
    }

    /// Returns how many sessions of distlock the server has.
    pub(crate) async fn sessions(&self) -> i64 {
        self.number(&format!(
            "select count(*) from pg_stat_activity where {SESSIONS}"
        ))
        .await
    }

    /// Waits until no session of distlock is left.
    pub(crate) async fn until_alone(&self) {
        let query = format!(
            "select concat_ws(' ', pid, state, query_start, query) from pg_stat_activity where {SESSIONS}"
        );
        eventually_async(LONG, async || equal(self.sql(&query).await, "")).await;
    }

    /// Ends the sessions of distlock that `filter` selects. Returns how many there were.
    pub(crate) async fn terminate(&self, filter: &str) -> i64 {
        let query = format!(
            "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity \
             where {SESSIONS} and {filter}) sessions"
        );
        self.number(&query).await
    }
}

/// Connects a client of a caller.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // An error ends the client, too.
    tokio::spawn(async { drop(connection.await) });
    client
}

/// Releases. The waiter then acquires with a higher token and releases too, which leaves nothing on
/// the server.
pub(crate) async fn hand_on(guard: LockGuard, waiting: Acquiring, raw: &Raw) {
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    give_back(token, waiting, raw).await;
}

/// The waiter acquires with a higher token and releases, which leaves nothing on the server.
pub(crate) async fn give_back(before: FencingToken, waiting: Acquiring, raw: &Raw) {
    let next = acquired(waiting).await;
    assert!(next.fencing_token() > before);
    assert_eq!(
        raw.held_token(next.key()).await,
        Some(next.fencing_token().get())
    );
    next.release().await.unwrap();
    raw.until_clean().await;
}

/// Panics unless a hold was lost because it was not renewed in time.
#[track_caller]
pub(crate) fn assert_not_renewed(error: &distlock::Error) {
    let (reason, _) = loss(error);
    assert_eq!(reason.as_str(), "not_renewed", "{error:?}");
}

/// Panics unless the lock is held by another client. Waits until this one is connected.
pub(crate) async fn assert_held(manager: &LockManager, key: &str) {
    eventually_async(LONG, async || manager.ping().await.is_ok()).await;
    assert!(tried(&manager.lock(key)).await.is_none());
}

/// A lock that one client holds and for which another one waits.
#[derive(Debug)]
pub(crate) struct Contended {
    pub(crate) server: PostgresServer,
    pub(crate) proxy: Proxy,
    pub(crate) raw: Raw,
    pub(crate) holder: LockManager,
    pub(crate) waiter: LockManager,
    pub(crate) guard: LockGuard,
    pub(crate) waiting: Acquiring,
}

impl Contended {
    /// Starts on a server, with the holder or the waiter behind the proxy.
    pub(crate) async fn start(
        server: PostgresServer,
        is_holder_far: bool,
        is_waiter_far: bool,
        lease: Duration,
    ) -> Self {
        let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
        let url = |is_far| match is_far {
            true => server.url_via(&proxy),
            false => server.url(),
        };
        let (holder, waiter) = (
            connect(&url(is_holder_far)).await,
            connect(&url(is_waiter_far)).await,
        );
        let guard = hold(&holder, "k", lease).await;
        let waiting = acquire_later(&waiter, "k", lease, LONG * 3);
        raw.until_queued("k", 1).await;
        Contended {
            server,
            proxy,
            raw,
            holder,
            waiter,
            guard,
            waiting,
        }
    }

    pub(crate) async fn hand_on(self) {
        hand_on(self.guard, self.waiting, &self.raw).await;
    }
}

/// Records the clients to which locks are granted.
pub(crate) async fn record_grants(raw: &Raw) {
    raw.sql(
        "create table granted (number serial, client uuid); \
         create function note_grant() returns trigger language plpgsql as \
         $$ begin insert into granted (client) values (new.client); return new; end $$; \
         create trigger note_grant before insert on distlock.hold \
         for each row when (new.key = 'distlock:lock:k') execute function note_grant()",
    )
    .await;
}

/// Returns how many clients were granted the lock "k".
pub(crate) async fn granted_clients(raw: &Raw) -> i64 {
    raw.number("select count(distinct client) from granted")
        .await
}

/// Runs the cases of a table at once, because each waits for long and does little. Prints the name
/// of one that panics.
pub(crate) async fn at_once<N: Debug, F: Future<Output = ()>>(
    cases: impl IntoIterator<Item = (N, F)>,
) {
    let cases = cases.into_iter().map(|(name, case)| async move {
        if let Err(panic) = AssertUnwindSafe(case).catch_unwind().await {
            println!("case: {name:?}");
            resume_unwind(panic);
        }
    });
    join_all(cases).await;
}
