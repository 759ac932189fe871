//! What is taken back from the store when an owner id is given up: its lock, its place in a queue,
//! or an ask whose answer never came.

use std::time::Duration;

use crate::protocol::trouble::Trouble;
use crate::protocol::words::ReleaseReply;
use crate::util::backoff::Backoff;
use crate::util::clock::Moment;

/// The pause before what the store refused is tried again. It doubles each time, so that what is
/// always refused does not stand before others.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// How often a release that was answered is sent once more, at most.
const MOST_AGAIN: u32 = 3;

#[derive(Debug)]
pub(super) struct Leaving {
    /// How long the key stays taken, counted from `began`.
    keep: Duration,
    began: Moment,
    /// Until when the hold that ends with it was believed.
    believed_until: Option<Moment>,
    /// Until when the store keeps a place that it may have in the queue.
    place_until: Option<Moment>,
    /// An attempt may have been applied although nobody heard of it.
    was_unanswered: bool,
    /// How often it was sent once more after an answer.
    again: u32,
    backoff: Backoff,
}

/// What came of an attempt to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing of it is in the store.
    Done,
    /// The lock had not been ours any more, although it should have been.
    NotOurs,
    /// It is to be repeated then; nobody needs to wait for that.
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

    /// It ends a hold, after which the key stays taken for so long.
    pub(super) fn hold(self, keep: Duration, believed_until: Option<Moment>) -> Self {
        Leaving {
            keep,
            believed_until,
            ..self
        }
    }

    /// The store may have a place of it in the queue until then.
    pub(super) fn place(self, until: Moment) -> Self {
        Leaving {
            place_until: Some(until),
            ..self
        }
    }

    /// For how long the key is to be kept by a release that is sent now: a repeated one keeps it no
    /// longer.
    pub(super) fn keep(&self, now: Moment) -> Duration {
        self.keep.saturating_sub(now.since(self.began))
    }

    /// Whether all that it could have left is over by itself.
    pub(super) fn is_past(&self, ttl: Duration, now: Moment) -> bool {
        now >= self.began + ttl && self.place_until.is_none_or(|until| now >= until)
    }

    pub(super) fn answered(&mut self, answer: Result<ReleaseReply, Trouble>, now: Moment) -> Left {
        match answer {
            Ok(released) => {
                // A lock that was believed until now, and that the first release did not find, was
                // lost before. One whose lease may have ended meanwhile proves nothing.
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
                // Once the store is back, all are tried.
                if trouble.is_no_answer() {
                    return Left::Again(now);
                }
                Left::Again(now + self.backoff.pause())
            }
        }
    }
}
