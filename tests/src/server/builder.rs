//! The options of a server.

use std::path::Path;
use std::sync::Mutex;

use crate::ports::free_port;
use crate::server::RedisServer;
use crate::server::launch::NotStarted;
use crate::skew::Skew;

/// Number of ports that are tried if another process takes each of them first.
const PORT_ATTEMPTS: u32 = 20;

/// The options of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `.start()`"]
pub struct RedisServerBuilder {
    pub(super) args: Vec<String>,
    port: Option<u16>,
    pub(super) password: Option<String>,
    pub(super) append_only: bool,
    pub(super) unix_socket: bool,
    clock: bool,
    pub(super) sentinel: bool,
    tls: bool,
}

impl RedisServerBuilder {
    /// Adds a configuration directive: `.arg("--maxmemory", "1")`.
    pub fn arg(self, name: &str, value: &str) -> Self {
        self.args([name, value])
    }

    /// Like [`arg`](RedisServerBuilder::arg), unless the directive was already given.
    pub(crate) fn arg_by_default(self, name: &str, value: &str) -> Self {
        if self.args.iter().any(|given| given == name) {
            return self;
        }
        self.arg(name, value)
    }

    /// Adds directives of any number of words:
    /// `.args(["--client-output-buffer-limit", "pubsub", "4kb", "0", "0"])`.
    pub fn args<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// Sets the port. Without it the server gets a free port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the password of the default user.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes everything to disk before it is acknowledged. Without it nothing is ever written.
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Opens a Unix socket in addition to the port, see [`RedisServer::unix_path`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Opens a second port that accepts only TLS. It presents this certificate, and accepts
    /// certificates of these authorities. The server announces this port to others.
    pub fn tls(mut self, authorities: &Path, certificate: &Path, key: &Path) -> Self {
        self.tls = true;
        for (name, path) in [
            ("--tls-ca-cert-file", authorities),
            ("--tls-cert-file", certificate),
            ("--tls-key-file", key),
        ] {
            self.args.push(name.into());
            self.args.push(path.display().to_string());
        }
        self.args(["--tls-auth-clients", "no", "--tls-replication", "yes"])
    }

    /// Makes the server a sentinel. It monitors no server before [`watch`](crate::sentinel::watch).
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Gives the server a wall clock that [`RedisServer::set_clock`] can step (Linux with glibc).
    pub fn own_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// Panics if redis-server is not installed (the message has the command that installs it) or
    /// does not start (the message has the end of its log).
    #[track_caller]
    pub fn start(self) -> RedisServer {
        // Dropping the server before the panic removes its directory.
        self.try_start().unwrap_or_else(|reason| panic!("{reason}"))
    }

    fn try_start(self) -> Result<RedisServer, String> {
        let dir = tempfile::Builder::new()
            .prefix("distlock-redis-")
            .tempdir()
            .map_err(|error| format!("cannot make a directory for a server: {error}"))?;
        let mut server = RedisServer {
            port: self.port.unwrap_or(0),
            tls_port: None,
            skew: self.clock.then(|| Skew::build(dir.path())),
            options: self,
            dir,
            process: Mutex::new(None),
        };
        let attempts = if server.port == 0 { PORT_ATTEMPTS } else { 1 };
        for attempt in 1..=attempts {
            if server.options.port.is_none() {
                server.port = free_port();
            }
            if server.options.tls {
                server.tls_port = Some(free_port());
            }
            match server.spawn() {
                Ok(process) => {
                    *server.process() = Some(process);
                    return Ok(server);
                }
                Err(NotStarted::PortTaken) if attempt < attempts => {}
                Err(NotStarted::PortTaken) => return Err(format!("port {} is taken", server.port)),
                Err(NotStarted::Other(reason)) => return Err(reason),
            }
        }
        unreachable!("the last attempt returns")
    }
}
