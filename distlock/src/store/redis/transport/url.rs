//! The URL of a store: the servers that it names, and the settings for connections to them.

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

/// A host and a port.
pub(crate) type Host = (String, u16);

/// Formats a host as in a URL.
pub(crate) fn format_host((host, port): &Host) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

const DEFAULT_SENTINEL_PORT: u16 = 26_379;

/// The location of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    Single(ServerLocation),
    /// The primaries of the cluster that these nodes belong to.
    Cluster(Vec<Host>),
    /// A majority of these independent servers.
    Quorum(Vec<Host>),
}

/// The location of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerLocation {
    Direct(ConnectionAddr),
    /// The primary of a service, as its sentinels report it.
    Sentinel {
        sentinels: Vec<Host>,
        service: String,
    },
}

impl ServerLocation {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        ServerLocation::Direct(ConnectionAddr::Tcp(host.to_owned(), port))
    }
}

impl StoreLocation {
    /// Returns the hosts in the URL; none for a Unix socket.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        use ServerLocation::{Direct, Sentinel};
        use StoreLocation::{Cluster, Quorum, Single};
        match self {
            Single(Direct(ConnectionAddr::Tcp(host, port))) => vec![(host.clone(), *port)],
            Single(Direct(_)) => Vec::new(),
            Single(Sentinel {
                sentinels: hosts, ..
            })
            | Cluster(hosts)
            | Quorum(hosts) => hosts.clone(),
        }
    }
}

/// A parsed URL.
pub(crate) struct Url {
    pub(crate) location: StoreLocation,
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) is_encrypted: bool,
}

#[derive(Clone, Copy)]
enum Scheme {
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
        // The parser of the `redis` crate would ignore line breaks.
        if url.contains(char::is_control) {
            return Err("the lock store's URL has a line break or control character".into());
        }
        let parsed = parse_scheme(scheme);
        let (kind, is_encrypted) = parsed.map_err(|reason| match rest.starts_with("//") {
            true => reason,
            false => "the lock store's URL has no scheme (`redis://` before host and port)".into(),
        })?;
        if !matches!(kind, Scheme::Unix) && url.contains(char::is_whitespace) {
            return Err(
                "the lock store's URL has white space (percent-encode it in a password)".into(),
            );
        }
        if is_encrypted && !cfg!(feature = "tls") {
            return Err(
                "the lock store's URL requires TLS, which this build lacks: enable the feature `tls-native-roots` or \
                 `tls-webpki-roots`"
                    .into(),
            );
        }
        let (authority, path) = match kind {
            Scheme::Unix => ("", ""),
            _ => split_authority(rest)?,
        };
        let (user, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        let (location, settings) = match kind {
            Scheme::Unix => single_server(url)?,
            Scheme::Tcp if hosts.contains(',') => return Err(
                "the lock store's URL names several hosts, but not their kind (redis+sentinel://, redis+cluster:// or \
                 redis+quorum://)"
                    .into(),
            ),
            // Always without TLS, which our own socket adds.
            Scheme::Tcp => single_server(&format!("redis://{authority}{path}"))?,
            Scheme::Sentinel => {
                let (service, db) = parse_service(path)?;
                let (sentinels, settings) = parse_hosts(user, hosts, db, Some(DEFAULT_SENTINEL_PORT))?;
                (StoreLocation::Single(ServerLocation::Sentinel { sentinels, service }), settings)
            }
            Scheme::Cluster if !matches!(path, "" | "/" | "/0") => {
                return Err("the lock store's URL names a database, but a cluster has only one".into());
            }
            Scheme::Cluster => {
                let (nodes, settings) = parse_hosts(user, hosts, "", None)?;
                (StoreLocation::Cluster(nodes), settings)
            }
            Scheme::Quorum => {
                let (servers, settings) = parse_hosts(user, hosts, path, None)?;
                if servers.len() < 3 {
                    return Err(
                        "the lock store's URL names fewer than three servers: with one of two down there is no quorum"
                            .into(),
                    );
                }
                (StoreLocation::Quorum(servers), settings)
            }
        };
        Ok(Url {
            location,
            settings: settings
                .set_protocol(ProtocolVersion::RESP3)
                .set_skip_set_lib_name(),
            is_encrypted,
        })
    }
}

/// Returns the authority of a URL, and the rest.
fn split_authority(rest: &str) -> Result<(&str, &str), String> {
    let rest = rest.strip_prefix("//").ok_or(
        "the lock store's URL has no `//` after its scheme (`redis://` before host and port)",
    )?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    // A `/`, `?` or `#` in a password ends the authority. In `redis://user:80#secret@host` that is
    // `user:80`, which would be connected to, and shown.
    if path.contains(['@', '#']) {
        return Err(
            "the lock store's URL has an unexpected `@` or `#` (percent-encode `@`, `#`, `/` and `?` in a password)"
                .into(),
        );
    }
    if path.contains('?') {
        return Err(
            "the lock store's URL has a `?`, but takes no settings (use the builder's methods)"
                .into(),
        );
    }
    Ok((authority, path))
}

/// Returns the kind that a scheme means, and whether it requires TLS.
fn parse_scheme(scheme: &str) -> Result<(Scheme, bool), String> {
    let (server, topology) = scheme.split_once('+').unwrap_or((scheme, ""));
    let is_encrypted = match server {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        "unix" if topology.is_empty() && scheme == "unix" => return Ok((Scheme::Unix, false)),
        "" => return Err("the lock store's URL has no scheme".into()),
        // Not repeated, because it may be a user or a password before a host.
        _ => return Err("the lock store's URL has an unknown scheme".into()),
    };
    match topology {
        "" if !scheme.ends_with('+') => Ok((Scheme::Tcp, is_encrypted)),
        "unix" if !is_encrypted => Ok((Scheme::Unix, false)),
        "sentinel" => Ok((Scheme::Sentinel, is_encrypted)),
        "cluster" => Ok((Scheme::Cluster, is_encrypted)),
        "quorum" => Ok((Scheme::Quorum, is_encrypted)),
        _ => Err("the lock store's URL has an unknown scheme".into()),
    }
}

/// Returns the server and the settings of a URL of one server.
fn single_server(url: &str) -> Result<(StoreLocation, RedisConnectionInfo), String> {
    let info = parse_with_redis(url)?;
    let server = ServerLocation::Direct(info.addr().clone());
    Ok((StoreLocation::Single(server), info.redis_settings().clone()))
}

/// Parses a URL of one server with the `redis` crate.
fn parse_with_redis(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info()
        .map_err(|error| format!("the lock store's URL is malformed ({})", error.category()))
}

/// Splits a path such as `/service/3` into the service and the path of its database.
fn parse_service(path: &str) -> Result<(String, &str), String> {
    let path = path.strip_prefix('/').unwrap_or_default();
    let (service, db) = match path.find('/') {
        Some(end) => path.split_at(end),
        None => (path, ""),
    };
    // The characters that Sentinel accepts in a name.
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if service.is_empty() || !service.chars().all(is_known) {
        return Err(
            "the lock store's URL names no service (letters, digits, `.`, `-`, `_`) after its sentinels"
                .into(),
        );
    }
    Ok((service.to_owned(), db))
}

/// Parses hosts, separated by commas, that share all other parts of a URL.
fn parse_hosts(
    user: &str,
    hosts: &str,
    db: &str,
    port: Option<u16>,
) -> Result<(Vec<Host>, RedisConnectionInfo), String> {
    if user.matches('@').count() > 1 {
        return Err(
            "the lock store's URL has several `@` (write user and password once, percent-encoded, before all hosts)"
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
        let info = parse_with_redis(&format!("redis://{user}{host}{port}{db}"))?;
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

    fn location(url: &str) -> StoreLocation {
        Url::parse(url)
            .map(|url| url.location)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn several_hosts_share_user_and_database() {
        let url = "valkey+sentinel://shop:p%40ss@b:7,[::1],a/my-service.1/3";
        let parsed = Url::parse(url).unwrap_or_else(|error| panic!("{error}"));
        let sentinels = hosts(&[("b", 7), ("::1", 26_379), ("a", 26_379)]);
        let service = "my-service.1".to_owned();
        let sentinel = ServerLocation::Sentinel { sentinels, service };
        assert_eq!(parsed.location, StoreLocation::Single(sentinel));
        assert_eq!(parsed.settings.db(), 3);
        assert_eq!(parsed.settings.username(), Some("shop"));
        assert_eq!(parsed.settings.password(), Some("p@ss"));
        assert_eq!(
            location("redis+cluster://b,a:7000,b:6379/"),
            StoreLocation::Cluster(hosts(&[("b", 6_379), ("a", 7_000)]))
        );
        assert_eq!(
            location("redis+quorum://b,a:7000,c/2"),
            StoreLocation::Quorum(hosts(&[("b", 6_379), ("a", 7_000), ("c", 6_379)]))
        );
    }

    #[test]
    fn an_ambiguous_host_list_is_rejected() {
        for (url, said) in [
            ("redis+sentinel://a,b", "names no service"),
            ("redis+sentinel://a,b/", "names no service"),
            ("redis+sentinel://a/my%20service", "names no service"),
            ("redis+sentinel://a,,b/s", "host without a name"),
            ("redis+sentinel:///s", "host without a name"),
            ("redis+sentinel://a/s/three", "malformed"),
            ("redis+sentinel://a:port/s", "malformed"),
            ("redis+cluster://a/1", "has only one"),
            ("redis+quorum://a,b", "fewer than three"),
            ("redis+quorum://a,b,c,a/x", "malformed"),
            ("redis://a,b", "several hosts"),
            ("redis+other://a", "unknown scheme"),
            ("redis+://a", "unknown scheme"),
            ("rediss+unix:///x.sock", "unknown scheme"),
            ("unix+cluster://a", "unknown scheme"),
            ("redis://a?protocol=resp2", "takes no settings"),
            ("redis:a", "no `//`"),
            ("://a", "no scheme"),
        ] {
            match Url::parse(url) {
                Ok(_) => panic!("{url} was accepted"),
                Err(error) => assert!(error.contains(said), "{url}: {error}"),
            }
        }
    }
}
