//! The URL of a server, and what is said about it without its password.

use std::fmt;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::credentials::Source;
use crate::error::Error;
use crate::protocol::trouble::Trouble;
use crate::tls::Tls;

/// Where a server is, and how to talk to it.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    pub(crate) client: Client,
    /// For a server that is reached over TLS.
    pub(crate) tls: Option<Tls>,
    /// Where user and password come from, in place of the URL's.
    pub(crate) credentials: Option<Source>,
    pub(crate) namespace: String,
    pub(crate) connect_timeout: Duration,
    /// How many runtimes may have a connection of their own.
    pub(crate) lanes: usize,
    /// The server is a node of a cluster.
    pub(crate) in_cluster: bool,
}

/// A password, which is shown to nobody but the server.
#[derive(Clone)]
pub(super) struct Password(String);

impl Password {
    pub(super) fn new(password: &str) -> Self {
        Password(password.to_owned())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl RedisConfig {
    pub(crate) fn parse(
        url: &str,
        namespace: &str,
        connect_timeout: Duration,
    ) -> Result<Self, Error> {
        // The URL itself is never repeated: it may contain a password.
        let refuse = |what: String| Error::Config {
            detail: format!(
                "{what}; write redis://[user:password@]host[:port][/db], rediss:// for TLS, redis+unix:///path, or memory:"
            ),
        };
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let tls = match scheme {
            "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => None,
            "rediss" | "valkeys" if cfg!(feature = "tls") => Some(Tls::default()),
            "rediss" | "valkeys" => {
                return Err(refuse(
                    "the lock store's URL wants TLS, which this build has not: give distlock the feature \
                     `tls-native-roots` or `tls-webpki-roots`"
                        .into(),
                ));
            }
            "" => return Err(refuse("the lock store's URL has no scheme".into())),
            // Not repeated either: it may be a user, or a password, before a host.
            _ => return Err(refuse("the lock store's URL has an unknown scheme".into())),
        };
        if hides_its_host(url) {
            return Err(refuse(
                "the lock store's URL has an `@` or a `#` where none can be (percent-encode them, `/` and `?` in a \
                 password)"
                    .into(),
            ));
        }
        // The socket is ours, and so is its encryption.
        let plain = match &tls {
            Some(_) => &*format!("redis{}", &url[scheme.len()..]),
            None => url,
        };
        let info: ConnectionInfo = plain.into_connection_info().map_err(|error| {
            refuse(format!(
                "the lock store's URL is malformed ({})",
                error.category()
            ))
        })?;
        let redis = info.redis_settings().clone();
        let redis = redis
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let info = info.set_redis_settings(redis);
        let client = Client::open(info).map_err(|error| {
            refuse(format!(
                "the lock store's URL is malformed ({})",
                error.category()
            ))
        })?;
        Ok(RedisConfig {
            client,
            tls,
            credentials: None,
            namespace: namespace.to_owned(),
            connect_timeout,
            lanes: 0,
            in_cluster: false,
        })
    }

    /// The server, its database and our namespace: what decides whether two managers share locks.
    pub(crate) fn identity(&self) -> String {
        let db = self.client.get_connection_info().redis_settings().db();
        format!("{}/{db} {}", self.address(), self.namespace)
    }

    /// The server alone.
    pub(crate) fn address(&self) -> String {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) if self.tls.is_some() => {
                format!("rediss://{host}:{port}")
            }
            ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
            ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
            _ => "redis".into(),
        }
    }

    /// Whether the URL says who we are.
    pub(crate) fn has_credentials(&self) -> bool {
        let settings = self.client.get_connection_info().redis_settings();
        settings.username().is_some() || settings.password().is_some()
    }

    /// The password of the default user, which a server that has none would take as well.
    pub(super) fn password(&self) -> Option<Password> {
        let settings = self.client.get_connection_info().redis_settings();
        let is_default = settings.username().is_none_or(|user| user == "default");
        let password = settings.password().filter(|_| is_default);
        password.map(|password| Password(password.to_owned()))
    }

    /// The error of a connection that could not be set up.
    pub(crate) fn refused(&self, trouble: Trouble, waited: Duration) -> Error {
        let trouble = trouble.at(&self.address());
        if !trouble.outage.is_transient() {
            Error::Config {
                detail: format!("{} ({})", trouble.detail, trouble.outage),
            }
        } else {
            trouble.into_error(None, waited)
        }
    }
}

/// A `/`, `?` or `#` in a password ends what names the server: in `redis://user:80#secret@host` that is
/// `user:80`, which would be connected to, and shown.
fn hides_its_host(url: &str) -> bool {
    let tcp = ["redis://", "valkey://", "rediss://", "valkeys://"];
    let Some(rest) = tcp.into_iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return false;
    };
    let behind = rest.find(['/', '?', '#']).map_or("", |end| &rest[end..]);
    behind.contains(['@', '#'])
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/urls.rs"]
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
        assert_eq!(
            parse("redis://localhost").unwrap().identity(),
            "redis://localhost:6379/0 distlock"
        );
    }
}
