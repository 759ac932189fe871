//! What the server executed, as its MONITOR tells.

mod line;
mod translate;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;

use crate::history::{Nanos, ServerEvent, now};
use line::Line;
pub(crate) use translate::Layout;
use translate::Translator;

/// How often the reader looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);
/// How far the reader can be behind the server. (A server whose clock was set back seems to be further behind.)
const MOST_BEHIND: Nanos = 1_000_000_000;
/// Between two attempts to connect to a server that is down.
const REDIAL: Duration = Duration::from_millis(1);

/// Writes `server.jsonl` while the server runs.
#[derive(Debug)]
pub(crate) struct ServerLog {
    flags: Arc<Flags>,
    thread: JoinHandle<anyhow::Result<()>>,
}

#[derive(Debug, Default)]
struct Flags {
    stop: AtomicBool,
    /// The server is to lose its data with its next restart.
    amnesia: AtomicBool,
    /// Whose commands count; nobody's while it is not clear which server has the locks.
    server: Mutex<Option<SocketAddr>>,
    /// How often that has changed.
    changes: AtomicU64,
    /// What nothing is known of meanwhile, if not of anything.
    unknown: Mutex<Option<Vec<String>>>,
}

impl Flags {
    fn server(&self) -> Option<SocketAddr> {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_server(&self, server: Option<SocketAddr>) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn unknown(&self) -> MutexGuard<'_, Option<Vec<String>>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which time an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// When its line came.
    Received,
    /// When it was executed, by the clock of the server, which must be the machine's: several logs can be compared.
    Executed,
}

impl ServerLog {
    /// Everything that is executed after the return is logged.
    pub(crate) fn start(
        server: SocketAddr,
        file: &Path,
        timing: Timing,
        layout: Layout,
    ) -> anyhow::Result<Self> {
        let mut log = Log {
            file: BufWriter::new(File::create(file)?),
            translator: Translator::new(layout),
            timing,
            last_executed: now(),
            last_event: 0,
        };
        let flags = Arc::new(Flags::default());
        flags.set_server(Some(server));
        let of_thread = flags.clone();
        let first = monitor(server).context("MONITOR")?;
        let thread = std::thread::Builder::new()
            .name("monitor".into())
            .spawn(move || log.keep(first, &of_thread))?;
        Ok(ServerLog { flags, thread })
    }

    /// The server is about to be killed, and what it knows is lost.
    pub(crate) fn expect_amnesia(&self) {
        self.flags.amnesia.store(true, Ordering::Release);
    }

    /// From now on no server's commands count, until another is followed. It concerns these keys, or all.
    pub(crate) fn leave(&self, keys: Option<Vec<String>>) {
        *self.flags.unknown() = keys;
        self.flags.set_server(None);
    }

    /// Now this server has the locks.
    pub(crate) fn follow(&self, server: SocketAddr) {
        self.flags.set_server(Some(server));
    }

    /// Stops, and writes what is left to write.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.flags.stop.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("the reader of MONITOR panicked"),
        }
    }
}

struct Log {
    file: BufWriter<File>,
    translator: Translator,
    /// When the command of the last line was executed. A server that is killed may have executed more.
    last_executed: Nanos,
    timing: Timing,
    last_event: Nanos,
}

impl Log {
    fn keep(&mut self, first: BufReader<TcpStream>, flags: &Flags) -> anyhow::Result<()> {
        let mut connection = first;
        loop {
            self.read(&mut connection, flags)?;
            let from = self.last_executed;
            loop {
                if flags.stop.load(Ordering::Acquire) {
                    self.file.flush()?;
                    return Ok(());
                }
                if let Some(server) = flags.server()
                    && let Ok(fresh) = monitor(server)
                {
                    connection = fresh;
                    break;
                }
                std::thread::sleep(REDIAL);
            }
            let until = now();
            let keys = flags.unknown().take();
            self.write(&ServerEvent::Gap { from, until, keys })?;
            if flags.amnesia.swap(false, Ordering::AcqRel) {
                self.write(&ServerEvent::Amnesia { at: until })?;
            }
        }
    }

    /// Reads until the connection ends, or does not count any more, or nothing comes any more and nothing is to come.
    fn read(&mut self, lines: &mut BufReader<TcpStream>, flags: &Flags) -> anyhow::Result<()> {
        let mut line = Vec::new();
        let changes = flags.changes.load(Ordering::Acquire);
        let counts = || flags.changes.load(Ordering::Acquire) == changes;
        while counts() {
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(()),
                // It came while it was waited for.
                Ok(_) if !counts() => return Ok(()),
                Ok(_) if line.ends_with(b"\n") => {
                    self.line(&String::from_utf8_lossy(&line))?;
                    line.clear();
                }
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {
                    self.file.flush()?;
                    if flags.stop.load(Ordering::Acquire) {
                        return Ok(());
                    }
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let at = now();
        let line = line.trim_start_matches('+').trim_end();
        if let Some(line) = Line::parse(line) {
            let executed = at.saturating_sub(age(line.wall_us));
            self.last_executed = executed.max(at.saturating_sub(MOST_BEHIND));
            let at = match self.timing {
                Timing::Received => at,
                Timing::Executed => executed.max(self.last_event),
            };
            self.last_event = at;
            if let Some(event) = self.translator.translate(at, &line) {
                self.write(&event)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, event: &ServerEvent) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.file, event)?;
        self.file.write_all(b"\n")?;
        Ok(())
    }
}

/// How long ago it was executed.
fn age(wall_us: u64) -> Nanos {
    let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let nanos = u64::try_from(wall.as_nanos()).unwrap_or(Nanos::MAX);
    nanos.saturating_sub(wall_us * 1_000)
}

fn monitor(server: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&server, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut lines = BufReader::with_capacity(256 * 1024, stream);
    lines.get_mut().write_all(b"MONITOR\r\n")?;
    let mut answer = String::new();
    lines.read_line(&mut answer)?;
    if !answer.starts_with("+OK") {
        return Err(io::Error::other(answer));
    }
    lines.get_ref().set_read_timeout(Some(PATIENCE))?;
    Ok(lines)
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history;
    use distlock_tests::{RedisServer, eventually};

    #[test]
    fn it_follows_who_has_the_locks() {
        let (first, second) = (RedisServer::start(), RedisServer::start());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.jsonl");
        let log = ServerLog::start(first.addr(), &path, Timing::Received, Layout::Single).unwrap();
        let take = |server: &RedisServer, token: u64| {
            let lock = format!("2 a:1 {token} 1000 0");
            let words = ["SET", "distlock:lock:{k}", &lock, "PX", "1000"];
            assert!(!server.client().cmd(&words).is_error());
        };
        let seen = || {
            let events = history::read::<ServerEvent>(&path).unwrap();
            let tokens = events.into_iter().filter_map(|event| match event {
                ServerEvent::Set { token, .. } => Some(token),
                ServerEvent::Gap { from, until, keys } if from < until => {
                    assert_eq!(keys, Some(vec!["k".to_owned()]));
                    Some(0)
                }
                _ => None,
            });
            tokens.collect::<Vec<_>>()
        };
        let until = |tokens: &[u64]| eventually(Duration::from_secs(30), || seen() == tokens);
        take(&first, 1);
        take(&second, 2);
        until(&[1]);
        log.leave(Some(vec!["k".to_owned()]));
        take(&first, 3);
        take(&second, 4);
        log.follow(second.addr());
        until(&[1, 0]);
        take(&first, 5);
        take(&second, 6);
        until(&[1, 0, 6]);
        log.stop().unwrap();
        assert_eq!(seen(), [1, 0, 6]);
    }
}
