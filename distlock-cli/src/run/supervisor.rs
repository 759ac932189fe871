//! Holds the lock and follows the command.
//!
//! The lock is valid for `remaining`, and each renewal extends that time. The store keeps the lock
//! for a while longer. The command gets SIGTERM when less than the grace is left, and SIGKILL when
//! nothing is left. The lock is released only once no process of the command's group is left.

use std::ffi::OsString;
use std::time::Duration;

use distlock::{Error, LossReason};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::cli::OnLost;
use crate::exit::{Failure, LOST};
use crate::run::group::{self, CHECK_INTERVAL, ChildEvent, Exit, Group};
use crate::run::guard::Guard;
use crate::run::keeper::{self, Deadline, Keeper};
use crate::run::signals::{Event, Signals};
use crate::run::{program, terminal};

/// Maximum interval at which the keeper gets the lock's deadline.
const EXTEND_INTERVAL: Duration = Duration::from_secs(1);

/// The store keeps a lock for at least this long after the lock's safe deadline.
const MIN_STORE_GRACE: Duration = Duration::from_millis(250);

/// A lock, and the command that runs under it.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) guard: Guard,
    pub(super) on_lost: OnLost,
    pub(super) grace: Duration,
    pub(super) signals: Signals,
}

/// A command without remaining processes.
#[derive(Debug)]
struct Finished {
    exit: Exit,
    stop_reason: Option<StopReason>,
    /// Another client may have had the lock before the command ended.
    is_late: bool,
}

/// The progress of stopping the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// SIGTERM was sent. SIGKILL follows at this time of the keeper's clock.
    Terminating {
        kill_at: Duration,
    },
    /// SIGKILL was sent.
    Killed,
}

/// Why the command is stopped.
#[derive(Debug)]
enum StopReason {
    /// No renewal has succeeded for so long that less than the grace is left.
    Failing,
    Lost(Box<Error>),
}

/// A running command.
#[derive(Debug)]
struct Running {
    group: Group,
    /// `None` if the keeper has ended and could not be replaced yet.
    keeper: Option<Keeper>,
    /// The missing keeper was reported once.
    is_reported: bool,
    /// The exit of the command's first process.
    exit: Option<Exit>,
    stage: Stage,
    stop_reason: Option<StopReason>,
    /// The time until which the lock is valid, or was at the last check.
    expires_at: Duration,
}

impl Supervisor {
    /// Runs the command, releases the lock, and returns how the command ended.
    pub(super) async fn run(mut self, command: &[OsString]) -> Result<Exit, Failure> {
        let key = self.guard.key().to_owned();
        let running = match self.start(command, &key) {
            Ok(running) => running,
            Err(failure) => {
                let _ = self.guard.release(false).await;
                return Err(failure.with_key(key));
            }
        };
        let Finished {
            exit,
            stop_reason,
            is_late,
        } = self.follow(running).await;
        let token = self.guard.fencing_token();
        let succeeded = stop_reason.is_none() && exit.code() == 0;
        let ended = self.guard.release(succeeded).await.err();
        let lost = |text: String| {
            let token = token.map(|token| format!(" (fencing token {token})"));
            let text = format!("lock `{key}` {text}{}", token.unwrap_or_default());
            Err(Failure::new(LOST, text).with_key(&key))
        };
        let stopped = |error: &Error| {
            let consequence = if is_late {
                "the command was stopped only afterwards, so another holder may have run at the same time: check what it \
                 did"
            } else {
                "the command was stopped: check for partial effects"
            };
            lost(format!("was lost: {}; {consequence}", reason(error)))
        };
        match (stop_reason, ended) {
            (Some(StopReason::Lost(error)), _) => stopped(&error),
            // The renewals failed until the lock was lost, or this process was stopped before it
            // could kill the command.
            (Some(StopReason::Failing), Some(error)) => stopped(&error),
            (Some(StopReason::Failing), None) => lost(
                "was about to be lost, because its lease could not be renewed; the command was stopped before another client \
                 could acquire the lock: check for partial effects, and whether the store is reachable"
                    .into(),
            ),
            (None, Some(error)) => lost(format!(
                "was lost before the command ended (with code {}): {}; another holder may have run at the same time: \
                 check what it did",
                exit.code(),
                reason(&error)
            )),
            (None, None) => Ok(exit),
        }
    }

    fn start(&self, command: &[OsString], key: &str) -> Result<Running, Failure> {
        group::adopt_orphans();
        let mut keeper = Keeper::start(None)?;
        let child = program::start(command, key, self.guard.fencing_token());
        let group = child.and_then(|child| {
            Group::of(child.id())
                .ok_or_else(|| std::io::Error::other("a process without a number").into())
        });
        let group = match group {
            Ok(group) => group,
            Err(failure) => {
                keeper.end();
                return Err(failure);
            }
        };
        let expires_at = self.lock_deadline();
        keeper.extend(Deadline { group, expires_at });
        Ok(Running {
            group,
            keeper: Some(keeper),
            is_reported: false,
            exit: None,
            stage: Stage::Running,
            stop_reason: None,
            expires_at,
        })
    }

    /// Returns the lock's deadline by the keeper's clock, which is never later than the real one.
    fn lock_deadline(&self) -> Duration {
        let now = keeper::now();
        now.saturating_add(self.guard.remaining())
    }

    /// Follows the command until no process of its group is left.
    async fn follow(&mut self, mut running: Running) -> Finished {
        loop {
            running.handle_children();
            if let Some(exit) = running.exit {
                if running.group.is_gone() {
                    if exit == Exit::Signal(Signal::SIGKILL as i32) && !self.guard.is_held() {
                        // The keeper has already killed the command.
                        let error = self.guard.lost().await;
                        running
                            .stop_reason
                            .get_or_insert(StopReason::Lost(error.into()));
                    }
                    if let Some(keeper) = running.keeper.take() {
                        keeper.end();
                    }
                    terminal::take_back(running.group.leader());
                    return Finished {
                        exit,
                        stop_reason: running.stop_reason,
                        is_late: keeper::now() > running.expires_at.saturating_add(MIN_STORE_GRACE),
                    };
                }
                // Other processes of the group have not ended.
                if running.stage == Stage::Running {
                    running.terminate(keeper::now().saturating_add(self.grace));
                }
            }
            if self.guard.is_held() {
                running.expires_at = self.lock_deadline();
                running.extend_keeper();
            }
            self.enforce_deadline(&mut running);
            let pause = self.pause(&running);
            tokio::select! {
                event = self.signals.next() => running.handle_signal(event),
                error = self.guard.lost(), if !matches!(running.stop_reason, Some(StopReason::Lost(_))) => {
                    running.handle_loss(error, self.on_lost, self.grace);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Stops the command if a deadline requires it.
    fn enforce_deadline(&self, running: &mut Running) {
        let remaining = running.expires_at.saturating_sub(keeper::now());
        let is_failing = self.on_lost == OnLost::Term && remaining < self.grace;
        match running.stage {
            // A process that was just being forked may have escaped.
            Stage::Killed => running.kill(),
            _ if remaining.is_zero() => {
                running.stop_reason.get_or_insert(StopReason::Failing);
                running.kill();
            }
            Stage::Terminating { kill_at } if kill_at <= keeper::now() => running.kill(),
            Stage::Running if is_failing => {
                running.stop_reason.get_or_insert(StopReason::Failing);
                running.terminate(running.expires_at);
            }
            Stage::Running | Stage::Terminating { .. } => {}
        }
    }

    /// Returns how long no action is necessary.
    fn pause(&self, running: &Running) -> Duration {
        let now = keeper::now();
        let remaining = running.expires_at.saturating_sub(now);
        let pause = match running.stage {
            Stage::Killed => CHECK_INTERVAL,
            Stage::Terminating { kill_at } => kill_at.saturating_sub(now).min(remaining),
            Stage::Running => match self.on_lost {
                OnLost::Term => remaining.saturating_sub(self.grace),
                OnLost::Kill => remaining,
            },
        };
        let longest = if running.exit.is_some() {
            // The group may have members that are not our children.
            CHECK_INTERVAL
        } else {
            // The keeper gets the deadline several times before it expires.
            EXTEND_INTERVAL
                .min(self.grace / 4)
                .max(Duration::from_millis(5))
        };
        pause.clamp(Duration::from_millis(1), longest)
    }
}

impl Running {
    fn handle_children(&mut self) {
        for event in group::child_events() {
            match event {
                ChildEvent::Ended(process, exit) if process == self.group.leader() => {
                    self.exit = Some(exit);
                }
                ChildEvent::Ended(process, _)
                    if self.keeper.as_ref().map(|keeper| keeper.process) == Some(process) =>
                {
                    // From now on, its process id may belong to another process.
                    self.keeper = None;
                    self.extend_keeper();
                }
                ChildEvent::Stopped(process, signal) if process == self.group.leader() => {
                    self.handle_stop(process, signal);
                }
                // An orphan that the command has left behind, or one of its processes was stopped.
                ChildEvent::Ended(..) | ChildEvent::Stopped(..) => {}
            }
        }
    }

    /// Sends the deadline to the keeper. Without a keeper, each call tries to start one.
    fn extend_keeper(&mut self) {
        let deadline = Deadline {
            group: self.group,
            expires_at: self.expires_at,
        };
        if self.keeper.is_none() {
            match Keeper::start(Some(deadline)) {
                Ok(keeper) => self.keeper = Some(keeper),
                Err(failure) if !self.is_reported => {
                    self.is_reported = true;
                    failure.print(false);
                }
                Err(_) => {}
            }
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.extend(deadline);
        }
    }

    /// Handles a stop of the command, by a key (Ctrl-Z) or because the command uses the terminal.
    fn handle_stop(&self, leader: Pid, signal: Signal) {
        match signal {
            Signal::SIGTSTP => {
                eprintln!("distlock: a command under a lock cannot be suspended; it continues");
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU if terminal::lend(leader) => {
                self.group.signal(Signal::SIGCONT);
            }
            // It stays stopped, like a background job, or as the sender of the signal intends.
            _ => {}
        }
    }

    fn handle_signal(&self, event: Event) {
        match event {
            Event::ForCommand(signal) => self.group.signal(signal),
            // The shell has resumed this job, in the foreground or in the background.
            Event::Resumed => {
                terminal::lend(self.group.leader());
                self.group.signal(Signal::SIGCONT);
            }
            // Each round checks the children.
            Event::Child => {}
        }
    }

    /// Stops the command. No other client gets a revoked lock before it is released or expires,
    /// so there is some time left. A lock that was lost otherwise may already have another holder.
    fn handle_loss(&mut self, error: Error, on_lost: OnLost, grace: Duration) {
        let revoked = matches!(
            &error,
            Error::Lost {
                reason: LossReason::Revoked { .. },
                ..
            }
        );
        self.stop_reason = Some(StopReason::Lost(Box::new(error)));
        if !revoked || on_lost == OnLost::Kill {
            self.kill();
        } else if self.stage == Stage::Running {
            let kill_at = keeper::now().saturating_add(grace);
            self.terminate(kill_at.min(self.expires_at));
        }
    }

    fn terminate(&mut self, kill_at: Duration) {
        self.stage = Stage::Terminating { kill_at };
        self.group.stop(Signal::SIGTERM);
    }

    fn kill(&mut self) {
        self.stage = Stage::Killed;
        self.group.stop(Signal::SIGKILL);
    }
}

/// Returns the failure of a lock that was granted, but lost before it was confirmed.
pub(super) fn not_started(key: &str, error: &Error) -> Failure {
    let reason = reason(error);
    let text = format!(
        "lock `{key}` was lost before the command started: {reason}; the command did not run"
    );
    Failure::new(LOST, text).with_key(key)
}

/// Returns how a lock was lost, without the library's advice for code.
fn reason(error: &Error) -> String {
    match error {
        Error::Lost { reason, .. } => reason.to_string(),
        error => error.to_string(),
    }
}
