//! What this process is told by signals.

use std::io;

use nix::sys::signal;
use tokio::signal::unix::{Signal, SignalKind, signal as listen};

use crate::run::group::Exit;

/// What a signal means here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A child has ended, or stands still.
    Child,
    /// This process, which stood still, goes on.
    GoesOn,
    /// It is meant for the command.
    ForCommand(signal::Signal),
}

/// The signals that this process listens to, from the moment on in which this was made.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
    child: Signal,
    goes_on: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            user1: listen(SignalKind::user_defined1())?,
            user2: listen(SignalKind::user_defined2())?,
            child: listen(SignalKind::child())?,
            goes_on: listen(SignalKind::from_raw(signal::Signal::SIGCONT as i32))?,
        })
    }

    /// What comes next.
    ///
    /// # Cancel safety
    ///
    /// No signal is lost by dropping the future.
    pub(super) async fn next(&mut self) -> Event {
        Event::ForCommand(tokio::select! {
            _ = self.child.recv() => return Event::Child,
            _ = self.goes_on.recv() => return Event::GoesOn,
            _ = self.interrupt.recv() => signal::Signal::SIGINT,
            _ = self.terminate.recv() => signal::Signal::SIGTERM,
            _ = self.hang_up.recv() => signal::Signal::SIGHUP,
            _ = self.quit.recv() => signal::Signal::SIGQUIT,
            _ = self.user1.recv() => signal::Signal::SIGUSR1,
            _ = self.user2.recv() => signal::Signal::SIGUSR2,
        })
    }

    /// How this process is to end, once it is told to while there is no command.
    pub(super) async fn ending(&mut self) -> Exit {
        loop {
            if let Event::ForCommand(signal) = self.next().await {
                return Exit::Signal(signal as i32);
            }
        }
    }
}
