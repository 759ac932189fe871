//! The pauses between attempts.

use std::time::Duration;

/// Pauses, each twice as long as the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Backoff {
            first,
            longest,
            next: first,
        }
    }

    /// The pause after the attempt that was just made.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// The next pause, which stays the next one.
    pub(crate) fn peek(&self) -> Duration {
        self.next
    }

    /// After a success: the next pause is the first one.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}
