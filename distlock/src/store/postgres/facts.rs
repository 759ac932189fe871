//! What the server says about itself, for `distlock doctor`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Error;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::decode::column;
use crate::store::postgres::errors::classify;
use crate::store::postgres::listener;

const ROUND_TRIPS: usize = 20;

/// Each fact is readable without further rights, or is null.
const QUERY: &str = "SELECT name, value FROM (VALUES \
    ('version', current_setting('server_version')), \
    ('synchronous_commit', current_setting('synchronous_commit')), \
    ('synchronous_standby_names', current_setting('synchronous_standby_names')), \
    ('fsync', current_setting('fsync')), \
    ('standbys', (SELECT count(*)::text FROM pg_stat_replication)), \
    ('isolation', current_setting('default_transaction_isolation')), \
    ('autovacuum', current_setting('autovacuum')), \
    ('dead_rows', (SELECT sum(n_dead_tup)::text FROM pg_stat_user_tables WHERE schemaname = 'distlock')), \
    ('live_rows', (SELECT sum(n_live_tup)::text FROM pg_stat_user_tables WHERE schemaname = 'distlock')), \
    ('oldest_transaction', (SELECT floor(extract(epoch FROM max(now() - xact_start)))::text FROM pg_stat_activity \
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid())), \
    ('max_connections', current_setting('max_connections')), \
    ('connections', (SELECT sum(numbackends)::text FROM pg_stat_database)), \
    ('sees_all', pg_has_role('pg_read_all_stats', 'usage')::text), \
    ('clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text)) AS facts (name, value)";

/// Facts about a server by their names, and the durations of round trips.
#[derive(Clone, Debug, Default)]
pub struct PostgresFacts {
    /// The facts that the server gives.
    pub values: BTreeMap<String, String>,
    /// The durations of round trips.
    pub round_trips: Vec<Duration>,
}

/// Queries the server of a store about itself.
pub(crate) async fn query(client: &PostgresClient) -> Result<PostgresFacts, Error> {
    let limit = client.config.connect_timeout;
    let facts = tokio::time::timeout(limit, of(client)).await;
    facts
        .unwrap_or_else(|_| Err(StoreError::timed_out(limit)))
        .map_err(|error| client.config.connect_error(error, Duration::ZERO))
}

async fn of(client: &PostgresClient) -> StoreResult<PostgresFacts> {
    let (session, receives) = listener::probed(client).await?;
    let mut facts = PostgresFacts::default();
    facts.values.insert("messages".into(), receives.to_string());
    for row in session
        .client
        .query_typed(QUERY, &[])
        .await
        .map_err(classify)?
    {
        if let Some(value) = column(&row, "value")? {
            facts.values.insert(column(&row, "name")?, value);
        }
    }
    for _ in 0..ROUND_TRIPS {
        let started = client.clock.now();
        session
            .client
            .query_typed("SELECT", &[])
            .await
            .map_err(classify)?;
        facts.round_trips.push(client.clock.now().since(started));
    }
    Ok(facts)
}
