//! The release of an owner id: of its lock, its place in a queue, or an acquire without a reply.

use std::time::Duration;

use crate::protocol::trouble::Trouble;
use crate::protocol::words::ReleaseReply;
use crate::util::backoff::Backoff;
use crate::util::clock::Moment;

/// The pause before a refused release is retried. It doubles every time, so that a release that is
/// always refused does not hold up others.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Maximum number of times that an answered release is sent again.
const MOST_AGAIN: u32 = 3;

#[derive(Debug)]
pub(super) struct Leaving {
    /// How long the key stays taken, counted from `began`.
    keep: Duration,
    began: Moment,
    /// The safe deadline of the hold that ends with this release, if it was still valid.
    believed_until: Option<Moment>,
    /// Until when the store keeps the id's place in the queue, if it may have one.
    place_until: Option<Moment>,
    /// Set if a failed attempt may nevertheless have been applied.
    was_unanswered: bool,
    /// How often the release was sent again after a reply.
    again: u32,
    backoff: Backoff,
}

/// The result of an attempt to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The release is complete.
    Done,
    /// The lock was no longer this owner's, although its hold was valid (R30).
    NotOurs,
    /// The release is repeated at this time. No caller needs to wait for that.
    Again(Moment),
}

impl Leaving {
    pub(super) fn new(now: Moment) -> Self {
        Leaving {
            keep: Duration::ZERO,
            began: now,
            believed_until: None,
            place_until: None,
            was_unanswered: false,
            again: 0,
            backoff: BACKOFF,
        }
    }

    /// Sets how long the key stays taken, and the safe deadline of the hold that ends.
    pub(super) fn hold(self, keep: Duration, believed_until: Option<Moment>) -> Self {
        Leaving {
            keep,
            believed_until,
            ..self
        }
    }

    /// Sets until when the store may keep a place of the id in the queue.
    pub(super) fn place(self, until: Moment) -> Self {
        Leaving {
            place_until: Some(until),
            ..self
        }
    }

    /// Returns how long a release that is sent now keeps the key. A repeated one keeps it no longer
    /// than the first would have.
    pub(super) fn keep(&self, now: Moment) -> Duration {
        self.keep.saturating_sub(now.since(self.began))
    }

    /// Returns true if all that the id may have left in the store has expired.
    pub(super) fn is_past(&self, ttl: Duration, now: Moment) -> bool {
        now >= self.began + ttl && self.place_until.is_none_or(|until| now >= until)
    }

    pub(super) fn answered(&mut self, answer: Result<ReleaseReply, Trouble>, now: Moment) -> Left {
        match answer {
            Ok(released) => {
                // If the hold is still valid and the first release did not find its lock, the lock
                // was lost before. A hold that may have expired meanwhile proves nothing.
                let believed = self.believed_until.take().is_some_and(|until| now < until);
                if believed && !released.was_held && !self.was_unanswered {
                    return Left::NotOurs;
                }
                match released.again_after {
                    Some(after) if self.again < MOST_AGAIN => {
                        self.again += 1;
                        Left::Again(now + after)
                    }
                    _ => Left::Done,
                }
            }
            Err(trouble) => {
                self.was_unanswered |= !trouble.unsent;
                // All releases are retried once the store is back.
                if trouble.is_no_answer() {
                    return Left::Again(now);
                }
                Left::Again(now + self.backoff.pause())
            }
        }
    }
}
