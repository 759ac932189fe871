//! The back-off between attempts.

use std::time::Duration;

/// Pauses that double with every attempt, up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(initial: Duration, max: Duration) -> Self {
        Backoff {
            initial,
            max,
            next: initial,
        }
    }

    /// Returns the pause after the attempt that was just made.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }

    /// Returns the next pause without using it.
    pub(crate) fn peek_delay(&self) -> Duration {
        self.next
    }

    /// Starts again with the first pause, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.initial;
    }
}
