//! Worker processes, as the measuring loop uses them; cores and processor time of processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::worker::order::{Order, Round};

/// A subject in its own process, which is killed on drop.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker on a core, and waits until its subject is connected.
    pub(crate) fn start(
        program: &Path,
        core: Option<usize>,
        order: &Order,
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg("--worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        if let Some(core) = core {
            // The process has one thread until it has read the order.
            pin(child.id(), core)?;
        }
        let orders = child.stdin.take().context("no standard input")?;
        let answers = child.stdout.take().context("no standard output")?;
        let mut worker = Worker {
            child,
            orders,
            answers: BufReader::new(answers),
        };
        worker.send(&serde_json::to_string(order)?)?;
        Ok(worker)
    }

    pub(crate) fn round(&mut self) -> anyhow::Result<Round> {
        self.send("")
    }

    fn send(&mut self, order: &str) -> anyhow::Result<Round> {
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        ensure!(
            self.answers.read_line(&mut answer)? > 0,
            "the worker failed; its error is above"
        );
        Ok(serde_json::from_str(&answer)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the main thread of a process, and the threads that it starts later, on a core.
pub(crate) fn pin(process: u32, core: usize) -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(pid(process), &cores).with_context(|| format!("cannot pin to core {core}"))
}

/// Returns the cores that this process may use.
pub(crate) fn allowed_cores() -> anyhow::Result<Vec<usize>> {
    let cores = sched_getaffinity(Pid::from_raw(0))?;
    let is_allowed = |core: &usize| cores.is_set(*core).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_allowed).collect())
}

/// Returns the processor time of all threads of some processes and of their children, because
/// PostgreSQL serves each connection in a process of its own.
pub(crate) fn cpu_time(processes: &[u32]) -> anyhow::Result<Duration> {
    let of_one = |process| anyhow::Ok(Duration::from(clock_getcpuclockid(pid(process))?.now()?));
    let mut sum = Duration::ZERO;
    for &process in processes {
        sum += of_one(process)? + of_ended_children(process)?;
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
        let children = children.split_whitespace().flat_map(str::parse);
        // A child that has ended meanwhile counts as such from the next call on.
        sum += children.flat_map(of_one).sum::<Duration>();
    }
    Ok(sum)
}

fn of_ended_children(process: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name is in parentheses, and may contain spaces. `cutime` and `cstime` are fields 16, 17.
    let (_, fields) = stat.rsplit_once(") ").context("no name in a stat file")?;
    let mut ticks = 0;
    for field in fields.split(' ').skip(13).take(2) {
        ticks += field.parse::<u32>()?;
    }
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
    Ok(Duration::from_secs(1) * ticks / u32::try_from(per_second)?)
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed())
}
