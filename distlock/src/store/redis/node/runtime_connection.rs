//! Runtime connections: connections on the callers' runtimes, which save the hop to the I/O thread.
//! A call on one needs no timer, because the I/O thread checks the commands in flight and notifies
//! the callers of late ones.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::protocol::messages::OwnerNumber;
use crate::store::redis::conn::session::Session;
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// Upper limit of commands in flight on one runtime connection; others use the I/O thread.
const MAX_IN_FLIGHT: usize = 1_024;

/// Age of an unanswered command at which its connection accepts no more commands.
const MAX_REPLY_DELAY: Duration = Duration::from_millis(100);

/// Minimum time that a caller gets to drop a timed-out command.
const MIN_CALLER_GRACE: Duration = Duration::from_millis(50);

/// A connection on a caller's runtime.
#[derive(Debug)]
pub(crate) struct RuntimeConnection {
    pub(crate) session: Session,
    pub(crate) number: u64,
    /// Generation of the command connection that receives the pushes for its acquires.
    command_generation: u64,
    in_flight: Mutex<CommandsInFlight>,
    waker: Arc<MonitorWaker>,
}

/// The commands in flight on a runtime connection.
#[derive(Debug)]
struct CommandsInFlight {
    commands: BTreeMap<u64, CommandInFlight>,
    last_number: u64,
    last_used: BootInstant,
    /// True once the I/O thread no longer monitors the connection.
    is_abandoned: bool,
}

/// A command in flight.
#[derive(Debug)]
struct CommandInFlight {
    owner: OwnerNumber,
    sent_at: BootInstant,
    timeout: Duration,
    /// Instant since which the command counts as late.
    late_since: Option<BootInstant>,
    /// True once the command was reported as stalled.
    is_reported: bool,
    caller: Option<Waker>,
}

/// The result of a check of a runtime connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    InUse,
    /// Unused since this instant.
    Idle(BootInstant),
    /// Commands are far past their deadlines. Their callers were notified and are stalled, because
    /// otherwise they would have stopped waiting.
    Stalled,
}

impl RuntimeConnection {
    pub(crate) fn new(
        session: Session,
        number: u64,
        command_generation: u64,
        waker: Arc<MonitorWaker>,
        now: BootInstant,
    ) -> Self {
        RuntimeConnection {
            session,
            number,
            command_generation,
            in_flight: Mutex::new(CommandsInFlight::new(now)),
            waker,
        }
    }

    /// Returns true if the session is up and belongs to this generation of the command connection.
    pub(crate) fn serves(&self, command_generation: u64) -> bool {
        self.command_generation == command_generation && !self.session.end.is_set()
    }

    /// Returns true if the connection has capacity and its replies are on time.
    pub(crate) fn has_capacity(&self, now: BootInstant) -> bool {
        lock(&self.in_flight).has_capacity(now)
    }

    /// Waits for a reply on this connection. Returns `None` if it does not arrive in time.
    pub(crate) async fn wait_for_reply<T>(
        &self,
        owner: OwnerNumber,
        sent_at: BootInstant,
        timeout: Duration,
        reply: impl Future<Output = T>,
    ) -> Option<T> {
        let number = lock(&self.in_flight).start(owner, sent_at, timeout);
        self.waker.wake();
        let command = InFlightGuard {
            connection: self,
            number,
        };
        let mut reply = pin!(reply);
        poll_fn(|context| match reply.as_mut().poll(context) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending => command.poll_late(context).map(|()| None),
        })
        .await
    }

    /// Marks all unanswered commands, now and later, as late, because monitoring ends.
    pub(crate) fn abandon(&self) {
        let callers = lock(&self.in_flight).abandon();
        callers.into_iter().for_each(Waker::wake);
    }

    /// Notifies the callers of late commands, and returns the connection's state.
    pub(crate) fn check(&self, now: BootInstant) -> ConnectionState {
        let mut in_flight = lock(&self.in_flight);
        let last_used = in_flight.last_used;
        let mut late = Vec::new();
        let mut state = ConnectionState::Idle(last_used);
        for command in in_flight
            .commands
            .values_mut()
            .filter(|command| !command.is_reported)
        {
            if state != ConnectionState::Stalled {
                state = if command.is_stalled(now) {
                    ConnectionState::Stalled
                } else {
                    ConnectionState::InUse
                };
            }
            if command.late_since.is_none() && now >= command.sent_at + command.timeout {
                command.late_since = Some(now);
                late.extend(command.caller.take());
            }
        }
        drop(in_flight);
        late.into_iter().for_each(Waker::wake);
        state
    }

    /// Returns the owners of stalled commands, once for every command.
    pub(crate) fn take_stalled(&self, now: BootInstant) -> Vec<OwnerNumber> {
        let mut in_flight = lock(&self.in_flight);
        let commands = in_flight.commands.values_mut();
        let stalled = commands.filter(|command| !command.is_reported && command.is_stalled(now));
        stalled
            .map(|command| {
                command.is_reported = true;
                command.owner
            })
            .collect()
    }
}

impl CommandsInFlight {
    fn new(now: BootInstant) -> Self {
        CommandsInFlight {
            commands: BTreeMap::new(),
            last_number: 0,
            last_used: now,
            is_abandoned: false,
        }
    }

    /// Records a command that is sent, and returns its number.
    fn start(&mut self, owner: OwnerNumber, sent_at: BootInstant, timeout: Duration) -> u64 {
        self.last_number += 1;
        self.last_used = sent_at;
        let command = CommandInFlight {
            owner,
            sent_at,
            timeout,
            late_since: self.is_abandoned.then_some(sent_at),
            is_reported: false,
            caller: None,
        };
        self.commands.insert(self.last_number, command);
        self.last_number
    }

    /// Marks current and later commands as late. Returns the wakers of the current callers.
    fn abandon(&mut self) -> Vec<Waker> {
        self.is_abandoned = true;
        let late = self.commands.values_mut().map(|command| {
            command.late_since = Some(command.sent_at);
            command.caller.take()
        });
        late.flatten().collect()
    }

    /// Returns true if fewer than `MAX_IN_FLIGHT` are in flight, and the oldest is not late.
    fn has_capacity(&self, now: BootInstant) -> bool {
        let oldest = self.commands.first_key_value();
        self.commands.len() < MAX_IN_FLIGHT
            && oldest.is_none_or(|(_, command)| now < command.sent_at + MAX_REPLY_DELAY)
    }
}

impl CommandInFlight {
    /// Returns true if the caller had time to leave after the command became late.
    fn is_stalled(&self, now: BootInstant) -> bool {
        let grace = self.timeout.max(MIN_CALLER_GRACE);
        self.late_since.is_some_and(|since| now >= since + grace)
    }
}

/// A command in flight, for which a caller waits.
struct InFlightGuard<'a> {
    connection: &'a RuntimeConnection,
    number: u64,
}

impl InFlightGuard<'_> {
    /// Returns `Ready` once the command is late.
    fn poll_late(&self, context: &Context<'_>) -> Poll<()> {
        let mut in_flight = lock(&self.connection.in_flight);
        match in_flight.commands.get_mut(&self.number) {
            Some(command) if command.late_since.is_none() => {
                command.caller = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        lock(&self.connection.in_flight)
            .commands
            .remove(&self.number);
    }
}

/// The wake-up of the task that monitors runtime connections, which sleeps while they are unused.
#[derive(Debug, Default)]
pub(crate) struct MonitorWaker {
    pub(crate) is_asleep: AtomicBool,
    pub(crate) used: Notify,
}

impl MonitorWaker {
    /// Wakes the task. Called after the change that it has to find.
    pub(crate) fn wake(&self) {
        if self.is_asleep.load(Ordering::Acquire) && self.is_asleep.swap(false, Ordering::AcqRel) {
            self.used.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_an_overdue_reply_accepts_no_commands() {
        let (now, long_ago) = (BootInstant(0) + MAX_REPLY_DELAY, BootInstant(0));
        let has_capacity = |sent_at: &[BootInstant]| {
            let mut in_flight = CommandsInFlight::new(now);
            for sent_at in sent_at {
                in_flight.start(1, *sent_at, Duration::from_secs(1));
            }
            in_flight.has_capacity(now)
        };
        assert!(has_capacity(&[]) && has_capacity(&[BootInstant(1), now]));
        assert!(!has_capacity(&[long_ago]) && !has_capacity(&[long_ago, now]));
        assert!(has_capacity(&[now; MAX_IN_FLIGHT - 1]) && !has_capacity(&[now; MAX_IN_FLIGHT]));
    }

    /// No timer covers them any longer, so a caller that waited for a reply would wait forever.
    #[test]
    fn commands_on_an_abandoned_connection_are_late_at_once() {
        let (now, long) = (BootInstant(1), Duration::from_secs(1));
        let mut in_flight = CommandsInFlight::new(now);
        let before = in_flight.start(1, now, long);
        in_flight.commands.get_mut(&before).unwrap().caller = Some(Waker::noop().clone());
        assert_eq!(in_flight.abandon().len(), 1);
        let after = in_flight.start(2, now, long);
        for number in [before, after] {
            assert_eq!(in_flight.commands[&number].late_since, Some(now));
        }
    }
}
