//! Holds the lock and follows the command.
//!
//! The lock is valid for `remaining`, and each renewal extends that time. The store keeps the lock
//! for a while longer. The command gets SIGTERM when less than the grace is left, and SIGKILL when
//! nothing is left. The lock is released only once no process of the command's group is left.

use std::ffi::OsString;
use std::time::Duration;

use distlock::{Error, LockGuard, LossReason};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::cli::OnLost;
use crate::exit::{Failure, LOST};
use crate::run::group::{self, Exit, Group, LOOK_EVERY, News};
use crate::run::keeper::{self, Deadline, Keeper};
use crate::run::signals::{Event, Signals};
use crate::run::{program, terminal};

/// Maximum interval at which the keeper gets the lock's deadline.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The store keeps a lock for at least this long after the lock's safe deadline.
const MIN_STORE_GRACE: Duration = Duration::from_millis(250);

/// A lock, and the command that runs under it.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) guard: LockGuard,
    pub(super) on_lost: OnLost,
    pub(super) grace: Duration,
    pub(super) signals: Signals,
}

/// A command without remaining processes.
#[derive(Debug)]
struct Gone {
    exit: Exit,
    why: Option<Why>,
    /// Another client may have had the lock before the command ended.
    is_late: bool,
}

/// The progress of stopping the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Runs,
    /// SIGTERM was sent. SIGKILL follows at this time of the keeper's clock.
    Told {
        kill_at: Duration,
    },
    /// SIGKILL was sent.
    Killed,
}

/// Why the command is stopped.
#[derive(Debug)]
enum Why {
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
    is_told_of: bool,
    /// The exit of the command's first process.
    exit: Option<Exit>,
    stage: Stage,
    why: Option<Why>,
    /// The time until which the lock is valid, or was at the last check.
    until: Duration,
}

impl Supervisor {
    /// Runs the command, releases the lock, and returns how the command ended.
    pub(super) async fn run(mut self, command: &[OsString]) -> Result<Exit, Failure> {
        let key = self.guard.key().to_owned();
        let running = match self.start(command, &key) {
            Ok(running) => running,
            Err(failure) => {
                let _ = self.guard.release().await;
                return Err(failure.about(key));
            }
        };
        let Gone { exit, why, is_late } = self.follow(running).await;
        let token = self.guard.fencing_token();
        let ended = self.guard.release().await.err();
        let lost = |text: String| {
            let text = format!("lock `{key}` {text} (fencing token {token})");
            Err(Failure::new(LOST, text).about(&key))
        };
        let stopped = |error: &Error| {
            let consequence = if is_late {
                "the command was stopped only afterwards, and another holder may have run at the same time, so check \
                 what it did"
            } else {
                "the command was stopped, so check for what it left half done"
            };
            lost(format!("was lost: {}; {consequence}", reason(error)))
        };
        match (why, ended) {
            (Some(Why::Lost(error)), _) => stopped(&error),
            // The renewals failed until the lock was lost, or this process was stopped before it
            // could kill the command.
            (Some(Why::Failing), Some(error)) => stopped(&error),
            (Some(Why::Failing), None) => lost(
                "was about to be lost, for its lease could not be renewed; the command was stopped before another could \
                 have the lock, so check for what it left half done, and whether the store can be reached"
                    .into(),
            ),
            (None, Some(error)) => lost(format!(
                "was lost before the command ended (with code {}): {}; another holder may have run at the same time, so \
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
        let until = self.believed_until();
        keeper.extend(Deadline { group, until });
        Ok(Running {
            group,
            keeper: Some(keeper),
            is_told_of: false,
            exit: None,
            stage: Stage::Runs,
            why: None,
            until,
        })
    }

    /// Returns the lock's deadline by the keeper's clock, which is never later than the real one.
    fn believed_until(&self) -> Duration {
        let now = keeper::now();
        now.saturating_add(self.guard.remaining())
    }

    /// Follows the command until no process of its group is left.
    async fn follow(&mut self, mut running: Running) -> Gone {
        let held = self.guard.held();
        loop {
            running.hear_of_children();
            if let Some(exit) = running.exit {
                if running.group.is_gone() {
                    if exit == Exit::Signal(Signal::SIGKILL as i32) && !held.is_held() {
                        // The keeper has already killed the command.
                        let error = held.lost().await;
                        running.why.get_or_insert(Why::Lost(error.into()));
                    }
                    if let Some(keeper) = running.keeper.take() {
                        keeper.end();
                    }
                    terminal::take_back(running.group.leader());
                    return Gone {
                        exit,
                        why: running.why,
                        is_late: keeper::now() > running.until.saturating_add(MIN_STORE_GRACE),
                    };
                }
                // Other processes of the group have not ended.
                if running.stage == Stage::Runs {
                    running.terminate(keeper::now().saturating_add(self.grace));
                }
            }
            if held.is_held() {
                running.until = self.believed_until();
                running.watch();
            }
            self.judge(&mut running);
            let pause = self.pause(&running);
            tokio::select! {
                event = self.signals.next() => running.heed(event),
                error = held.lost(), if !matches!(running.why, Some(Why::Lost(_))) => {
                    running.lose(error, self.on_lost, self.grace);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Stops the command if a deadline requires it.
    fn judge(&self, running: &mut Running) {
        let left = running.until.saturating_sub(keeper::now());
        let is_failing = self.on_lost == OnLost::Term && left < self.grace;
        match running.stage {
            // A process that was just being forked may have escaped.
            Stage::Killed => running.kill(),
            _ if left.is_zero() => {
                running.why.get_or_insert(Why::Failing);
                running.kill();
            }
            Stage::Told { kill_at } if kill_at <= keeper::now() => running.kill(),
            Stage::Runs if is_failing => {
                running.why.get_or_insert(Why::Failing);
                running.terminate(running.until);
            }
            Stage::Runs | Stage::Told { .. } => {}
        }
    }

    /// Returns how long no action is necessary.
    fn pause(&self, running: &Running) -> Duration {
        let now = keeper::now();
        let left = running.until.saturating_sub(now);
        let pause = match running.stage {
            Stage::Killed => LOOK_EVERY,
            Stage::Told { kill_at } => kill_at.saturating_sub(now).min(left),
            Stage::Runs => match self.on_lost {
                OnLost::Term => left.saturating_sub(self.grace),
                OnLost::Kill => left,
            },
        };
        let longest = if running.exit.is_some() {
            // The group may have members that are not our children.
            LOOK_EVERY
        } else {
            // The keeper gets the deadline several times before it expires.
            TELL_EVERY.min(self.grace / 4).max(Duration::from_millis(5))
        };
        pause.clamp(Duration::from_millis(1), longest)
    }
}

impl Running {
    fn hear_of_children(&mut self) {
        for news in group::news() {
            match news {
                News::Ended(process, exit) if process == self.group.leader() => {
                    self.exit = Some(exit);
                }
                News::Ended(process, _)
                    if self.keeper.as_ref().map(|keeper| keeper.process) == Some(process) =>
                {
                    // From now on, its process id may belong to another process.
                    self.keeper = None;
                    self.watch();
                }
                News::Stopped(process, signal) if process == self.group.leader() => {
                    self.stopped(process, signal);
                }
                // An orphan that the command has left behind, or one of its processes was stopped.
                News::Ended(..) | News::Stopped(..) => {}
            }
        }
    }

    /// Sends the deadline to the keeper. Without a keeper, each call tries to start one.
    fn watch(&mut self) {
        let deadline = Deadline {
            group: self.group,
            until: self.until,
        };
        if self.keeper.is_none() {
            match Keeper::start(Some(deadline)) {
                Ok(keeper) => self.keeper = Some(keeper),
                Err(failure) if !self.is_told_of => {
                    self.is_told_of = true;
                    failure.tell(false);
                }
                Err(_) => {}
            }
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.extend(deadline);
        }
    }

    /// Handles a stop of the command, by a key (Ctrl-Z) or because the command uses the terminal.
    fn stopped(&self, leader: Pid, signal: Signal) {
        match signal {
            Signal::SIGTSTP => {
                eprintln!("distlock: a command under a lock is not put to sleep; it goes on");
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU if terminal::lend(leader) => {
                self.group.signal(Signal::SIGCONT);
            }
            // It stays stopped, like a background job, or as the sender of the signal intends.
            _ => {}
        }
    }

    fn heed(&self, event: Event) {
        match event {
            Event::ForCommand(signal) => self.group.signal(signal),
            // The shell has resumed this job, in the foreground or in the background.
            Event::GoesOn => {
                terminal::lend(self.group.leader());
                self.group.signal(Signal::SIGCONT);
            }
            // Each round checks the children.
            Event::Child => {}
        }
    }

    /// Stops the command. No other client gets a revoked lock before it is released or expires,
    /// so there is some time left. A lock that was lost otherwise may already have another holder.
    fn lose(&mut self, error: Error, on_lost: OnLost, grace: Duration) {
        let revoked = matches!(
            &error,
            Error::Lost {
                reason: LossReason::Revoked { .. },
                ..
            }
        );
        self.why = Some(Why::Lost(Box::new(error)));
        if !revoked || on_lost == OnLost::Kill {
            self.kill();
        } else if self.stage == Stage::Runs {
            let kill_at = keeper::now().saturating_add(grace);
            self.terminate(kill_at.min(self.until));
        }
    }

    fn terminate(&mut self, kill_at: Duration) {
        self.stage = Stage::Told { kill_at };
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
    Failure::new(LOST, text).about(key)
}

/// Returns how a lock was lost, without the library's advice for code.
fn reason(error: &Error) -> String {
    match error {
        Error::Lost { reason, .. } => reason.to_string(),
        error => error.to_string(),
    }
}
