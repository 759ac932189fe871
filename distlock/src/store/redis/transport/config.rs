//! The address and the settings of a store, and how they are shown without the password.

use std::time::Duration;

use redis::{ConnectionAddr, RedisConnectionInfo};

use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::config::quorum::Quorum;
use crate::config::tls::Tls;
use crate::error::Error;
use crate::protocol::store_error::StoreError;
use crate::store::redis::transport::url::{ServerLocation, StoreLocation, Url, format_host};

/// The address of a store, and the settings for its connections.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    pub(crate) location: StoreLocation,
    /// User, password and database.
    pub(crate) settings: RedisConnectionInfo,
    /// Set for servers that are reached over TLS.
    pub(crate) tls: Option<Tls>,
    /// Source of user and password, in place of those of the URL.
    pub(crate) credentials: Option<CredentialsProvider>,
    /// User and password for the sentinels.
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) namespace: String,
    pub(crate) connect_timeout: Duration,
    /// Upper limit of runtime connections.
    pub(crate) max_runtime_connections: usize,
    /// True for a node of a cluster.
    pub(crate) has_sharded_channels: bool,
    /// Settings of a quorum.
    pub(crate) quorum: Quorum,
}

impl RedisConfig {
    pub(crate) fn parse(
        url: &str,
        namespace: &str,
        connect_timeout: Duration,
    ) -> Result<Self, Error> {
        // The URL itself is never repeated, because it may contain a password.
        let url = Url::parse(url).map_err(|reason| Error::Config {
            detail: format!(
                "{reason}; write redis://[user:password@]host[:port][/db], redis+sentinel://host,host/service[/db], \
                 redis+cluster://host,host, redis+quorum://host,host,host[/db], rediss for TLS, redis+unix:///path, or memory:"
            ),
        })?;
        Ok(RedisConfig {
            location: url.location,
            settings: url.settings,
            tls: url.is_encrypted.then(Tls::default),
            credentials: None,
            sentinel_credentials: None,
            namespace: namespace.to_owned(),
            connect_timeout,
            max_runtime_connections: 0,
            has_sharded_channels: false,
            quorum: Quorum::default(),
        })
    }

    /// Returns server, database and namespace, which decide whether two managers share locks.
    pub(crate) fn identity(&self) -> String {
        let mut location = self.location.clone();
        if let StoreLocation::Single(ServerLocation::Sentinel {
            sentinels: hosts, ..
        })
        | StoreLocation::Cluster(hosts)
        | StoreLocation::Quorum(hosts) = &mut location
        {
            // The order of hosts makes no difference.
            hosts.sort_unstable();
        }
        format!(
            "{}/{} {}",
            self.address_of(&location),
            self.settings.db(),
            self.namespace
        )
    }

    /// Returns the server, or the hosts that determine it, without database and namespace.
    pub(crate) fn address(&self) -> String {
        self.address_of(&self.location)
    }

    pub(crate) fn address_of(&self, location: &StoreLocation) -> String {
        let (kind, service) = match location {
            StoreLocation::Single(ServerLocation::Direct(ConnectionAddr::Unix(path))) => {
                return format!("redis+unix://{}", path.display());
            }
            StoreLocation::Single(ServerLocation::Direct(_)) => ("", ""),
            StoreLocation::Single(ServerLocation::Sentinel { service, .. }) => {
                ("+sentinel", &*format!("/{service}"))
            }
            StoreLocation::Cluster(_) => ("+cluster", ""),
            StoreLocation::Quorum(_) => ("+quorum", ""),
        };
        let hosts: Vec<_> = location.hosts().iter().map(format_host).collect();
        format!("{}{kind}://{}{service}", self.scheme(), hosts.join(","))
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() {
            "rediss"
        } else {
            "redis"
        }
    }

    /// Returns true if the URL contains a user or a password.
    pub(crate) fn has_credentials(&self) -> bool {
        self.settings.username().is_some() || self.settings.password().is_some()
    }

    /// Returns the user and the password of the URL, or `None` if it has no password.
    pub(crate) fn url_credentials(&self) -> Option<Credentials> {
        let password = self.settings.password()?;
        Some(match self.settings.username() {
            Some(user) => Credentials::new(user, password),
            None => Credentials::from_password(password),
        })
    }

    /// Returns the error of a manager that could not connect. An error that does not pass by itself
    /// is a misconfiguration, and its detail carries the remedy.
    pub(crate) fn connect_error(&self, error: StoreError, waited: Duration) -> Error {
        let error = error.at(&self.address());
        if error.outage.is_transient() {
            return error.into_error(None, waited);
        }
        Error::config(error.detail)
    }
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/urls.rs"]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<RedisConfig, Error> {
        RedisConfig::parse(url, "distlock", Duration::from_secs(2))
    }

    #[test]
    fn urls_that_cannot_work_are_refused_without_repeating_them() {
        for url in [
            "",
            "localhost",
            "http://user:hunter2@host",
            "redis://:hunter2@host:port",
            "redis://:hunter2@host:6379/zero",
            "redis://",
            "hunter2@host:6379",
            "hunter2:x@host:6379",
            "redis+sentinel://:hunter2@host,host",
            "redis+sentinel://:hunter2@host,/service",
            "redis+sentinel://:hunter2@host,host:port/service",
            "redis+sentinel://:hunter2@host,hunter2@host/service",
            "redis+cluster://:hunter2@host,host/3",
            "rediss+nothing://:hunter2@host",
        ] {
            let error = match parse(url) {
                Ok(_) => panic!("{url} was accepted"),
                Err(error) => error,
            };
            assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("redis://[user:password@]host"), "{shown}");
        }
    }

    #[test]
    fn the_identity_names_server_database_and_namespace_only() {
        let config = parse("redis://user:hunter2@localhost:7000/3").unwrap();
        assert_eq!(config.identity(), "redis://localhost:7000/3 distlock");
        let config = parse("redis+sentinel://user:hunter2@b,a:1/service/2").unwrap();
        assert_eq!(
            config.identity(),
            "redis+sentinel://a:1,b:26379/service/2 distlock"
        );
        for url in ["redis://[::1]:7000", "redis+cluster://[::1]:7000,a:6379"] {
            assert_eq!(parse(url).unwrap().address(), url);
        }
        assert_eq!(
            parse("redis://localhost").unwrap().identity(),
            "redis://localhost:6379/0 distlock"
        );
    }
}
