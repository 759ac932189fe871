//! The lock servers of a run, and the links to them.

mod ask;
mod independent;
mod repair;
mod sealed;
mod sharded;
mod user;
mod watched;

use std::net::SocketAddr;
use std::path::Path;

use distlock_tests::{Proxy, RedisServer, RedisServerBuilder};

use crate::plan::Kind;
use crate::profile::{Faults, Profile};
use crate::worker::all_keys;
pub(crate) use ask::ask;
pub(crate) use independent::{Independent, terms};
pub(crate) use repair::{begin_move, move_keys};
use sealed::Sealed;
pub(crate) use sharded::{Removal, Sharded};
use user::{PASSWORD, USER, is_workers};
pub(crate) use user::{kill_command, right_command};
pub(crate) use watched::Watched;

/// How the lock servers stand to each other, and how they are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One server.
    Standalone,
    /// One server, over TLS.
    Tls,
    /// A master and a replica, watched by three sentinels.
    Sentinel,
    /// The same, where a lock counts once the replica has it.
    Replicas,
    /// Three masters with a replica each, which share the slots.
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

    /// Whether no fault of this kind makes the servers forget a lock that anybody believes in.
    pub(crate) fn keeps_locks(self, kind: Kind, profile: &Profile) -> bool {
        kind.is_lossless()
            || kind.is_failover() && self.min_replicas() > 0
            || self.nodes() > 0 && !profile.forgetful
    }

    /// What a profile does to the lock servers, as one target or two.
    pub(crate) fn server_faults(self, profile: &Profile) -> Vec<Faults> {
        match self {
            Topology::Standalone | Topology::Tls => vec![profile.server],
            Topology::Sentinel | Topology::Replicas => vec![profile.watched, profile.replica],
            Topology::Cluster => vec![profile.sharded, profile.moves],
            Topology::Quorum3 => vec![profile.voters],
            // Two may be away at once.
            Topology::Quorum5 => vec![profile.voters, profile.more_voters],
        }
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
}

/// What a run needs of its servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Its clock can be stepped.
    pub(crate) clock: bool,
    /// It can be killed without losing anything.
    pub(crate) persistence: bool,
    /// It comes back with what it had at the beginning.
    pub(crate) forgetful: bool,
    /// Where several vote, their clocks are apart.
    pub(crate) apart: bool,
    /// So many keys are going to be used.
    pub(crate) keys: u32,
}

/// The servers and links of a run.
#[derive(Debug)]
pub(crate) struct Field {
    servers: Servers,
    /// One for each worker, and for each node of a quorum, if the topology has links.
    pub(crate) links: Vec<Proxy>,
}

#[derive(Debug)]
enum Servers {
    Plain(RedisServer),
    Sealed(Sealed),
    Watched(Watched),
    Sharded(Sharded),
    Independent(Independent),
}

impl Field {
    pub(crate) fn set_up(topology: Topology, workers: u32, needs: Needs) -> Self {
        let link_each = |link: &dyn Fn() -> Proxy| (0..workers).map(|_| link()).collect();
        match topology {
            Topology::Standalone => {
                let server = lock_server(needs, &[]).start();
                let links = link_each(&|| server.proxy());
                let servers = Servers::Plain(server);
                Field { servers, links }
            }
            Topology::Tls => {
                let sealed = Sealed::start(lock_server(needs, &[]));
                let links = link_each(&|| sealed.server.tls_proxy());
                let servers = Servers::Sealed(sealed);
                Field { servers, links }
            }
            Topology::Sentinel | Topology::Replicas => {
                let acknowledged = topology.min_replicas() > 0;
                let rights: &[&str] = if acknowledged {
                    &["role", "wait"]
                } else {
                    &["role"]
                };
                let watched = Watched::start(lock_server(needs, rights), acknowledged);
                Field {
                    servers: Servers::Watched(watched),
                    links: Vec::new(),
                }
            }
            Topology::Cluster => {
                let node = user::in_cluster(RedisServer::builder());
                let sharded = Sharded::start(node, all_keys(needs.keys).collect());
                Field {
                    servers: Servers::Sharded(sharded),
                    links: Vec::new(),
                }
            }
            Topology::Quorum3 | Topology::Quorum5 => {
                let independent = {
                    let node = lock_server(needs, &[]);
                    Independent::start(&node, topology.nodes(), needs)
                };
                let links = (0..workers).flat_map(|_| independent.nodes().iter());
                Field {
                    links: links.map(RedisServer::proxy).collect(),
                    servers: Servers::Independent(independent),
                }
            }
        }
    }

    /// What a worker connects to.
    pub(crate) fn url(&self, worker: u32) -> String {
        let link = || {
            let port = self.link(worker, None).port();
            format!("{USER}:{PASSWORD}@127.0.0.1:{port}")
        };
        match &self.servers {
            Servers::Plain(_) => format!("redis://{}", link()),
            Servers::Sealed(_) => format!("rediss://{}", link()),
            Servers::Watched(watched) => watched.url(&format!("{USER}:{PASSWORD}@")),
            Servers::Sharded(sharded) => sharded.url(),
            Servers::Independent(independent) => {
                let nodes = (0..).zip(independent.nodes());
                let links = nodes.map(|(node, _)| self.link(worker, Some(node)));
                Independent::url(links.map(|link| link.port()))
            }
        }
    }

    /// A worker's link, to a node of a quorum or to all that there is.
    pub(crate) fn link(&self, worker: u32, node: Option<u32>) -> &Proxy {
        let each = self.independent().map_or(1, |nodes| nodes.nodes().len());
        &self.links[worker as usize * each + node.unwrap_or(0) as usize]
    }

    /// What the supervisor connects to, past all links.
    pub(crate) fn own_url(&self) -> String {
        match &self.servers {
            Servers::Sharded(sharded) => sharded.cluster.url(),
            Servers::Independent(independent) => independent.own_url(),
            _ => self.masters()[0].url(),
        }
    }

    /// What a worker needs to know beside the URL.
    pub(crate) fn environment(&self) -> &'static [(&'static str, &'static str)] {
        match &self.servers {
            Servers::Plain(_)
            | Servers::Sealed(_)
            | Servers::Sharded(_)
            | Servers::Independent(_) => &[],
            Servers::Watched(_) => &[
                ("DISTLOCK_SENTINEL_USERNAME", USER),
                ("DISTLOCK_SENTINEL_PASSWORD", PASSWORD),
            ],
        }
    }

    /// Who signed the server's certificate, if it has one.
    pub(crate) fn authority(&self) -> Option<&Path> {
        match &self.servers {
            Servers::Sealed(sealed) => Some(&sealed.authority),
            Servers::Plain(_)
            | Servers::Watched(_)
            | Servers::Sharded(_)
            | Servers::Independent(_) => None,
        }
    }

    /// The servers that have the locks, past all faults.
    pub(crate) fn masters(&self) -> Vec<&RedisServer> {
        match &self.servers {
            Servers::Plain(server) => vec![server],
            Servers::Sealed(sealed) => vec![&sealed.server],
            Servers::Watched(watched) => vec![watched.master()],
            Servers::Sharded(sharded) => sharded.masters().collect(),
            Servers::Independent(independent) => independent.nodes().iter().collect(),
        }
    }

    /// The one of them that a number chooses.
    pub(crate) fn master(&self, choice: u64) -> &RedisServer {
        match &self.servers {
            Servers::Plain(server) => server,
            Servers::Sealed(sealed) => &sealed.server,
            Servers::Watched(watched) => watched.master(),
            Servers::Sharded(sharded) => sharded.master(sharded.shard(choice)),
            Servers::Independent(independent) => {
                let count = independent.nodes().len() as u64;
                &independent.nodes()[usize::try_from(choice % count).unwrap_or(0)]
            }
        }
    }

    /// Servers that vote.
    pub(crate) fn independent(&self) -> Option<&Independent> {
        match &self.servers {
            Servers::Independent(independent) => Some(independent),
            _ => None,
        }
    }

    /// Servers that share the keys.
    pub(crate) fn sharded(&self) -> Option<&Sharded> {
        match &self.servers {
            Servers::Sharded(sharded) => Some(sharded),
            _ => None,
        }
    }

    /// Servers, one of which may take another's place, and those who decide that.
    pub(crate) fn watched(&self) -> Option<&Watched> {
        match &self.servers {
            Servers::Watched(watched) => Some(watched),
            _ => None,
        }
    }

    /// Where locks may be.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let servers: Vec<&RedisServer> = match &self.servers {
            Servers::Watched(watched) => watched.servers().iter().collect(),
            Servers::Sharded(sharded) => sharded.cluster.nodes().collect(),
            _ => self.masters(),
        };
        servers.into_iter().map(RedisServer::addr).collect()
    }

    /// How many connections the workers have.
    pub(crate) fn connections(&self) -> anyhow::Result<u32> {
        match &self.servers {
            Servers::Watched(watched) => watched.all().map(connections).sum(),
            Servers::Sharded(sharded) => sharded.cluster.nodes().map(connections).sum(),
            _ => self.masters().into_iter().map(connections).sum(),
        }
    }
}

/// How many connections the workers have to one server.
pub(crate) fn connections(server: &RedisServer) -> anyhow::Result<u32> {
    let list = ask(server, &["CLIENT", "LIST"])?;
    let list = list.text().unwrap_or_default();
    let count = list.lines().filter(|line| is_workers(line)).count();
    Ok(u32::try_from(count)?)
}

/// A server for locks.
fn lock_server(needs: Needs, more: &[&str]) -> RedisServerBuilder {
    let mut builder = RedisServer::builder();
    if needs.clock || needs.apart {
        builder = builder.own_clock();
    }
    if needs.persistence {
        builder = builder.append_only();
    }
    user::at_server(builder, more)
}
