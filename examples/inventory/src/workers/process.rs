//! One worker process, as its parent sees it.

use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;

use super::Plan;
use crate::event::Event;
use crate::orders::Order;

/// How long a worker may take to release its locks and exit.
const EXIT_WITHIN: Duration = Duration::from_secs(5);

/// What the parent hears of the worker with this number.
#[derive(Debug)]
pub(super) enum Heard {
    Said(usize, Event),
    /// It has closed its stdout, so it has ended, or soon will.
    Gone(usize),
}

/// A worker process, killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Closed: it gets no more orders.
    stdin: Option<ChildStdin>,
    pub(super) pid: u32,
    pub(super) ready: bool,
    /// The orders it was given and has not finished.
    pub(super) in_hand: HashMap<u64, Order>,
}

impl Process {
    /// Starts this very program as a worker.
    pub(super) fn start(
        plan: &Plan,
        stock: &str,
        number: usize,
        heard: UnboundedSender<Heard>,
    ) -> Result<Process> {
        let program = std::env::current_exe().context("cannot find the program to start again")?;
        let mut command = Command::new(program);
        command
            .arg("worker")
            .args(["--stock", stock])
            .args(["--number", &number.to_string()])
            .args(["--min-replicas", &plan.store.min_replicas.to_string()])
            .args(plan.locked.then_some("--locked"))
            // Not an argument, which everybody on the machine could read.
            .env("DISTLOCK_URL", &plan.store.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent, which tidies up.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker process")?;
        let stdin = child.stdin.take();
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(listen(stdout, number, heard));
        }
        Ok(Process {
            pid: child.id().unwrap_or(0),
            child,
            stdin,
            ready: false,
            in_hand: HashMap::new(),
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.stdin.is_some()
    }

    /// Hands an order over. If the process has just died, that is heard soon.
    pub(super) async fn give(&mut self, order: Order) {
        self.in_hand.insert(order.id, order);
        if let Some(stdin) = &mut self.stdin {
            // A few short lines at most are in the pipe, so this does not block.
            let _ = stdin.write_all(format!("{order}\n").as_bytes()).await;
        }
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.start_kill();
    }

    /// After its stdout was closed: how it ended.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        match tokio::time::timeout(EXIT_WITHIN, self.child.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => {
                self.kill();
                self.child.wait().await.ok()
            }
        }
    }
}

/// Reads whole lines: a killed process may leave half of one.
async fn listen(stdout: ChildStdout, number: usize, heard: UnboundedSender<Heard>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    while let Ok(1..) = stdout.read_line(&mut line).await {
        let Some(whole) = line.strip_suffix('\n') else {
            break;
        };
        let event = whole.parse().unwrap_or_else(|error| Event::Failed {
            message: format!("{error}"),
        });
        if heard.send(Heard::Said(number, event)).is_err() {
            return;
        }
        line.clear();
    }
    let _ = heard.send(Heard::Gone(number));
}
