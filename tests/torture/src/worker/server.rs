//! The server that has the locks, asked past all faults.

use std::net::SocketAddr;
use std::time::Duration;

use distlock_tests::{Reply, Resp};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// One of several, or the only one.
#[derive(Debug)]
pub(super) struct Server {
    /// The next one to try is the first.
    addresses: Vec<SocketAddr>,
    connection: Option<Resp>,
}

impl Server {
    pub(super) fn of(addresses: Vec<SocketAddr>) -> Self {
        Server {
            addresses,
            connection: None,
        }
    }

    /// The value at `key`; `None` if the server did not say, or has no locks now.
    pub(super) fn read(&mut self, key: &str) -> Option<Option<String>> {
        let value = self.ask(key);
        if value.is_none() {
            self.connection = None;
            self.addresses.rotate_left(1);
        }
        value
    }

    fn ask(&mut self, key: &str) -> Option<Option<String>> {
        let several = self.addresses.len() > 1;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => {
                let mut fresh = Resp::connect(*self.addresses.first()?).ok()?;
                fresh.set_timeout(PATIENCE);
                empty.insert(fresh)
            }
        };
        if several && !is_master(connection) {
            return None;
        }
        let reply = connection.try_cmd(&["GET", key]).ok()?;
        (!reply.is_error()).then(|| reply.text().map(str::to_owned))
    }
}

fn is_master(connection: &mut Resp) -> bool {
    match connection.try_cmd(&["ROLE"]) {
        Ok(Reply::Array(role)) => {
            let role = role.first();
            matches!(role, Some(Reply::Bulk(role)) if role == "master")
        }
        _ => false,
    }
}
