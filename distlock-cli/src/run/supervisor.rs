//! Who has the lock and follows the command.
//!
//! The lock is believed for `remaining`, and each renewal extends that; what is left then, the
//! store keeps the lock for a while longer. So there are two moments: when less than the grace is
//! left the command gets SIGTERM, and when nothing is left SIGKILL. The lock is released when
//! nobody of the command's group is left, and not before.

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

/// The keeper is told how long the lock is believed this often, at least.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The store keeps a lock for at least this long after the moment until which it is believed.
const MIN_STORE_GRACE: Duration = Duration::from_millis(250);

/// A lock, and the command that runs under it.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) guard: LockGuard,
    pub(super) on_lost: OnLost,
    pub(super) grace: Duration,
    pub(super) signals: Signals,
}

/// A command of which no process is left.
#[derive(Debug)]
struct Gone {
    exit: Exit,
    why: Option<Why>,
    /// Another client may have had the lock before.
    is_late: bool,
}

/// How far the end of the command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Runs,
    /// It was sent SIGTERM, and is killed at this moment of the keeper's clock.
    Told {
        kill_at: Duration,
    },
    /// It was sent SIGKILL.
    Killed,
}

/// Why the command is stopped.
#[derive(Debug)]
enum Why {
    /// No renewal has succeeded for so long that less than the grace is left.
    Failing,
    Lost(Box<Error>),
}

/// A command that runs.
#[derive(Debug)]
struct Running {
    group: Group,
    /// `None` while there is none: it has ended, and could not be replaced yet.
    keeper: Option<Keeper>,
    /// It was told once that there is none.
    is_told_of: bool,
    /// How its first process has ended.
    exit: Option<Exit>,
    stage: Stage,
    why: Option<Why>,
    /// Until when the lock is believed, or was when that was asked last.
    until: Duration,
}

impl Supervisor {
    /// Runs the command, releases the lock, and tells how the command ended.
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
            // The renewals failed until it was lost, or this process was stopped before it could
            // kill the command.
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

    /// Until when the lock is believed, by the keeper's clock; never later than it really is.
    fn believed_until(&self) -> Duration {
        let now = keeper::now();
        now.saturating_add(self.guard.remaining())
    }

    /// Follows the command until nobody of its group is left.
    async fn follow(&mut self, mut running: Running) -> Gone {
        let held = self.guard.held();
        loop {
            running.hear_of_children();
            if let Some(exit) = running.exit {
                if running.group.is_gone() {
                    if exit == Exit::Signal(Signal::SIGKILL as i32) && !held.is_held() {
                        // The keeper was faster.
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
                // Others of its group have not ended.
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

    /// Stops the command if it is time to.
    fn judge(&self, running: &mut Running) {
        let left = running.until.saturating_sub(keeper::now());
        let is_failing = self.on_lost == OnLost::Signal && left < self.grace;
        match running.stage {
            // What was being forked then may have got away.
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

    /// How long nothing has to be done.
    fn pause(&self, running: &Running) -> Duration {
        let now = keeper::now();
        let left = running.until.saturating_sub(now);
        let pause = match running.stage {
            Stage::Killed => LOOK_EVERY,
            Stage::Told { kill_at } => kill_at.saturating_sub(now).min(left),
            Stage::Runs => match self.on_lost {
                OnLost::Signal => left.saturating_sub(self.grace),
                OnLost::Kill => left,
            },
        };
        let longest = if running.exit.is_some() {
            // Others than our children are in the group, perhaps.
            LOOK_EVERY
        } else {
            // The belief is told on at least ten times before it ends.
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
                    // Its number may be another's from now on.
                    self.keeper = None;
                    self.watch();
                }
                News::Stopped(process, signal) if process == self.group.leader() => {
                    self.stopped(process, signal);
                }
                // An orphan that the command has left behind, or one of its processes stands still.
                News::Ended(..) | News::Stopped(..) => {}
            }
        }
    }

    /// Sends the deadline to the keeper. Where there is none, each call tries to start another one.
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

    /// The command stands still by a key (Ctrl-Z), or because it wants the terminal.
    fn stopped(&self, leader: Pid, signal: Signal) {
        match signal {
            Signal::SIGTSTP => {
                eprintln!("distlock: a command under a lock is not put to sleep; it goes on");
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU if terminal::lend(leader) => {
                self.group.signal(Signal::SIGCONT);
            }
            // As a job in the background does, or as somebody wants it to.
            _ => {}
        }
    }

    fn heed(&self, event: Event) {
        match event {
            Event::ForCommand(signal) => self.group.signal(signal),
            // The shell has put this job into the foreground, or lets it go on in the background.
            Event::GoesOn => {
                terminal::lend(self.group.leader());
                self.group.signal(Signal::SIGCONT);
            }
            // It is looked at in each round.
            Event::Child => {}
        }
    }

    /// A lock that was taken away is nobody else's before it is released, or its time is over:
    /// there is some of it left. What was lost otherwise may be another's.
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

/// The failure of a lock that was granted, and lost before it was confirmed.
pub(super) fn not_started(key: &str, error: &Error) -> Failure {
    let reason = reason(error);
    let text = format!(
        "lock `{key}` was lost before the command started: {reason}; the command did not run"
    );
    Failure::new(LOST, text).about(key)
}

/// How a lock was lost, without what the library advises to code.
fn reason(error: &Error) -> String {
    match error {
        Error::Lost { reason, .. } => reason.to_string(),
        error => error.to_string(),
    }
}
