//! The lock servers of a run: how they are reached, and how they break.

mod ask;
mod independent;
mod server;
mod sharded;
mod single;
mod user;
mod watched;

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use distlock_tests::{Proxy, RedisServer};

use crate::kind::Kind;
use crate::plan::Planned;
use crate::profile::Profile;
use crate::worker::all_keys;
use ask::ask;
use independent::Independent;
pub(crate) use independent::{terms, votes_in};
use sharded::Sharded;
use single::Single;
use user::is_workers;
pub(crate) use user::{PASSWORD, USER};
use watched::Watched;

/// How often it is checked whether what takes its own time is done.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How much of a server's log is shown.
const LAST_LINES: usize = 25;

/// How the lock servers stand to each other, and how they are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One server.
    Standalone,
    /// One server, over TLS.
    Tls,
    /// A primary and a replica, watched by three sentinels.
    Sentinel,
    /// The same, where a lock counts once the replica has it.
    Replicas,
    /// Three primaries with a replica each, which share the slots.
    Cluster,
    /// Three independent servers, two of which must agree.
    Quorum3,
    /// Five of them, three of which must.
    Quorum5,
}

impl Topology {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Standalone => "standalone",
            Topology::Tls => "tls",
            Topology::Sentinel => "sentinel",
            Topology::Replicas => "replicas",
            Topology::Cluster => "cluster",
            Topology::Quorum3 => "quorum3",
            Topology::Quorum5 => "quorum5",
        }
    }

    /// How many replicas a lock needs, and each of its renewals.
    pub(crate) fn min_replicas(self) -> u32 {
        u32::from(self == Topology::Replicas)
    }

    /// How many independent servers vote; zero where one decides.
    pub(crate) fn nodes(self) -> u32 {
        match self {
            Topology::Quorum3 => 3,
            Topology::Quorum5 => 5,
            _ => 0,
        }
    }

    /// Whether no fault of this kind makes the servers forget a lock that a holder believes in.
    pub(crate) fn keeps_locks(self, kind: Kind, profile: &Profile) -> bool {
        kind.is_lossless()
            || kind.is_failover() && self.min_replicas() > 0
            || self.nodes() > 0 && !profile.forgetful
    }

    /// Whether a link can have this fault.
    pub(crate) fn links_can(self, kind: Kind) -> bool {
        match self {
            Topology::Quorum3 | Topology::Quorum5 => true,
            // From one of several servers.
            _ if kind == Kind::CutOff => false,
            Topology::Standalone => true,
            // The proxy sees bytes.
            Topology::Tls => !kind.reads_commands(),
            // Sentinels and nodes name the servers' own addresses, so there is nothing in between.
            Topology::Sentinel | Topology::Replicas | Topology::Cluster => false,
        }
    }

    /// Starts the servers.
    pub(crate) fn start(self, needs: Needs) -> anyhow::Result<Box<dyn Target>> {
        let lock_server = |rights: &[&str]| {
            let mut builder = RedisServer::builder();
            if needs.clock || needs.apart {
                builder = builder.own_clock();
            }
            if needs.persistence {
                builder = builder.append_only();
            }
            user::at_server(builder, rights)
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
                Box::new(Independent::start(&lock_server(&[]), self.nodes(), needs))
            }
        })
    }
}

/// What a run needs of its servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Its clock can be stepped.
    pub(crate) clock: bool,
    /// It can be killed without losing anything.
    pub(crate) persistence: bool,
    /// The servers of a quorum come back with what they had at the beginning.
    pub(crate) forgetful: bool,
    /// The clocks of a quorum's servers are apart.
    pub(crate) apart: bool,
    /// So many keys are going to be used.
    pub(crate) keys: u32,
}

/// The servers of a topology, and what breaks them.
pub(crate) trait Target: Debug {
    /// What a worker connects to, which has links at these ports, if there are any.
    fn url(&self, ports: &[u16]) -> String;

    /// What the supervisor connects to, past all links.
    fn own_url(&self) -> String;

    /// The servers that have the locks.
    fn primaries(&self) -> Vec<&RedisServer>;

    /// Those that may have them.
    fn servers(&self) -> Vec<&RedisServer> {
        self.primaries()
    }

    fn sentinels(&self) -> &[RedisServer] {
        &[]
    }

    /// The links of one worker, one to each server.
    fn links(&self) -> Vec<Proxy> {
        Vec::new()
    }

    /// The certificate of the servers' authority, if they have one.
    fn authority(&self) -> Option<&Path> {
        None
    }

    /// The keys that a fault concerns, if not all.
    fn keys(&self, _: &Planned) -> Option<Vec<String>> {
        None
    }

    /// Whether a fault can begin now. `in_force`: other faults of these servers.
    fn is_ready(&mut self, _: &Planned, _in_force: &[Kind]) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()>;

    /// The second part of a fault that has one.
    fn middle(&mut self, _: &Planned) -> anyhow::Result<()> {
        Ok(())
    }

    /// Goes on with what ends a fault; returns whether it is over.
    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool>;

    /// Whether nothing of any fault is left.
    fn is_in_order(&mut self) -> anyhow::Result<bool> {
        Ok(true)
    }

    /// The ends of the servers' logs.
    fn last_words(&self) -> String {
        last_lines(self.servers())
    }
}

/// How many connections the workers have.
pub(crate) fn all_connections(target: &dyn Target) -> anyhow::Result<u32> {
    let servers = target.servers().into_iter();
    servers.chain(target.sentinels()).map(connections).sum()
}

/// How many connections the workers have to one server.
fn connections(server: &RedisServer) -> anyhow::Result<u32> {
    let list = ask(server, &["CLIENT", "LIST"])?;
    let list = list.text().unwrap_or_default();
    let count = list.lines().filter(|line| is_workers(line)).count();
    Ok(u32::try_from(count)?)
}

/// The ends of the logs.
fn last_lines<'a>(of: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let last = |server: &RedisServer| {
        let log = server.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    };
    let each: Vec<_> = of.into_iter().map(last).collect();
    each.join("\n\n")
}
