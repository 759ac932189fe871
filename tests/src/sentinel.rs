//! Servers that sentinels monitor.

use std::time::Duration;

use crate::client::Reply;
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::eventually;

/// Upper limit of a failover, and of the time until sentinels and replicas find each other.
const DEADLINE: Duration = Duration::from_secs(120);

/// Milliseconds of silence after which a sentinel considers a server dead.
const DOWN_AFTER: &str = "500";

/// The sentinels' default interval between messages to each other, in milliseconds.
const PUBLISH_EVERY: &str = "2000";

/// A primary with its replicas, and three sentinels that monitor them.
#[derive(Debug)]
pub struct Sentinels {
    /// The primary at the start, then its replicas.
    pub servers: Vec<RedisServer>,
    /// The sentinels; two of them are a quorum.
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// The service name of the servers.
    pub const SERVICE: &str = "locks";

    /// Starts a primary and a replica.
    ///
    /// # Panics
    ///
    /// Panics if the processes do not start, or do not find each other.
    #[track_caller]
    pub fn start() -> Self {
        Self::of(&RedisServer::builder(), &RedisServer::builder().sentinel())
    }

    /// Starts a primary and a replica with options.
    ///
    /// # Panics
    ///
    /// Panics like [`Sentinels::start`].
    #[track_caller]
    pub fn of(server: &RedisServerBuilder, sentinel: &RedisServerBuilder) -> Self {
        // By default a primary waits five seconds for more replicas before it sends its data.
        let server = || server.clone().arg("--repl-diskless-sync-delay", "0");
        let servers = vec![server().start(), server().start()];
        follow(&servers[1], &servers[0]);
        let sentinels: Vec<_> = (0..3).map(|_| sentinel.clone().start()).collect();
        let all = Sentinels { servers, sentinels };
        for sentinel in &all.sentinels {
            watch(sentinel, Self::SERVICE, &all.servers[0]);
        }
        all.set_announce_period("100");
        eventually(DEADLINE, || all.is_complete());
        all.set_announce_period(PUBLISH_EVERY);
        all
    }

    /// Sets the interval, in milliseconds, between messages of the sentinels to each other. Has no
    /// effect on a server without that setting (Redis 7.0 and Valkey have it).
    fn set_announce_period(&self, millis: &str) {
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "DEBUG", "publish-period", millis];
            sentinel.client().cmd(&words);
        }
    }

    /// Returns `redis+sentinel://...` with all sentinels.
    pub fn url(&self) -> String {
        self.url_of("redis+sentinel://", Self::SERVICE)
    }

    /// Like [`url`](Sentinels::url), with another beginning, which may contain user and password,
    /// and another service.
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

    /// Returns the server that most sentinels consider the primary.
    pub fn primary(&self) -> Option<&RedisServer> {
        let named: Vec<_> = self.sentinels.iter().filter_map(primary_by).collect();
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

    /// Returns the primary, if it is not `than` and also considers itself a primary.
    pub fn another(&self, than: &RedisServer) -> Option<&RedisServer> {
        let primary = self.primary()?;
        (primary.port() != than.port() && role(primary).as_deref() == Some("master"))
            .then_some(primary)
    }

    /// Waits until there is [another](Sentinels::another) primary.
    ///
    /// # Panics
    ///
    /// Panics if no other server becomes the primary.
    #[track_caller]
    pub fn until_another(&self, than: &RedisServer) -> &RedisServer {
        eventually(DEADLINE, || self.another(than).is_some());
        self.another(than).expect("it was there")
    }

    /// Returns true if all replicas are in sync, and the sentinels know them and each other.
    pub fn is_complete(&self) -> bool {
        let Some(primary) = self.primary() else {
            return false;
        };
        let known = |sentinel: &RedisServer| {
            let info = info(sentinel, "sentinel");
            let replicas = self.servers.len() - 1;
            let wanted = format!("slaves={replicas},sentinels={}", self.sentinels.len());
            info.contains(&wanted) && info.contains("status=ok") && trusts_replicas(sentinel)
        };
        self.has_replicas(primary) && self.sentinels.iter().all(known)
    }

    /// Returns true if all other servers are online replicas of `primary` and receive every write.
    pub fn has_replicas(&self, primary: &RedisServer) -> bool {
        let online = info(primary, "replication").matches("state=online").count();
        online == self.servers.len() - 1
    }

    /// Sets the silence after which sentinels consider a server dead (half a second by default).
    ///
    /// # Panics
    ///
    /// Panics if a sentinel refuses.
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
/// Panics if the server refuses.
#[track_caller]
pub fn follow(replica: &RedisServer, primary: &RedisServer) {
    let port = primary.announced_port().to_string();
    replica.client().must(&["REPLICAOF", "127.0.0.1", &port]);
}

/// Makes a sentinel monitor a server; two sentinels must agree that the server is dead.
///
/// # Panics
///
/// Panics if the sentinel or its server refuses.
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

/// Returns the port of the server that a sentinel considers the primary.
fn primary_by(sentinel: &RedisServer) -> Option<u16> {
    let query = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::SERVICE];
    let answer = sentinel.try_client().ok()?.try_cmd(&query).ok()?;
    match &answer {
        Reply::Array(address) => address.last()?.text()?.parse().ok(),
        _ => None,
    }
}

/// Returns true if the sentinel sees no obstacle to promoting any replica.
fn trusts_replicas(sentinel: &RedisServer) -> bool {
    let query = ["SENTINEL", "REPLICAS", Sentinels::SERVICE];
    let answer = sentinel
        .try_client()
        .and_then(|mut client| client.try_cmd(&query));
    let Ok(Reply::Array(replicas)) = answer else {
        return false;
    };
    // Other replicas have more flags, for example `s_down,slave,disconnected`.
    let well = [Reply::Bulk("flags".into()), Reply::Bulk("slave".into())];
    let is_well = |replica: &Reply| match replica {
        Reply::Array(words) => words.chunks_exact(2).any(|pair| pair == well),
        _ => false,
    };
    replicas.iter().all(is_well)
}

/// Returns a section of `INFO`; empty without a reply, as while a sentinel closes connections.
pub fn info(server: &RedisServer, section: &str) -> String {
    let reply = server
        .try_client()
        .and_then(|mut client| client.try_cmd(&["INFO", section]));
    match reply {
        Ok(Reply::Bulk(info)) => info,
        _ => String::new(),
    }
}

/// Returns the role that a server reports of itself.
pub(crate) fn role(server: &RedisServer) -> Option<String> {
    let answer = server.try_client().ok()?.try_cmd(&["ROLE"]).ok()?;
    match &answer {
        Reply::Array(role) => role.first()?.text().map(str::to_owned),
        _ => None,
    }
}
