//! The lock servers of a run, and the links to them.

mod sealed;
mod user;
mod watched;

use std::net::SocketAddr;
use std::path::Path;

use distlock_tests::{Proxy, RedisServer, RedisServerBuilder};

use crate::plan::Kind;
use crate::profile::{Faults, Profile};
use sealed::Sealed;
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
}

impl Topology {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Standalone => "standalone",
            Topology::Tls => "tls",
            Topology::Sentinel => "sentinel",
        }
    }

    /// What a profile does to the lock servers.
    pub(crate) fn server_faults(self, profile: &Profile) -> Faults {
        match self {
            Topology::Standalone | Topology::Tls => profile.server,
            Topology::Sentinel => profile.watched,
        }
    }

    /// Whether a link can have this fault.
    pub(crate) fn links_can(self, kind: Kind) -> bool {
        match self {
            Topology::Standalone => true,
            // The proxy sees bytes.
            Topology::Tls => !kind.reads_commands(),
            // Sentinels name the servers' own addresses, so there is nothing in between.
            Topology::Sentinel => false,
        }
    }
}

/// What a run needs of its servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The workers' user may kill connections.
    pub(crate) kill: bool,
    /// Its clock can be stepped.
    pub(crate) clock: bool,
    /// It can be killed without losing anything.
    pub(crate) persistence: bool,
}

/// The servers and links of a run.
#[derive(Debug)]
pub(crate) struct Field {
    servers: Servers,
    /// One for each worker, if the topology has links.
    pub(crate) links: Vec<Proxy>,
}

#[derive(Debug)]
enum Servers {
    Plain(RedisServer),
    Sealed(Sealed),
    Watched(Watched),
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
            Topology::Sentinel => Field {
                servers: Servers::Watched(Watched::start(lock_server(needs, &["role"]))),
                links: Vec::new(),
            },
        }
    }

    /// What a worker connects to.
    pub(crate) fn url(&self, worker: u32) -> String {
        let link = || {
            let port = self.links[worker as usize].port();
            format!("{USER}:{PASSWORD}@127.0.0.1:{port}")
        };
        match &self.servers {
            Servers::Plain(_) => format!("redis://{}", link()),
            Servers::Sealed(_) => format!("rediss://{}", link()),
            Servers::Watched(watched) => watched.url(&format!("{USER}:{PASSWORD}@")),
        }
    }

    /// What a worker needs to know beside the URL.
    pub(crate) fn environment(&self) -> &'static [(&'static str, &'static str)] {
        match &self.servers {
            Servers::Plain(_) | Servers::Sealed(_) => &[],
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
            Servers::Plain(_) | Servers::Watched(_) => None,
        }
    }

    /// The server that has the locks, past all faults.
    pub(crate) fn master(&self) -> &RedisServer {
        match &self.servers {
            Servers::Plain(server) => server,
            Servers::Sealed(sealed) => &sealed.server,
            Servers::Watched(watched) => watched.master(),
        }
    }

    /// Servers, one of which may take another's place, and those who decide that.
    pub(crate) fn watched(&self) -> Option<&Watched> {
        match &self.servers {
            Servers::Plain(_) | Servers::Sealed(_) => None,
            Servers::Watched(watched) => Some(watched),
        }
    }

    /// Where locks may be.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self.watched() {
            None => vec![self.master().addr()],
            Some(watched) => watched.servers().iter().map(RedisServer::addr).collect(),
        }
    }

    /// How many connections the workers have.
    pub(crate) fn connections(&self) -> u32 {
        match self.watched() {
            None => connections(self.master()),
            Some(watched) => watched.all().map(connections).sum(),
        }
    }
}

/// How many connections the workers have to one server.
pub(crate) fn connections(server: &RedisServer) -> u32 {
    let list = server.client().cmd(&["CLIENT", "LIST"]);
    let list = list.text().unwrap_or_default();
    let count = list.lines().filter(|line| is_workers(line)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A server for locks.
fn lock_server(needs: Needs, more: &[&str]) -> RedisServerBuilder {
    let mut builder = RedisServer::builder();
    if needs.clock {
        builder = builder.own_clock();
    }
    if needs.persistence {
        builder = builder.append_only();
    }
    let kill: &[&str] = if needs.kill { &["client|kill"] } else { &[] };
    user::at_server(builder, &[kill, more].concat())
}
