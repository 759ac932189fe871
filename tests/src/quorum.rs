//! Independent servers, most of which must agree.

use crate::proxy::Proxy;
use crate::server::RedisServer;

/// Servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisQuorum {
    servers: Vec<RedisServer>,
}

impl RedisQuorum {
    /// So many of them.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`].
    #[track_caller]
    pub fn start(count: usize) -> Self {
        Self::of((0..count).map(|_| RedisServer::start()))
    }

    /// These ones.
    pub fn of(servers: impl IntoIterator<Item = RedisServer>) -> Self {
        RedisQuorum {
            servers: servers.into_iter().collect(),
        }
    }

    /// The URL of all of them.
    pub fn url(&self) -> String {
        Self::url_at(self.servers.iter().map(RedisServer::port))
    }

    /// All of them.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The URL of whatever leads to them at these ports.
    pub fn url_at(ports: impl IntoIterator<Item = u16>) -> String {
        Self::url_of("redis+quorum://", ports)
    }

    /// The same, and what it begins with.
    pub fn url_of(beginning: &str, ports: impl IntoIterator<Item = u16>) -> String {
        let hosts = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
        format!("{beginning}{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The URL of each, with commas between them.
    pub fn servers_urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(RedisServer::url).collect();
        urls.join(",")
    }

    /// A way to each of them, whose faults are scripted.
    #[track_caller]
    pub fn proxies(&self) -> Vec<Proxy> {
        self.servers.iter().map(RedisServer::proxy).collect()
    }

    /// One of them.
    pub fn server(&self, place: usize) -> &RedisServer {
        &self.servers[place]
    }

    /// Lets all of them vote for the locks of a namespace, as if they had run for long.
    #[track_caller]
    pub fn vote(&self, namespace: &str) {
        for place in 0..self.servers.len() {
            self.vote_at(place, namespace);
        }
    }

    /// The same for one of them.
    #[track_caller]
    pub fn vote_at(&self, place: usize, namespace: &str) {
        let mut raw = self.servers[place].client();
        let run = raw.info_field("run_id");
        raw.cmd(&["SET", &format!("{namespace}:epoch"), &format!("{run} 0")]);
    }
}
