//! The URL of a store: the servers that it names, and the settings for connections to them.

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

/// A host and a port.
pub(crate) type Host = (String, u16);

/// Formats a host as in a URL.
pub(crate) fn shown((host, port): &Host) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

const SENTINELS_PORT: u16 = 26_379;

/// The location of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    One(Single),
    /// The primaries of the cluster that these nodes belong to.
    Cluster(Vec<Host>),
    /// A majority of these independent servers.
    Quorum(Vec<Host>),
}

/// The location of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Single {
    Server(ConnectionAddr),
    /// The primary of a service, as its sentinels report it.
    Sentinel {
        sentinels: Vec<Host>,
        service: String,
    },
}

/// A parsed URL.
pub(crate) struct Url {
    pub(crate) place: Place,
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) is_encrypted: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Tcp,
    Unix,
    Sentinel,
    Cluster,
    Quorum,
}

impl Url {
    /// Parses a URL. The error repeats no part of it, because that may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        let (kind, is_encrypted) = kind(scheme)?;
        if is_encrypted && !cfg!(feature = "tls") {
            return Err(
                "the lock store's URL wants TLS, which this build has not: give distlock the feature \
                 `tls-native-roots` or `tls-webpki-roots`"
                    .into(),
            );
        }
        let (authority, path) = match kind {
            Kind::Unix => ("", ""),
            _ => split(rest)?,
        };
        let (user, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        let (place, settings) = match kind {
            Kind::Unix => one(url)?,
            Kind::Tcp if hosts.contains(',') => return Err(
                "the lock store's URL names several hosts, and not what they are (redis+sentinel:// or redis+cluster://)"
                    .into(),
            ),
            // Always without TLS, which our own socket adds.
            Kind::Tcp => one(&format!("redis://{authority}{path}"))?,
            Kind::Sentinel => {
                let (service, db) = service(path)?;
                let (sentinels, settings) = all(user, hosts, db, Some(SENTINELS_PORT))?;
                (Place::One(Single::Sentinel { sentinels, service }), settings)
            }
            Kind::Cluster if !matches!(path, "" | "/" | "/0") => {
                return Err("the lock store's URL names a database, and a cluster has but one".into());
            }
            Kind::Cluster => {
                let (nodes, settings) = all(user, hosts, "", None)?;
                (Place::Cluster(nodes), settings)
            }
            Kind::Quorum => {
                let (servers, settings) = all(user, hosts, path, None)?;
                if servers.len() < 3 {
                    return Err(
                        "the lock store's URL names fewer than three servers, and with one of two away there is no quorum"
                            .into(),
                    );
                }
                (Place::Quorum(servers), settings)
            }
        };
        Ok(Url {
            place,
            settings: settings
                .set_protocol(ProtocolVersion::RESP3)
                .set_skip_set_lib_name(),
            is_encrypted,
        })
    }
}

/// Returns the authority of a URL, and the rest.
fn split(rest: &str) -> Result<(&str, &str), String> {
    let rest = rest
        .strip_prefix("//")
        .ok_or("the lock store's URL has no `//` behind its scheme")?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    // A `/`, `?` or `#` in a password ends the authority. In `redis://user:80#secret@host` that is
    // `user:80`, which would be connected to, and shown.
    if path.contains(['@', '#']) {
        return Err(
            "the lock store's URL has an `@` or a `#` where none can be (percent-encode them, `/` and `?` in a \
             password)"
                .into(),
        );
    }
    if path.contains('?') {
        return Err(
            "the lock store's URL has a `?`, and takes no settings (they are the builder's)".into(),
        );
    }
    Ok((authority, path))
}

/// Returns the kind that a scheme means, and whether it requires TLS.
fn kind(scheme: &str) -> Result<(Kind, bool), String> {
    let (server, topology) = scheme.split_once('+').unwrap_or((scheme, ""));
    let is_encrypted = match server {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        "unix" if topology.is_empty() && scheme == "unix" => return Ok((Kind::Unix, false)),
        "" => return Err("the lock store's URL has no scheme".into()),
        // Not repeated, because it may be a user or a password before a host.
        _ => return Err("the lock store's URL has an unknown scheme".into()),
    };
    match topology {
        "" if !scheme.ends_with('+') => Ok((Kind::Tcp, is_encrypted)),
        "unix" if !is_encrypted => Ok((Kind::Unix, false)),
        "sentinel" => Ok((Kind::Sentinel, is_encrypted)),
        "cluster" => Ok((Kind::Cluster, is_encrypted)),
        "quorum" => Ok((Kind::Quorum, is_encrypted)),
        _ => Err("the lock store's URL has an unknown scheme".into()),
    }
}

/// Returns the server and the settings of a URL of one server.
fn one(url: &str) -> Result<(Place, RedisConnectionInfo), String> {
    let info = library(url)?;
    let server = Single::Server(info.addr().clone());
    Ok((Place::One(server), info.redis_settings().clone()))
}

/// Parses a URL of one server with the `redis` crate.
fn library(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info()
        .map_err(|error| format!("the lock store's URL is malformed ({})", error.category()))
}

/// Splits a path such as `/service/3` into the service and the path of its database.
fn service(path: &str) -> Result<(String, &str), String> {
    let path = path.strip_prefix('/').unwrap_or_default();
    let (service, db) = match path.find('/') {
        Some(end) => path.split_at(end),
        None => (path, ""),
    };
    // The characters that Sentinel accepts in a name.
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if service.is_empty() || !service.chars().all(is_known) {
        return Err(
            "the lock store's URL names no service (letters, digits, `.`, `-`, `_`) behind its sentinels"
                .into(),
        );
    }
    Ok((service.to_owned(), db))
}

/// Parses hosts, separated by commas, that share all other parts of a URL.
fn all(
    user: &str,
    hosts: &str,
    db: &str,
    port: Option<u16>,
) -> Result<(Vec<Host>, RedisConnectionInfo), String> {
    if user.matches('@').count() > 1 {
        return Err(
            "the lock store's URL has several `@` (user and password stand once, before all hosts; percent-encode them)"
                .into(),
        );
    }
    let mut addresses = Vec::new();
    let mut settings = None;
    for host in hosts.split(',') {
        if host.is_empty() {
            return Err("the lock store's URL has a host without a name".into());
        }
        // Ignores the colons of `[::1]`.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = match port {
            Some(port) if !has_port => format!(":{port}"),
            _ => String::new(),
        };
        let info = library(&format!("redis://{user}{host}{port}{db}"))?;
        if let ConnectionAddr::Tcp(host, port) = info.addr() {
            let address = (host.clone(), *port);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        settings.get_or_insert_with(|| info.redis_settings().clone());
    }
    let settings = settings.ok_or("the lock store's URL has no host")?;
    Ok((addresses, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[(&str, u16)]) -> Vec<Host> {
        let owned = |(host, port): &(&str, u16)| ((*host).to_owned(), *port);
        hosts.iter().map(owned).collect()
    }

    fn place(url: &str) -> Place {
        Url::parse(url)
            .map(|url| url.place)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn several_hosts_share_user_and_database() {
        let url = "valkey+sentinel://shop:p%40ss@b:7,[::1],a/my-service.1/3";
        let parsed = Url::parse(url).unwrap_or_else(|error| panic!("{error}"));
        let sentinels = hosts(&[("b", 7), ("::1", 26_379), ("a", 26_379)]);
        let service = "my-service.1".to_owned();
        let master = Single::Sentinel { sentinels, service };
        assert_eq!(parsed.place, Place::One(master));
        assert_eq!(parsed.settings.db(), 3);
        assert_eq!(parsed.settings.username(), Some("shop"));
        assert_eq!(parsed.settings.password(), Some("p@ss"));
        assert_eq!(
            place("redis+cluster://b,a:7000,b:6379/"),
            Place::Cluster(hosts(&[("b", 6_379), ("a", 7_000)]))
        );
        assert_eq!(
            place("redis+quorum://b,a:7000,c/2"),
            Place::Quorum(hosts(&[("b", 6_379), ("a", 7_000), ("c", 6_379)]))
        );
    }

    #[test]
    fn what_several_hosts_cannot_mean_is_told() {
        for (url, said) in [
            ("redis+sentinel://a,b", "names no service"),
            ("redis+sentinel://a,b/", "names no service"),
            ("redis+sentinel://a/my%20service", "names no service"),
            ("redis+sentinel://a,,b/s", "host without a name"),
            ("redis+sentinel:///s", "host without a name"),
            ("redis+sentinel://a/s/three", "malformed"),
            ("redis+sentinel://a:port/s", "malformed"),
            ("redis+cluster://a/1", "has but one"),
            ("redis+quorum://a,b", "fewer than three"),
            ("redis+quorum://a,b,c,a/x", "malformed"),
            ("redis://a,b", "several hosts"),
            ("redis+other://a", "unknown scheme"),
            ("redis+://a", "unknown scheme"),
            ("rediss+unix:///x.sock", "unknown scheme"),
            ("unix+cluster://a", "unknown scheme"),
            ("redis://a?protocol=resp2", "takes no settings"),
            ("redis:a", "no `//`"),
        ] {
            match Url::parse(url) {
                Ok(_) => panic!("{url} was accepted"),
                Err(error) => assert!(error.contains(said), "{url}: {error}"),
            }
        }
    }
}
