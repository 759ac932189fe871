//! A real redis-server process for one test.

mod builder;
mod launch;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

pub use builder::RedisServerBuilder;

use crate::child::Process;
use crate::client::Resp;
use crate::monitor::Monitor;
use crate::proxy::Proxy;
use crate::server::launch::NotStarted;
use crate::skew::Skew;
use crate::wait::eventually;

/// Upper limit of the time that a start or an orderly shutdown takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// The server's log, inside its directory.
const LOG: &str = "redis.log";

/// The log of the process before the last restart.
const PREVIOUS_LOG: &str = "redis.previous.log";

/// A redis-server on a free port of 127.0.0.1, with its own directory. Dropping it kills the
/// process by pid and removes the directory. In a panicking thread, which is a failed test, it
/// keeps the directory and prints the path of the log.
///
/// All methods take `&self`, so a test can share it among its tasks.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisServerBuilder,
    dir: TempDir,
    port: u16,
    tls_port: Option<u16>,
    skew: Option<Skew>,
    process: Mutex<Option<Process>>,
}

impl RedisServer {
    /// Starts a server without persistence and without a password.
    ///
    /// # Panics
    ///
    /// Panics like [`RedisServerBuilder::start`].
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// Creates a builder for a server with options.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// Returns `redis://127.0.0.1:<port>`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Like [`RedisServer::url`], through a proxy in front of this server.
    pub fn url_via(&self, proxy: &Proxy) -> String {
        self.url_at(proxy.port())
    }

    fn url_at(&self, port: u16) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Returns the path of the Unix socket.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`RedisServerBuilder::unix_socket`].
    #[track_caller]
    pub fn unix_path(&self) -> PathBuf {
        assert!(
            self.options.unix_socket,
            "the server was started without a Unix socket"
        );
        self.dir.path().join("redis.sock")
    }

    /// Returns the default user's password.
    pub fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// Returns the port; a restart keeps it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port that accepts TLS.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`RedisServerBuilder::tls`].
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("the server was started without TLS")
    }

    /// Returns the port under which other servers know this one.
    pub(crate) fn announced_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the directory with the server's files; a restart keeps it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join(LOG))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Opens an authenticated connection.
    ///
    /// # Panics
    ///
    /// Panics if the server does not accept it.
    #[track_caller]
    pub fn client(&self) -> Resp {
        match self.try_client() {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to the server at {}: {error}", self.addr()),
        }
    }

    /// Opens an authenticated connection to a server that may not accept it.
    ///
    /// # Errors
    ///
    /// If no server listens, or the password is wrong.
    pub fn try_client(&self) -> io::Result<Resp> {
        let mut client = Resp::connect(self.addr())?;
        if let Some(password) = &self.options.password {
            let reply = client.try_cmd(&["AUTH", password])?;
            if reply.is_error() {
                return Err(io::Error::other(format!("AUTH: {reply:?}")));
            }
        }
        Ok(client)
    }

    /// Starts to collect the commands that the server executes.
    ///
    /// # Panics
    ///
    /// Panics if the server rejects `MONITOR`.
    #[track_caller]
    pub fn monitor(&self) -> Monitor {
        Monitor::start(self)
    }

    /// Starts a fault proxy in front of this server.
    #[track_caller]
    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.addr())
    }

    /// Starts a fault proxy in front of the port that accepts TLS.
    ///
    /// # Panics
    ///
    /// Panics like [`RedisServer::tls_port`].
    #[track_caller]
    pub fn tls_proxy(&self) -> Proxy {
        Proxy::start_sealed((Ipv4Addr::LOCALHOST, self.tls_port()).into())
    }

    /// Returns the process id.
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        running(&mut self.process()).pid()
    }

    /// Returns true unless the process was killed; a frozen process counts as running.
    pub fn is_running(&self) -> bool {
        self.process().is_some()
    }

    /// Returns true if the process has ended by itself.
    pub fn has_ended(&self) -> bool {
        let mut process = self.process();
        process
            .as_mut()
            .is_some_and(|process| process.exited().is_some())
    }

    /// Freezes the process (SIGSTOP) and waits until it is stopped.
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[track_caller]
    pub fn stop_process(&self) {
        running(&mut self.process()).stop();
    }

    /// Resumes a frozen process (SIGCONT).
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[track_caller]
    pub fn cont_process(&self) {
        running(&mut self.process()).cont();
    }

    /// Kills the process (SIGKILL) and waits for its end; does nothing if it was already killed.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Shuts the server down in order (SIGTERM) and waits for its end.
    ///
    /// # Panics
    ///
    /// Panics if it does not end.
    #[track_caller]
    pub fn terminate(&self) {
        if let Some(mut process) = self.process().take() {
            process.terminate(DEADLINE);
        }
    }

    /// Starts the server again on the same port and directory; kills it first if it still runs.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        match self.spawn() {
            Ok(process) => *self.process() = Some(process),
            Err(NotStarted::PortTaken) => panic!("port {} was taken meanwhile", self.port),
            Err(NotStarted::Other(reason)) => panic!("{reason}"),
        }
    }

    /// Steps the server's wall clock to `by` ahead of the true time, or behind it.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`RedisServerBuilder::own_clock`].
    #[track_caller]
    pub fn set_clock(&self, ahead: bool, by: Duration) {
        let skew = self
            .skew
            .as_ref()
            .expect("the server was started without its own clock");
        skew.set(ahead, by).expect("cannot set the server's clock");
    }

    /// Like [`set_clock`](RedisServer::set_clock), then waits until the server uses the new time.
    /// Some servers read the clock only occasionally, and until then expire keys by the old time.
    ///
    /// # Panics
    ///
    /// Panics like `set_clock`, and if the server does not notice the step.
    #[track_caller]
    pub fn step_clock(&self, ahead: bool, by: Duration) {
        const SCRIPT: &str = "redis.call('SET', KEYS[1], '') \
            local time = redis.call('TIME') \
            return time[1] * 1000 + math.floor(time[2] / 1000)";
        const PROBE: &str = "probe of the clock";
        self.set_clock(ahead, by);
        let mut raw = self.client();
        let near = |one: i64, other: i64| (one - other).abs() < 1_000;
        // The server reads the clock separately inside and outside of scripts.
        eventually(DEADLINE, || {
            let now = SystemTime::now();
            let stepped = if ahead { now + by } else { now - by };
            let since = stepped.duration_since(UNIX_EPOCH).unwrap_or_default();
            let stepped = since.as_millis() as i64;
            let inside = raw.cmd(&["EVAL", SCRIPT, "1", PROBE]).int();
            raw.cmd(&["PEXPIREAT", PROBE, &(stepped + 60_000).to_string()]);
            near(inside, stepped) && near(raw.cmd(&["PTTL", PROBE]).int(), 60_000)
        });
        raw.cmd(&["DEL", PROBE]);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("server log: {}", self.dir.path().join(LOG).display());
        }
    }
}

#[track_caller]
fn running(process: &mut Option<Process>) -> &mut Process {
    process
        .as_mut()
        .expect("the server was killed and not restarted")
}
