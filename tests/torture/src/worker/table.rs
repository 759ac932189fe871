//! The holds in PostgreSQL, read directly and without faults.

use std::net::SocketAddr;
use std::time::Duration;

use crate::servers::Session;

/// Upper limit of waiting for a reply.
const PATIENCE: Duration = Duration::from_secs(1);

/// The table of the holds.
#[derive(Debug)]
pub(super) struct Table {
    url: String,
    session: Option<Session>,
}

impl Table {
    pub(super) fn at(address: SocketAddr) -> Self {
        Table {
            url: format!("postgres://distlock@{address}/locks"),
            session: None,
        }
    }

    /// Returns the token with which a mutex is held, or `None` without an answer from the server.
    pub(super) fn held(&mut self, key: &str, token: u64) -> Option<Option<u64>> {
        let found = self.try_held(key, token);
        if found.is_err() {
            self.session = None;
        }
        found.ok()
    }

    fn try_held(&mut self, key: &str, token: u64) -> anyhow::Result<Option<u64>> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::connect(&self.url, PATIENCE)?,
        };
        // A hold of this token comes first.
        let query = format!(
            "select token from distlock.hold where key = 'distlock:lock:{key}' and weight > 0 and \
             state in ('g', 'h') and expires > clock_timestamp() order by token <> {token} limit 1"
        );
        let rows = session.query(&query, PATIENCE)?;
        let found = rows.first().and_then(|row| row.get(0)?.parse().ok());
        self.session = Some(session);
        Ok(found)
    }
}
