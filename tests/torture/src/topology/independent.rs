//! Independent servers, most of which must agree.

use std::time::Duration;

use distlock::Quorum;
use distlock_tests::{RedisQuorum, RedisServer, RedisServerBuilder, Reply};

use super::user::{PASSWORD, USER};
use super::{Needs, ask};
use crate::profile::Profile;

/// What the locks of a run begin with.
const NAMESPACE: &str = "distlock";

/// Between the clocks of two nodes, if they are to be apart: longer than any token is ahead.
const APART: Duration = Duration::from_secs(20);

/// The nodes of a quorum.
#[derive(Debug)]
pub(crate) struct Independent(RedisQuorum);

impl Independent {
    /// They vote from the beginning; forgetful ones in every run of their servers, and each has a snapshot of that.
    pub(super) fn start(node: &RedisServerBuilder, count: u32, needs: Needs) -> Self {
        let nodes = RedisQuorum::of((0..count).map(|_| node.clone().start()));
        if needs.apart {
            for (place, node) in (0..).zip(nodes.servers()) {
                node.step_clock(true, APART * place);
            }
        }
        nodes.vote(NAMESPACE);
        if needs.forgetful {
            for node in nodes.servers() {
                let mut raw = node.client();
                raw.cmd(&["SET", &format!("{NAMESPACE}:epoch"), "- 0"]);
                raw.cmd(&["SAVE"]);
            }
        }
        Independent(nodes)
    }

    pub(crate) fn nodes(&self) -> &[RedisServer] {
        self.0.servers()
    }

    /// `redis+quorum://...` for a worker that reaches them at these ports.
    pub(super) fn url(ports: impl Iterator<Item = u16>) -> String {
        RedisQuorum::url_of(&format!("redis+quorum://{USER}:{PASSWORD}@"), ports)
    }

    /// `redis+quorum://...` past all links.
    pub(super) fn own_url(&self) -> String {
        self.0.url()
    }

    /// Whether all of them vote: whatever one of them has forgotten, nobody counts on it any more.
    pub(crate) fn all_vote(&self) -> anyhow::Result<bool> {
        for node in self.nodes() {
            if !votes(node)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a node has known this run of the server for so long that it votes.
fn votes(node: &RedisServer) -> anyhow::Result<bool> {
    let epoch = ask(node, &["GET", &format!("{NAMESPACE}:epoch")])?;
    let Some((run, from)) = epoch.text().and_then(|epoch| epoch.split_once(' ')) else {
        return Ok(false);
    };
    let info = ask(node, &["INFO", "server"])?;
    let is_its_own = |line: &str| line.trim_end().strip_prefix("run_id:") == Some(run);
    if !info.text().unwrap_or_default().lines().any(is_its_own) {
        return Ok(false);
    }
    let Reply::Array(time) = ask(node, &["TIME"])? else {
        return Ok(false);
    };
    let mut parts = time.iter().map(|part| part.text()?.parse::<u64>().ok());
    let (Some(Some(seconds)), Some(Some(micros))) = (parts.next(), parts.next()) else {
        return Ok(false);
    };
    Ok(from
        .parse()
        .is_ok_and(|from: u64| from <= seconds * 1_000_000 + micros))
}

/// What all clients of a run agree on: its longest lease, the supervisor's included, so that who has forgotten something
/// votes again soon.
pub(crate) fn terms(profile: &Profile) -> Quorum {
    Quorum::default()
        .max_lease(Duration::from_millis(profile.longest_lease().max(1_000)))
        .servers_never_forget(profile.forgetful)
}

#[cfg(test)]
mod tests {
    use distlock_tests::eventually;

    use super::*;

    #[test]
    fn who_has_forgotten_does_not_vote() {
        let nodes = Independent::start(&RedisServer::builder(), 3, Needs::default());
        assert!(nodes.all_vote().unwrap());
        let node = &nodes.nodes()[1];
        node.client().cmd(&["DEL", "distlock:epoch"]);
        assert!(!nodes.all_vote().unwrap());
        nodes.0.vote_at(1, NAMESPACE);
        assert!(nodes.all_vote().unwrap());
        node.kill();
        node.restart();
        assert!(!nodes.all_vote().unwrap());
        let run = node.client().info_field("run_id");
        let soon = "local t = redis.call('TIME') \
                    redis.call('SET', KEYS[1], ARGV[1] .. string.format(' %.0f', t[1] * 1000000 + t[2] + 300000))";
        let set = ["EVAL", soon, "1", "distlock:epoch", &run];
        node.client().cmd(&set);
        assert!(!nodes.all_vote().unwrap());
        eventually(Duration::from_secs(30), || nodes.all_vote().unwrap());
    }
}
