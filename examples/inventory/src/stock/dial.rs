//! The server that has the stock, behind any URL that the locks take.
//!
//! A stock belongs into a database. Here it lies beside the locks, so that the example needs no other server, and is
//! looked for once: a failover ends the run, where the locks would go on.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo,
};
use tokio::net::TcpStream;

use crate::store::{SentinelUser, StoreOptions};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Where sentinels listen, unless their URL says otherwise.
const SENTINELS_PORT: u16 = 26_379;

/// Connects to the server that has `key`.
pub(super) async fn dial(store: &StoreOptions, key: &str) -> Result<MultiplexedConnection> {
    let url = Url::parse(&store.url).context("the store's URL has no `://`")?;
    if url.topology == "unix" {
        let client = Client::open(&*store.url).map_err(|error| malformed(&error))?;
        let patience = patience();
        let connection = client.get_multiplexed_async_connection_with_config(&patience);
        return Ok(connection.await?);
    }
    match url.topology {
        "sentinel" => primary(&url).await,
        "cluster" => owner(&url, key).await,
        // A quorum's servers share nothing: the first of them has the stock.
        "quorum" => {
            let first = url.hosts.split(',').next().unwrap_or_default();
            let (server, settings) = url.server(first, url.path, None)?;
            open(&server, &settings).await
        }
        _ => {
            let (server, settings) = url.server(url.hosts, url.path, None)?;
            open(&server, &settings).await
        }
    }
}

type Server = (String, u16);

/// The parts of a URL. The locks have checked it.
struct Url<'a> {
    /// `sentinel`, `cluster`, `quorum`, `unix`, or nothing.
    topology: &'a str,
    /// With an `@` at its end, if there is one.
    user: &'a str,
    hosts: &'a str,
    path: &'a str,
}

impl<'a> Url<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let topology = scheme.split_once('+').map_or("", |(_, topology)| topology);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Some(Url {
            topology,
            user,
            hosts,
            path,
        })
    }

    /// One of the hosts, and what is said to it.
    fn server(
        &self,
        host: &str,
        database: &str,
        port: Option<u16>,
    ) -> Result<(Server, RedisConnectionInfo)> {
        // Not the colons of `[::1]`.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = match port {
            Some(port) if !has_port => format!(":{port}"),
            _ => String::new(),
        };
        let url = format!("redis://{}{host}{port}{database}", self.user);
        let info = url
            .into_connection_info()
            .map_err(|error| malformed(&error))?;
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                // And not RESP3, which proxies do not speak.
                let settings = info.redis_settings().clone().set_skip_set_lib_name();
                Ok(((host.clone(), *port), settings))
            }
            _ => bail!("the store's URL names no host"),
        }
    }
}

/// The server that a sentinel names as primary.
async fn primary(url: &Url<'_>) -> Result<MultiplexedConnection> {
    let path = url.path.trim_start_matches('/');
    let service = path.split('/').next().unwrap_or(path);
    let database = &path[service.len()..];
    let mut why = anyhow!("there is no sentinel in the store's URL");
    for host in url.hosts.split(',') {
        let (sentinel, settings) = url.server(host, database, Some(SENTINELS_PORT))?;
        match named(&sentinel, service).await {
            Ok(master) => return open(&master, &settings).await,
            Err(error) => why = error,
        }
    }
    Err(why).with_context(|| format!("no sentinel names the master of `{service}`"))
}

async fn named(sentinel: &Server, service: &str) -> Result<Server> {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = SentinelUser::from_env() {
        settings = settings.set_password(user.password);
        if let Some(name) = user.name {
            settings = settings.set_username(name);
        }
    }
    let mut sentinel = open(sentinel, &settings).await?;
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let master: Option<Server> = ask.query_async(&mut sentinel).await?;
    master.context("it watches no such service")
}

/// The node of a cluster that has a key.
async fn owner(url: &Url<'_>, key: &str) -> Result<MultiplexedConnection> {
    let mut why = anyhow!("there is no node in the store's URL");
    for host in url.hosts.split(',') {
        let (node, settings) = url.server(host, "", None)?;
        match open(&node, &settings).await {
            Ok(connection) => return followed(connection, &settings, key).await,
            Err(error) => why = error,
        }
    }
    Err(why).context("no node of the cluster answers")
}

/// Any node says who has a key.
async fn followed(
    mut connection: MultiplexedConnection,
    settings: &RedisConnectionInfo,
    key: &str,
) -> Result<MultiplexedConnection> {
    let mut ask = redis::cmd("EXISTS");
    let Err(error) = ask.arg(key).exec_async(&mut connection).await else {
        return Ok(connection);
    };
    let owner = error.redirect_node().and_then(|(address, _)| {
        let (host, port) = address.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    });
    match owner {
        Some(owner) => open(&owner, settings).await,
        None => Err(error.into()),
    }
}

async fn open(
    (host, port): &Server,
    settings: &RedisConnectionInfo,
) -> Result<MultiplexedConnection> {
    let opened = async {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let greeted = MultiplexedConnection::new_with_config(settings, stream, patience());
        let (connection, driver) = greeted.await?;
        tokio::spawn(driver);
        Ok(connection)
    };
    tokio::time::timeout(CONNECT_WITHIN, opened)
        .await
        .context("it does not answer")
        .flatten()
        .with_context(|| format!("cannot connect to {host}:{port}"))
}

fn patience() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(Some(ANSWER_WITHIN))
}

/// The cause never contains the URL, for it may contain a password.
fn malformed(error: &redis::RedisError) -> anyhow::Error {
    anyhow!("the store's URL: {}", error.category())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_parts() {
        let url = Url::parse("redis+sentinel://u:p%40@a:7,[::1]/locks/3").unwrap();
        assert_eq!((url.topology, url.user), ("sentinel", "u:p%40@"));
        assert_eq!((url.hosts, url.path), ("a:7,[::1]", "/locks/3"));
        let (server, settings) = url.server("[::1]", "/3", Some(26_379)).unwrap();
        assert_eq!(server, ("::1".into(), 26_379));
        assert_eq!((settings.db(), settings.password()), (3, Some("p@")));
        let url = Url::parse("redis://h").unwrap();
        assert_eq!((url.topology, url.user, url.path), ("", "", ""));
        assert_eq!(url.server("h", "", None).unwrap().0, ("h".into(), 6_379));
    }
}
