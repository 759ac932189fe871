//! PgBouncer, a pooler of connections, in front of a PostgreSQL server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::Process;
use crate::ports::free_port;
use crate::postgres::builder::{Guardian, PORT_ATTEMPTS, as_user, directory, write};
use crate::postgres::{DATABASE, DEADLINE, PostgresServer, USER, psql, url};

/// Where Debian has the program, outside of the `PATH` of most users.
const PROGRAM: &str = "/usr/sbin/pgbouncer";
/// The pooler's log, inside its directory.
const LOG: &str = "pgbouncer.log";

/// A PgBouncer on a free port of 127.0.0.1, with its own directory. Dropping it kills the process
/// by pid and removes the directory. In a panicking thread, which is a failed test, it keeps the
/// directory and prints the path of the log.
///
/// It accepts every user without a password, and connects to the server as `distlock`.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    port: u16,
    dir: TempDir,
    _guardian: Guardian,
}

impl PgBouncer {
    /// Starts a PgBouncer in front of `server`, and waits until queries pass. With the mode
    /// `"session"`, a client keeps a connection to the server until it disconnects. With
    /// `"transaction"`, it gets one for each transaction.
    ///
    /// One second after a failed connection to the server, PgBouncer connects again.
    ///
    /// # Panics
    ///
    /// Panics if `mode` is another word, pgbouncer is not installed (the message has the command
    /// that installs it), or it does not start (the message has its log).
    #[track_caller]
    pub fn start(server: &PostgresServer, mode: &str) -> PgBouncer {
        Self::start_sized(server, mode, 20)
    }

    /// The same with an upper limit of the connections to the server.
    #[track_caller]
    pub fn start_sized(server: &PostgresServer, mode: &str, pool_size: u32) -> PgBouncer {
        assert!(
            ["session", "transaction"].contains(&mode),
            "{mode:?} is not a mode: use \"session\" or \"transaction\""
        );
        for _ in 0..PORT_ATTEMPTS {
            match Self::try_start(server, mode, pool_size) {
                Ok(Some(started)) => return started,
                // Another process has taken the port.
                Ok(None) => {}
                Err(reason) => panic!("{reason}"),
            }
        }
        panic!("no port was free for pgbouncer, {PORT_ATTEMPTS} times");
    }

    fn try_start(
        server: &PostgresServer,
        mode: &str,
        pool_size: u32,
    ) -> Result<Option<PgBouncer>, String> {
        let (dir, guardian) = directory()?;
        let (port, target) = (free_port(), server.port());
        let config = format!(
            "[databases]\n\
             {DATABASE} = host=127.0.0.1 port={target} dbname={DATABASE} user={USER}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = {mode}\n\
             server_login_retry = 1\n\
             default_pool_size = {pool_size}\n\
             ignore_startup_parameters = extra_float_digits\n"
        );
        let path = dir.path().join("pgbouncer.ini");
        write(&path, &config)?;
        let log = File::create(dir.path().join(LOG))
            .map_err(|error| format!("cannot create {LOG}: {error}"))?;
        let is_debian = Path::new(PROGRAM).exists();
        let program = if is_debian { PROGRAM } else { "pgbouncer" };
        let mut command = as_user(program, dir.path());
        command.arg(path).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        let process = Process::spawn(&mut command).map_err(|error| {
            format!(
                "cannot start {program}: {error}; install it (apt-get install pgbouncer), or run \
                 ./test.sh"
            )
        })?;
        let mut pooler = PgBouncer {
            process,
            port,
            dir,
            _guardian: guardian,
        };
        let deadline = Instant::now() + DEADLINE;
        // Another process may have taken the port, so not every reply comes from this one.
        while !pooler.log().contains("process up") {
            if let Some(status) = pooler.process.exited() {
                let log = pooler.log();
                return if log.contains("Address already in use") {
                    Ok(None)
                } else {
                    Err(format!("pgbouncer ended at its start ({status}):\n{log}"))
                };
            }
            if Instant::now() > deadline {
                let log = pooler.log();
                return Err(format!(
                    "pgbouncer did not start within {DEADLINE:?}:\n{log}"
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        psql(&pooler.url(), &[], "select 1")?;
        Ok(Some(pooler))
    }

    /// Returns `postgres://distlock@127.0.0.1:<port>/locks`.
    pub fn url(&self) -> String {
        url(USER, self.port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join(LOG))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("server log: {}", self.dir.path().join(LOG).display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::builder::{plain, program};
    use crate::process::Worker;

    const SECONDS: Duration = Duration::from_secs(60);

    /// Returns a client that stays connected between its transactions.
    fn client(pooler: &PgBouncer) -> Worker {
        let mut psql = plain(program("psql"));
        Worker::spawn(psql.args(["-XAtq", "-d", &pooler.url()]))
    }

    /// Returns the backend that executes a transaction of the client.
    fn backend(client: &mut Worker) -> String {
        client.send("select 'backend', pg_backend_pid();");
        client.expect_line("backend|", SECONDS)
    }

    #[test]
    fn a_session_keeps_its_backend_and_transactions_share_one() {
        let server = PostgresServer::start();
        for (mode, backends) in [("session", 2), ("transaction", 1)] {
            let pooler = PgBouncer::start(&server, mode);
            let (mut one, mut other) = (client(&pooler), client(&pooler));
            let shared = backend(&mut one) == backend(&mut other);
            assert_eq!(
                (server.backends().len(), shared),
                (backends, backends == 1),
                "{mode}"
            );
            server.restart();
            let restarted = || psql(&pooler.url(), &[], "select 1").is_ok();
            crate::eventually(SECONDS, restarted);
        }
    }
}
