//! The connections of a client, and what it does on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::fencing::FencingToken;
use crate::protocol::messages::Proof;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::availability::{Availability, OutageCause};
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::decode::server_time;
use crate::store::postgres::encode::long;
use crate::store::postgres::listener::Listener;
use crate::store::postgres::pool::Pool;
use crate::store::postgres::session::{Limit, Session};
use crate::store::postgres::verbs::Verb;
use crate::util::clock::BootInstant;

/// The number of acquires after which expired rows of one page are removed.
const ACQUIRES_PER_SWEEP: u64 = 64;

/// Upper limit of the pages that are swept at once.
const MAX_SWEEPS: u64 = 50;

/// Each client sweeps this often, also without acquires.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

const SWEEP_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections of a client.
pub(super) struct Shared {
    pub(super) client: Arc<PostgresClient>,
    pub(super) availability: Arc<Availability>,
    pub(super) pool: Pool,
    pub(super) listener: Listener,
    /// Acquires since the last sweep.
    pub(super) acquires: AtomicU64,
}

impl Shared {
    /// Returns why a connection is down; `None` if both are up. An error that does not pass by
    /// itself takes precedence.
    pub(super) fn disconnected(&self) -> Option<StoreError> {
        let links = [&self.listener.link, &self.pool.link];
        let errors = links.into_iter().filter_map(|link| link.session().err());
        errors.min_by_key(|error| error.outage.is_transient())
    }

    /// Returns a session for a command, or why there is none. If there was none yet, the listening
    /// session has the reason.
    pub(super) fn session(&self) -> StoreResult<Arc<Session>> {
        let session = self.pool.session();
        session.map_err(|error| self.disconnected().unwrap_or(error))
    }

    pub(super) async fn keep_house(&self, swept_at: &mut BootInstant) {
        self.listener.listen_no_longer().await;
        self.pool.close_idle();
        let now = self.client.clock.now();
        let pages = self
            .acquires
            .swap(0, Ordering::Relaxed)
            .div_ceil(ACQUIRES_PER_SWEEP);
        let is_due = now.since(*swept_at) >= SWEEP_INTERVAL;
        for _ in 0..pages.min(MAX_SWEEPS).max(u64::from(is_due)) {
            *swept_at = now;
            if self.command(Verb::Sweep, &[], SWEEP_TIMEOUT).await.is_err() {
                return;
            }
        }
    }

    /// Runs a verb over a connection for commands. Returns its rows, and when it was sent.
    pub(super) async fn command(
        &self,
        verb: Verb,
        parameters: &[&(dyn ToSql + Sync)],
        timeout: Duration,
    ) -> StoreResult<(BootInstant, Vec<Row>)> {
        let session = self.session()?;
        let limit = Limit::Timer(timeout);
        self.command_on(&session, verb, parameters, limit).await
    }

    pub(super) async fn command_on(
        &self,
        session: &Session,
        verb: Verb,
        parameters: &[&(dyn ToSql + Sync)],
        limit: Limit,
    ) -> StoreResult<(BootInstant, Vec<Row>)> {
        let sent_at = self.client.clock.now();
        let reply = session.run(&self.client, verb, parameters, limit).await;
        match reply {
            Ok(rows) => {
                if session.end_stall() {
                    self.availability.clear(OutageCause::Rejecting);
                }
                Ok((sent_at, rows))
            }
            Err(error) => Err(error.at(&self.client.address)),
        }
    }

    pub(super) fn proof(&self, sent_at: BootInstant, token: FencingToken) -> Proof {
        Proof { sent_at, token }
    }

    /// Records the server's time in a reply.
    pub(super) fn learn_time(&self, sent_at: BootInstant, row: &Row) -> StoreResult<()> {
        if let Some(time) = server_time(row)? {
            self.client.server_clock.update(sent_at, time);
        }
        Ok(())
    }

    pub(super) fn fence_ttl(&self) -> i64 {
        long(self.client.settings.fence_ttl)
    }
}
