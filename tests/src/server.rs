//! A real redis-server process for one test.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::Process;
use crate::client::{Reply, Resp, field};
use crate::monitor::Monitor;
use crate::proxy::Proxy;
use crate::skew::Skew;

/// How long a start or a clean end may take on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a new port is tried when another process was faster.
const PORT_ATTEMPTS: u32 = 20;
/// The server's log, inside its directory.
const LOG: &str = "redis.log";

/// A redis-server on a free port of 127.0.0.1 with a directory of its own; dropping it kills the
/// process by pid and removes the directory.
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

/// What a [`RedisServer`] is started with.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `.start()`"]
pub struct RedisServerBuilder {
    args: Vec<String>,
    port: Option<u16>,
    password: Option<String>,
    append_only: bool,
    unix_socket: bool,
    clock: bool,
    sentinel: bool,
    tls: bool,
}

impl RedisServerBuilder {
    /// A configuration directive as an option: `.arg("--maxmemory", "1")`.
    pub fn arg(self, name: &str, value: &str) -> Self {
        self.args([name, value])
    }

    /// Directives of any number of words: `.args(["--client-output-buffer-limit", "pubsub", "4kb", "0", "0"])`.
    pub fn args<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// This port and no other; without it a free one is found.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// A password for the default user.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Every write is on disk before it is acknowledged; without it nothing is ever written.
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// A Unix socket beside the port, see [`RedisServer::unix_url`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// A second port that speaks only TLS, with this certificate, and where certificates of these authorities are
    /// taken; whatever it tells others to connect to is that one.
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

    /// A sentinel, which watches nobody until it is told whom.
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// A wall clock that [`RedisServer::set_clock`] can step (Linux with glibc).
    pub fn own_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When redis-server is not installed (the message has the command that installs it) or does
    /// not start (the message has the end of its log).
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let dir = tempfile::Builder::new()
            .prefix("distlock-redis-")
            .tempdir()
            .unwrap_or_else(|error| panic!("cannot make a directory for a server: {error}"));
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
                    return server;
                }
                Err(NotStarted::PortTaken) if attempt < attempts => {}
                Err(NotStarted::PortTaken) => panic!("port {} is taken", server.port),
                Err(NotStarted::Other(reason)) => panic!("{reason}"),
            }
        }
        unreachable!("the last attempt returns or panics")
    }
}

/// Why a process did not become a server.
enum NotStarted {
    PortTaken,
    Other(String),
}

impl RedisServer {
    /// A server without persistence and without a password.
    ///
    /// # Panics
    ///
    /// As [`RedisServerBuilder::start`].
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// A server with options.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// `redis://127.0.0.1:<port>`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Like [`RedisServer::url`], through a proxy before this server.
    pub fn url_via(&self, proxy: &Proxy) -> String {
        self.url_at(proxy.port())
    }

    fn url_at(&self, port: u16) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// `redis+unix://<path>`.
    ///
    /// # Panics
    ///
    /// When it was started without [`RedisServerBuilder::unix_socket`].
    #[track_caller]
    pub fn unix_url(&self) -> String {
        let path = self.unix_path();
        match &self.options.password {
            Some(password) => format!("redis+unix://{}?pass={password}", path.display()),
            None => format!("redis+unix://{}", path.display()),
        }
    }

    /// The path of the Unix socket.
    ///
    /// # Panics
    ///
    /// When it was started without [`RedisServerBuilder::unix_socket`].
    #[track_caller]
    pub fn unix_path(&self) -> PathBuf {
        assert!(
            self.options.unix_socket,
            "the server was started without a Unix socket"
        );
        self.dir.path().join("redis.sock")
    }

    /// The default user's password.
    pub fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// The port; a restart keeps it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port that speaks TLS.
    ///
    /// # Panics
    ///
    /// When it was started without [`RedisServerBuilder::tls`].
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("the server was started without TLS")
    }

    /// The port by which other servers know it.
    pub(crate) fn announced_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The directory with the server's files; a restart keeps it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join(LOG))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A new, authenticated connection.
    ///
    /// # Panics
    ///
    /// When the server does not take it.
    #[track_caller]
    pub fn client(&self) -> Resp {
        match self.try_client() {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to the server at {}: {error}", self.addr()),
        }
    }

    pub(crate) fn try_client(&self) -> io::Result<Resp> {
        let mut client = Resp::connect(self.addr())?;
        if let Some(password) = &self.options.password {
            let reply = client.try_cmd(&["AUTH", password])?;
            if reply.is_error() {
                return Err(io::Error::other(format!("AUTH: {reply:?}")));
            }
        }
        Ok(client)
    }

    /// Starts to collect what the server executes.
    ///
    /// # Panics
    ///
    /// When the server does not let us.
    #[track_caller]
    pub fn monitor(&self) -> Monitor {
        Monitor::start(self)
    }

    /// A fault proxy before this server.
    #[track_caller]
    pub fn proxy(&self) -> Proxy {
        Proxy::start(self.addr())
    }

    /// A fault proxy before the port that speaks TLS.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::tls_port`].
    #[track_caller]
    pub fn tls_proxy(&self) -> Proxy {
        Proxy::start_sealed((Ipv4Addr::LOCALHOST, self.tls_port()).into())
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// When the server was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        running(&mut self.process()).pid()
    }

    /// Whether the process was not killed; a frozen one runs.
    pub fn is_running(&self) -> bool {
        self.process().is_some()
    }

    /// Freezes the process (SIGSTOP); returns once it stands still.
    ///
    /// # Panics
    ///
    /// When the server was killed.
    #[track_caller]
    pub fn stop_process(&self) {
        running(&mut self.process()).stop();
    }

    /// Lets a frozen process go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// When the server was killed.
    #[track_caller]
    pub fn cont_process(&self) {
        running(&mut self.process()).cont();
    }

    /// Kills the process (SIGKILL) and waits for its end; nothing happens when it is dead already.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Lets the server shut down in order (SIGTERM) and waits for its end.
    ///
    /// # Panics
    ///
    /// When it does not end.
    #[track_caller]
    pub fn terminate(&self) {
        if let Some(mut process) = self.process().take() {
            process.terminate(DEADLINE);
        }
    }

    /// Starts the server again on the same port and directory, after [`RedisServer::kill`] if it
    /// still runs.
    ///
    /// # Panics
    ///
    /// When it does not start.
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
    /// When it was started without [`RedisServerBuilder::own_clock`].
    #[track_caller]
    pub fn set_clock(&self, ahead: bool, by: Duration) {
        let skew = self
            .skew
            .as_ref()
            .expect("the server was started without its own clock");
        skew.set(ahead, by).expect("cannot set the server's clock");
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> Result<Process, NotStarted> {
        // The log of an earlier run would be taken for this one's.
        let _ = fs::remove_file(self.dir.path().join(LOG));
        let mut process = Process::spawn(&mut self.command()).map_err(cannot_spawn)?;
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = process.exited() {
                let log = self.log();
                return Err(if log.contains("Address already in use") {
                    NotStarted::PortTaken
                } else {
                    NotStarted::Other(format!(
                        "redis-server ended at its start ({status}):\n{log}"
                    ))
                });
            }
            if self.is_ready(process.pid()).unwrap_or(false) {
                return Ok(process);
            }
            if Instant::now() > deadline {
                let log = self.log();
                let reason = format!("redis-server did not answer within {DEADLINE:?}:\n{log}");
                return Err(NotStarted::Other(reason));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self) -> Command {
        let options = &self.options;
        let mut command = Command::new(program());
        if options.sentinel {
            let config = self.dir.path().join("sentinel.conf");
            // What it was told, it has written there.
            if !config.exists() {
                fs::write(&config, "").expect("the directory is writable");
            }
            command.arg(config).arg("--sentinel");
        }
        command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--daemonize", "no", "--logfile", LOG, "--save", ""])
            .arg("--dir")
            .arg(self.dir.path());
        if let Some(port) = self.tls_port {
            command.args(["--tls-port", &port.to_string()]);
        }
        if options.append_only {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        if options.unix_socket {
            command.arg("--unixsocket").arg(self.unix_path());
        }
        if let Some(password) = &options.password {
            command.args(["--requirepass", password]);
        }
        if let Some(skew) = &self.skew {
            skew.preload(&mut command);
        }
        command
            .args(&options.args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Whether the server answers, and is the one that was just started: another process may
    /// have taken the port, while ours is about to find out.
    fn is_ready(&self, pid: u32) -> io::Result<bool> {
        let mut client = self.try_client()?;
        match client.try_cmd(&["PING"])? {
            Reply::Status(_) => {}
            Reply::Error(error) => return Ok(is_refusal(&error)),
            _ => return Ok(false),
        }
        match client.try_cmd(&["INFO", "server"])? {
            Reply::Bulk(info) => Ok(field(&info, "process_id") == Some(&pid.to_string())),
            Reply::Error(error) => Ok(is_refusal(&error)),
            _ => Ok(false),
        }
    }
}

/// A server whose default user may do nothing is ready too.
fn is_refusal(error: &str) -> bool {
    error.starts_with("NOAUTH") || error.starts_with("NOPERM")
}

#[track_caller]
fn running(process: &mut Option<Process>) -> &mut Process {
    process
        .as_mut()
        .expect("the server was killed and not restarted")
}

/// `redis-server`, or what `REDIS_SERVER` names, to test against another version.
fn program() -> std::ffi::OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn cannot_spawn(error: io::Error) -> NotStarted {
    let program = program();
    NotStarted::Other(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{program:?} is not installed. These tests run against real servers: install it with \
             `apt-get install redis-server`, or run ./test.sh, which does."
        ),
        _ => format!("cannot start {program:?}: {error}"),
    })
}

/// A port that is free now; somebody else may take it before the server does.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .unwrap_or_else(|error| panic!("no free port on 127.0.0.1: {error}"))
        .port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually;

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn dropping_a_server_leaves_neither_process_nor_directory() {
        let server = RedisServer::start();
        let (pid, dir) = (server.pid(), server.dir().to_owned());
        assert!(exists(pid) && dir.exists());
        server.stop_process();
        drop(server);
        assert!(!exists(pid) && !dir.exists());
    }

    #[test]
    fn nothing_is_kept_over_a_restart_unless_asked_for() {
        for append_only in [false, true] {
            let builder = RedisServer::builder();
            let server = if append_only {
                builder.append_only()
            } else {
                builder
            }
            .start();
            let (port, pid) = (server.port(), server.pid());
            server.client().cmd(&["SET", "a", "1"]);
            server.kill();
            assert!(server.try_client().is_err(), "it is dead");
            server.restart();
            assert_eq!(server.port(), port);
            assert_ne!(server.pid(), pid);
            assert_eq!(server.client().exists("a"), append_only);
        }
    }

    #[test]
    fn stopping_freezes_and_continuing_thaws() {
        let server = RedisServer::start();
        let mut client = server.client();
        server.stop_process();
        client.send(&["PING"]).expect("the kernel still takes it");
        let silence = client.read_reply(Duration::from_millis(50));
        assert_eq!(silence.expect_err("frozen").kind(), io::ErrorKind::TimedOut);
        server.cont_process();
        let reply = client.read_reply(DEADLINE).expect("it goes on");
        assert_eq!(reply, Reply::Status("PONG".into()));
    }

    #[test]
    fn options_reach_the_server() {
        let server = RedisServer::builder()
            .requirepass("secret")
            .unix_socket()
            .arg("--maxmemory", "1")
            .args(["--client-output-buffer-limit", "pubsub", "4096", "0", "0"])
            .start();
        assert_eq!(
            server.url(),
            format!("redis://:secret@127.0.0.1:{}", server.port())
        );
        let mut client = server.client();
        let refused = client.cmd(&["SET", "a", "1"]);
        assert!(
            matches!(&refused, Reply::Error(e) if e.starts_with("OOM")),
            "{refused:?}"
        );
        let limits = client.cmd(&["CONFIG", "GET", "client-output-buffer-limit"]);
        let limits = limits.array()[1].text().map(str::to_owned);
        assert!(limits.is_some_and(|limits| limits.contains("pubsub 4096 0 0")));
        let mut over_unix = Resp::connect_unix(&server.unix_path()).expect("it listens");
        assert!(over_unix.cmd(&["PING"]).is_error(), "not authenticated");
        assert!(server.unix_url().ends_with("/redis.sock?pass=secret"));
    }

    #[test]
    fn a_taken_port_is_told_apart() {
        let first = RedisServer::start();
        let port = first.port();
        let second = std::panic::catch_unwind(|| RedisServer::builder().port(port).start());
        let panic = second.expect_err("the port is taken");
        let message = panic.downcast_ref::<String>().expect("a message");
        assert_eq!(*message, format!("port {port} is taken"));
    }

    #[test]
    fn a_server_that_cannot_start_shows_its_reason() {
        let start = || {
            RedisServer::builder()
                .arg("--maxmemory-policy", "nonsense")
                .start()
        };
        let panic = std::panic::catch_unwind(start).expect_err("no such policy");
        let message = panic.downcast_ref::<String>().expect("a message");
        assert!(
            message.contains("redis-server ended at its start"),
            "{message}"
        );
    }

    #[test]
    fn the_clock_can_be_stepped_both_ways() {
        let server = RedisServer::builder().own_clock().start();
        let mut client = server.client();
        let mut ahead = || {
            let time = client.cmd(&["TIME"]);
            let seconds: i64 = time.array()[0].text().unwrap().parse().unwrap();
            let now = std::time::SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap()
                .as_secs() as i64;
            seconds - now
        };
        let hour = Duration::from_secs(3600);
        assert!((-5..=5).contains(&ahead()));
        server.set_clock(true, hour);
        assert!((3595..=3605).contains(&ahead()));
        server.set_clock(false, hour);
        assert!((-3605..=-3595).contains(&ahead()));
        server.set_clock(true, Duration::ZERO);
        assert!((-5..=5).contains(&ahead()));
    }

    #[test]
    fn an_orderly_end_is_waited_for() {
        let server = RedisServer::builder().append_only().start();
        let pid = server.pid();
        server.terminate();
        eventually(Duration::from_secs(1), || !exists(pid));
        assert!(server.log().contains("bye bye"), "{}", server.log());
    }
}
