//! Independent servers, most of which must agree.

use crate::server::{RedisServer, RedisServerBuilder};

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
        Self::of(&RedisServer::builder(), count)
    }

    /// So many of a kind.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`].
    #[track_caller]
    pub fn of(server: &RedisServerBuilder, count: usize) -> Self {
        RedisQuorum {
            servers: (0..count).map(|_| server.clone().start()).collect(),
        }
    }

    /// The URL of all of them.
    pub fn url(&self) -> String {
        let ports = self.servers.iter().map(RedisServer::port);
        Self::url_of("redis+quorum://", ports)
    }

    /// The URL of servers that are reached at these ports, and what it begins with.
    pub fn url_of(beginning: &str, ports: impl Iterator<Item = u16>) -> String {
        let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{beginning}{}", hosts.join(","))
    }

    /// All of them.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The URL of each, with commas between them.
    pub fn servers_urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(RedisServer::url).collect();
        urls.join(",")
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
