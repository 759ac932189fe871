//! The signals that this process receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal;
use tokio::signal::unix::{Signal, SignalKind, signal as listen};

use crate::run::group::Exit;

/// The signals that are forwarded to the command.
const FORWARDED: [signal::Signal; 6] = [
    signal::Signal::SIGINT,
    signal::Signal::SIGTERM,
    signal::Signal::SIGHUP,
    signal::Signal::SIGQUIT,
    signal::Signal::SIGUSR1,
    signal::Signal::SIGUSR2,
];

/// The meaning of a signal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A child has ended, or was stopped.
    Child,
    /// This process was stopped, and has been resumed.
    Resumed,
    /// The signal is for the command.
    ForCommand(signal::Signal),
}

/// The signals that this process listens for, from the creation of this value on.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, Event)>);

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let own = [
            (signal::Signal::SIGCHLD, Event::Child),
            (signal::Signal::SIGCONT, Event::Resumed),
        ];
        let forwarded = FORWARDED.map(|signal| (signal, Event::ForCommand(signal)));
        let signals = own.into_iter().chain(forwarded).map(|(signal, event)| {
            let kind = SignalKind::from_raw(signal as i32);
            Ok((listen(kind)?, event))
        });
        Ok(Signals(signals.collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            let received = signals.position(|(signal, _)| signal.poll_recv(context).is_ready());
            received.map_or(Poll::Pending, |place| Poll::Ready(self.0[place].1))
        })
        .await
    }

    /// Waits for a signal that ends this process while there is no command.
    pub(super) async fn ending(&mut self) -> Exit {
        loop {
            if let Event::ForCommand(signal) = self.next().await {
                return Exit::Signal(signal as i32);
            }
        }
    }
}
