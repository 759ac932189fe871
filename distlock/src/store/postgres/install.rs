//! The installation of the schema.

use crate::error::{Error, Outage};
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::decode::column;
use crate::store::postgres::errors::classify;
use crate::store::postgres::schema::{FUNCTIONS, TABLES, VERSION};
use crate::store::postgres::session::Session;

/// The advisory lock of an installation: "distlock" as a number.
const INSTALLATION: i64 = 0x6469_7374_6c6f_636b;

/// Creates the schema, or brings its functions up to date, in one transaction.
pub(crate) async fn install(client: &PostgresClient) -> Result<(), Error> {
    let limit = client.config.connect_timeout;
    let started = client.clock.now();
    let failed = |error: StoreError| {
        let waited = client.clock.now().since(started);
        client.config.connect_error(explain(error), waited)
    };
    let opening = Session::open_unchecked(client, true, std::sync::Arc::new(|_| {}), false);
    let opened = tokio::time::timeout(limit, opening).await;
    let session = opened
        .unwrap_or_else(|_| Err(StoreError::timed_out(limit)))
        .map_err(failed)?;
    run(&session).await.map_err(failed)
}

async fn run(session: &Session) -> StoreResult<()> {
    let statements = format!(
        "BEGIN; SET LOCAL lock_timeout = '10s'; SELECT pg_advisory_xact_lock({INSTALLATION})"
    );
    session
        .client
        .batch_execute(&statements)
        .await
        .map_err(classify)?;
    // `to_regclass` is null for a table that does not exist.
    let query = "SELECT to_regclass('distlock.version') IS NOT NULL AS exists";
    let rows = session
        .client
        .query_typed(query, &[])
        .await
        .map_err(classify)?;
    let exists = match rows.first() {
        Some(row) => column(row, "exists")?,
        None => false,
    };
    if exists {
        let query = "SELECT version, oldest_client FROM distlock.version";
        let rows = session
            .client
            .query_typed(query, &[])
            .await
            .map_err(classify)?;
        let version = rows.first().map(|row| column::<i32>(row, "version"));
        let version = version.transpose()?.unwrap_or_default();
        if version > VERSION {
            return Err(StoreError::new(
                Outage::Misconfigured,
                format!(
                    "the schema `distlock` has version {version}, which is newer than that of this program, {VERSION}; \
                     upgrade distlock, or leave the schema as it is"
                ),
            ));
        }
    }
    let (tables, functions) = (if exists { "" } else { TABLES }, FUNCTIONS);
    #[cfg(sabotage)]
    let functions = format!(
        "{functions}\n{}",
        crate::__inside::sabotage::postgres::functions_in_force()
    );
    let statements = format!(
        "{tables}\n{functions}\n\
         DELETE FROM distlock.version; INSERT INTO distlock.version VALUES ({VERSION}, {VERSION}); COMMIT"
    );
    session
        .client
        .batch_execute(&statements)
        .await
        .map_err(classify)
}

/// An installation needs other rights than a client.
fn explain(error: StoreError) -> StoreError {
    if error.outage != Outage::Denied || !error.detail.contains("42501") {
        return error;
    }
    let text = error.detail.split("; ").next().unwrap_or_default();
    StoreError::new(
        Outage::Denied,
        format!(
            "{text}; install as the owner of the schema `distlock`, or as a role with `CREATE` on the database"
        ),
    )
}
