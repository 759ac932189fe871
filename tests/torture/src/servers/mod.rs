//! The lock servers of a run: how clients reach them, and how they fail.

mod database;
mod independent;
mod query;
mod server;
mod sharded;
mod single;
mod user;
mod watched;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use distlock_tests::{Proxy, RedisServer};

use crate::history::Accounts;
use crate::kind::Kind;
use crate::plan::Planned;
use crate::worker::all_keys;
use database::Database;
pub(crate) use database::{BANKS, IDLE_IN_TRANSACTION, ISOLATIONS, Session, bank};
use independent::Independent;
pub(crate) use independent::{grants, terms};
use query::query;
use sharded::Sharded;
use single::Single;
use user::is_workers;
pub(crate) use user::{PASSWORD, USER};
use watched::Watched;

/// The interval between two checks whether the servers have reached a state.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Upper limit of the lines shown of a server's log.
const LAST_LINES: usize = 25;

/// The relation of the lock servers to each other, and how clients reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    Standalone,
    Tls,
    /// A primary and a replica, monitored by three sentinels
    Sentinel,
    /// As `sentinel`, but a lock counts only once the replica has it
    Replicas,
    /// Three primaries with a replica each, which share the slots
    Cluster,
    /// Three independent servers, two of which must agree
    Quorum3,
    /// Five independent servers, three of which must agree
    Quorum5,
    /// A PostgreSQL server, which also has a table that the locks protect
    Postgres,
}

impl Topology {
    /// Returns the name as an option of the command line.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns the number of replicas that must acknowledge a lock and each of its renewals.
    pub(crate) fn min_replicas(self) -> u32 {
        u32::from(self == Topology::Replicas)
    }

    /// Returns the number of independent servers, or 0 without a quorum.
    pub(crate) fn nodes(self) -> u32 {
        match self {
            Topology::Quorum3 => 3,
            Topology::Quorum5 => 5,
            _ => 0,
        }
    }

    /// Returns true if faults of this kind make the servers forget no lock with a valid hold.
    pub(crate) fn keeps_locks(self, kind: Kind) -> bool {
        kind.is_lossless() || kind.is_failover() && self.min_replicas() > 0 || self.nodes() > 0
    }

    /// Returns true if a link can have this fault.
    pub(crate) fn links_can(self, kind: Kind) -> bool {
        match self {
            Topology::Quorum3 | Topology::Quorum5 => true,
            // `CutOff` separates a worker from one of several servers.
            _ if kind == Kind::CutOff => false,
            Topology::Standalone => true,
            // The proxy sees only encrypted bytes, or does not parse them.
            Topology::Tls | Topology::Postgres => !kind.reads_commands(),
            // Sentinels and nodes report the servers' real addresses, so there is no proxy.
            Topology::Sentinel | Topology::Replicas | Topology::Cluster => false,
        }
    }

    /// Returns true if the servers have a table that the locks protect.
    pub(crate) fn has_accounts(self) -> bool {
        self == Topology::Postgres
    }

    pub(crate) fn start(self, needs: Needs) -> anyhow::Result<Box<dyn Target>> {
        let lock_server = |permissions: &[&str]| {
            let mut builder = RedisServer::builder();
            if needs.clock || needs.apart {
                builder = builder.own_clock();
            }
            if needs.persistence {
                builder = builder.append_only();
            }
            user::at_server(builder, permissions)
        };
        let keys = needs.keys;
        Ok(match self {
            Topology::Standalone => Box::new(Single::plain(lock_server(&[]), keys)),
            Topology::Tls => Box::new(Single::over_tls(lock_server(&[]), keys)?),
            Topology::Sentinel => Box::new(Watched::start(lock_server(&["role"]), false, keys)),
            Topology::Replicas => {
                Box::new(Watched::start(lock_server(&["role", "wait"]), true, keys))
            }
            Topology::Cluster => {
                let node = user::in_cluster(RedisServer::builder());
                Box::new(Sharded::start(node, all_keys(keys).collect()))
            }
            Topology::Quorum3 | Topology::Quorum5 => {
                Box::new(Independent::start(&lock_server(&[]), self.nodes(), &needs))
            }
            Topology::Postgres => Box::new(Database::start(&needs)?),
        })
    }
}

/// The requirements of a run on its servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// The clock of the server can be stepped.
    pub(crate) clock: bool,
    /// The server can be killed without losing data.
    pub(crate) persistence: bool,
    /// The clocks of the servers of a quorum differ.
    pub(crate) apart: bool,
    /// The number of keys that the run uses.
    pub(crate) keys: u32,
    /// The saboteur of the run.
    #[cfg(sabotage)]
    pub(crate) sabotage: Option<String>,
}

/// The servers of a topology, and their faults.
pub(crate) trait Target: Debug {
    /// Returns the URL for a worker with links, if any, at these ports.
    fn url(&self, ports: &[u16]) -> String;

    /// Returns the URL for the supervisor, which bypasses all links.
    fn own_url(&self) -> String;

    /// Returns the Redis servers that have the locks.
    fn primaries(&self) -> Vec<&RedisServer> {
        Vec::new()
    }

    /// Returns the Redis servers that may have the locks.
    fn servers(&self) -> Vec<&RedisServer> {
        self.primaries()
    }

    fn sentinels(&self) -> &[RedisServer] {
        &[]
    }

    /// Returns the name and the version of the servers.
    fn version(&self) -> String {
        let version = self.primaries()[0].client().info_field("redis_version");
        format!("redis {version}")
    }

    /// Returns the addresses of the servers that may have the locks.
    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().into_iter().map(RedisServer::addr).collect()
    }

    /// Returns how many connections the workers have.
    fn connections(&self) -> anyhow::Result<u32> {
        let servers = self.servers().into_iter();
        servers.chain(self.sentinels()).map(connections).sum()
    }

    /// Returns the keys that the workers have left behind so far.
    fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let primaries = self.primaries().into_iter();
        let keys = primaries.flat_map(|primary| primary.client().keys("distlock:*"));
        // Fences remain for two hours, so that the next token is greater, and success records for
        // two periods.
        let remains = ["distlock:fence:", "distlock:done:"];
        let is_left = |key: &String| {
            !remains.iter().any(|kind| key.starts_with(kind)) && key != "distlock:epoch"
        };
        Ok(keys.filter(is_left).collect())
    }

    /// Returns the table that the locks protect, if there is one.
    fn accounts(&self) -> anyhow::Result<Option<Accounts>> {
        Ok(None)
    }

    /// Creates the links of one worker, one to each server.
    fn links(&self) -> Vec<Proxy> {
        Vec::new()
    }

    /// Returns the CA certificate of the servers, if they have one.
    fn authority(&self) -> Option<&Path> {
        None
    }

    /// Returns the keys that a fault concerns, or `None` if it concerns all.
    fn keys(&self, _: &Planned) -> Option<Vec<String>> {
        None
    }

    /// Returns true if a fault can begin now. `in_force` are the other faults of these servers.
    fn is_ready(&mut self, _: &Planned, _in_force: &[Kind]) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()>;

    /// Begins the second part of a fault that has one.
    fn middle(&mut self, _: &Planned) -> anyhow::Result<()> {
        Ok(())
    }

    /// Continues to end a fault. Returns true once the fault has ended.
    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool>;

    /// Returns true if no effect of any fault remains.
    fn is_in_order(&mut self) -> anyhow::Result<bool> {
        Ok(true)
    }

    /// Returns the last lines of the servers' logs.
    fn last_words(&self) -> String {
        last_lines(self.servers())
    }
}

/// Returns how many connections the workers have to one server.
fn connections(server: &RedisServer) -> anyhow::Result<u32> {
    let list = query(server, &["CLIENT", "LIST"])?;
    let list = list.text().unwrap_or_default();
    let count = list.lines().filter(|line| is_workers(line)).count();
    Ok(u32::try_from(count)?)
}

/// Returns the last lines of the logs.
fn last_lines<'a>(of: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let last = |server: &RedisServer| {
        let log = server.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    };
    let each: Vec<_> = of.into_iter().map(last).collect();
    each.join("\n\n")
}
