//! The options of a server, its files, and the programs that make and run them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::postgres::disk::Disk;
use crate::postgres::{DATA, DEADLINE, LOG, PID_FILE, PREVIOUS_LOG, PostgresServer, Running, USER};
use crate::skew::Skew;

/// Number of ports that are tried if another process takes each of them first.
pub(super) const PORT_ATTEMPTS: u32 = 20;

/// The configuration of one server, inside its data directory. `postgresql.conf` includes it.
const CONFIG: &str = "distlock.conf";

/// The settings of every server. A crash of the server, unlike one of the machine, loses nothing
/// without `fsync`. The kept WAL lets a standby follow that was stopped for a while.
const SETTINGS: [(&str, &str); 8] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("max_connections", "100"),
    ("shared_buffers", "16MB"),
    ("fsync", "off"),
    ("wal_keep_size", "1GB"),
    ("logging_collector", "off"),
    ("log_line_prefix", "%m [%p] "),
];

/// Makes the database `locks`, and leaves only `template1` besides, because every server copies the
/// three hundred files of every database.
const TEMPLATE_SQL: &str = "\
    alter database postgres rename to locks\n\
    alter database template0 is_template false\n\
    drop database template0\n";

/// The authentication with [`PostgresServerBuilder::require_passwords`].
const PASSWORDS: &str = "\
    host all distlock 127.0.0.1/32 trust\n\
    host replication distlock 127.0.0.1/32 trust\n\
    host all all 127.0.0.1/32 scram-sha-256\n";

/// The options of a [`PostgresServer`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `.start()`"]
pub struct PostgresServerBuilder {
    settings: Vec<(String, String)>,
    clock: bool,
    disk: bool,
    passwords: bool,
}

impl PostgresServerBuilder {
    /// Adds a line to `postgresql.conf`: `.setting("fsync", "on")`. The last one of a name wins,
    /// also over the settings that every server has.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Requires a password from every user except `distlock`. Without it every user is trusted.
    pub fn require_passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// Gives the server a wall clock that [`PostgresServer::set_clock`] can step (Linux with glibc).
    pub fn own_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Gives the server a disk that [`PostgresServer::set_disk_full`] can fill (Linux with glibc),
    /// in place of a clock of its own.
    pub fn own_disk(mut self) -> Self {
        self.disk = true;
        self
    }

    /// Starts the server and waits until it accepts connections.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed (the message has the command that installs it) or does
    /// not start (the message has its log).
    #[track_caller]
    pub fn start(self) -> PostgresServer {
        self.start_on(copy_template)
    }

    /// Starts a server on the data directory that `fill` makes at the given path.
    #[track_caller]
    pub(super) fn start_on(self, fill: impl FnOnce(&Path) -> Result<(), String>) -> PostgresServer {
        // Dropping the server before the panic removes its directory.
        match self.try_start(fill) {
            Ok(server) => server,
            Err(reason) => panic!("{reason}"),
        }
    }

    fn try_start(
        self,
        fill: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<PostgresServer, String> {
        let (dir, guardian) = directory()?;
        let data = dir.path().join(DATA);
        fill(&data)?;
        if self.passwords {
            write(&data.join("pg_hba.conf"), PASSWORDS)?;
        }
        let mut server = PostgresServer {
            port: 0,
            skew: self.clock.then(|| shim(dir.path(), Skew::build)),
            disk: self.disk.then(|| shim(dir.path(), Disk::build)),
            options: self,
            dir,
            running: Mutex::new(Running {
                child: None,
                guardian,
            }),
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port = free_port();
            let started = server.spawn(&mut server.running());
            match started {
                Ok(()) => return Ok(server),
                Err(NotStarted::PortTaken) => {}
                Err(NotStarted::MemoryInUse(reason) | NotStarted::Other(reason)) => {
                    return Err(reason);
                }
            }
        }
        Err(format!(
            "no port was free for PostgreSQL, {PORT_ATTEMPTS} times"
        ))
    }
}

/// Why a server did not start.
pub(super) enum NotStarted {
    PortTaken,
    /// Processes of an earlier server on the same data directory still run.
    MemoryInUse(String),
    Other(String),
}

impl PostgresServer {
    /// Starts the process and waits until it accepts connections.
    pub(super) fn spawn(&self, running: &mut Running) -> Result<(), NotStarted> {
        let (dir, data) = (self.dir.path(), self.dir.path().join(DATA));
        self.configure(&data).map_err(NotStarted::Other)?;
        // Otherwise a process that has the same pid by chance would prevent the start.
        let _ = fs::remove_file(data.join(PID_FILE));
        // Otherwise the log of an earlier run would be taken for the log of this run.
        let _ = fs::rename(dir.join(LOG), dir.join(PREVIOUS_LOG));
        let log = File::create(dir.join(LOG))
            .map_err(|error| NotStarted::Other(format!("cannot create {LOG}: {error}")))?;
        let program = program("postgres");
        let mut command = as_user(&program, dir);
        command.arg("-D").arg(&data).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        if let Some(skew) = &self.skew {
            skew.preload(&mut command);
        }
        if let Some(disk) = &self.disk {
            disk.preload(&mut command);
        }
        let mut child = command
            .spawn()
            .map_err(|error| NotStarted::Other(cannot_run(&program, &error)))?;
        running.guardian.watch(Some(child.id()));
        match self.wait_ready(&mut child, &data) {
            Ok(()) => {
                running.child = Some(child);
                Ok(())
            }
            Err(error) => {
                running.end(child);
                Err(error)
            }
        }
    }

    fn wait_ready(&self, child: &mut Child, data: &Path) -> Result<(), NotStarted> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let ended = child.try_wait().expect("cannot query the state of a child");
            if let Some(status) = ended {
                let log = self.log();
                let reason = format!("PostgreSQL ended at its start ({status}):\n{log}");
                return Err(if log.contains("Address already in use") {
                    NotStarted::PortTaken
                } else if log.contains("pre-existing shared memory block") {
                    NotStarted::MemoryInUse(reason)
                } else {
                    NotStarted::Other(reason)
                });
            }
            if is_ready(data, child.id()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = self.log();
                let reason = format!("PostgreSQL was not ready within {DEADLINE:?}:\n{log}");
                return Err(NotStarted::Other(reason));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn configure(&self, data: &Path) -> Result<(), String> {
        let own = self.options.settings.iter();
        let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
        let port = self.port.to_string();
        let lines: String = SETTINGS
            .into_iter()
            .chain([("port", port.as_str())])
            .chain(own)
            .map(|(name, value)| {
                let value = value.replace('\\', r"\\").replace('\'', "''");
                format!("{name} = '{value}'\n")
            })
            .collect();
        write(&data.join(CONFIG), &lines)
    }
}

/// Returns true if the server with this `pid` accepts connections. It writes its state into the
/// eighth line of its pid file, and `ready` if it accepts queries, also as a standby.
fn is_ready(data: &Path, pid: u32) -> bool {
    let file = fs::read_to_string(data.join(PID_FILE)).unwrap_or_default();
    let lines: Vec<_> = file.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// Makes a directory that belongs to the server's user, and that does not outlive this process.
pub(super) fn directory() -> Result<(TempDir, Guardian), String> {
    let dir = tempfile::Builder::new()
        .prefix("distlock-postgres-")
        .tempdir()
        .map_err(|error| format!("cannot make a directory for a server: {error}"))?;
    give(dir.path())?;
    let guardian = Guardian::start(dir.path())
        .map_err(|error| format!("cannot start a shell that cleans up: {error}"))?;
    Ok((dir, guardian))
}

/// Copies the data directory that this process has made once, because `initdb` takes a second.
fn copy_template(data: &Path) -> Result<(), String> {
    static TEMPLATE: OnceLock<Result<(TempDir, Guardian), String>> = OnceLock::new();
    let (template, _) = TEMPLATE
        .get_or_init(template)
        .as_ref()
        .map_err(String::clone)?;
    let mut copy = as_user("cp", template.path());
    copy.args(["-a", "--reflink=auto", DATA]).arg(data);
    run(&mut copy, "").map(drop)
}

fn template() -> Result<(TempDir, Guardian), String> {
    let (dir, guardian) = directory()?;
    let mut initdb = as_user(program("initdb"), dir.path());
    initdb
        .args(["-D", DATA, "-A", "trust", "-U", USER, "--no-sync"])
        .args(["-E", "UTF8", "--locale=C", "--no-instructions"]);
    run(&mut initdb, "")?;
    // A server for a single user executes the lines of stdin, and opens no port.
    let mut single = as_user(program("postgres"), dir.path());
    single.args(["--single", "-D", DATA, "-c", "fsync=off", "template1"]);
    run(&mut single, TEMPLATE_SQL)?;
    let config = dir.path().join(DATA).join("postgresql.conf");
    File::options()
        .append(true)
        .open(&config)
        .and_then(|mut file| writeln!(file, "include '{CONFIG}'"))
        .map_err(|error| format!("cannot write to {}: {error}", config.display()))?;
    Ok((dir, guardian))
}

/// Builds a clock or a disk in `dir`, readable for the server's user.
#[track_caller]
fn shim<T>(dir: &Path, build: fn(&Path) -> T) -> T {
    let built = build(dir);
    let files = fs::read_dir(dir).expect("the directory of a server is readable");
    for file in files.flatten() {
        give(&file.path()).unwrap_or_else(|reason| panic!("{reason}"));
    }
    built
}

/// Writes a file that the server's user can read.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .map_err(|error| format!("cannot write to {}: {error}", path.display()))?;
    give(path)
}

/// Makes the server's user the owner.
fn give(path: &Path) -> Result<(), String> {
    let Some(user) = user() else {
        return Ok(());
    };
    chown(path, Some(user.uid), Some(user.gid)).map_err(|error| {
        let (name, path) = (&user.name, path.display());
        format!("cannot give {path} to the user {name}: {error}")
    })
}

/// A user of this machine.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// Returns the user that runs PostgreSQL if this process runs as root, because PostgreSQL refuses
/// to: `postgres`, which Debian's package creates, or the user without any rights.
fn user() -> Option<&'static User> {
    const WITHOUT_RIGHTS: u32 = 65534;
    static FOUND: OnceLock<Option<User>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if !geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let users = || users.lines().filter_map(parse_user);
        let user = users()
            .find(|user| user.name == "postgres")
            .or_else(|| users().find(|user| user.uid == WITHOUT_RIGHTS));
        Some(user.expect("PostgreSQL does not run as root: create a user postgres"))
    });
    found.as_ref()
}

fn parse_user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let (name, _) = (fields.next()?.to_owned(), fields.next()?);
    let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(User { name, uid, gid })
}

/// Returns the path of a program of PostgreSQL. Debian has them in a directory for each version,
/// outside of `PATH`; the highest version is used, or the directory in `POSTGRES_BIN`.
pub(super) fn program(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        std::env::var_os("POSTGRES_BIN")
            .map(PathBuf::from)
            .or_else(highest_version)
    });
    match directory {
        Some(directory) => directory.join(name),
        None => name.into(),
    }
}

fn highest_version() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let installed = versions.flatten().filter_map(|version| {
        let number: f64 = version.file_name().to_str()?.parse().ok()?;
        let directory = version.path().join("bin");
        let is_server = directory.join("initdb").exists();
        is_server.then_some((number, directory))
    });
    installed
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, directory)| directory)
}

/// Returns a command for `program` that neither the variables of PostgreSQL's clients nor the
/// language of this machine change.
pub(super) fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C");
    command
}

/// Like [`plain`], in `dir` and as the user that runs PostgreSQL.
pub(super) fn as_user(program: impl AsRef<OsStr>, dir: &Path) -> Command {
    let mut command = plain(program);
    command.current_dir(dir);
    if let Some(user) = user() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// Runs a command to its end and returns its stdout, or as an error its stderr.
pub(super) fn run(command: &mut Command, input: &str) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_run(Path::new(command.get_program()), &error))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that fails does not read everything.
            let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
        });
        child.wait_with_output()
    });
    let output = output.map_err(|error| format!("cannot wait for {command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (program, status) = (command.get_program(), output.status);
    Err(format!(
        "{} failed ({status}):\n{}",
        Path::new(program).display(),
        text(&output.stderr)
    ))
}

fn cannot_run(program: &Path, error: &io::Error) -> String {
    let shown = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{shown} is not installed. These tests run against real servers: install PostgreSQL \
             with `apt-get install postgresql`, or run ./test.sh, which does."
        ),
        io::ErrorKind::PermissionDenied => {
            let name = user().map_or("this user", |user| &user.name);
            format!(
                "cannot start {shown} as {name}: {error}; set TMPDIR to a directory that every \
                 user can enter, such as /tmp"
            )
        }
        _ => format!("cannot start {shown}: {error}"),
    }
}

/// A shell that shuts a server down and removes its directory if this process ends without dropping
/// the server, as an aborted test run or a server in a `static` does.
///
/// It does not kill the server before ten seconds, because a killed PostgreSQL leaves shared memory
/// behind, and frozen children, which do not notice the end of their parent.
#[derive(Debug)]
pub(super) struct Guardian {
    shell: Child,
}

impl Guardian {
    fn start(dir: &Path) -> io::Result<Guardian> {
        // Reads pids until the pipe closes with this process. The last one is the server's.
        const SCRIPT: &str = r#"
            trap "" HUP INT TERM
            echo ready
            server=
            while read -r line; do server=$line; done
            if [ -n "$server" ]; then
                children=$(grep -ls "^PPid:.$server\$" /proc/[0-9]*/status | cut -d/ -f3)
                kill -s QUIT $server $children
                kill -s CONT $server $children
                tries=0
                while grep -qs "^State:.[^Z]" "/proc/$server/status"; do
                    [ "$tries" -lt 100 ] || { kill -s KILL $server $children; break; }
                    tries=$((tries + 1))
                    sleep 0.1
                done
            fi
            rm -rf "$1""#;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "guardian"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to the group of this process does not end the shell.
            .process_group(0)
            .spawn()?;
        // Until the shell has written this, the trap is not set.
        let mut ready = [0; 6];
        if let Some(stdout) = shell.stdout.as_mut() {
            stdout.read_exact(&mut ready)?;
        }
        Ok(Guardian { shell })
    }

    /// Sets the server to shut down.
    pub(super) fn watch(&mut self, pid: Option<u32>) {
        let line = pid.map(|pid| pid.to_string()).unwrap_or_default();
        let stdin = self.shell.stdin.as_mut().expect("stdin is piped");
        let _ = writeln!(stdin, "{line}");
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Killed before its stdin closes, so it does nothing.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
