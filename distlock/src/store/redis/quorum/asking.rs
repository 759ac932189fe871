//! Acquires a lock: requests the votes, and waits until the nodes have decided.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply};
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::ballot::{Ballot, Count};
use crate::store::redis::quorum::candidate::Elected;
use crate::store::redis::quorum::verbs::{Asks, Seen};
use crate::util::mutex::lock;

/// How long a failed acquire waits for its release to finish. In an outage the caller gets the
/// error before the release has finished.
const PATIENCE: Duration = Duration::from_millis(100);

impl Quorum {
    pub(super) async fn ask(
        self: &Arc<Self>,
        ask: Ask<'_>,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        let polls = &self.polls;
        let Some(newest) = polls.members.newest() else {
            return Err(polls.members.unusable(timeout));
        };
        let wait_until = polls.clock.now() + ask.wait;
        let ballot = {
            let mut table = lock(&self.table);
            match table.by_call.get(&ask.owner) {
                Some(ballot) => ballot.clone(),
                None => {
                    table.last_ticket = newest.max(table.last_ticket + 1);
                    let asks = Asks {
                        key: ask.key.clone(),
                        owner: self.random.next(),
                        ticket: table.last_ticket,
                        timing: ask.timing,
                    };
                    table.calls.insert(asks.owner, ask.owner);
                    let ballot = Ballot::new(polls, ask.owner, asks, wait_until);
                    table.by_call.insert(ask.owner, ballot.clone());
                    ballot
                }
            }
        };
        ballot.asks(wait_until);
        ballot.pump(polls);
        let decided = self.decide(&ballot, &ask, timeout).await;
        let leaves = !matches!(decided, Ok(AskReply::Held(_) | AskReply::Queued(_)));
        if leaves {
            ballot.end();
            let (quorum, leaving) = (self.clone(), ballot.clone());
            let leaving =
                async move { drop(quorum.take_back(&leaving, Duration::ZERO, timeout).await) };
            let _ = tokio::time::timeout(PATIENCE, polls.spawn(leaving)).await;
            // A background task releases what is still stored. The caller may acquire again, with a
            // new owner id.
            self.forget(&ballot);
        }
        decided
    }

    /// Returns a hold with the requested lease. A hold that was handed on during the acquire is
    /// short, so it must be confirmed first.
    async fn whole(
        self: &Arc<Self>,
        ballot: &Ballot,
        elected: Elected,
        within: Duration,
    ) -> Result<AskReply, Trouble> {
        let asks = &ballot.asks;
        if elected.lease >= asks.timing.lease {
            return Ok(AskReply::Held(elected.proof()));
        }
        let confirm = || self.confirm(asks.clone(), elected.token, within);
        // A failure puts the caller at the end of the queue, so one lost response is retried.
        let proof = match confirm().await {
            Err(_) => confirm().await?,
            Ok(proof) => proof,
        };
        proof.map(AskReply::Held).ok_or_else(|| {
            Trouble::new(
                Outage::NotReady,
                "it was handed on, and expired before that was known",
            )
        })
    }

    /// Waits until the votes are decided.
    async fn decide(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        ask: &Ask<'_>,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        let (polls, quorum) = (&self.polls, self.polls.members.quorum);
        // Covers the votes and their confirmation.
        let limit = timeout * 2;
        let end = tokio::time::sleep(if ask.wait.is_zero() {
            limit
        } else {
            limit.min(ask.wait)
        });
        tokio::pin!(end);
        let mut is_late = false;
        loop {
            let changed = ballot.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let count = ballot.count();
            if let Count::Elected(elected) = count {
                return self.whole(ballot, elected, timeout).await;
            }
            if let Count::CutOff = count {
                return Err(polls.members.unusable(timeout));
            }
            if let Some(obstacle) = ballot.obstacle(quorum) {
                let (occupant, _) = ballot.occupied(quorum);
                return match obstacle {
                    Seen::Foreign(detail) => Ok(AskReply::Foreign(detail)),
                    Seen::Full => Ok(AskReply::Full(occupant)),
                    Seen::NotVoting(left) => Err(Trouble::new(
                        Outage::NotReady,
                        format!(
                            "too few servers vote: they have just started, or lost their data, and may have forgotten a \
                             lock that is still held; a quorum votes in {:.1} s",
                            left.as_secs_f64()
                        ),
                    )),
                    Seen::Nothing | Seen::Occupied { .. } => Ok(AskReply::Busy(occupant)),
                };
            }
            let (occupant, is_taken) = ballot.occupied(quorum);
            if ask.wait.is_zero() {
                if is_taken || is_late && occupant.is_some() {
                    return Ok(AskReply::Busy(occupant));
                }
            } else if matches!(count, Count::Settled) && occupant.is_some() && ballot.enter_queue()
            {
                return Ok(AskReply::Queued(occupant));
            }
            if is_late {
                let trouble = ballot.trouble();
                return Err(trouble.unwrap_or_else(|| Trouble::timed_out(timeout)));
            }
            tokio::select! {
                () = changed => {}
                () = &mut end => is_late = true,
            }
        }
    }
}
