//! Independent servers, of which a majority must agree.

use crate::proxy::Proxy;
use crate::server::RedisServer;

/// Independent servers: none of them knows another.
#[derive(Debug)]
pub struct RedisQuorum {
    servers: Vec<RedisServer>,
}

impl RedisQuorum {
    /// Starts `count` servers.
    ///
    /// # Panics
    ///
    /// Panics like [`RedisServer::start`].
    #[track_caller]
    pub fn start(count: usize) -> Self {
        Self::of((0..count).map(|_| RedisServer::start()))
    }

    /// Creates a quorum of these servers.
    pub fn of(servers: impl IntoIterator<Item = RedisServer>) -> Self {
        RedisQuorum {
            servers: servers.into_iter().collect(),
        }
    }

    /// Returns the quorum URL of all servers.
    pub fn url(&self) -> String {
        Self::url_at(self.servers.iter().map(RedisServer::port))
    }

    /// Returns all servers.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the quorum URL for these ports, for example of proxies.
    pub fn url_at(ports: impl IntoIterator<Item = u16>) -> String {
        Self::url_of("redis+quorum://", ports)
    }

    /// Like [`url_at`](RedisQuorum::url_at), with another beginning.
    pub fn url_of(beginning: &str, ports: impl IntoIterator<Item = u16>) -> String {
        let hosts = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
        format!("{beginning}{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Returns the URL of every server, separated by commas.
    pub fn servers_urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(RedisServer::url).collect();
        urls.join(",")
    }

    /// Starts a fault proxy in front of every server.
    #[track_caller]
    pub fn proxies(&self) -> Vec<Proxy> {
        self.servers.iter().map(RedisServer::proxy).collect()
    }

    /// Returns one server.
    pub fn server(&self, place: usize) -> &RedisServer {
        &self.servers[place]
    }

    /// Lets all servers grant the locks of a namespace, as if they had run for a long time.
    #[track_caller]
    pub fn vote(&self, namespace: &str) {
        for place in 0..self.servers.len() {
            self.vote_at(place, namespace);
        }
    }

    /// Lets one server grant, as [`vote`](RedisQuorum::vote) does for all.
    #[track_caller]
    pub fn vote_at(&self, place: usize, namespace: &str) {
        let mut raw = self.servers[place].client();
        let run = raw.info_field("run_id");
        raw.cmd(&["SET", &format!("{namespace}:epoch"), &format!("{run} 0")]);
    }
}
