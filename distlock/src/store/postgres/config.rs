//! The address and the settings of a store in PostgreSQL.

use std::fmt::Write as _;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::config::tls::Tls;
use crate::error::Error;
use crate::protocol::store_error::StoreError;

const DEFAULT_PORT: u16 = 5432;

/// Lower limit of the time to open a connection: a server under load plans statements for long.
pub(super) const MIN_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

const FORM: &str =
    "write postgres://user:password@host[:port]/database, with `?sslmode=verify-full` for TLS";

/// The address of a database, and the settings for its connections.
#[derive(Clone)]
pub(crate) struct PostgresConfig {
    /// Database, user and password.
    settings: Config,
    pub(crate) hosts: Vec<(Host, u16)>,
    /// Set for a server that is reached over TLS.
    pub(crate) tls: Option<Tls>,
    /// Source of user and password, in place of those of the URL.
    pub(crate) credentials: Option<CredentialsProvider>,
    pub(crate) namespace: String,
    pub(crate) connect_timeout: Duration,
}

impl PostgresConfig {
    pub(crate) fn parse(
        url: &str,
        namespace: &str,
        connect_timeout: Duration,
    ) -> Result<Self, Error> {
        let (url, is_encrypted) = split_sslmode(url)?;
        // Neither the URL nor the parser's error is repeated, because they may contain a password.
        let mut settings: Config = url.parse().map_err(|_| {
            refused("the lock store's URL is malformed, or has an option that is unknown")
        })?;
        if settings.get_dbname().is_none() {
            return Err(refused("the lock store's URL names no database"));
        }
        if settings.get_hosts().is_empty() {
            return Err(refused("the lock store's URL names no host"));
        }
        if is_encrypted && !cfg!(feature = "tls") {
            return Err(Error::config(
                "the URL asks for TLS, and this build of distlock has none; enable the feature `tls-native-roots`",
            ));
        }
        settings.ssl_mode(SslMode::Disable);
        if settings.get_application_name().is_none() {
            settings.application_name("distlock");
        }
        let ports = settings.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied();
        let hosts = settings.get_hosts().iter().cloned().enumerate();
        let hosts = hosts.map(|(index, host)| (host, port(index).unwrap_or(DEFAULT_PORT)));
        Ok(PostgresConfig {
            hosts: hosts.collect(),
            settings,
            tls: is_encrypted.then(Tls::default),
            credentials: None,
            namespace: namespace.to_owned(),
            connect_timeout,
        })
    }

    /// Returns servers, database and namespace, which decide whether two managers share locks.
    pub(crate) fn identity(&self) -> String {
        let mut sorted = self.clone();
        // The order of hosts makes no difference.
        sorted.hosts.sort_by_key(format_host);
        format!("{} {}", sorted.address(), self.namespace)
    }

    /// Returns the servers and the database, without user and password.
    pub(crate) fn address(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(format_host).collect();
        let database = self.settings.get_dbname().unwrap_or_default();
        format!("postgres://{}/{database}", hosts.join(","))
    }

    /// Returns true if the URL contains a user.
    pub(crate) fn has_user(&self) -> bool {
        self.settings
            .get_user()
            .is_some_and(|user| !user.is_empty())
    }

    /// Returns the limit of one attempt to open a connection: a part of the time of `connect`,
    /// because another attempt may succeed.
    pub(crate) fn open_timeout(&self) -> Duration {
        (self.connect_timeout / 4 * 3).max(MIN_OPEN_TIMEOUT)
    }

    /// Returns true if the URL contains a user or a password.
    pub(crate) fn has_credentials(&self) -> bool {
        self.settings.get_user().is_some() || self.settings.get_password().is_some()
    }

    /// Returns the settings of a connection, with these credentials in place of the URL's.
    pub(crate) fn settings(&self, credentials: Option<&Credentials>) -> Config {
        let mut settings = self.settings.clone();
        if let Some(credentials) = credentials {
            if let Some(user) = credentials.user() {
                settings.user(user);
            }
            settings.password(credentials.reveal());
        }
        settings
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

/// Takes `sslmode` out of a URL. Returns true if it asks for TLS, which always verifies the server.
fn split_sslmode(url: &str) -> Result<(String, bool), Error> {
    let Some((start, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), false));
    };
    let mut is_encrypted = false;
    let mut rest = start.to_owned();
    let mut separator = '?';
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", "disable")) => is_encrypted = false,
            Some(("sslmode", "require" | "verify-full")) => is_encrypted = true,
            Some(("sslmode", _)) => {
                return Err(Error::config(
                    "the URL's `sslmode` is neither `disable` nor `verify-full`; write `verify-full` for TLS with a \
                     verified server (`require` means the same here), because the other modes do not verify it",
                ));
            }
            Some(("application_name" | "options", _)) => {
                // Writing to a string cannot fail.
                let _ = write!(rest, "{separator}{option}");
                separator = '&';
            }
            _ => {
                let name = option.split('=').next().unwrap_or_default();
                // It may be the end of a password with a question mark.
                if !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                    return Err(refused(
                        "the lock store's URL is malformed; percent-encode `?` in a password",
                    ));
                }
                return Err(Error::config(format!(
                    "the URL has the option `{name}`, which distlock does not know; remove it (it knows `sslmode`, \
                     `application_name` and `options`; all others are methods of the builder)"
                )));
            }
        }
    }
    Ok((rest, is_encrypted))
}

fn refused(reason: &str) -> Error {
    Error::config(format!("{reason}; {FORM}"))
}

fn format_host((host, port): &(Host, u16)) -> String {
    match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
        Host::Tcp(name) => format!("{name}:{port}"),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{port}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::parse(url, "distlock", Duration::from_secs(2))
    }

    #[test]
    fn urls_that_cannot_work_are_refused_without_repeating_them() {
        for url in [
            "postgres://",
            "postgres://user:hunter2@host",
            "postgres://user:hunter2@/locks",
            "postgres://user:hunter2@host:port/locks",
            "postgres://user:hunter2@host/locks?nothing=1",
            "postgres://user:?hunter2@host/locks",
            "postgres://user:hunter2@host/locks?sslmode=prefer",
            "postgres://user:hunter2@host/locks?sslmode=verify-ca",
        ] {
            let error = match parse(url) {
                Ok(_) => panic!("{url} was accepted"),
                Err(error) => error,
            };
            assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(
                shown.contains("; write ") || shown.contains("; remove "),
                "{shown}"
            );
        }
    }

    #[test]
    fn the_identity_names_servers_database_and_namespace_only() {
        let config = parse("postgresql://u:hunter2@b:1,a/locks?sslmode=verify-full").unwrap();
        assert!(config.tls.is_some());
        assert_eq!(config.address(), "postgres://b:1,a:5432/locks");
        assert_eq!(config.identity(), "postgres://a:5432,b:1/locks distlock");
        let config = parse("postgres://u@[::1]/locks?application_name=shop").unwrap();
        assert!(config.tls.is_none());
        assert_eq!(config.identity(), "postgres://[::1]:5432/locks distlock");
        assert_eq!(config.settings(None).get_application_name(), Some("shop"));
    }
}
