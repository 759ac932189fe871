//! The lock servers of a run, and the links to them.

use std::net::SocketAddr;

use distlock_tests::{Proxy, RedisServer, Resp};

/// How the lock servers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One server.
    Standalone,
}

impl Topology {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Standalone => "standalone",
        }
    }
}

/// The user of the workers: the supervisor's own connections are another's, and spared by its faults.
const USER: &str = "worker";
const PASSWORD: &str = "torture";

/// What the README says that a user of distlock needs.
const RIGHTS: &[&str] = &[
    "eval",
    "evalsha",
    "subscribe",
    "time",
    "get",
    "mget",
    "set",
    "del",
    "exists",
    "pexpire",
    "pttl",
    "zadd",
    "zrem",
    "zrange",
    "zscore",
    "zcard",
    "hset",
    "hget",
    "hdel",
    "publish",
    "pubsub|numsub",
    "ping",
    "client|info",
    "info",
];

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
    pub(crate) server: RedisServer,
    /// One for each worker.
    pub(crate) links: Vec<Proxy>,
}

impl Field {
    pub(crate) fn set_up(topology: Topology, workers: u32, needs: Needs) -> Self {
        match topology {
            Topology::Standalone => {
                let server = standalone(needs);
                let links = (0..workers).map(|_| server.proxy()).collect();
                Field { server, links }
            }
        }
    }

    /// What a worker connects to.
    pub(crate) fn url(&self, worker: u32) -> String {
        let port = self.links[worker as usize].port();
        format!("redis://{USER}:{PASSWORD}@127.0.0.1:{port}")
    }

    /// The server, past all faults.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addr()
    }

    /// How many connections the workers have.
    pub(crate) fn connections(&self, client: &mut Resp) -> u32 {
        let list = client.cmd(&["CLIENT", "LIST"]);
        let list = list.text().unwrap_or_default();
        let count = list.lines().filter(|line| is_workers(line)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

fn is_workers(line: &str) -> bool {
    line.split(' ')
        .any(|field| field.strip_prefix("user=") == Some(USER))
}

/// `CLIENT KILL` for the workers' connections of a type.
pub(crate) fn kill_command(kind: &str) -> [&str; 6] {
    ["CLIENT", "KILL", "TYPE", kind, "USER", USER]
}

/// `ACL SETUSER` that gives or takes one right.
pub(crate) fn right_command(right: &str, give: bool) -> [String; 4] {
    let sign = if give { '+' } else { '-' };
    let words = ["ACL", "SETUSER", USER].map(str::to_owned);
    let [acl, set, user] = words;
    [acl, set, user, format!("{sign}{right}")]
}

fn standalone(needs: Needs) -> RedisServer {
    let mut builder = RedisServer::builder();
    if needs.clock {
        builder = builder.own_clock();
    }
    if needs.persistence {
        builder = builder.append_only();
    }
    let mut rules = vec![
        "--user".to_owned(),
        USER.to_owned(),
        "on".to_owned(),
        format!(">{PASSWORD}"),
    ];
    rules.extend(["resetkeys", "~distlock:*", "resetchannels"].map(str::to_owned));
    rules.extend(["&distlock:client:*", "-@all"].map(str::to_owned));
    rules.extend(RIGHTS.iter().map(|right| format!("+{right}")));
    if needs.kill {
        rules.push("+client|kill".to_owned());
    }
    builder.args(rules.iter().map(String::as_str)).start()
}
