//! Servers under the watch of sentinels.

use std::time::Duration;

use crate::client::Reply;
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::eventually;

/// How long sentinels and replicas may take to find each other, or a failover.
const DEADLINE: Duration = Duration::from_secs(120);

/// After how many milliseconds of silence a sentinel takes a server for dead.
const DOWN_AFTER: &str = "500";

/// How often sentinels tell each other that they are there, in milliseconds, unless told otherwise.
const PUBLISH_EVERY: &str = "2000";

/// A master with its replicas, and three sentinels that watch them.
#[derive(Debug)]
pub struct Sentinels {
    /// The master that they began with is the first.
    pub servers: Vec<RedisServer>,
    /// Two of them suffice to agree.
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// What the servers are called together.
    pub const SERVICE: &str = "locks";

    /// A master and a replica.
    ///
    /// # Panics
    ///
    /// When they do not start, or do not find each other.
    #[track_caller]
    pub fn start() -> Self {
        Self::of(&RedisServer::builder(), &RedisServer::builder().sentinel())
    }

    /// The same, with options.
    ///
    /// # Panics
    ///
    /// As [`Sentinels::start`].
    #[track_caller]
    pub fn of(server: &RedisServerBuilder, sentinel: &RedisServerBuilder) -> Self {
        // A master waits five seconds for more replicas before it sends one its data.
        let server = || server.clone().arg("--repl-diskless-sync-delay", "0");
        let servers = vec![server().start(), server().start()];
        follow(&servers[1], &servers[0]);
        let sentinels: Vec<_> = (0..3).map(|_| sentinel.clone().start()).collect();
        let all = Sentinels { servers, sentinels };
        for sentinel in &all.sentinels {
            watch(sentinel, Self::SERVICE, &all.servers[0]);
        }
        all.tell_each_other_every("100");
        all.until_complete();
        all.tell_each_other_every(PUBLISH_EVERY);
        all
    }

    /// How often, in milliseconds, the sentinels tell each other that they are there; where they can be told that
    /// (Redis 7.0, Valkey).
    fn tell_each_other_every(&self, millis: &str) {
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "DEBUG", "publish-period", millis];
            sentinel.client().cmd(&words);
        }
    }

    /// `redis+sentinel://...` with all of them.
    pub fn url(&self) -> String {
        self.url_of("redis+sentinel://", Self::SERVICE)
    }

    /// The same with another beginning, user and password in it, and another service.
    pub fn url_of(&self, beginning: &str, service: &str) -> String {
        let hosts = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.announced_port()));
        format!(
            "{beginning}{}/{service}",
            hosts.collect::<Vec<_>>().join(",")
        )
    }

    /// The server that most sentinels take for the master.
    pub fn master(&self) -> Option<&RedisServer> {
        let named: Vec<_> = self.sentinels.iter().filter_map(master_by).collect();
        let named_by = |server: &RedisServer| {
            named
                .iter()
                .filter(|port| **port == server.announced_port())
                .count()
        };
        self.servers
            .iter()
            .find(|server| named_by(server) > self.sentinels.len() / 2)
    }

    /// The master, if it is another one than this server, in its own eyes too.
    pub fn another(&self, than: &RedisServer) -> Option<&RedisServer> {
        let master = self.master()?;
        (master.port() != than.port() && role(master).as_deref() == Some("master"))
            .then_some(master)
    }

    /// Waits until there is [another](Sentinels::another).
    ///
    /// # Panics
    ///
    /// When none becomes it.
    #[track_caller]
    pub fn until_another(&self, than: &RedisServer) -> &RedisServer {
        eventually(DEADLINE, || self.another(than).is_some());
        self.another(than).expect("it was there")
    }

    /// Waits until the replicas have all that the master has, and the sentinels know them and each other.
    #[track_caller]
    pub fn until_complete(&self) {
        eventually(DEADLINE, || self.is_complete());
    }

    /// Whether the replicas have all that the master has, and the sentinels know them and each other.
    pub fn is_complete(&self) -> bool {
        let Some(master) = self.master() else {
            return false;
        };
        let known = |sentinel: &RedisServer| {
            let info = info(sentinel, "sentinel");
            let replicas = self.servers.len() - 1;
            let wanted = format!("slaves={replicas},sentinels={}", self.sentinels.len());
            info.contains(&wanted) && info.contains("status=ok") && trusts_replicas(sentinel)
        };
        self.has_replicas(master) && self.sentinels.iter().all(known)
    }

    /// Whether all others have what this server has, and hear of each write.
    pub fn has_replicas(&self, master: &RedisServer) -> bool {
        let online = info(master, "replication").matches("state=online").count();
        online == self.servers.len() - 1
    }

    /// After so much silence each sentinel takes a server for dead (half a second unless set).
    ///
    /// # Panics
    ///
    /// When one refuses.
    #[track_caller]
    pub fn set_down_after(&self, silence: Duration) {
        let ms = silence.as_millis().to_string();
        let words = ["SENTINEL", "SET", Self::SERVICE, "down-after-milliseconds"];
        for sentinel in &self.sentinels {
            sentinel.client().must(&[&words[..], &[&ms]].concat());
        }
    }
}

/// Makes a server the replica of another.
///
/// # Panics
///
/// When it refuses.
#[track_caller]
pub fn follow(replica: &RedisServer, master: &RedisServer) {
    let port = master.announced_port().to_string();
    replica.client().must(&["REPLICAOF", "127.0.0.1", &port]);
}

/// Has a sentinel watch a server; two must agree that it is dead.
///
/// # Panics
///
/// When it refuses.
#[track_caller]
pub fn watch(sentinel: &RedisServer, service: &str, server: &RedisServer) {
    let mut raw = sentinel.client();
    let port = server.announced_port().to_string();
    if let Some(password) = sentinel.password() {
        raw.must(&["SENTINEL", "CONFIG", "SET", "sentinel-pass", password]);
    }
    raw.must(&["SENTINEL", "MONITOR", service, "127.0.0.1", &port, "2"]);
    if let Some(password) = server.password() {
        raw.must(&["SENTINEL", "SET", service, "auth-pass", password]);
    }
    raw.must(&[
        "SENTINEL",
        "SET",
        service,
        "down-after-milliseconds",
        DOWN_AFTER,
    ]);
    raw.must(&["SENTINEL", "SET", service, "failover-timeout", "3000"]);
}

/// The port of the server that a sentinel takes for the master.
fn master_by(sentinel: &RedisServer) -> Option<u16> {
    let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::SERVICE];
    let answer = sentinel.try_client().ok()?.try_cmd(&ask).ok()?;
    match &answer {
        Reply::Array(address) => address.last()?.text()?.parse().ok(),
        _ => None,
    }
}

/// Whether there is nothing against making any of its replicas the master.
fn trusts_replicas(sentinel: &RedisServer) -> bool {
    let ask = ["SENTINEL", "REPLICAS", Sentinels::SERVICE];
    let answer = sentinel
        .try_client()
        .and_then(|mut client| client.try_cmd(&ask));
    let Ok(Reply::Array(replicas)) = answer else {
        return false;
    };
    // Another one is "s_down,slave,disconnected".
    let well = [Reply::Bulk("flags".into()), Reply::Bulk("slave".into())];
    let is_well = |replica: &Reply| match replica {
        Reply::Array(words) => words.chunks_exact(2).any(|pair| pair == well),
        _ => false,
    };
    replicas.iter().all(is_well)
}

/// A section of `INFO`; empty where the server does not say, as while a sentinel cuts its connections.
pub fn info(server: &RedisServer, section: &str) -> String {
    let said = server
        .try_client()
        .and_then(|mut client| client.try_cmd(&["INFO", section]));
    match said {
        Ok(Reply::Bulk(info)) => info,
        _ => String::new(),
    }
}

/// The role that a server has in its own eyes.
pub(crate) fn role(server: &RedisServer) -> Option<String> {
    let answer = server.try_client().ok()?.try_cmd(&["ROLE"]).ok()?;
    match &answer {
        Reply::Array(role) => role.first()?.text().map(str::to_owned),
        _ => None,
    }
}
