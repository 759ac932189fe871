//! A real PostgreSQL server for one test.

mod builder;
mod disk;
mod pgbouncer;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use builder::PostgresServerBuilder;
pub use pgbouncer::PgBouncer;

use crate::postgres::builder::{Guardian, NotStarted, as_user, plain, program, run};
use crate::postgres::disk::Disk;
use crate::proxy::Proxy;
use crate::skew::Skew;
use crate::wait::{equal, eventually};

/// Upper limit of the time that a start or an orderly shutdown takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Upper limit of the time until a signal takes effect on a loaded machine. PostgreSQL itself kills
/// children that do not end within five seconds.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(20);

/// The time after which the fixture ends the children of a server that shuts down.
const PATIENCE: Duration = Duration::from_millis(200);

/// The superuser of every server.
const USER: &str = "distlock";
/// The database that every server has.
const DATABASE: &str = "locks";

/// The data directory, inside the server's directory.
const DATA: &str = "data";
/// The file with the server's pid and state, inside the data directory.
const PID_FILE: &str = "postmaster.pid";
/// The server's log, inside its directory.
const LOG: &str = "postgres.log";
/// The log of the process before the last restart.
const PREVIOUS_LOG: &str = "postgres.previous.log";

/// A PostgreSQL server on a free port of 127.0.0.1, with its own directory, the superuser
/// `distlock`, and the databases `locks` and `template1`. Dropping it ends its processes by pid and
/// removes the directory. In a panicking thread, which is a failed test, it keeps the directory and
/// prints the path of the log.
///
/// All methods take `&self`, so a test can share it among its tasks.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresServerBuilder,
    dir: TempDir,
    port: u16,
    skew: Option<Skew>,
    disk: Option<Disk>,
    running: Mutex<Running>,
}

/// The process of a server, and the shell that ends it with this process.
#[derive(Debug)]
struct Running {
    child: Option<Child>,
    guardian: Guardian,
}

impl PostgresServer {
    /// Starts a server that trusts every user, with `fsync = off`.
    ///
    /// # Panics
    ///
    /// Panics like [`PostgresServerBuilder::start`].
    #[track_caller]
    pub fn start() -> PostgresServer {
        PostgresServer::builder().start()
    }

    /// Creates a builder for a server with options.
    pub fn builder() -> PostgresServerBuilder {
        PostgresServerBuilder::default()
    }

    /// Starts a standby that copies this server and follows it, with the same options.
    ///
    /// # Panics
    ///
    /// Panics if this server cannot be copied, or the standby does not start.
    #[track_caller]
    pub fn standby(&self) -> PostgresServer {
        self.options.clone().start_on(|data| {
            let dir = data.parent().expect("the data is inside a directory");
            let mut backup = as_user(program("pg_basebackup"), dir);
            backup.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-D"]);
            backup.arg(data).args(["-d", &self.url()]);
            run(&mut backup, "").map(drop)
        })
    }

    /// Makes a standby a primary, and waits until it is one.
    ///
    /// # Panics
    ///
    /// Panics if the server is not a standby, or does not become a primary.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql("select pg_promote()"), "t", "not promoted in time");
    }

    /// Returns `postgres://distlock@127.0.0.1:<port>/locks`.
    pub fn url(&self) -> String {
        url(USER, self.port)
    }

    /// Like [`PostgresServer::url`], through a proxy in front of this server.
    pub fn url_via(&self, proxy: &Proxy) -> String {
        url(USER, proxy.port())
    }

    /// Like [`PostgresServer::url`], as another user. The server checks the password only with
    /// [`PostgresServerBuilder::require_passwords`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let login = format!("{}:{}", encoded(user), encoded(password));
        url(&login, self.port)
    }

    /// Returns the port; a restart keeps it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the directory with the server's files; a restart keeps it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the server's log since its last start.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join(LOG))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Starts a fault proxy in front of this server. It does not parse the traffic, as
    /// [`Proxy::start_sealed`] describes.
    #[track_caller]
    pub fn proxy(&self) -> Proxy {
        Proxy::start_sealed(self.addr())
    }

    /// Runs SQL statements as `distlock`, each in its own transaction unless they begin one, and
    /// returns their rows: a line for each row, with `|` between the columns.
    ///
    /// # Panics
    ///
    /// Panics if a statement fails, or the server does not accept the connection.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        match self.try_sql(text) {
            Ok(rows) => rows,
            Err(error) => panic!("{error}in: {text}"),
        }
    }

    /// Like [`PostgresServer::sql`], for statements that may fail.
    ///
    /// # Errors
    ///
    /// The messages of psql.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        psql(&self.url(), &[], text)
    }

    /// Runs a file of SQL statements like [`PostgresServer::sql`].
    ///
    /// # Panics
    ///
    /// Panics like [`PostgresServer::sql`].
    #[track_caller]
    pub fn sql_file(&self, path: impl AsRef<Path>) -> String {
        let file = path.as_ref().as_os_str();
        match psql(&self.url(), &["-f".as_ref(), file], "") {
            Ok(rows) => rows,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the process ids of the backends that serve clients.
    ///
    /// # Panics
    ///
    /// Panics if the server does not accept a connection.
    #[track_caller]
    pub fn backends(&self) -> Vec<u32> {
        let pids = self.sql(
            "select pid from pg_stat_activity \
             where backend_type = 'client backend' and pid <> pg_backend_pid() order by pid",
        );
        pids.lines()
            .map(|pid| pid.parse().expect("a pid is a number"))
            .collect()
    }

    /// Returns the process id of the postmaster.
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().postmaster().id()
    }

    /// Returns true unless the server was killed; a frozen server counts as running.
    pub fn is_running(&self) -> bool {
        self.running().child.is_some()
    }

    /// Freezes all processes of the server (SIGSTOP) and waits until they are stopped.
    ///
    /// # Panics
    ///
    /// Panics if the server was killed, or has ended.
    #[track_caller]
    pub fn stop_process(&self) {
        let mut lock = self.running();
        let child = lock.postmaster();
        eventually(SIGNAL_DEADLINE, || {
            let status = child.try_wait().expect("cannot query the state of a child");
            assert!(status.is_none(), "PostgreSQL ended instead of stopping");
            let server = Pid::from_child(child);
            // Once the postmaster is stopped, no child begins, and none that ends loses its pid.
            let mut moving = vec![server];
            moving.retain(|pid| !is_stopped(*pid));
            moving.extend(children(server).into_iter().filter(|pid| !is_stopped(*pid)));
            signal(&moving, Signal::STOP);
            equal(moving, [])
        });
    }

    /// Resumes a frozen server (SIGCONT).
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[track_caller]
    pub fn cont_process(&self) {
        let mut lock = self.running();
        let server = Pid::from_child(lock.postmaster());
        signal(&children(server), Signal::CONT);
        signal(&[server], Signal::CONT);
    }

    /// Shuts the server down at once (SIGQUIT), as a crash does: it recovers at its next start.
    /// Waits for the end of all its processes; does nothing if it was already killed.
    pub fn kill(&self) {
        let mut lock = self.running();
        if let Some(child) = lock.child.take() {
            lock.end(child);
        }
    }

    /// Shuts the server down in order (SIGINT): it disconnects its clients, rolls back their
    /// transactions, and writes everything to disk. Waits for its end.
    ///
    /// # Panics
    ///
    /// Panics if it does not end, as a frozen server.
    #[track_caller]
    pub fn terminate(&self) {
        let mut lock = self.running();
        if let Some(mut child) = lock.child.take() {
            signal_child(&mut child, Signal::INT);
            let in_order = has_ended(&mut child, DEADLINE);
            lock.end(child);
            assert!(in_order, "PostgreSQL did not end within {DEADLINE:?}");
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
        let deadline = Instant::now() + DEADLINE;
        loop {
            let started = self.spawn(&mut self.running());
            match started {
                Ok(()) => return,
                Err(NotStarted::PortTaken) => panic!("port {} was taken meanwhile", self.port),
                // The backends of a postmaster that was killed by its pid end a little later.
                Err(NotStarted::MemoryInUse(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(NotStarted::MemoryInUse(reason) | NotStarted::Other(reason)) => {
                    panic!("{reason}")
                }
            }
        }
    }

    /// Steps the server's wall clock to `by` ahead of the true time, or behind it.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`PostgresServerBuilder::own_clock`].
    #[track_caller]
    pub fn set_clock(&self, ahead: bool, by: Duration) {
        let skew = self
            .skew
            .as_ref()
            .expect("the server was started without its own clock");
        skew.set(ahead, by).expect("cannot set the server's clock");
    }

    /// Takes all space from the server's disk, so that no table, index or log of changes can grow,
    /// or gives it back.
    ///
    /// # Panics
    ///
    /// Panics if the server was started without [`PostgresServerBuilder::own_disk`].
    #[track_caller]
    pub fn set_disk_full(&self, is_full: bool) {
        let disk = self.disk.as_ref();
        disk.expect("the server was started without its own disk")
            .set_full(is_full);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("server log: {}", self.dir.path().join(LOG).display());
        }
    }
}

impl Running {
    #[track_caller]
    fn postmaster(&mut self) -> &mut Child {
        self.child
            .as_mut()
            .expect("the server was killed and not restarted")
    }

    /// Ends the server at once, as a crash does, and waits for the end of all its processes.
    fn end(&mut self, mut child: Child) {
        end(&mut child);
        self.guardian.watch(None);
    }
}

fn url(login: &str, port: u16) -> String {
    format!("postgres://{login}@127.0.0.1:{port}/{DATABASE}")
}

/// Returns `text` as a part of a URL.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        if byte.is_ascii_alphanumeric() {
            url.push(byte.into());
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
        url
    })
}

/// Runs psql at the server with this URL.
fn psql(url: &str, args: &[&OsStr], input: &str) -> Result<String, String> {
    let mut command = plain(program("psql"));
    command
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url])
        .args(args)
        .env("PGCONNECT_TIMEOUT", "30")
        .env("PGCLIENTENCODING", "UTF8")
        .env("PGSSLMODE", "disable");
    let output = run(&mut command, input)?;
    Ok(output.strip_suffix('\n').unwrap_or(&output).to_owned())
}

/// Ends the server at once. No frozen process of it does anything anymore.
fn end(child: &mut Child) {
    let server = Pid::from_child(child);
    if !has_ended(child, Duration::ZERO) {
        // A stopped process has its pid until it is killed.
        let mut frozen = children(server);
        frozen.retain(|pid| is_stopped(*pid));
        signal(&frozen, Signal::KILL);
        signal_child(child, Signal::QUIT);
        signal_child(child, Signal::CONT);
    }
    if !has_ended(child, PATIENCE) {
        // The postmaster signals no child that is to reject a connection, and awaits its client.
        signal_child(child, Signal::STOP);
        signal(&children(server), Signal::QUIT);
        signal_child(child, Signal::CONT);
    }
    if !has_ended(child, SIGNAL_DEADLINE) {
        // While the postmaster is stopped, no child that ends loses its pid to another process.
        signal_child(child, Signal::STOP);
        signal(&children(server), Signal::KILL);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns true if the process ends within `timeout`.
fn has_ended(child: &mut Child, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        // An error means that there is no such child any longer.
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a child unless it is reaped. Until then no other process has its pid.
fn signal_child(child: &mut Child, name: Signal) {
    if !has_ended(child, Duration::ZERO) {
        signal(&[Pid::from_child(child)], name);
    }
}

/// Sends a signal to processes, some of which may have ended.
fn signal(pids: &[Pid], name: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, name);
    }
}

/// Returns the children of a process that have not ended.
///
/// The children of the postmaster are all processes of the server. None is in the process group of
/// the postmaster.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid().to_string();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes
        .flatten()
        .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| {
        state_and_parent(*pid).is_some_and(|(state, its)| !"ZX".contains(&state) && its == parent)
    })
    .collect()
}

/// Returns true if the process is stopped, or has ended.
fn is_stopped(pid: Pid) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| "TtZX".contains(&state))
}

/// Returns two fields of `/proc/<pid>/stat`: the letter of the state, and the parent.
fn state_and_parent(pid: Pid) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The process name in parentheses may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').map(str::to_owned);
    Some((fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests;
