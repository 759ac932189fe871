//! What the server executed, as its MONITOR tells.

mod line;
mod translate;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;

use crate::history::{Nanos, ServerEvent, now};
use line::Line;
use translate::Translator;

/// How often the reader looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);
/// How far the reader may be behind the server.
const LAG: Nanos = 10_000_000;
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
}

impl ServerLog {
    /// Everything that is executed after the return is logged.
    pub(crate) fn start(server: SocketAddr, dir: &Path) -> anyhow::Result<Self> {
        let mut log = Log {
            file: BufWriter::new(File::create(dir.join("server.jsonl"))?),
            translator: Translator::default(),
            last_line: now(),
        };
        let flags = Arc::new(Flags::default());
        let of_thread = flags.clone();
        let first = monitor(server).context("MONITOR")?;
        let thread = std::thread::Builder::new()
            .name("monitor".into())
            .spawn(move || log.keep(first, server, &of_thread))?;
        Ok(ServerLog { flags, thread })
    }

    /// The server is about to be killed, and what it knows is lost.
    pub(crate) fn expect_amnesia(&self) {
        self.flags.amnesia.store(true, Ordering::Release);
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
    /// When the last line came. A server that is killed takes with it what it executed after that.
    last_line: Nanos,
}

impl Log {
    fn keep(
        &mut self,
        first: BufReader<TcpStream>,
        server: SocketAddr,
        flags: &Flags,
    ) -> anyhow::Result<()> {
        let mut connection = first;
        loop {
            self.read(&mut connection, flags)?;
            let from = self.last_line.saturating_sub(LAG);
            loop {
                if flags.stop.load(Ordering::Acquire) {
                    self.file.flush()?;
                    return Ok(());
                }
                if let Ok(fresh) = monitor(server) {
                    connection = fresh;
                    break;
                }
                std::thread::sleep(REDIAL);
            }
            let until = now();
            self.write(&ServerEvent::Gap { from, until })?;
            if flags.amnesia.swap(false, Ordering::AcqRel) {
                self.write(&ServerEvent::Amnesia { at: until })?;
            }
        }
    }

    /// Reads until the connection ends, or nothing comes any more and nothing is to come.
    fn read(&mut self, lines: &mut BufReader<TcpStream>, flags: &Flags) -> anyhow::Result<()> {
        let mut line = Vec::new();
        loop {
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(()),
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
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let at = now();
        self.last_line = at;
        let line = line.trim_start_matches('+').trim_end();
        if let Some(line) = Line::parse(line)
            && let Some(event) = self.translator.translate(at, &line)
        {
            self.write(&event)?;
        }
        Ok(())
    }

    fn write(&mut self, event: &ServerEvent) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.file, event)?;
        self.file.write_all(b"\n")?;
        Ok(())
    }
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
