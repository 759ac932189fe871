//! Independent servers, a majority of which must agree.

use std::time::Duration;

use distlock::Quorum;
use distlock_tests::{Proxy, RedisQuorum, RedisServer, RedisServerBuilder, Reply};

use super::server::ServerFaults;
use super::user::{PASSWORD, USER};
use super::{Needs, Target, query};
use crate::kind::Kind;
use crate::plan::Planned;
use crate::profile::Profile;

/// The namespace of all keys of a run.
const NAMESPACE: &str = "distlock";

/// The difference between two servers' clocks, if they must differ; longer than any token is ahead.
const APART: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Independent {
    quorum: RedisQuorum,
    faults: ServerFaults,
    /// Set if the servers are configured as if they forgot nothing, yet they forget.
    forgetful: bool,
}

impl Independent {
    /// Starts servers that vote from the beginning. Forgetful servers vote in every run of their
    /// process, and each has a snapshot of that state.
    pub(super) fn start(server: &RedisServerBuilder, count: u32, needs: Needs) -> Self {
        let quorum = RedisQuorum::of((0..count).map(|_| server.clone().start()));
        if needs.apart {
            for (place, server) in (0..).zip(quorum.servers()) {
                server.step_clock(true, APART * place);
            }
        }
        quorum.vote(NAMESPACE);
        if needs.forgetful {
            for server in quorum.servers() {
                let mut raw = server.client();
                raw.cmd(&["SET", &format!("{NAMESPACE}:epoch"), "- 0"]);
                raw.cmd(&["SAVE"]);
            }
        }
        Independent {
            quorum,
            faults: ServerFaults::new(needs.keys),
            forgetful: needs.forgetful,
        }
    }

    /// Returns true if all servers vote, so that no client relies on data that one has forgotten.
    fn all_vote(&self) -> anyhow::Result<bool> {
        for server in self.quorum.servers() {
            if !votes(server)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Target for Independent {
    fn url(&self, ports: &[u16]) -> String {
        let beginning = format!("redis+quorum://{USER}:{PASSWORD}@");
        RedisQuorum::url_of(&beginning, ports.iter().copied())
    }

    fn own_url(&self) -> String {
        self.quorum.url()
    }

    fn primaries(&self) -> Vec<&RedisServer> {
        self.quorum.servers().iter().collect()
    }

    fn links(&self) -> Vec<Proxy> {
        let servers = self.quorum.servers().iter();
        servers.map(RedisServer::proxy).collect()
    }

    /// Returns true if a fault can begin. Unless the run is forgetful, a server forgets only while
    /// all servers answer and vote, as the promise of a quorum requires.
    fn is_ready(&mut self, fault: &Planned, in_force: &[Kind]) -> anyhow::Result<bool> {
        if !fault.kind.forgets() || self.forgetful {
            return Ok(true);
        }
        Ok(!in_force.iter().any(|kind| kind.is_silent()) && self.all_vote()?)
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        let server = self.quorum.server(fault.node.unwrap_or(0) as usize);
        self.faults.begin(server, fault)
    }

    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        let server = self.quorum.server(fault.node.unwrap_or(0) as usize);
        self.faults.end(server, fault)?;
        Ok(true)
    }
}

/// Returns true if a server has known this run of its process for long enough to vote.
fn votes(server: &RedisServer) -> anyhow::Result<bool> {
    let epoch = query(server, &["GET", &format!("{NAMESPACE}:epoch")])?;
    let info = query(server, &["INFO", "server"])?;
    let time = query(server, &["TIME"])?;
    let mut lines = info.text().unwrap_or_default().lines();
    let run = lines.find_map(|line| line.strip_prefix("run_id:"));
    Ok(votes_in(&epoch, &time, run.unwrap_or_default().trim_end()))
}

/// Returns true if a server with this epoch votes at this time, in this run of its process.
pub(crate) fn votes_in(epoch: &Reply, time: &Reply, run: &str) -> bool {
    let Reply::Array(time) = time else {
        return false;
    };
    let mut parts = time.iter().map(|part| part.text()?.parse::<u64>().ok());
    let (Some(Some(seconds)), Some(Some(micros))) = (parts.next(), parts.next()) else {
        return false;
    };
    let from = epoch.text().and_then(|epoch| epoch.split_once(' '));
    // `-` applies to every run: the server is configured as one that forgets nothing.
    let from = from.filter(|(of, _)| *of == run || *of == "-");
    from.and_then(|(_, from)| from.parse::<u64>().ok())
        .is_some_and(|from| from <= seconds * 1_000_000 + micros)
}

/// Returns the quorum configuration of all clients. Its `max_lease` is the longest lease of the
/// run, the supervisor's included, so that a server that forgot votes again soon.
pub(crate) fn terms(profile: &Profile) -> Quorum {
    Quorum::new()
        .max_lease(Duration::from_millis(profile.longest_lease().max(1_000)))
        .assume_durable_servers(profile.forgetful)
}
