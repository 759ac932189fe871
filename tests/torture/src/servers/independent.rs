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
}

impl Independent {
    /// Starts servers that grant from the beginning.
    pub(super) fn start(server: &RedisServerBuilder, count: u32, needs: &Needs) -> Self {
        let quorum = RedisQuorum::of((0..count).map(|_| server.clone().start()));
        if needs.apart {
            for (place, server) in (0..).zip(quorum.servers()) {
                server.step_clock(true, APART * place);
            }
        }
        quorum.vote(NAMESPACE);
        Independent {
            quorum,
            faults: ServerFaults::new(needs.keys),
        }
    }

    /// Returns true if no server is in quarantine, so that no client relies on data that one has
    /// forgotten.
    fn all_grant(&self) -> anyhow::Result<bool> {
        let mut servers = self.quorum.servers().iter();
        servers.try_fold(true, |all, server| {
            Ok(all && grants(|words| query(server, words))?)
        })
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

    /// Returns true if a fault can begin. A server forgets only while all servers answer and grant,
    /// as the promise of a quorum requires.
    fn is_ready(&mut self, fault: &Planned, in_force: &[Kind]) -> anyhow::Result<bool> {
        if !fault.kind.forgets() {
            return Ok(true);
        }
        Ok(!in_force.iter().any(|kind| kind.is_silent()) && self.all_grant()?)
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

/// Returns true if a server is not in quarantine: it has known this run of its process for long
/// enough. `query` sends a command to it.
pub(crate) fn grants(
    mut query: impl FnMut(&[&str]) -> anyhow::Result<Reply>,
) -> anyhow::Result<bool> {
    let epoch = query(&["GET", &format!("{NAMESPACE}:epoch")])?;
    let info = query(&["INFO", "server"])?;
    let Reply::Array(time) = query(&["TIME"])? else {
        return Ok(false);
    };
    let [seconds, micros] = [0, 1].map(|part| time.get(part)?.text()?.parse::<u64>().ok());
    let now = seconds
        .zip(micros)
        .map(|(seconds, micros)| seconds * 1_000_000 + micros);
    let mut lines = info.text().unwrap_or_default().lines();
    let run = lines.find_map(|line| line.strip_prefix("run_id:"));
    let from = epoch.text().and_then(|epoch| epoch.split_once(' '));
    let from = from.filter(|(of, _)| run.map(str::trim_end) == Some(*of));
    let from = from.and_then(|(_, from)| from.parse::<u64>().ok());
    Ok(from.zip(now).is_some_and(|(from, now)| from <= now))
}

/// Returns the quorum configuration of all clients. Its `max_lease` is the longest lease of the
/// run, the supervisor's included, so that a server that forgot grants again soon.
pub(crate) fn terms(profile: &Profile) -> Quorum {
    Quorum::new().max_lease(Duration::from_millis(profile.longest_lease().max(1_000)))
}
