//! The server that has a lock, read directly and without faults.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use distlock_tests::{Reply, Resp};

/// Upper limit of waiting for a reply.
const PATIENCE: Duration = Duration::from_secs(1);

/// Upper limit of the nodes of a cluster that are asked for one key.
const HOPS: u32 = 3;

/// The only server, or the one of several that has the locks.
#[derive(Debug)]
pub(super) struct Server {
    /// The candidates; the first is tried next.
    addresses: Vec<SocketAddr>,
    connections: HashMap<SocketAddr, Resp>,
}

impl Server {
    pub(super) fn of(addresses: Vec<SocketAddr>) -> Self {
        Server {
            addresses,
            connections: HashMap::new(),
        }
    }

    /// Returns the value at `key`, or `None` without an answer from a server that has locks.
    pub(super) fn read(&mut self, key: &str) -> Option<Option<String>> {
        let value = self.try_read(key);
        if value.is_none() {
            self.connections.clear();
            self.addresses.rotate_left(1);
        }
        value
    }

    fn try_read(&mut self, key: &str) -> Option<Option<String>> {
        let several = self.addresses.len() > 1;
        let mut address = *self.addresses.first()?;
        let mut is_asking = false;
        for _ in 0..HOPS {
            let connection = self.connection(address)?;
            if is_asking {
                connection.try_cmd(&["ASKING"]).ok()?;
            }
            let reply = connection.try_cmd(&["GET", key]).ok()?;
            match redirect(&reply) {
                Some(redirect) => (address, is_asking) = redirect,
                None if reply.is_error() || several && !is_primary(connection) => return None,
                None => return Some(reply.text().map(str::to_owned)),
            }
        }
        None
    }

    fn connection(&mut self, address: SocketAddr) -> Option<&mut Resp> {
        match self.connections.entry(address) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(empty) => {
                let mut fresh = Resp::connect(address).ok()?;
                fresh.set_timeout(PATIENCE);
                Some(empty.insert(fresh))
            }
        }
    }
}

/// Parses a redirect: the node to ask, and whether it needs ASKING because the slot is migrating.
fn redirect(reply: &Reply) -> Option<(SocketAddr, bool)> {
    let Reply::Error(error) = reply else {
        return None;
    };
    let mut words = error.split(' ');
    let is_asking = match words.next()? {
        "ASK" => true,
        "MOVED" => false,
        _ => return None,
    };
    Some((words.nth(1)?.parse().ok()?, is_asking))
}

fn is_primary(connection: &mut Resp) -> bool {
    match connection.try_cmd(&["ROLE"]) {
        Ok(Reply::Array(role)) => {
            let role = role.first();
            matches!(role, Some(Reply::Bulk(role)) if role == "master")
        }
        _ => false,
    }
}
